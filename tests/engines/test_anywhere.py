"""Measures that add up where the subjects are: no tensor of theirs is on the CPU, and none is asked for its value.

There is no accelerator here. Tensors on the device "meta" have no values at all: an update that asks for one, or mixes
them with a tensor on the CPU, fails on them as it would stop a GPU.
"""

from __future__ import annotations

import pytest
import torch

from eyechart.engines.plan import scene_of
from eyechart.engines.shard import SiteViews, look_at
from eyechart.exam import prepare
from eyechart.measure import Experiment, Views
from eyechart.measures import choose_measures, measures
from eyechart.scene import Batch, Scene
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


def test_what_asks_for_a_value_would_be_found() -> None:
    with pytest.raises(Exception, match="meta"):
        bool(torch.ones(1, device="meta") > 0)
    with pytest.raises(Exception, match="meta"):
        torch.ones(2, device="meta") + torch.ones(2)
