"""Numbers with their intervals, and comparisons of ViTs with CNNs that say nothing where nothing can be told."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray

from eyechart.intervals import jackknife
from eyechart.reading_estimates import in_points, jackknifed, spanned, vit_minus_cnn


def test_pairs_of_equal_pictures_and_no_certainty_where_both_lose_everything() -> None:
    estimate = xarray.Dataset(
        {"accuracy": ("subject", [0.0, 0.0, 0.25, 0.5])},
        coords={
            "subject": ["vit", "cnn", "other cnn", "large cnn"],
            "family": ("subject", ["vit", "cnn", "cnn", "cnn"]),
            "pictures": ("subject", ["32", "32", "32", "224"]),
        },
    )
    found = vit_minus_cnn(estimate, "accuracy", alike="pictures")
    assert list(found) == [("vit", "cnn"), ("vit", "other cnn")]
    assert math.isnan(found["vit", "cnn"])
    assert found["vit", "other cnn"] == -0.25


def test_a_number_made_of_variables_has_the_jackknife_of_what_was_left_out() -> None:
    """The median of three sites, without each of four folds."""
    left_out = np.array([[1.0, 5.0, 9.0], [1.0, 5.4, 9.0], [1.0, 5.6, 9.0], [1.0, 6.0, 9.0]])
    finding = xarray.Dataset(
        {"ratio": ("site", [1.0, 5.5, 9.0]), "ratio_replicates": (("replicate", "site"), left_out)}
    )

    def median(estimate: xarray.Dataset) -> float:
        return float(np.median(estimate.ratio.values))

    low, high = jackknife(np.array(5.5), left_out[:, 1])
    assert jackknifed(finding, median, "ratio") == pytest.approx((5.5, float(low), float(high)))
    value, *ends = jackknifed(finding.drop_vars("ratio_replicates"), median, "ratio")
    assert value == 5.5
    assert np.isnan(ends).all()


@pytest.mark.parametrize(
    ("ends", "form", "said"),
    [
        ((0.99999999, 0.99999997, 1.0), ".0%", "100.000% [± < 0.001%]"),  # an untrained ResNet's own patch
        ((0.99999925, 0.9999991, 0.9999994), ".2f", "1.000 [± < 0.001]"),  # features that move along with the picture
        ((0.73124, 0.7312399, 0.7312401), ".2f", "0.731 [± < 0.001]"),
        ((0.99987, 0.99985, 0.99989), ".2f", "0.99987 [0.99985, 0.99989]"),
        ((-0.25, -0.25, -0.25), "+.0%", "-25% [the same in all folds]"),
    ],
)
def test_no_interval_says_the_same_end_twice(ends: tuple[float, float, float], form: str, said: str) -> None:
    assert spanned(ends, form) == said


def test_points_without_a_spread_say_so() -> None:
    assert in_points((0.0, 0.0, 0.0)) == "0.0 [the same in all folds]"
