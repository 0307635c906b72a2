"""Comparisons of ViTs with CNNs that say nothing where nothing can be told."""

from __future__ import annotations

import math

import xarray

from eyechart.reading_estimates import vit_minus_cnn


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
