"""Experiments: a measure's own passes, whose numbers must not depend on how the exam was cut into shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from eyechart.claims.asking import quantities_asked
from eyechart.claims.judge import LEAST_IMAGES
from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.measure import SPEED, Measure, SampledExperiment, Views
from eyechart.measures import measures
from eyechart.measures.recognition.measure import Recognition
from eyechart.scene import Batch, Scene
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench, plain_arithmetic
from eyechart.tracing.interventions import Lesion
from eyechart.tracing.needs import View
from eyechart.tracing.pieces import PieceSize


@pytest.fixture(scope="module")
def subject() -> Subject:
    return load_subject("zoo:vit")


@pytest.fixture(scope="module")
def bench(subject: Subject) -> Bench:
    images = subject.prepare(open_images("sample").pictures(range(8)))
    anatomy = anatomy_of(subject.name, subject.module, images[:2], call=subject.call)
    places = np.arange(8)
    batch = Batch(2, 16, places, places % 3, 2, (16 + places) % 16, True)
    return Bench(subject, anatomy, batch, images, torch.arange(8))


def test_the_first_images_of_the_exam_are_picked_wherever_they_lie(bench: Bench) -> None:
    assert [len(bench.first(count)) for count in (0, 16, 19, 24, 1000)] == [0, 0, 3, 8, 8]
    few = bench.first(19)
    assert few.targets is not None
    assert few.batch.images.tolist() == [0, 1, 2] == few.targets.tolist()
    assert torch.equal(few.images, bench.images[:3])


def test_logits_are_those_of_the_plain_call_and_of_the_tap(bench: Bench) -> None:
    with torch.no_grad():
        plain = bench.subject.call(bench.images)
    assert torch.equal(bench.logits(), plain)
    pieces = Bench(bench.subject, bench.anatomy, bench.batch, bench.images, None, PieceSize(3))
    assert torch.allclose(pieces.logits(), plain, atol=1e-5)
    last = bench.anatomy.pick("junction")[-1].name
    assert not torch.allclose(bench.logits(interventions=[Lesion(last)]), plain, atol=1e-2)


def test_dice_fall_alike_in_every_pass_of_a_draw(bench: Bench) -> None:
    """Or answers would change without anything having been changed."""

    class Dice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 5)

        def forward(self, images: Tensor) -> Tensor:
            features = nn.functional.dropout(self.stem(images).mean((2, 3)), 0.5, training=True)
            logits: Tensor = self.head(features)
            return logits

    subject = load_subject(Dice(), label="dice", input_size=32)
    anatomy = anatomy_of("dice", subject.module, bench.images[:2], call=subject.call)
    assert anatomy.random
    dicing = Bench(subject, anatomy, bench.batch, bench.images, None)
    before = torch.random.get_rng_state()
    assert torch.equal(dicing.logits(), dicing.logits())
    assert not torch.equal(dicing.logits(), dicing.logits(draw=1))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_pixels_are_the_pictures(bench: Bench) -> None:
    pictures = open_images("sample").pictures(range(8))
    expected = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])).permute(0, 3, 1, 2) / 255
    assert torch.allclose(bench.pixels(), expected, atol=1e-6)
    assert torch.allclose(bench.from_pixels(bench.pixels()), bench.images, atol=1e-6)


def test_a_transform_that_mixes_colours_has_no_pixels(bench: Bench) -> None:
    def squared(picture: Image.Image) -> Tensor:
        pixels = np.array(picture.resize((32, 32)))
        return torch.from_numpy(pixels).permute(2, 0, 1).float().square()

    strange = load_subject(bench.subject.module, transform=squared, label="strange")
    with pytest.raises(DoesNotApply, match="colours"):
        Bench(strange, bench.anatomy, bench.batch, bench.images, None).pixels()


def test_random_numbers_belong_to_the_batch_and_the_purpose(bench: Bench) -> None:
    def draw(purpose: str) -> Tensor:
        return torch.rand(3, generator=bench.generator(purpose))

    assert torch.equal(draw("noise"), draw("noise"))
    assert not torch.equal(draw("noise"), draw("shuffle"))


def test_gradients_flow_through_a_tap(bench: Bench) -> None:
    from eyechart.tracing.taps import Tap

    seen = View("all", lambda look: look.tokens(look.output))
    block = bench.anatomy.pick("block")[0].name
    images = bench.images[:2].clone().requires_grad_()
    with plain_arithmetic():
        _, views = Tap(bench.subject.module, bench.anatomy, {block: [seen]}).run_with_gradients(
            images, bench.subject.call
        )
        (gradient,) = torch.autograd.grad(views[block]["all"][:, 1].square().sum(), images, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), images)
    assert gradient.abs().amax() > 0
    assert second.abs().amax() > 0


@dataclass
class ConfidenceTally(Tally):
    confidence: Annotated[Tensor, Sum("fold", "subject")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


@dataclass(frozen=True)
class Confidence(SampledExperiment, Recognition):
    """A toy: mean confidence on noisy pictures, in a pass of its own."""

    budget = {"quick": 1.0, "normal": 20.0}  # noqa: RUF012

    def tally(self, scene: Scene) -> Any:
        return ConfidenceTally.empty(fold=scene.folds, subject=len(scene.subjects))

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        few = bench.first(self.images)
        if not len(few):
            return {}
        noise = torch.randn(bench.images.shape, generator=bench.generator("noise"))[: len(few)]
        return {"confidence": few.logits(few.images + noise).softmax(1).amax(1), "fold": few.folds()}

    def update(self, tally: Any, batch: Batch, views: Views, scene: Scene) -> None:
        for row, subject in enumerate(scene.subjects):
            found = views.experiment(subject)
            if found:
                tally.add("confidence", found["fold"], found["confidence"], row)
                if row == 0:
                    tally.add("images", found["fold"])


class Dice(nn.Module):
    """A subject that is stochastic at test time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.block = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.conv(images)
        hidden = hidden + self.block(hidden)
        logits: Tensor = self.head(nn.functional.dropout(hidden, 0.5, training=True).mean((2, 3)))
        return logits


