"""M23: what a perfectly calibrated sampler scores. Its calibration error is not 0 (SPEC, Appendix A)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from eyechart.intervals import with_intervals
from eyechart.measure import Views
from eyechart.measures.calibration.measure import Calibration
from eyechart.methods.scoring import LOGITS
from eyechart.scene import Batch
from tests.measures.staging import anatomy, scene, site


def scores(images: int, seed: int) -> tuple[float, float, float, bool]:
    """ECE, its floor, signed ECE, and whether its interval holds 0, of answers drawn from their own probabilities."""
    dice = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(images, 10, generator=dice, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=dice)[:, 0].numpy()
    where = scene(anatomy("net", [site("head", role="head", axes="NC", grid=None)], "cnn"), images=images)
    where = replace(where, classes=tuple("abcdefghij"), label_maps={"net": tuple(range(10))})
    measure, places = Calibration(), np.arange(images)
    tally = measure.tally(where)
    batch = Batch(0, 0, places, labels, 0, places % 16, True)
    measure.update(tally, batch, Views({"net": {"head": {LOGITS.name: logits}}}), where)
    found = with_intervals(measure, tally, where).isel(subject=0)
    ends = float(found.signed_ece_low), float(found.signed_ece_high)
    return float(found.ece), float(found.floor), float(found.signed_ece), ends[0] <= 0 <= ends[1]


@pytest.mark.parametrize(("images", "about"), [(1000, 0.031), (10_000, 0.010)])
def test_a_calibrated_sampler_scores_its_stated_floor_and_signed_zero(
    images: int, about: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On average over draws: within 5 % of the floor beside it, which is about .031 at 1,000 images, .010 at 10,000."""
    monkeypatch.setattr("eyechart.intervals.DRAWS", 2)  # the bootstrap of the ECE is not looked at
    monkeypatch.setattr("eyechart.intervals.SMALL_DRAWS", 2)
    monkeypatch.setattr("eyechart.measures.calibration.measure.TEMPERATURES", torch.ones(1).double())  # nor is scaling
    monkeypatch.setattr("eyechart.measures.calibration.measure.PLAIN", 0)
    drawn = np.array([scores(images, seed) for seed in range(60)])
    ece, floor, signed, held = drawn.mean(0)
    assert ece == pytest.approx(floor, rel=0.05)
    assert floor == pytest.approx(about, rel=0.1)
    assert abs(signed) < 3 * drawn[:, 2].std() / np.sqrt(len(drawn))
    assert held >= 0.85
