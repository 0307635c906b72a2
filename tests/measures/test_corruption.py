"""The corruption measure: severity 0 is clean, sums are those of plain loops, and C69 asks several measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from PIL import Image
from torch import Tensor, nn

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.claims.table import CLAIMS
from eyechart.corruptions import SEVERITIES, TYPES
from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measure import Views
from eyechart.measures.corruption.measure import Corruption, corrupted
from eyechart.scene import Batch, Scene
from eyechart.sites import Architecture
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.tracing.bench import Bench
from tests.measures.staging import anatomy, batches, scene, site

CONDITIONS = 1 + len(TYPES) * SEVERITIES


def stage(*names: str, images: int = 64) -> Scene:
    head = site("head", role="head", axes="NC", grid=None)
    kinds: tuple[Architecture, ...] = ("transformer", "cnn", "cnn", "cnn")
    blocks = [[site("a", stage=0, block=0), site("b", stage=stage, block=1), head] for stage in (0, 1, 1, 1)]
    where = scene(*(anatomy(name, blocks[at], kinds[at]) for at, name in enumerate(names)), images=images)
    return replace(where, classes=("a", "b", "c"), label_maps=dict.fromkeys(names, (0, 1, 2)))


def examine(where: Scene, scores: Mapping[str, Tensor], *, intervals: bool = True) -> xarray.Dataset:
    """A finding from made-up scores (image, condition, score); a subject without any is not examined."""
    measure = Corruption(images=where.images)
    tally = measure.tally(where)
    for batch in batches(where.images, 16, labels=np.zeros(where.images, int)):
        rows = slice(batch.start, batch.start + len(batch.images))
        folds = torch.as_tensor(batch.image_folds)
        found = {
            name: {"scores": scores[name][rows], "folds": folds} if name in scores else {} for name in where.subjects
        }
        measure.update(tally, batch, Views({}, found), where)
    return with_intervals(measure, tally, where) if intervals else measure.estimate(tally.total(), where)


def made_up(images: int, seed: int = 0, easier: float = 0.0) -> Tensor:
    """Right, negative log-likelihood and confidence, harder with severity."""
    generator = torch.Generator().manual_seed(seed)
    level = torch.cat([torch.zeros(1), torch.arange(1.0, 6).repeat(len(TYPES))])
    sure = 0.3 + 0.65 * torch.rand(images, CONDITIONS, generator=generator)
    right = torch.rand(images, CONDITIONS, generator=generator) < 0.95 + easier - 0.1 * level
    return torch.stack([right.double(), -sure.log().double(), sure.double()], dim=2)


def test_sums_are_those_of_plain_loops() -> None:
    scores = made_up(64)
    found = examine(stage("net"), {"net": scores}, intervals=False).isel(subject=0)
    right = scores[:, 1:, 0].view(64, 15, 5)
    for place, name in enumerate(TYPES):
        assert np.allclose(found.accuracy.sel(type=name), right[:, place].mean(0))
        assert float(found.by_type.sel(type=name)) == pytest.approx(float(right[:, place].mean()))
    assert float(found["mean"]) == pytest.approx(float(right.mean()))
    assert float(found.relative) == pytest.approx(float(right.mean() / scores[:, 0, 0].mean()))
    for level in range(6):
        here = scores[:, :1] if level == 0 else scores[:, 1:].view(64, 15, 5, 3)[:, :, level - 1]
        sure, correct = here[..., 2].flatten().numpy(), here[..., 0].flatten().numpy()
        error = 0.0
        for low in range(10):
            inside = (sure > low / 10) & (sure <= (low + 1) / 10)
            error += abs(correct[inside].sum() - sure[inside].sum()) / len(sure)
        at = found.sel(level=level)
        assert float(at.ece) == pytest.approx(error)
        assert float(at.signed_ece) == pytest.approx(sure.mean() - correct.mean())
        assert float(at.nll) == pytest.approx(float(here[..., 1].mean()))
        assert float(at.by_severity) == pytest.approx(correct.mean())
    assert found.attrs["images"] == 64


def test_differences_are_paired() -> None:
    """Two subjects that fail on the same pictures differ by nothing; only what 64 pictures cannot show is left open."""
    scores = made_up(64)
    found = examine(stage("a", "b", "c"), {"a": scores, "b": scores, "c": made_up(64, 1, easier=-0.3)})
    same, other = (found.isel(pair=(found.one.values == "a") & (found.other.values == who)) for who in "bc")
    assert np.allclose(same.difference, 0)
    assert np.allclose(same.difference_high, 1 - 0.025 ** (1 / 64))
    assert (other.difference_high < 0).mean() > 0.8
    assert found.sizes["pair"] == 3
    assert float(found.quantity_value[found["quantity"].values == "corruption_advantage"][0]) == 0


def test_subjects_that_are_fed_other_sizes_are_not_compared() -> None:
    where = stage("a", "b")
    large = replace(where.anatomies[1], input_size=(224, 224))
    where = replace(where, anatomies=(where.anatomies[0], large))
    found = examine(where, {"a": made_up(64), "b": made_up(64, 1)})
    assert found.sizes["pair"] == 0
    assert "corruption_advantage" not in found["quantity"].values
    assert "another size" in Corruption().sentence(found)
    assert found.pictures.values.tolist() == ["CIFAR-10-C, 32×32", "ImageNet-C, 224×224"]
    Corruption().chart(found).to_dict()


def test_a_subject_without_pixels_is_left_out_with_the_reason() -> None:
    found = examine(stage("a", "b"), {"a": made_up(64)})
    assert np.isnan(found["mean"].sel(subject="b"))
    assert "b is left out" in Corruption().sentence(found)
    Corruption().chart(found).to_dict()


def test_it_needs_classes_and_time() -> None:
    where = replace(stage("a"), label_maps={})
    with pytest.raises(DoesNotApply, match="classes"):
        Corruption().check_labels(where)
    dear = replace(stage("a", images=5000).anatomies[0], flops=4e8)
    where = replace(stage("a", images=5000), anatomies=(dear,))
    with pytest.raises(DoesNotApply, match="--effort normal or --measures corruption runs it"):
        Corruption().sized("quick", where)
    assert 64 <= Corruption().sized("normal", where).images < Corruption().sized("full", where).images


class Colours(nn.Module):
    """Logits that are the mean colours of a picture, so that its class is its strongest colour."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 3, 1, bias=False), nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.head.weight)
        with torch.no_grad():
            self.conv.weight.copy_(torch.eye(3)[:, :, None, None])

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(8 * self.conv(images).mean((2, 3)))
        return logits


