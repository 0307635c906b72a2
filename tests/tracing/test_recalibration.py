"""Batch normalisation re-estimated on given images: the right numbers inside, the old subject afterwards."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

from eyechart.scene import Batch
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.bench import Bench
from eyechart.tracing.interventions import RemoveSkip
from eyechart.tracing.pieces import PieceSize
from eyechart.tracing.recalibration import batch_norms, recalibrated
from tests import cases
from tests.measures.on_subjects import module_subject


def bench_of(module: nn.Module, count: int = 8, most: int | None = None) -> Bench:
    images, places = cases.images(count), np.arange(count)
    anatomy = anatomy_of("net", module, images[:2])
    batch = Batch(0, 0, places, None, 0, places % 16, True)
    return Bench(module_subject(module, "net"), anatomy, batch, images, None, PieceSize(most))


def test_inside_the_statistics_are_those_of_the_images() -> None:
    bench = bench_of(cases.resnet())
    module, first = bench.subject.module, bench.subject.module.get_submodule("bn1")
    with torch.no_grad():
        seen = module.get_submodule("conv1")(bench.images)
    with recalibrated(bench, bench.images):
        torch.testing.assert_close(first.running_mean, seen.mean((0, 2, 3)))
        torch.testing.assert_close(first.running_var, seen.var((0, 2, 3)))
        assert not any(part.training for part in module.modules())


def test_pieces_are_averaged() -> None:
    bench = bench_of(cases.resnet(), most=3)
    first = bench.subject.module.get_submodule("bn1")
    with torch.no_grad():
        seen = bench.subject.module.get_submodule("conv1")(bench.images)
    with recalibrated(bench, bench.images[:6]):
        halves = (seen[:3].mean((0, 2, 3)) + seen[3:6].mean((0, 2, 3))) / 2
        torch.testing.assert_close(first.running_mean, halves)


def test_the_change_is_part_of_the_statistics() -> None:
    bench = bench_of(cases.resnet())
    junction = next(site for site in bench.anatomy.pick("junction") if not site.projected)
    after = bench.subject.module.get_submodule("layer2.0.bn1")
    means = []
    for changes in ([], [RemoveSkip(junction.name)]):
        with recalibrated(bench, bench.images, changes):
            means.append(after.get_buffer("running_mean").clone())
    assert junction.name.startswith("layer1.0")
    assert not torch.allclose(means[0], means[1])


@pytest.mark.parametrize("fails", [False, True])
def test_the_subject_is_left_as_found(fails: bool) -> None:
    bench = bench_of(cases.resnet())
    module = bench.subject.module
    before = {name: value.clone() for name, value in module.state_dict().items()}
    settings = [(norm.momentum, norm.training) for norm in batch_norms(module)]
    with contextlib.suppress(RuntimeError), recalibrated(bench, bench.images):
        assert not torch.equal(module.state_dict()["bn1.running_mean"], before["bn1.running_mean"])
        if fails:
            raise RuntimeError("something else went wrong")
    after = module.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert settings == [(norm.momentum, norm.training) for norm in batch_norms(module)]


def test_group_norms_are_not_batch_norms() -> None:
    assert len(batch_norms(cases.resnet())) > 10
    assert not batch_norms(cases.bit())
    assert not batch_norms(nn.BatchNorm2d(3, track_running_stats=False))
