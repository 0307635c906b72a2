"""What a quantity can be at all: each says so, or stands here with the reason why it can be anything."""

from __future__ import annotations

import pytest

from eyechart.measure import Measure
from eyechart.measures import measures

FREE_UNITS = ("log", "log ratio", "nats", "widths", "accuracy / π")
FREE = {
    "differences of distances, whose unit is that of uniform attention": (
        "head_distance_spread",
        "early_near_gap",
        "distance_growth",
    ),
    "shares of what a subject has above guessing, or of its own accuracy: less than nothing may be left": (
        "skip_loss_share_gap",
        "skip_loss_share_gap_recalibrated",
        "filter_bias_difference",
        "shuffle_loss_difference",
        "relative_occlusion_advantage",
        "relative_attack_advantage",
        "relative_corruption_advantage",
    ),
    "ratios of CKA, which may be negative": (
        "skip_across",
        "trained_without_skip_across",
        "trained_without_skip_within",
    ),
    "in standard deviations or errors": ("localisation_sharpness", "tightness_z"),
    "differences of R², which has no lower end": ("own_patch_above_adjacent", "patch_equivariance_above_cnn"),
    "slopes": ("shots_trend", "ways_trend", "data_slope"),
    "differences of class spread": ("class_spread_lead", "tightness_of_the_better"),
    "differences of frequencies": (
        "leading_centroid_below_random",
        "centroid_below_random",
        "weighted_centroid_below_random",
    ),
    "differences of log-likelihood": ("nll_train_cnn_to_windows", "nll_train_windows_to_vit", "mc_nll_gain"),
}


@pytest.mark.parametrize("measure", measures().values(), ids=lambda measure: measure.name)
def test_a_quantity_says_what_it_can_be(measure: Measure) -> None:
    free = {name for names in FREE.values() for name in names}
    silent = [each for each in measure.quantities if each.limits == (None, None) and not each.exact]
    assert [each.name for each in silent if each.unit not in FREE_UNITS and each.name not in free] == []
