"""Ray, connected to a cluster; imported only where somebody asked for it."""

from __future__ import annotations

import logging
import os
from typing import Any

from eyechart.errors import EngineError, UsageError

RETRIES = 3
"""Further attempts at a task whose worker died. Ray itself counts those that its memory monitor kills apart, and tries
them for ever: an exam that does not fit would never end (8 kills in 100 s, and no answer)."""


def connected(address: str = "") -> Any:
    """The module `ray`, connected to this address, or to a cluster on this machine where there is none."""
    try:
        import ray
    except ImportError:
        raise UsageError("The engine ray needs Ray: pip install 'eyechart[ray]'.") from None
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))  # read by the driver when it connects
    if not ray.is_initialized():
        where: dict[str, Any] = {"address": address} if address else {"include_dashboard": False}
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineError(f"There is no Ray cluster at {address or 'this machine'}: {words}") from error
    return ray


def address_of(engine: str) -> str:
    """
    >>> address_of("ray"), address_of("ray:auto"), address_of("ray://head:10001")
    ('', 'auto', 'ray://head:10001')
    """
    address = engine.partition(":")[2]
    return engine if address.startswith("//") else address
