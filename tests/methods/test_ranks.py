"""Ranks and their correlation are SciPy's, with ties and without."""

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from eyechart.methods.ranks import rank_correlation, ranks


@pytest.mark.parametrize("kinds", [2, 5, 1000])
def test_ranks_are_those_of_scipy(kinds: int) -> None:
    draw = np.random.default_rng(kinds)
    for count in (3, 12, 40):
        one, other = draw.integers(0, kinds, (2, count)) / kinds
        assert ranks(one).tolist() == rankdata(one).tolist()
        if np.ptp(one) > 0 and np.ptp(other) > 0:
            assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)


def test_what_is_missing_or_equal_has_no_correlation() -> None:
    rising, gap, level = np.arange(3.0), np.array([0.0, np.nan, 1.0]), np.ones(3)
    assert np.isnan([rank_correlation(rising, gap), rank_correlation(level, rising)]).all()
