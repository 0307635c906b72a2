"""Ensembles of passes: the mean of identical passes is a single pass (SPEC Appendix A, M22–M24)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

from eyechart import zoo
from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.mc_dropout.measure import DRAWS, ENSEMBLES, SIZES, McDropout, agreement, ensembles, passes_of
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tracing.bench import Bench


class Dice(nn.Module):
    """A small classifier whose dropout, unless it is 0, stays on at test."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.block, self.head = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 10)
        self.dropout = dropout

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.conv(images)
        hidden = hidden + self.block(hidden)
        pooled = hidden.mean((2, 3))
        if self.dropout:
            pooled = nn.functional.dropout(pooled, self.dropout, training=True)
        logits: Tensor = self.head(6 * pooled)
        return logits


def a_subject(module: nn.Module, name: str) -> Subject:
    subject = load_subject(module.eval(), label=name, transform=None)
    subject.preprocessing = load_subject("zoo:vit").preprocessing
    return subject


def anatomy(subject: Subject) -> Anatomy:
    pictures = subject.prepare(open_images("sample").pictures([0, 1]))
    return anatomy_of(subject.name, subject.module, pictures, call=subject.call)


def bench_of(subject: Subject, images: int = 8) -> Bench:
    fed = subject.prepare(open_images("sample").pictures(range(images)))
    places = np.arange(images)
    batch = Batch(0, 0, places, places % 10, 0, places % 16, True)
    return Bench(subject, anatomy(subject), batch, fed, torch.arange(images) % 10)


def examine(
    subject: Subject, found: Anatomy, *, images: int = 32, per_shard: int = 2
) -> tuple[xarray.Dataset, dict[str, Tensor]]:
    source, measure = open_images("sample"), McDropout(images=images)
    plan = plan_batches(source, limit=32, block=16, blocks_per_shard=per_shard)
    where = Scene((found,), 32, 2, 16, 16, source.classes, {subject.name: tuple(range(10))})
    station = TappedSubject(subject, found, [measure])
    tallies = [
        examine_shard([station], source, plan.batches(shard), [measure], where)["mc_dropout"]
        for shard in reversed(range(len(plan.shards)))
    ]
    total = reduce(lambda one, other: one.merge(other), tallies)
    return with_intervals(measure, total, where), total.tensors()


def test_a_dry_run_tells_who_throws_dice() -> None:
    assert anatomy(a_subject(Dice(0.5), "dice")).random
    assert not anatomy(a_subject(Dice(0.0), "still")).random
    assert not anatomy(load_subject("zoo:vit")).random
    dropout = anatomy(a_subject(zoo.build("resnet-mcdropout"), "dropout"))
    assert dropout.random  # although its masks stay with a picture until another draw is chosen
    assert Anatomy.from_json(dropout.as_json()).random


def test_the_mean_of_identical_passes_is_a_single_pass() -> None:
    subject = a_subject(Dice(0.0), "still")
    found, _ = examine(subject, replace(anatomy(subject), random=True))
    own = found.sel(subject="still")
    for name in ("nll", "accuracy", "ece", "signed_ece"):
        assert np.allclose(own[name].values, own[name].values[0], rtol=0, atol=1e-12), name
    assert float(own.agreement) == 1
    assert 0.8 < float(own.agreement_low) < 0.95  # 32 pictures do not make sure of 100 % [100 %, 100 %]
    assert "all alike" in McDropout().sentence(found)
    bench = bench_of(subject, 32)
    single = bench.logits().double().log_softmax(1)
    draws = passes_of(bench, 6)
    assert torch.allclose(ensembles(draws, 3), single.expand(2, -1, -1), atol=1e-12)


def test_ensembles_average_probabilities_of_passes_they_do_not_share() -> None:
    draws = torch.randn(DRAWS, 4, 3, dtype=torch.float64).log_softmax(2)
    for size in SIZES:
        found = ensembles(draws, size)
        assert len(found) == DRAWS // size == int(np.equal(ENSEMBLES, size).sum())
        for number, one in enumerate(found):
            mine = draws[number * size : (number + 1) * size].exp().mean(0)
            assert torch.allclose(one.exp(), mine, atol=1e-12)


def test_agreement_is_the_share_of_pairs() -> None:
    named = torch.tensor([[0, 1], [0, 2], [1, 0]])  # three passes, two images
    assert agreement(named, 3).tolist() == pytest.approx([1 / 3, 0])


def test_many_draws_are_likelier_than_one_and_the_same_in_any_shard() -> None:
    subject = a_subject(Dice(0.5), "dice")
    found, whole = examine(subject, anatomy(subject))
    own = found.sel(subject="dice")
    for few, many in ((1, 2), (1, 5), (2, 10), (5, 10), (10, 50)):  # by Jensen: the larger consist of the smaller
        assert float(own.nll.sel(size=few)) > float(own.nll.sel(size=many))
    assert 0 < float(own.agreement) < 1
    assert found.attrs["images"] == 32
    assert "two passes of dice" in McDropout().sentence(found).lower()
    McDropout().chart(found).to_dict()
    _, split = examine(subject, anatomy(subject), per_shard=1)
    for name, values in whole.items():
        assert torch.allclose(values, split[name], atol=1e-6), name


def test_the_zoo_s_draws_differ_and_it_is_left_as_it_was() -> None:
    module = zoo.build("resnet-mcdropout")
    module.load_state_dict(load_subject("zoo:resnet").module.state_dict())  # a new one's branches add nothing
    bench = bench_of(a_subject(module, "dropout"), 2)
    before = bench.logits()
    draws = passes_of(bench, 3)
    assert not torch.allclose(draws[0], draws[1])
    assert torch.equal(bench.logits(), before)
    assert torch.equal(draws[0], before.double().log_softmax(1))


def test_numbers_are_those_of_plain_loops() -> None:
    subject = a_subject(Dice(0.3), "dice")
    bench = bench_of(subject, 16)
    torch.manual_seed(3)
    draws = passes_of(bench, DRAWS)
    torch.manual_seed(3)
    scores = McDropout(images=16).experiment(bench)["scores"]
    at = int(np.flatnonzero(ENSEMBLES == 5)[2])  # passes 10 to 14
    mine = draws[10:15].exp().mean(0)
    assert bench.targets is not None
    for image, target in enumerate(bench.targets.tolist()):
        assert float(scores[image, at, 0]) == float(mine[image].argmax() == target)
        assert float(scores[image, at, 1]) == pytest.approx(-math.log(mine[image, target]))
        assert float(scores[image, at, 2]) == pytest.approx(float(mine[image].max()))


def test_where_nobody_throws_dice_it_does_not_apply() -> None:
    still = replace(anatomy(a_subject(Dice(0.0), "still")), random=False)
    where = Scene((still,), 32, 2, 16, 16, None, {"still": (0,)})
    with pytest.raises(DoesNotApply, match="no subject is stochastic"):
        McDropout().tally(where)
    with pytest.raises(DoesNotApply, match="match"):
        McDropout().tally(Scene((replace(still, random=True),), 32, 2, 16, 16, None))
    assert McDropout(images=8).experiment(bench_of(a_subject(Dice(0.0), "still"))) == {}
