"""Exact binomial bounds: what a share of few things may still be where no draw of images moved it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv

if TYPE_CHECKING:
    import xarray

    from eyechart.quantity import Quantity

Array = np.ndarray[Any, np.dtype[np.float64]]
Limits = tuple[float | None, float | None]

CONFIDENCE = 0.95
ONE_SIDED = 0.05
"""Of a sign test."""
UNMOVED = 1e-9
"""An interval narrower than this has no width but that of rounding: no draw moved the number."""
HARDLY = 0.3
"""An interval narrower than this part of the bounds that a quantity has where no draw moved it is none either: one draw
of 250 that moves a maximum by a block gives .28 blocks."""


def within(limits: Limits, low: Array, high: Array) -> tuple[Array, Array]:
    """Both ends of an interval, cut at what is possible.

    >>> [float(end) for end in within((0, 1), np.array(0.65), np.array(1.18))]
    [0.65, 1.0]
    """
    floor, ceiling = (-np.inf if limits[0] is None else limits[0]), (np.inf if limits[1] is None else limits[1])
    return np.clip(low, floor, ceiling), np.clip(high, floor, ceiling)


def room_for(trials: float | Array) -> float | Array:
    """How far a share may lie from what all of so many trials say: the exact binomial bound, 2.5 % on each side.

    >>> print(f"{room_for(36):.3f}")
    0.097
    """
    slack: float | Array = 1 - ((1 - CONFIDENCE) / 2) ** (1 / np.maximum(trials, 1))
    return slack


def exact_ends(low: Array, high: Array, trials: float | Array) -> tuple[Array, Array]:
    """Ends of a share of few things: the exact binomial bounds, 5 % on each side, of the shares at the ends given.

    Above one half if and only if a sign test is clear, one-sided at 5 %: of five that agree, not of four.

    >>> [f"{exact_ends(np.array(1.0), np.array(1.0), trials)[0]:.3f}" for trials in (4, 5)]
    ['0.473', '0.549']
    """
    lowest, highest = (np.asarray(end, dtype=np.float64) * trials for end in (low, high))
    return (
        np.where(lowest > 0, betaincinv(np.maximum(lowest, 1e-9), trials - lowest + 1, ONE_SIDED), lowest),
        np.where(highest < trials, betaincinv(highest + 1, np.maximum(trials - highest, 1e-9), 1 - ONE_SIDED), high),
    )


def where_hardly_moved(
    value: Array, low: Array, high: Array, room: float | Array, limits: Limits
) -> tuple[Array, Array]:
    """A number that draws of images moved by less than they could have: as far to each side as `room` says.

    >>> ends = where_hardly_moved(np.array([0.01, 0.2]), np.array([0.01, 0.1]), np.array([0.01, 0.3]), 0.03, (0, 1))
    >>> [[f"{float(end):.2f}" for end in each] for each in ends]
    [['0.00', '0.10'], ['0.04', '0.30']]
    """
    still = high - low < np.maximum(UNMOVED, HARDLY * 2 * np.asarray(room))
    least, most = within(limits, value - room, value + room)
    return np.where(still, np.minimum(low, least), low), np.where(still, np.maximum(high, most), high)


def of_few_values(
    quantity: Quantity, estimate: xarray.Dataset, subjects: tuple[str, ...], low: Array, high: Array
) -> tuple[Array, Array]:
    """Bounds of a quantity that moves in steps, where it did not, and the cut at what is possible for its subjects.

    Cut first: how far an interval reaches beyond what is possible does not say that images moved the quantity.
    """
    ceiling = np.inf if quantity.ceiling is None else quantity.ceiling(estimate)[subjects]
    high = np.minimum(high, ceiling)
    if quantity.if_unmoved is not None:
        least, most = quantity.if_unmoved(estimate)[subjects]
        if high - low < max(UNMOVED, HARDLY * (most - least)):
            low, high = within(quantity.limits, np.minimum(low, least), np.maximum(high, most))
    if quantity.among is not None:
        low, high = exact_ends(low, high, quantity.among(estimate)[subjects])
    return low, np.minimum(high, ceiling)


def at_the_ends(value: Array, low: Array, high: Array, trials: float | Array) -> tuple[Array, Array]:
    """A share of exactly 0 or 1 has no spread between folds; the exact binomial bound says what it may still be."""
    slack = room_for(trials)
    return np.where(value == 1, 1 - slack, low), np.where(value == 0, slack, high)


def where_no_pair_moved(value: Array, low: Array, high: Array, pairs: float | Array) -> tuple[Array, Array]:
    """A difference of two shares of the same images, where none or all moved: no spread between folds, the same bound.

    >>> ends = where_no_pair_moved(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([0.0, 1.0]), 36)
    >>> [[f"{float(end):.3f}" for end in each] for each in ends]
    [['-0.097', '0.903'], ['0.097', '1.000']]
    """
    slack = room_for(pairs)
    alike = np.isin(value, (-1, 0, 1)) & (low == value) & (high == value)
    return np.where(alike, np.maximum(value - slack, -1), low), np.where(alike, np.minimum(value + slack, 1), high)
