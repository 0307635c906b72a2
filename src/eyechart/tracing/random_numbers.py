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
    >>> with seeded(7):
    ...     bool(first == torch.rand(1))
    True
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
