"""Occlusion and attack on subjects whose answers are known; every condition is what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measure import Views
from eyechart.measures.robustness.measure import EPSILONS, SHARES, Robustness, gradient_on
from eyechart.scene import Batch, Scene
from eyechart.sites import Architecture
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.tracing.bench import Bench
from eyechart.tracing.pieces import PieceSize
from tests.cases import inside
from tests.measures.staging import anatomy, batches, scene, site

FULL = Robustness(images=64, steps=10)


class Linear(nn.Module):
    """Two logits, linear in the pixels, of which the second is 0: the worst case of an attack is known."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 1, 1, bias=False), nn.Linear(32 * 32, 2, bias=False)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.conv.weight.fill_(1.0)
            self.head.weight.copy_(torch.randn(2, 1024, generator=generator))
            self.head.weight[1] = 0

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.conv(images).flatten(1))
        return logits


@pytest.fixture(scope="module")
def bench() -> Bench:
    subject = load_subject(Linear(), label="linear", input_size=32)
    subject.preprocessing = load_subject("zoo:vit").preprocessing
    images = subject.prepare(open_images("sample").pictures(range(40)))
    found = anatomy_of(subject.name, subject.module, images[:2], call=subject.call)
    places = np.arange(40)
    batch = Batch(0, 0, places, places % 2, 0, places % 16, True)
    with torch.no_grad():
        named = subject.call(images).argmax(1)
    return Bench(subject, found, batch, images, named)


def column(found: Mapping[str, Tensor], kind: str, strength: float) -> Tensor:
    return found["right"][:, FULL.conditions.index((kind, strength))]


def test_a_linear_subject_falls_exactly_where_the_closed_form_says(bench: Bench) -> None:
    """The margin w·x falls by ε · scale · Σ|w| less what is cut off at 0 and 1."""
    found = FULL.experiment(bench)
    assert found["right"].shape == (40, len(FULL.conditions))
    assert bool(column(found, "intact", 0.0).all())
    pixels, weights = bench.pixels(), inside(bench.subject.module).head.weight[0].detach()
    assert bench.subject.colours is not None
    assert bench.targets is not None
    offset, scale = (torch.tensor(values) for values in bench.subject.colours)
    slope = (weights.view(1, 1, 32, 32) * scale.view(1, 3, 1, 1)).expand(40, -1, -1, -1)
    sign = torch.where(bench.targets == 0, 1.0, -1.0).view(-1, 1, 1, 1)
    margin = (sign * (slope * pixels)).sum((1, 2, 3)) + sign.flatten() * (weights.sum() * offset.sum())
    assert (margin > 0).all()
    for epsilon in EPSILONS:
        worst = (pixels - epsilon * (sign * slope).sign()).clamp(0, 1)
        left = margin + (sign * slope * (worst - pixels)).sum((1, 2, 3))
        clear = left.abs() > 1e-2  # of rounding
        for kind in ("fgsm", "pgd"):
            assert torch.equal(column(found, kind, epsilon)[clear], (left > 0)[clear]), (kind, epsilon)
    assert 0 < column(found, "pgd", EPSILONS[0]).double().mean() < 1


def test_pgd_is_at_least_as_strong_as_fgsm_and_falls_with_epsilon() -> None:
    subject = load_subject("zoo:resnet")
    images = subject.prepare(open_images("sample").pictures(range(8)))
    found = anatomy_of(subject.name, subject.module, images[:2], call=subject.call)
    places = np.arange(8)
    with torch.no_grad():
        named = subject.call(images).argmax(1)
    bench = Bench(subject, found, Batch(0, 0, places, places, 0, places, True), images, named)
    seen = replace(FULL, steps=3).experiment(bench)
    one, many = (torch.stack([column(seen, kind, epsilon) for epsilon in EPSILONS], 1) for kind in ("fgsm", "pgd"))
    assert bool((one | ~many).all())  # what stands under PGD stands under FGSM
    assert bool((many[:, :-1] | ~many[:, 1:]).all())
    assert not bool(many.all())
    logits, gradient = gradient_on(bench)(bench.pixels(), named)
    pieces = replace(bench, piece_size=PieceSize(3))
    again, in_pieces = gradient_on(pieces)(bench.pixels(), named)
    assert torch.allclose(logits, again, atol=1e-4)
    assert torch.allclose(gradient, in_pieces, atol=1e-5)
    assert all(weight.grad is None for weight in subject.module.parameters())


