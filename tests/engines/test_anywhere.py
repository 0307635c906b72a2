"""Measures that add up where the subjects are: no tensor of theirs is on the CPU, and none is asked for its value.

There is no accelerator here. Tensors on the device "meta" have no values at all: an update that asks for one, or mixes
them with a tensor on the CPU, fails on them as it would stop a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from eyechart.engines import shard
from eyechart.engines.plan import scene_of
from eyechart.engines.shard import SiteViews, add_up, examine_shard, examine_there, look_at
from eyechart.errors import NotFinite
from eyechart.exam import prepare
from eyechart.measure import Experiment, Views
from eyechart.measures import choose_measures, measures, planned_measures
from eyechart.scene import Batch, Scene
from eyechart.subjects.subject import Subject
from tests.cases import cnn
from tests.small_exam import subject
from tests.tracing.test_captured import Waiting

ANYWHERE = [name for name, measure in measures().items() if measure.adds_up_anywhere]


def test_all_that_share_the_pass_add_up_anywhere() -> None:
    sharing = [name for name, measure in measures().items() if not isinstance(measure, Experiment)]
    assert sorted(ANYWHERE) == sorted(sharing)


@pytest.fixture(scope="module")
def seen() -> tuple[Scene, Batch, dict[str, SiteViews]]:
    """One batch of a ViT with a class token, the same untrained, and a ResNet."""
    prepared = prepare(["zoo:vit", "zoo:vit@random", "zoo:resnet"], "sample", ANYWHERE, limit=64, effort="quick")
    asked = choose_measures(ANYWHERE)
    scene = scene_of(prepared.plan)
    ((batch, found),) = look_at(prepared.tapped(asked), prepared.source, prepared.batches.batches(0)[:1], scene)
    return scene, batch, found.views


@pytest.mark.parametrize("name", ANYWHERE)
def test_an_update_asks_for_no_value(name: str, seen: tuple[Scene, Batch, dict[str, SiteViews]]) -> None:
    scene, batch, views = seen
    (measure,) = choose_measures([name])
    there = {
        subject: {site: {view: value.to("meta") for view, value in at.items()} for site, at in sites.items()}
        for subject, sites in views.items()
    }
    tally = measure.tally(scene).to("meta")
    with Waiting() as waiting:
        measure.update(tally, batch, Views(there, device="meta"), scene)
    assert set(waiting.found) <= {"lift_fresh"}, "what is put there does not wait"
    assert {value.device.type for value in tally.tensors().values()} == {"meta"}


def there_and_here(given: Subject) -> list[dict[str, bytes]]:
    """The first shard of a small exam as it is examined on an accelerator, and as on a CPU."""
    prepared = prepare([given], "sample", ["cka", "skip_ratio", "feature_variance"], limit=64, effort="quick")
    asked, scene = planned_measures(prepared.plan["measures"]), scene_of(prepared.plan)
    batches = prepared.batches.batches(0)
    tallies = [
        examine(prepared.tapped(asked), prepared.source, batches, asked, scene)
        for examine in (examine_there, examine_shard)
    ]
    return [
        {f"{name}/{key}": value.numpy().tobytes() for name, of in each.items() for key, value in of.tensors().items()}
        for each in tallies
    ]


def test_a_shard_is_the_same_there() -> None:
    there, here = there_and_here(subject())
    assert there == here


def test_what_is_not_finite_is_named_after_the_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(nn.Module):
        """Sound for one batch of any size, as the dry run sees it; then a number is not finite."""

        def __init__(self) -> None:
            super().__init__()
            self.whole, self.broken = cnn(), False

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            answers: torch.Tensor = self.whole(images * torch.inf if self.broken else images)
            return answers

    module = Broken()
    given = subject(module)
    batches_done: list[int] = []

    def add_up_and_count(seen: Any, *args: Any, **more: Any) -> Any:
        def counted() -> Any:
            for batch, of_batch in seen:
                batches_done.append(batch.index)
                yield batch, of_batch

        return add_up(counted(), *args, **more)

    monkeypatch.setattr(shard, "add_up", add_up_and_count)
    prepared = prepare([given], "sample", ["skip_ratio"], limit=64, effort="quick")
    asked, scene = planned_measures(prepared.plan["measures"]), scene_of(prepared.plan)
    tapped = prepared.tapped(asked)
    batches = [batch for number in range(2) for batch in prepared.batches.batches(number)]
    module.broken = True
    with pytest.raises(NotFinite, match="mine: every activation was expected to be finite"):
        examine_there(tapped, prepared.source, batches, asked, scene)
    assert batches_done == [batch.index for batch in batches]


def test_what_asks_for_a_value_would_be_found() -> None:
    with pytest.raises(Exception, match="meta"):
        bool(torch.ones(1, device="meta") > 0)
    with pytest.raises(Exception, match="meta"):
        torch.ones(2, device="meta") + torch.ones(2)
