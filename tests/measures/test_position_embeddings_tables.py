"""Position tables whose answer is known, and the statistics of pairs against brute force."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import spearmanr

from eyechart.intervals import jackknife
from eyechart.measures.position_embeddings.measure import deal
from eyechart.measures.position_embeddings.tables import (
    cosines,
    in_line_and_aside,
    likeness_of_steps,
    nearness,
    rank_correlation,
    row_and_column_bonus,
    step_nearness,
    thinned,
    thinned_grid,
)


def sinusoids(side: int, width: int = 192) -> np.ndarray:
    """A sinusoidal 2-D table, (channel, y, x): half of the channels for the row, half for the column."""
    rates = 1 / 10000 ** (np.arange(width // 4) / (width // 4))
    angles = np.arange(side)[:, None] * rates
    line = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).T  # (channel, place)
    rows = np.broadcast_to(line[:, :, None], (width // 2, side, side))
    columns = np.broadcast_to(line[:, None, :], (width // 2, side, side))
    return np.concatenate([rows, columns])


def bonus(cosine: np.ndarray, grid: tuple[int, int], weights: np.ndarray | None = None) -> float:
    weights = np.ones(grid[0] * grid[1]) if weights is None else weights
    return row_and_column_bonus(*in_line_and_aside(cosine, grid, weights))


@pytest.mark.parametrize("side", [4, 6, 8])
def test_a_sinusoidal_table_is_monotone_along_rows_and_columns_and_goes_with_nearness(side: int) -> None:
    cosine = cosines(sinusoids(side)).reshape(side, side, side, side)
    for y in range(side):
        for x in range(side):
            right, down = cosine[y, x, y, x:], cosine[y, x, y:, x]
            assert (np.diff(right) < 0).all()
            assert (np.diff(down) < 0).all()
    flat = cosine.reshape(side**2, side**2)
    assert nearness(flat, (side, side), np.ones(side**2)) > 0.8
    assert bonus(flat, (side, side)) > 0


def test_rank_correlation_is_spearmans_and_weights_are_repetitions() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.integers(0, 9, 60).astype(float), rng.normal(size=60).round(1)
    assert rank_correlation(one, two, np.ones(60)) == pytest.approx(spearmanr(one, two).statistic)
    weights = rng.integers(0, 4, 60)
    repeated = spearmanr(np.repeat(one, weights), np.repeat(two, weights)).statistic
    assert rank_correlation(one, two, weights.astype(float)) == pytest.approx(repeated)


def test_nearness_and_bonus_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(1)
    height, width = 4, 5
    cosine = cosines(rng.normal(size=(6, height, width)))
    places = [(y, x) for y in range(height) for x in range(width)]
    values: list[float] = []
    distances: list[float] = []
    line: dict[int, list[float]] = {}
    aside: dict[int, list[float]] = {}
    for i, (y, x) in enumerate(places):
        for j, (v, u) in enumerate(places):
            if j > i:
                values.append(cosine[i, j])
                distances.append(math.hypot(y - v, x - u))
                squared = (y - v) ** 2 + (x - u) ** 2
                (line if y == v or x == u else aside).setdefault(squared, []).append(cosine[i, j])
    expected = spearmanr(values, -np.array(distances)).statistic
    assert nearness(cosine, (height, width), np.ones(20)) == pytest.approx(expected)
    known, far = sorted(aside), [squared for squared in line if squared > 1]
    others = np.interp(far, known, [np.mean(aside[squared]) for squared in known])
    above = np.concatenate([np.array(line[squared]) - other for squared, other in zip(far, others, strict=True)])
    assert bonus(cosine, (height, width)) == pytest.approx(above.mean())


def test_leaving_out_places_leaves_out_all_their_pairs() -> None:
    table = np.random.default_rng(2).normal(size=(6, 3, 4))
    weights = np.repeat([1.0, 1.0, 0.0], 4)  # the last row
    assert bonus(cosines(table), (3, 4), weights) == pytest.approx(bonus(cosines(table[:, :2]), (2, 4)))
    assert nearness(cosines(table), (3, 4), weights) == pytest.approx(
        nearness(cosines(table[:, :2]), (2, 4), np.ones(8))
    )


@pytest.mark.parametrize("length", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("kernel", [lambda d: np.exp(-(d**2) / 2), lambda d: np.exp(-d), lambda d: 1 / (1 + d**2)])
def test_likeness_that_depends_on_distance_alone_never_favours_rows(
    kernel: Callable[[np.ndarray], np.ndarray], length: float
) -> None:
    y, x = np.divmod(np.arange(64), 8)
    cosine = kernel(np.hypot(y[:, None] - y, x[:, None] - x) / length)
    assert bonus(cosine, (8, 8)) < 1e-12
    assert nearness(cosine, (8, 8), np.ones(64)) == pytest.approx(1)


def test_intervals_of_a_table_without_structure_hold_zero() -> None:
    """Coverage over 300 random tables, with patches left out as the measure does it."""
    rng = np.random.default_rng(3)
    folds = deal(64, 16)
    held = np.zeros(2)
    for _ in range(300):
        cosine = cosines(rng.normal(size=(160, 8, 8)))
        weights = [np.ones(64), *((folds != fold).astype(float) for fold in range(16))]
        found = np.array([[nearness(cosine, (8, 8), w), bonus(cosine, (8, 8), w)] for w in weights])
        low, high = jackknife(found[0], found[1:])
        held += (low <= 0) & (high >= 0)
    assert (held / 300 > 0.92).all(), held / 300


def test_large_tables_are_thinned_and_tables_of_zeros_are_unknown() -> None:
    assert thinned(np.zeros((2, 65, 20))).shape[1:] == thinned_grid(65, 20) == (22, 20)
    assert thinned_grid(32, 32) == (32, 32)
    assert np.isnan(nearness(cosines(np.zeros((4, 3, 3))), (3, 3), np.ones(9)))


def test_relative_tables() -> None:
    steps = np.hypot(np.arange(-3, 4)[:, None], np.arange(-3, 4)[None])
    table = np.stack([-steps, steps, np.where(steps > 3.5, np.nan, -steps)])
    np.testing.assert_allclose(step_nearness(table), [1, -1, 1])
    vectors = np.stack([np.cos(steps / 3), np.sin(steps / 3)])
    np.testing.assert_allclose(likeness_of_steps(vectors)[0], np.cos(steps / 3))