def test_the_code_s_own_setting_is_an_option() -> None:
    paper = Robustness(setting="paper", steps=40)
    assert [each for each in paper.conditions if each[0] in ("fgsm", "pgd")] == [("fgsm", 0.007), ("pgd", 0.3)]
    assert paper.strong[0].alpha == pytest.approx(2 / 255)
    assert paper.strong[0].steps == 40


def test_effort_decides_over_pgd() -> None:
    dear = replace(stage("a", images=5000).anatomies[0], flops=3.8e8)
    where = replace(stage("a", images=5000), anatomies=(dear,))
    quick, normal, full = (Robustness().sized(effort, where) for effort in ("quick", "normal", "full"))
    assert [measure.steps for measure in (quick, normal, full)] == [0, 10, 40]
    assert all(measure.images >= 64 for measure in (quick, normal, full))
    assert "pgd" not in dict(quick.conditions)
    assert Robustness().sized("quick", where, asked_for=True).steps == 10
    assert Robustness(steps=5).sized("full", where).steps == 5


def stage(*names: str, images: int = 64) -> Scene:
    head = site("head", role="head", axes="NC", grid=None)
    kinds: tuple[Architecture, ...] = ("transformer", "cnn", "cnn")
    blocks = [[site("a", stage=0, block=0), site("b", stage=stage, block=1), head] for stage in (0, 1, 1)]
    where = scene(*(anatomy(name, blocks[at], kinds[at]) for at, name in enumerate(names)), images=images)
    return replace(where, classes=("a", "b"), label_maps=dict.fromkeys(names, (0, 1)))


def examine(measure: Robustness, where: Scene, right: Mapping[str, Tensor]) -> xarray.Dataset:
    tally = measure.tally(where)
    for batch in batches(where.images, 16):
        rows = slice(batch.start, batch.start + len(batch.images))
        folds = torch.as_tensor(batch.image_folds)
        found = {name: {"right": right[name][rows], "folds": folds} if name in right else {} for name in where.subjects}
        measure.update(tally, batch, Views({}, found), where)
    return with_intervals(measure, tally, where)


def quantity(found: xarray.Dataset, name: str) -> list[float]:
    return found.quantity_value.values[found["quantity"].values == name].tolist()


def test_means_shares_and_advantages() -> None:
    generator = torch.Generator().manual_seed(0)
    chance = torch.linspace(0.95, 0.3, len(FULL.conditions))
    right = {name: torch.rand(64, len(chance), generator=generator) < chance for name in ("v", "c")}
    found = examine(FULL, stage("v", "c"), right)
    hidden = [FULL.conditions.index(("occlusion", share)) for share in SHARES]
    means = {name: float(right[name][:, hidden].double().mean()) for name in right}
    clean = {name: float(right[name][:, 0].double().mean()) for name in right}
    assert quantity(found, "occlusion_accuracy") == pytest.approx([means["v"], means["c"]])
    assert quantity(found, "occlusion_advantage") == pytest.approx([means["v"] - means["c"]])
    expected = means["v"] / clean["v"] - means["c"] / clean["c"]
    assert quantity(found, "relative_occlusion_advantage") == pytest.approx([expected])
    assert len(quantity(found, "attack_advantage")) == 1
    assert float(found.relative.sel(subject="v")[0]) == 1
    assert found.attrs["images"] == 64
    FULL.chart(found).to_dict()
    assert "half of the patches missing" in FULL.sentence(found)


