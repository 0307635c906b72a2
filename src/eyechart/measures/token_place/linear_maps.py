"""How well a linear map predicts targets from features, on images it was not fitted to: from sums alone.

Rows are (image, place) pairs; every image shows every place once. The sums of two halves of the images are enough to
fit on one half and to score on the other, in both directions, so images may be seen anywhere and in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

PENALTY = 1e-3
"""Ridge penalty, relative to the variance of each feature: tokens are many, so it only keeps the solution stable."""


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of one half of the images."""

    products: Array
    """Σ x xᵀ over images and places, (feature, other feature)."""
    cross: Array
    """Σ x yᵀ, (feature, target)."""
    squares: Array
    """Σ y², (target,)."""
    features: Array
    """Σ x over images, (place, feature)."""
    targets: Array
    """Σ y over images, (place, target)."""
    images: float


def explained(one: Sums, two: Sums, groups: int = 1) -> Array:
    """Share of the variance of the targets *at a place* that a linear map of the features predicts (R²).

    In each half the mean of every place is taken away first: what a picture's sky usually looks like is known from the
    place alone, and says nothing of this picture. Targets come in `groups` of equal size, each with an R² of its own.
    """
    return mean_of_both([within_places(half) for half in (one, two)], groups)


def place_explained(one: Sums, two: Sums, positions: Array) -> float:
    """R² of predicting where a token stands, (place, coordinate), from its features."""
    return float(mean_of_both([across_places(half, positions) for half in (one, two)], 1)[0])


def within_places(sums: Sums) -> tuple[Array, Array, Array]:
    means = sums.features / sums.images
    products = sums.products - sums.features.T @ means
    cross = sums.cross - means.T @ sums.targets
    squares = sums.squares - (sums.targets**2).sum(0) / sums.images
    return products, cross, squares


def across_places(sums: Sums, positions: Array) -> tuple[Array, Array, Array]:
    centred = positions - positions.mean(0)
    rows = sums.images * len(positions)
    total = sums.features.sum(0)
    products = sums.products - np.outer(total, total) / rows
    return products, sums.features.T @ centred, sums.images * (centred**2).sum(0)


def mean_of_both(halves: list[tuple[Array, Array, Array]], groups: int) -> Array:
    scores: Array = np.mean([score(*halves[fit], *halves[1 - fit], groups) for fit in (0, 1)], axis=0)
    return scores


def score(
    products: Array,
    cross: Array,
    squares: Array,
    other_products: Array,
    other_cross: Array,
    other_squares: Array,
    groups: int,
) -> Array:
    """R² on the second half of the map fitted to the first, over each group of targets; NaN if they never vary."""
    spread = np.diag(products)
    if not np.isfinite(spread).all() or spread.max() <= 0:
        return np.full(groups, np.nan)
    varying = spread > 1e-10 * spread.max()
    weights = np.zeros_like(cross)
    penalised = products[np.ix_(varying, varying)] + PENALTY * np.diag(spread[varying])
    weights[varying] = np.linalg.solve(penalised, cross[varying])
    gained = 2 * (weights * other_cross).sum(0) - (weights * (other_products @ weights)).sum(0)
    gained, spread_there = (values.reshape(groups, -1).sum(1) for values in (gained, other_squares))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: Array = np.where(spread_there > 0, gained / spread_there, np.nan)
    return shares