@pytest.fixture(scope="module")
def bench() -> Bench:
    subject = load_subject(Colours(), label="colours", transform=None)
    subject.preprocessing = load_subject("zoo:vit").preprocessing
    images = subject.prepare(open_images("sample").pictures(range(8)))
    found = anatomy_of(subject.name, subject.module, images[:2], call=subject.call)
    places = np.arange(8)
    batch = Batch(0, 0, places, places % 3, 0, places % 16, True)
    targets = torch.tensor([0, 1, 2, -1, 1, 2, 0, 1])
    return Bench(subject, found, batch, images, targets)


def test_the_experiment_scores_the_corrupted_pictures(bench: Bench) -> None:
    found = Corruption(images=6).experiment(bench)
    assert found["scores"].shape == (5, CONDITIONS, 3)  # of six, one has no class
    kept = bench.picked(torch.tensor([0, 1, 2, 4, 5]))
    assert kept.targets is not None
    clean = kept.logits().double().log_softmax(1)
    assert torch.allclose(found["scores"][:, 0, 1], -clean.gather(1, kept.targets[:, None])[:, 0])
    place = 1 + TYPES.index("contrast") * SEVERITIES + 4
    pixels = kept.pixels()
    pale = kept.from_pixels((pixels - pixels.mean((2, 3), keepdim=True)) * 0.15 + pixels.mean((2, 3), keepdim=True))
    expected = kept.logits(pale).double().log_softmax(1).max(1)
    assert torch.allclose(found["scores"][:, place, 2], expected.values.exp(), atol=1e-5)
    assert torch.equal(found["scores"][:, place, 0], (expected.indices == kept.targets).double())
    assert found["tiles"].shape == (1, 16, 3, 32, 32)
    assert torch.allclose(found["tiles"][0, 0], pixels[0])