def test_that_nothing_withstood_does_not_mean_that_nothing_ever_would() -> None:
    """Of 64 pictures none: up to 1 − .025^(1/64) = 5.6 % may yet withstand, in the curve and in the quantity alike."""
    right = {name: torch.ones(64, len(FULL.conditions), dtype=torch.bool) for name in ("v", "c")}
    attacked = [place for place, (kind, _) in enumerate(FULL.conditions) if kind == "pgd"]
    right["c"][:, attacked] = False
    found = examine(FULL, stage("v", "c"), right)
    room = 1 - 0.025 ** (1 / 64)
    rows = found["quantity"].values == "pgd_accuracy"
    assert found.quantity_value.values[rows].tolist() == [1.0, 0.0]
    assert found.quantity_low.values[rows] == pytest.approx([1 - room, 0.0])
    assert found.quantity_high.values[rows] == pytest.approx([1.0, room])
    assert found["mean"].sel(kind="pgd").values.tolist() == [1.0, 0.0]
    assert found.mean_high.sel(kind="pgd").values == pytest.approx([1.0, room])
    intact, attack = 0, attacked[0]
    for name, ends in (("v", (1 - room, 1.0)), ("c", (0.0, room))):  # a share of its own accuracy is no more certain
        row = found.sel(subject=name)
        assert (float(row.relative_low[attack]), float(row.relative_high[attack])) == pytest.approx(ends)
        assert float(row.relative_low[intact]) == float(row.relative_high[intact]) == 1
    rows = found["quantity"].values == "pgd_kept"  # a share of the 64 that were read right
    assert found.quantity_value.values[rows].tolist() == [1.0, 0.0]
    assert found.quantity_low.values[rows] == pytest.approx([1 - room, 0.0])
    assert found.quantity_high.values[rows] == pytest.approx([1 + room, room])
    rows = found["quantity"].values == "occlusion_advantage"  # all pictures were read by both: no proof of a tie
    assert found.quantity_value.values[rows].tolist() == [0.0]
    assert found.quantity_low.values[rows] == pytest.approx([-room])
    assert found.quantity_high.values[rows] == pytest.approx([room])


class Overflowing(Linear):
    """No answer to bright pictures: their logits are not numbers, as in half precision beyond its range."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return torch.where((images.mean((1, 2, 3)) > 0)[:, None], torch.nan, logits)


def test_what_is_not_a_number_is_no_answer_and_withstands_nothing(bench: Bench) -> None:
    """`argmax` names the class of the first NaN: pictures of class 0 would all be read right."""
    module = Overflowing()
    module.load_state_dict(bench.subject.module.state_dict())
    subject = replace(bench.subject, module=module)
    bright = bench.images.mean((1, 2, 3)) > 0.2  # occlusion and attack do not darken them below 0
    assert bench.targets is not None
    targets = torch.where(bright, 0, bench.targets)
    found = FULL.experiment(replace(bench, subject=subject, targets=targets))["right"]
    assert bright.sum() > 3
    assert not bool(found[bright].any())


def test_without_pgd_there_is_no_number_for_attack_and_it_is_said() -> None:
    quick = Robustness(images=64, steps=0)
    right = {name: torch.ones(64, len(quick.conditions), dtype=torch.bool) for name in ("v", "c")}
    found = examine(quick, stage("v", "c", "strange"), right)
    assert np.isnan(quantity(found, "attack_advantage")).all()
    assert quantity(found, "pgd_accuracy") == []
    assert "PGD is added by --effort normal" in quick.sentence(found)
    assert "strange is left out" in quick.sentence(found)
    quick.chart(found).to_dict()
    with pytest.raises(DoesNotApply, match="classes"):
        quick.check_labels(replace(stage("v"), label_maps={}))


def test_one_shard_and_many_give_the_same_numbers(bench: Bench) -> None:
    source = open_images("sample")
    measures = [Robustness(images=20, steps=4)]
    found = []
    for per_shard in (1, 3):
        plan = plan_batches(source, limit=24, block=8, blocks_per_shard=per_shard)
        where = Scene((bench.anatomy,), 24, 3, 8, 16, source.classes, {"linear": (0, 1) * 5})
        station = TappedSubject(bench.subject, bench.anatomy, measures)
        tallies = [
            examine_shard([station], source, plan.batches(shard), measures, where)["robustness"]
            for shard in reversed(range(len(plan.shards)))
        ]
        found.append(reduce(lambda one, other: one.merge(other), tallies).tensors())
    assert found[0]["images"].sum() == 20
    assert torch.equal(found[0]["right"], found[1]["right"])
