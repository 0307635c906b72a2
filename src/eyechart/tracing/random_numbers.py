"""Random numbers that are the same wherever and whenever a pass runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch draws from this seed; afterwards it goes on as if nothing had been drawn.

    >>> with seeded(7):
    ...     first = torch.rand(1)
    >>> between = torch.rand(1)
    >>> with seeded(7):
    ...     bool(first == torch.rand(1))
    True
    """
    with torch.random.fork_rng():
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:  # it would write down the whole stack three times, for devices that are not there: .3 ms a call
            torch.default_generator.manual_seed(seed)
        yield
