"""A number that images hardly move never looks certain: no quantity that moves in steps shows a bare [x, x]."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from eyechart.exact_bounds import of_few_values
from eyechart.measures import measures
from eyechart.quantity import Quantity

#: Minima, maxima and differences of numbers that every image moves a little: a bootstrap of theirs has a width.
CONTINUOUS = {
    "attention_distance": ("early_", "late_"),
    "attention_maps": ("narrowest_head",),
    "calibration": ("calibration_error_advantage",),
    "cka": ("half_above_stem", "end_above_stem", "top_"),
    "depth_similarity": ("size_",),
    "head_subsets": ("near_heads_over_far", "head_distance_spread"),
    "localisation": ("earlier_peak_gain", "peak_over_", "contrast_over_", "hit_rate_over_untrained"),
    "mc_dropout": ("mc_ece",),
    "probes": ("half_lead_depth", "probe_divergence"),
    "receptive_field": ("least_growth", "largest_step_above_cnn"),
    "skip_ratio": ("cosine_agrees", "branch_cosine_agrees"),
}


def has_bounds(quantity: Quantity) -> bool:
    kinds = (quantity.exact, quantity.share, quantity.paired, quantity.bounds, quantity.if_unmoved, quantity.among)
    return any(kind not in (None, False) for kind in kinds)


def test_every_quantity_that_moves_in_steps_says_how_far_it_may_still_be_off() -> None:
    for name, measure in measures().items():
        bare = [each.name for each in measure.quantities if not each.smooth and not has_bounds(each)]
        steps = [each for each in bare if not each.startswith(CONTINUOUS.get(name, ()))]
        assert not steps, f"{name}: {steps} need if_unmoved, or a place among the continuous ones"
        assert bool(bare) == (name in CONTINUOUS), name


def columns(**of: object) -> xarray.Dataset:
    return xarray.Dataset(coords={name: ("site", values) for name, values in of.items()})


@pytest.mark.parametrize(
    ("measure", "quantity", "estimate", "subjects", "room"),
    [
        (
            "skip_ratio",
            "skip_higher_share",
            columns(subject=["v", "v", *"cccc"], block=[0, 1, 0, 1, 2, 3], kind=["mlp"] * 2 + ["conv"] * 4).assign(
                ratio_grid=("site", [9.0, 9, 1, 1, 1, 1])
            ),
            ("v", "c"),
            0.005,  # half a step of the hundred depths
        ),
        (
            "attention_distance",
            "distance_grows",
            columns(subject=["v"] * 4).assign(relative=(("site", "head"), np.arange(8.0).reshape(4, 2))),
            ("v",),
            6 / (4 * 15),
        ),
        (
            "fourier",
            "late_attention_frequency_change",  # LayerScale at its start: the branch adds less than rounding
            columns(subject=["v"] * 3, block=[0, 1, 2], kind=["attention"] * 3).assign(change=("site", [1e-7] * 3)),
            ("v",),
            1e-5,
        ),
    ],
)
def test_where_no_draw_of_images_moved_it(
    measure: str, quantity: str, estimate: xarray.Dataset, subjects: tuple[str, ...], room: float
) -> None:
    estimate = estimate.assign_coords(
        family=("site", ["vit" if name == "v" else "cnn" for name in estimate.subject.values])
    )
    (asked,) = (each for each in measures()[measure].quantities if each.name == quantity)
    estimate = estimate.assign_coords(role=("site", ["junction"] * estimate.sizes["site"]))
    (value,) = asked.compute(estimate).values()
    still = np.array(value)
    low, high = of_few_values(asked, estimate, subjects, still, still)
    assert (float(low), float(high)) == pytest.approx((value - room, min(value + room, asked.limits[1] or np.inf)))
    wide = np.array(0.2), np.array(1.0)
    assert of_few_values(asked, estimate, subjects, *wide) == wide, "an interval that images made stays"
