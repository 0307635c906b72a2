"""Accuracy and likelihood against plain arithmetic, also at the ends of the scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray

from eyechart.intervals import with_intervals
from eyechart.measure import Views
from eyechart.measures.recognition.measure import Recognition
from eyechart.methods.scoring import LOGITS
from eyechart.scene import Batch
from tests.measures.staging import anatomy, scene, site

HEAD = site("head", "head", axes="NC", grid=None)


def recognise(logits: torch.Tensor, labels: np.ndarray, label_map: tuple[int, ...]) -> xarray.Dataset:
    where = replace(
        scene(anatomy("net", [HEAD]), images=len(labels)), classes=("a", "b", "c"), label_maps={"net": label_map}
    )
    measure = Recognition()
    tally = measure.tally(where)
    for start in range(0, len(labels), 8):
        part = slice(start, start + 8)
        places = np.arange(len(labels))[part]
        batch = Batch(start // 8, start, places, labels[part], 0, places % 16, True)
        views = Views({"net": {"head": {LOGITS.name: logits[part]}}})
        measure.update(tally, batch, views, where)
    return with_intervals(measure, tally, where)


def test_accuracy_and_likelihood_through_a_label_map() -> None:
    logits = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    labels = np.arange(64) % 3
    target = torch.tensor([7, 2, 4])[torch.as_tensor(labels)]  # image classes a, b, c are logits 7, 2, 4
    finding = recognise(logits, labels, (7, 2, 4))
    assert float(finding.accuracy[0]) == pytest.approx(float((logits.argmax(1) == target).double().mean()))
    likelihood = logits.double().log_softmax(1)[torch.arange(64), target]
    assert float(finding.nll[0]) == pytest.approx(float(-likelihood.mean()))
    assert finding.right.values[:, 0].tolist() == (logits.argmax(1) == target).tolist()


def test_unlabelled_images_do_not_count() -> None:
    logits = torch.eye(3).repeat(22, 1)[:64]
    labels = np.where(np.arange(64) < 32, np.arange(64) % 3, -1)
    finding = recognise(logits, labels, (0, 1, 2))
    assert float(finding.accuracy[0]) == 1
    assert finding.sizes["image"] == 32


@pytest.mark.parametrize("right", [True, False])
def test_all_right_or_all_wrong_still_has_an_interval(right: bool) -> None:
    logits = torch.zeros(64, 3)
    logits[:, 0] = 5
    finding = recognise(logits, np.full(64, 0 if right else 1), (0, 1, 2))
    low, high = float(finding.accuracy_low[0]), float(finding.accuracy_high[0])
    room = 1 - 0.025 ** (1 / 64)  # what a binomial of 64 may hide: 5.6 %
    assert (low, high) == pytest.approx((1 - room, 1) if right else (0, room))
    assert float(finding.quantity_high[0]) == pytest.approx(high)