def test_one_shard_and_many_give_the_same_experiment() -> None:
    torch.manual_seed(0)
    dice = load_subject(Dice(), label="dice", transform=None)
    dice.preprocessing = load_subject("zoo:vit").preprocessing
    source = open_images("sample")
    picture = dice.prepare(source.pictures([0, 1]))
    anatomy = anatomy_of(dice.name, dice.module, picture, call=dice.call)
    measures: list[Measure] = [Confidence(images=40)]
    found = []
    for per_shard in (1, 4):
        plan = plan_batches(source, limit=64, block=16, blocks_per_shard=per_shard)
        scene = Scene((anatomy,), 64, 4, 16, 16, source.classes)
        station = TappedSubject(dice, anatomy, measures)
        tallies = [
            examine_shard([station], source, plan.batches(shard), measures, scene)["recognition"]
            for shard in reversed(range(len(plan.shards)))
        ]
        merged = tallies[0]
        for tally in tallies[1:]:
            merged = merged.merge(tally)
        found.append(merged.tensors())
    assert torch.allclose(found[0]["confidence"], found[1]["confidence"], atol=1e-6)
    assert found[0]["images"].sum() == 40


def test_an_experiment_is_as_large_as_its_budget(bench: Bench) -> None:
    def scene(images: int) -> Scene:
        return Scene((bench.anatomy,), images, images // 16, 16, 16, None)

    quick = Confidence().sized("quick", scene(10_000))
    normal = Confidence().sized("normal", scene(10_000))
    assert 64 <= quick.images < normal.images < 10_000
    assert quick.images % 16 == 0
    assert Confidence().sized("normal", scene(96)).images == 96
    assert Confidence(images=5).sized("quick", scene(96)).images == 5
    with pytest.raises(DoesNotApply, match=r"than --effort full allows .*; --effort quick or --measures .* runs it"):
        Confidence().sized("full", scene(96))
    huge = replace(scene(96), anatomies=(replace(bench.anatomy, flops=10**15),))
    for effort in ("quick", "full"):  # no effort is long enough, so none is promised
        with pytest.raises(DoesNotApply, match="largest subject; --measures recognition runs it"):
            Confidence().sized(effort, huge)
    assert Confidence().sized("full", scene(10_000), asked_for=True) == quick


def test_an_experiment_that_decides_claims_gets_as_many_images_as_decide(bench: Bench) -> None:
    def images(decides: bool, share: float, images: int = 10_000, asked_for: bool = False) -> int:
        """Allowed at --effort quick on a subject of which the budget pays for `share` of the least that decides."""
        flops = SPEED * Confidence.budget["quick"] / (share * LEAST_IMAGES)
        scene = Scene((replace(bench.anatomy, flops=flops),), images, images // 16, 16, 16, None)
        return Confidence().sized("quick", scene, asked_for=asked_for, decides=decides).images

    assert (images(False, 0.7), images(True, 0.7)) == (80, LEAST_IMAGES)
    assert images(True, 3) == 3 * LEAST_IMAGES
    assert images(True, 0.7, images=96) == 96, "more than there are cannot be had"
    assert images(True, 0.1, asked_for=True) == LEAST_IMAGES
    with pytest.raises(DoesNotApply, match="it needs at least 64 images"):
        images(True, 0.4)


def test_no_experiment_takes_more_than_twice_its_seconds_to_decide() -> None:
    read = quantities_asked(measures())
    deciding = [
        measure
        for measure in measures().values()
        if isinstance(measure, SampledExperiment)
        and not read.isdisjoint(quantity.name for quantity in measure.quantities)
    ]
    assert all(2 * measure.least_images >= LEAST_IMAGES for measure in deciding)