def test_severity_0_is_clean_and_all_subjects_meet_the_same_pictures(bench: Bench) -> None:
    other = replace(bench, subject=load_subject("zoo:resnet"))
    for name in ("gaussian_noise", "snow", "glass_blur"):
        assert torch.equal(corrupted(bench, name, 0), bench.pixels())
        assert torch.allclose(corrupted(bench, name, 3), corrupted(other, name, 3), atol=1e-5)


def test_nothing_where_colours_are_mixed_or_no_class_is_known(bench: Bench) -> None:
    assert Corruption(images=6).experiment(replace(bench, targets=None)) == {}
    assert Corruption(images=6).experiment(replace(bench, targets=torch.full((8,), -1))) == {}
    assert Corruption(images=6).experiment(replace(bench, batch=replace(bench.batch, start=6))) == {}

    def squared(picture: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(picture.resize((32, 32)))).permute(2, 0, 1).float().square()

    strange = load_subject(bench.subject.module, transform=squared, label="strange")
    assert Corruption(images=6).experiment(replace(bench, subject=strange)) == {}


def quantity_rows(values: Mapping[str, float]) -> xarray.Dataset:
    return xarray.Dataset(
        {f"quantity_{part}": ("quantity_row", np.array([*values.values()]) + step)
         for part, step in (("value", 0), ("low", -0.01), ("high", 0.01))},
        coords={
            "quantity": ("quantity_row", [*values]),
            "quantity_subjects": ("quantity_row", ["v | c"] * len(values)),
        },
        attrs={"images": 1000},
    )  # fmt: skip


def test_c69_asks_all_three_measures_and_says_what_is_missing() -> None:
    kinds: dict[str, Architecture] = {"v": "transformer", "c": "cnn"}
    facts = {name: Facts(name, kind, True, recipe="same") for name, kind in kinds.items()}
    names = [part.quantity for part in CLAIMS["C69"].tests[0].parts]
    shares = {"calibration": names[:2], "corruption": names[2:4], "robustness": names[4:]}
    tests = asked_of([Corruption()])

    def said(values: Mapping[str, float], measures: list[str]) -> Any:
        findings = {name: quantity_rows({each: values[each] for each in shares[name]}) for name in measures}
        return next(verdict for verdict in judge(tests, findings, facts) if verdict.claim == "C69")

    better = dict.fromkeys(names, 0.05)
    assert said(better, [*shares]).verdict == "holds"
    worse = said({**better, "relative_attack_advantage": -0.05}, [*shares])
    assert worse.verdict == "fails"
    assert "under attack" in worse.reason
    assert said({**better, "attack_advantage": 0.005}, [*shares]).verdict == "undecided"
    missing = said(better, ["corruption"])
    assert missing.verdict == "not tested"
    assert "calibration and robustness" in missing.reason


def test_one_shard_and_many_give_the_same_numbers(bench: Bench) -> None:
    source = open_images("sample")
    measures = [Corruption(images=20)]
    found = []
    for per_shard in (1, 3):
        plan = plan_batches(source, limit=24, block=8, blocks_per_shard=per_shard)
        where = Scene((bench.anatomy,), 24, 3, 8, 16, source.classes, {"colours": (0, 1, 2, 0, 1, 2, 0, 1, 2, 0)})
        station = TappedSubject(bench.subject, bench.anatomy, measures)
        tallies = [
            examine_shard([station], source, plan.batches(shard), measures, where)["corruption"]
            for shard in reversed(range(len(plan.shards)))
        ]
        found.append(reduce(lambda one, other: one.merge(other), tallies).tensors())
    assert found[0]["images"].sum() == 20
    assert len(found[0]["image"]) == 1  # one example, whichever shard held it
    for name, values in found[0].items():
        assert torch.allclose(values.double(), found[1][name].double(), atol=1e-6), name
