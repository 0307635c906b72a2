"""Reading an estimate or finding subject by subject: its sites are one flat axis over all subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray


def subjects_in(estimate: xarray.Dataset, family: str | None = None) -> list[str]:
    """The subjects that have sites here, in the order of the exam; of one family (see `Anatomy.family`) or all."""
    chosen = slice(None) if family is None else estimate.family.values == family
    return list(dict.fromkeys(estimate.subject.values[chosen].tolist()))


def places_of(estimate: xarray.Dataset, subject: str, *roles: str) -> np.ndarray:
    """Positions of a subject's sites on the site axis, in execution order; of these roles or all."""
    mine = estimate.subject.values == subject
    return np.flatnonzero(mine & np.isin(estimate.role.values, roles) if roles else mine)


def thirds(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest third of some blocks, by the middle of each block's share of the depth.

    >>> thirds(np.arange(8))
    (array([0, 1, 2]), array([5, 6, 7]))
    """
    middle = (np.arange(len(places)) + 0.5) / len(places)
    return places[middle < 1 / 3], places[middle > 2 / 3]


def halves(values: np.ndarray) -> tuple[float, float]:
    """Means over the first and the second half of the blocks; a middle block is in neither.

    >>> halves(np.array([1.0, 3.0, 100.0, 5.0, 7.0]))
    (2.0, 6.0)
    """
    half = len(values) // 2
    return float(values[:half].mean()), float(values[-half:].mean())
