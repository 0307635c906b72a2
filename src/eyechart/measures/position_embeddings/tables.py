"""Mathematics of position tables: are nearer places more alike, and those in one row or column more than others?

Pairs of places are weighted by the product of their places' weights, so that places can be left out or drawn again:
that gives the intervals. Distances are in cells of the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

Lines = Literal["rows", "columns", "both"]

LARGEST_SIDE = 32  # of larger tables every second, third … row and column: all pairs of 64×64 places are 16 million


def thinned(table: np.ndarray) -> np.ndarray:
    """(channel, y, x) with at most 32 rows and columns, evenly spaced."""
    down, across = (-(-side // LARGEST_SIDE) for side in table.shape[1:])
    return table[:, ::down, ::across]


def thinned_grid(rows: int, columns: int) -> tuple[int, int]:
    """
    >>> thinned_grid(14, 64)
    (14, 32)
    """
    down, across = (-(-side // LARGEST_SIDE) for side in (rows, columns))
    return -(-rows // down), -(-columns // across)


def cosines(table: np.ndarray) -> np.ndarray:
    """Cosine of each place's vector with every other's, (place, other_place), places row by row. NaN for a zero one."""
    vectors = table.reshape(len(table), -1).T
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = vectors / lengths
    return np.asarray(unit @ unit.T)


@dataclass(frozen=True)
class Pairs:
    """All pairs of places of a grid, each once."""

    one: np.ndarray
    other: np.ndarray
    squared: np.ndarray
    """Distance squared: a whole number."""
    in_row: np.ndarray
    in_column: np.ndarray

    @property
    def in_line(self) -> np.ndarray:
        """In one row or one column."""
        return np.asarray(self.in_row | self.in_column)

    def along(self, lines: Lines) -> np.ndarray:
        return {"rows": self.in_row, "columns": self.in_column, "both": self.in_line}[lines]


@cache
def pairs_of(rows: int, columns: int) -> Pairs:
    one, other = np.triu_indices(rows * columns, k=1)
    down, across = np.abs(one // columns - other // columns), np.abs(one % columns - other % columns)
    return Pairs(one, other, down**2 + across**2, down == 0, across == 0)


def rank_correlation(values: np.ndarray, others: np.ndarray, weights: np.ndarray) -> float:
    """Spearman's, with weights: the correlation of mid-ranks. NaN where one of them does not vary.

    >>> round(rank_correlation(np.array([1.0, 5.0, 2.0]), np.array([0.0, 9.0, 3.0]), np.ones(3)), 6)
    1.0
    """
    counted = weights > 0
    values, others, weights = values[counted], others[counted], weights[counted]
    total = weights.sum()
    if not total > 0 or np.isnan(values).any():
        return float("nan")
    one, two = (ranks - (weights * ranks).sum() / total for ranks in (_ranks(values, weights), _ranks(others, weights)))
    size = np.sqrt((weights * one**2).sum() * (weights * two**2).sum())
    return float((weights * one * two).sum() / size) if size > 0 else float("nan")


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weight of what is smaller, and half of what is equal."""
    _, group = np.unique(values, return_inverse=True)
    mass = np.bincount(group, weights=weights)
    return np.asarray((mass.cumsum() - mass / 2)[group])


def nearness(cosine: np.ndarray, grid: tuple[int, int], weights: np.ndarray) -> float:
    """Spearman of cosine with minus distance, over all pairs of places."""
    pairs = pairs_of(*grid)
    weight = weights[pairs.one] * weights[pairs.other]
    return rank_correlation(cosine[pairs.one, pairs.other], -pairs.squared.astype(float), weight)


def in_line_and_aside(
    cosine: np.ndarray, grid: tuple[int, int], weights: np.ndarray, lines: Lines = "both"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean cosine of pairs 1, 2, 3 … cells apart in one row or column; others as far apart; the weight of the former.

    `lines` looks along rows or columns alone; the others are those in neither.

    Few others are exactly as far apart (3, 4 → 5), so theirs is read off the straight line between the next nearer and
    the next farther ones, over the *squared* distance. Likeness that depends on distance alone is in every dimension a
    mixture of Gaussians, convex in the squared distance, so the line lies above it and never favours rows and columns.
    No others are as near as one cell: NaN there.
    """
    pairs = pairs_of(*grid)
    weight = weights[pairs.one] * weights[pairs.other]
    values = cosine[pairs.one, pairs.other]
    far = max(grid) - 1
    aside = ~pairs.in_line
    mass, total = (
        np.bincount(pairs.squared[aside], weights=each[aside])
        for each in (weight, np.where(weight > 0, weight * values, 0))
    )
    distances = np.flatnonzero(mass > 0)
    steps = np.arange(1, far + 1)
    others = np.full(far, np.nan)
    if len(distances):
        inside = (steps**2 >= distances[0]) & (steps**2 <= distances[-1])
        others[inside] = np.interp(steps[inside] ** 2, distances, total[distances] / mass[distances])
    chosen = pairs.along(lines)
    line = np.sqrt(pairs.squared[chosen]).round().astype(int)
    mass, total = (
        np.bincount(line, weights=each[chosen], minlength=far + 1)[1:]
        for each in (weight, np.where(weight > 0, weight * values, 0))
    )
    return total / np.where(mass > 0, mass, np.nan), others, mass


def row_and_column_bonus(in_line: np.ndarray, aside: np.ndarray, weight: np.ndarray) -> float:
    """Mean over pairs in one row or column, two cells apart or more, of how much more alike they are than others."""
    comparable = (weight > 0) & np.isfinite(aside)
    if not comparable.any():
        return float("nan")
    return float((weight * (in_line - aside))[comparable].sum() / weight[comparable].sum())


def step_lengths(rows: int, columns: int) -> np.ndarray:
    """Length of every step of a table of steps, (down, across), whose middle is no step."""
    down, across = np.arange(rows) - rows // 2, np.arange(columns) - columns // 2
    return np.asarray(np.hypot(down[:, None], across[None]))


def step_nearness(table: np.ndarray, with_itself: bool = True) -> np.ndarray:
    """Spearman of each head's value with minus the length of the step, (head,), of a table (head, down, across)."""
    lengths = step_lengths(*table.shape[1:]).ravel()
    chosen = (lengths > 0) | with_itself
    correlations = []
    for head in table.reshape(len(table), -1):
        finite = chosen & np.isfinite(head)
        correlations.append(rank_correlation(head[finite], -lengths[finite], np.ones(int(finite.sum()))))
    return np.array(correlations)


def likeness_of_steps(vectors: np.ndarray) -> np.ndarray:
    """Cosine of each step's vector with that of no step, (1, down, across), of (channel, down, across)."""
    middle = vectors[:, vectors.shape[1] // 2, vectors.shape[2] // 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.einsum("cyx,c->yx", vectors, middle) / (np.linalg.norm(vectors, axis=0) * np.linalg.norm(middle))
    return np.asarray(cosine[None])
