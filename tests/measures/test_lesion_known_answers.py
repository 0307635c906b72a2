"""M20 and trap T17: what is lost to a cut, and what only to statistics of batch normalisation that no longer fit."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.lesion.measure import Lesion
from eyechart.subjects.subject import Subject
from tests import cases
from tests.measures.on_subjects import module_subject, quantities, staged, tally_of

BLOCK = 32


def finding_of(subject: Subject, images: int = 64, block: int = BLOCK, **options: Any) -> xarray.Dataset:
    people, scene = staged(subject, images=images, block=block)
    scene = replace(scene, label_maps={subject.name: (*range(5), *range(5))})
    measure = Lesion(**options)
    return with_intervals(measure, tally_of(measure, people, scene), scene)


def at(finding: xarray.Dataset, name: str) -> xarray.Dataset:
    return finding.isel(unit=int(np.flatnonzero(finding.unit_name.values == name)[0]))


def test_a_convolution_that_only_scales_is_missed_by_stale_statistics_alone() -> None:
    """conv1 = 30 · identity before a batch norm: without it the norm, re-estimated, gives the same numbers again."""
    module = cases.resnet()
    first = cases.inside(module).layer1[0]
    with torch.no_grad():
        nn.init.dirac_(first.conv1.weight)
        first.conv1.weight.mul_(30)
    unit = at(finding_of(module_subject(module, "cnn")), "block 1 convolution 1")
    assert float(unit.changed) > 0
    assert float(unit.lost) != 0
    assert float(unit.lost_recalibrated) == 0


def statistics_of(module: nn.Module, images: Tensor) -> None:
    """Set every batch norm to the statistics of these images, as a training with momentum 1 would."""
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum, norm.training = 1.0, True
    with torch.no_grad():
        module(images)
    for norm in norms:
        norm.training = False


def test_recalibrated_by_brute_force() -> None:
    """Each half of a block is scored with the statistics of the other half, intact and cut alike."""
    subject = module_subject(cases.resnet(), "cnn")
    before = {name: value.clone() for name, value in subject.module.state_dict().items()}
    unit = at(finding_of(subject, images=BLOCK), "block 3 convolution 1")
    assert all(torch.equal(before[name], value) for name, value in subject.module.state_dict().items())
    source = open_images("sample")
    (batch,) = plan_batches(source, limit=BLOCK, block=BLOCK).batches(0)
    images, targets = subject.prepare(source.pictures(batch.images.tolist())), torch.as_tensor(batch.labels) % 5
    right = {}
    for name in ("intact", "cut"):
        counted = 0
        for place, (half, others) in enumerate(zip(images.chunk(2), images.chunk(2)[::-1], strict=True)):
            net = cases.inside(copy.deepcopy(subject.module))
            if name == "cut":
                net.layer2[1].conv1 = nn.Identity()
            statistics_of(net, others)
            with torch.no_grad():
                counted += int((net(half).argmax(1) == targets.chunk(2)[place]).sum())
        right[name] = counted / BLOCK
    assert float(unit.lost_recalibrated) == pytest.approx(right["intact"] - right["cut"])
    assert float(unit.lost_recalibrated) != float(unit.lost)


def test_where_nothing_is_normalised_or_it_was_not_asked_for_there_is_no_second_number() -> None:
    plain = finding_of(module_subject(cases.cnn(), "cnn"))
    unasked = finding_of(module_subject(cases.resnet(), "cnn"), recalibrate="no")
    for finding in (plain, unasked):
        assert np.isnan(finding.lost_recalibrated.values).all()
        assert np.isfinite(finding.lost.values).all()
        assert ("early_convolutions_recalibrated", "cnn") not in quantities(finding)
        assert "recalibrated" not in Lesion().sentence(finding)
    asked = finding_of(module_subject(cases.resnet(), "cnn"))
    assert ("early_convolutions", "cnn") in quantities(unasked)
    assert ("early_convolutions_recalibrated", "cnn") in quantities(asked)
    assert "with its batch norms recalibrated" in Lesion().sentence(asked)


def test_too_few_images_to_recalibrate_on_are_told_in_a_sentence() -> None:
    said = "kept their trained statistics only: to re-estimate them takes at least 512 images, and there are 64."
    finding = finding_of(module_subject(cases.resnet(), "cnn"), block=16)
    assert np.isnan(finding.lost_recalibrated.values).all()
    assert f"Batch norms of cnn, if any, {said}" in Lesion().sentence(finding)
    assert "nan" not in Lesion().sentence(finding)
    enough, unasked = (
        finding_of(module_subject(cases.resnet(), "cnn"), **how)
        for how in ({"block": BLOCK}, {"block": 16, "recalibrate": "no"})
    )
    transformer = finding_of(module_subject(cases.vit(), "vit"), block=16)
    for other in (enough, unasked, transformer):
        assert said not in Lesion().sentence(other)


def test_shards_and_a_few_images_change_nothing() -> None:
    subject = module_subject(cases.resnet(), "cnn")
    people, scene = staged(subject, images=64, block=BLOCK)
    scene = replace(scene, label_maps={"cnn": (*range(5), *range(5))})
    measure = Lesion(images=33)  # one image of the second block
    one, many = (tally_of(measure, people, scene, per_shard).tensors() for per_shard in (1, 2))
    assert all(torch.equal(one[name], many[name]) for name in one)
    tried = one["recalibrated"][..., 3].sum(0)
    assert set(tried.tolist()) == {0.0, 33.0}
    assert torch.equal(tried, one["counted"][..., 3].sum(0))


def test_a_last_batch_too_small_to_recalibrate_on_is_no_trial() -> None:
    """None of the 32 images of the whole block moved; the four behind it were scored with stored statistics alone."""
    intact = at(finding_of(module_subject(cases.resnet(), "cnn"), images=BLOCK + 4), "intact")
    assert float(intact.lost_high) == pytest.approx(1 - 0.025 ** (1 / (BLOCK + 4)))
    assert float(intact.lost_recalibrated_high) == pytest.approx(1 - 0.025 ** (1 / BLOCK))
