"""Lesions: costs with known truths (real ones take a minute, see tests/measures/test_lesion.py)."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import noisy_finding

STAGES, CONVOLUTIONS = "for the stages of a transformer", "for the convolutions of a CNN"


def mlps_at_both_ends(seed: int) -> Mapping[str, xarray.Dataset]:
    """The interaction is above 0 (.05 − .02), and yet MLPs matter more at the end of a stage too."""
    return {"lesion": noisy_finding({"lesion_stage_start": 0.05, "lesion_stage_end": -0.02}, ["swin"], 0.005, seed)}


def stale_statistics(seed: int) -> Mapping[str, xarray.Dataset]:
    """As zoo:resnet: .28 with batch norms as trained, −.02 with recalibrated ones."""
    truths = {"early_convolutions": 0.28, "early_convolutions_recalibrated": -0.02}
    return {"lesion": noisy_finding(truths, ["cnn"], 0.013, seed)}


def as_the_paper(seed: int) -> Mapping[str, xarray.Dataset]:
    stages = noisy_finding({"lesion_stage_start": 0.005, "lesion_stage_end": 0.01}, ["swin"], 0.001, seed)
    early = {"early_convolutions": 0.03, "early_convolutions_recalibrated": 0.02}
    both = xarray.concat([stages, noisy_finding(early, ["cnn"], 0.002, seed)], "quantity_row", combine_attrs="override")
    return {"lesion": both}


CASES: tuple[Case, ...] = (
    Case(
        "C61", "MLPs matter more at both ends of a stage", "holds", reading=STAGES, findings=mlps_at_both_ends, draws=40
    ),
    Case(
        "C61",
        "early convolutions that only stale batch norms miss",
        "holds",
        reading=CONVOLUTIONS,
        findings=stale_statistics,
        draws=40,
    ),
    Case("C61", "MLPs at the start, attention at the end, early convolutions", "fails", findings=as_the_paper, draws=3),
)
