"""Intervals over seeds hold the truth as often as they say, with few seeds, equal and unequal variances."""

import numpy as np
import pytest

from eyechart.studies.seeds import contrast_over_seeds, equal_variances, mean_over_seeds

WEIGHTS = {"a0": 1.0, "a1": -1.0, "a2": -1.0, "a3": 1.0}


def coverage(spreads: np.ndarray, seeds: int, draws: int = 1500) -> tuple[float, float]:
    """Share of intervals around a true contrast of 0, and how often the variance was pooled."""
    generator = np.random.default_rng(0)
    held = pooled = 0
    for _ in range(draws):
        values = {f"a{arm}": generator.normal(0, spread, seeds) for arm, spread in enumerate(spreads)}
        found = contrast_over_seeds(WEIGHTS, values, values)
        held += found.low <= 0 <= found.high
        pooled += found.pooled > 0
    return held / draws, pooled / draws


@pytest.mark.parametrize("seeds", [3, 5])
def test_pooled_intervals_cover_where_arms_vary_alike(seeds: int) -> None:
    held, pooled = coverage(np.ones(12), seeds)
    assert 0.93 <= held <= 0.97
    assert pooled > 0.8  # the two tests reject 5 and 10 % by chance


@pytest.mark.parametrize("seeds", [3, 5])
def test_arms_that_vary_unalike_keep_their_own_variance(seeds: int) -> None:
    held, pooled = coverage(np.geomspace(0.05, 20, 12), seeds)
    assert 0.92 <= held <= 0.985
    assert pooled < 0.05


def test_a_contrast_of_noisy_arms_among_quiet_ones_is_not_called_sure() -> None:
    spreads = np.full(20, 0.3)
    spreads[:4] = 1.0  # the arms of the contrast vary more than those it could be pooled with
    held, _ = coverage(spreads, 3)
    assert held >= 0.92


def test_pooling_makes_three_seeds_tell_more() -> None:
    generator = np.random.default_rng(1)
    values = {f"a{arm}": generator.normal(0, 1, 3) for arm in range(20)}
    together = contrast_over_seeds(WEIGHTS, values, values)
    alone = contrast_over_seeds(WEIGHTS, values, {})
    assert together.freedom == 40
    assert alone.freedom < 9
    assert together.pooled == 20


def test_one_or_two_seeds_have_no_interval() -> None:
    for count in (1, 2):
        found = mean_over_seeds(np.arange(count, dtype=float))
        assert np.isnan(found.low)
        assert found.seeds == count
        assert "no interval" in found.words


def test_bartletts_test_is_scipys() -> None:
    from scipy.stats import bartlett

    generator = np.random.default_rng(2)
    for spread in (1.0, 2.0, 4.0, 8.0):
        values = {"a": generator.normal(0, 1, 5), "b": generator.normal(0, spread, 4), "c": generator.normal(0, 1, 6)}
        assert equal_variances(values) == (bartlett(*values.values()).pvalue >= 0.05)
