"""The loss around the weights, on losses whose shape is known (SPEC Appendix A, M17)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply, UsageError
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.landscape.measure import Landscape, LandscapeTally, penalty_share, rise
from eyechart.measures.landscape.plane import at, batch_statistics, direction, moved, norms
from eyechart.scene import Batch, Scene
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tally import Tally
from eyechart.tracing.bench import Bench
from tests.cases import inside
from tests.measures.staging import anatomy, scene, site


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 4, 4), nn.BatchNorm2d(8)
        self.block = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        grid = self.norm(self.stem(images))
        grid = grid + self.block(grid).relu()
        logits: Tensor = self.head(grid.mean((2, 3)))
        return logits


@pytest.fixture
def subject() -> Subject:
    torch.manual_seed(0)
    found = load_subject(Small(), label="small", input_size=32)
    found.classes = open_images("sample").classes
    return found


def examine(measure: Landscape, subject: Subject, images: int = 32) -> xarray.Dataset:
    source = open_images("sample")
    plan = plan_batches(source, limit=images, block=16)
    found = anatomy_of("small", subject.module, subject.prepare(source.pictures([0, 1])), call=subject.call)
    where = Scene((found,), images, images // 16, 16, 16, source.classes, {"small": tuple(range(10))})
    station = TappedSubject(subject, found, [measure])
    tally: Tally = measure.tally(where)
    for shard in range(len(plan.shards)):
        tally = tally.merge(examine_shard([station], source, plan.batches(shard), [measure], where)["landscape"])
    assert isinstance(tally, LandscapeTally)
    return with_intervals(measure, tally, where)


def test_the_middle_is_the_plain_loss_and_the_subject_stays_as_it_was(subject: Subject) -> None:
    before = {name: value.clone() for name, value in subject.module.state_dict().items()}
    found = examine(Landscape(images=32, steps=3), subject)
    after = subject.module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    source = open_images("sample")
    order = plan_batches(source, limit=32, block=16).order
    labels = torch.as_tensor(source.labels)[list(order)]
    with torch.no_grad():
        logits = subject.call(subject.prepare(source.pictures(order)))
    expected = float(nn.functional.cross_entropy(logits, labels))
    assert float(found.nll.sel(data="clean")[0, 1, 1]) == pytest.approx(expected, abs=1e-5)
    total = 0.05 * sum(float(p.detach().norm()) for p in subject.module.parameters())
    assert float(found.penalty[0, 1, 1]) == pytest.approx(total, abs=1e-5)
    assert float(found.penalty[0, 0, 0]) > total
    assert found.attrs["images"] == 32


def test_other_points_are_the_loss_of_hand_moved_weights(subject: Subject) -> None:
    found = examine(Landscape(images=16, steps=3), subject, images=16)
    weights = moved(subject.module)
    one, two = (direction(weights, number, "filter") for number in (1, 2))
    with torch.no_grad():
        for name, weight in weights.items():
            weight.add_(two[name] - one[name])
    source = open_images("sample")
    order = plan_batches(source, limit=16, block=16).order
    labels = torch.as_tensor(source.labels)[list(order)]
    with torch.no_grad():
        logits = subject.call(subject.prepare(source.pictures(order)))
    expected = float(nn.functional.cross_entropy(logits, labels))
    assert float(found.nll.sel(data="clean")[0, 0, 2]) == pytest.approx(expected, rel=1e-4)


def test_directions_have_the_stated_norms_and_leave_tables_alone() -> None:
    vit = load_subject("zoo:vit").module
    weights = moved(vit)
    assert {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "head.weight"} <= weights.keys()
    assert not {name for name in weights if "pos" in name or "cls" in name or "norm" in name or "bias" in name}
    for normalisation in ("filter", "paper"):
        drawn = direction(weights, 1, normalisation)
        for name, weight in weights.items():
            torch.testing.assert_close(
                norms(drawn[name], normalisation), norms(weight, normalisation), rtol=1e-4, atol=1e-6
            )
    first = next(iter(weights))
    assert torch.equal(direction(weights, 1, "filter")[first], direction(weights, 1, "filter")[first])
    assert not torch.equal(direction(weights, 1, "filter")[first], direction(weights, 2, "filter")[first])
    assert norms(torch.ones(4, 9), "filter").flatten().tolist() == [3.0] * 4
    assert norms(torch.ones(4, 9), "paper").flatten().tolist() == [2.0] * 9


def test_a_quadratic_bowl_is_recovered() -> None:
    side = np.linspace(-1, 1, 21)
    bowl = side[:, None] ** 2 + side[None] ** 2
    estimate = xarray.Dataset(
        {
            "nll": (("subject", "data", "a", "b"), bowl[None, None] + np.zeros((1, 2, 1, 1)) + 3),
            "penalty": (("subject", "a", "b"), 3 * bowl[None]),
        },
        coords={"subject": ["bowl"], "data": ["clean", "augmented"], "a": side, "b": side},
    )
    assert rise("nll", "clean", 0.5)(estimate)["bowl",] == pytest.approx(0.25, rel=0.05)
    assert rise("nll", "clean", 1.0)(estimate)["bowl",] == pytest.approx(1.0, rel=0.05)
    assert penalty_share(estimate)["bowl",] == pytest.approx(0.75)


def test_infinite_losses_are_counted_and_drawn_not_dropped(subject: Subject) -> None:
    class Explodes(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.size = inside(inner), inside(inner).stem.weight.detach().norm().item()

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.inner(images)
            grown = self.inner.stem.weight.norm() > 1.3 * self.size
            return torch.where(grown, logits * torch.inf, logits)

    subject.module = Explodes(subject.module).eval()
    measure = Landscape(images=16, steps=3)
    found = examine(measure, subject, images=16)
    middle, corner = found.nll.sel(data="clean")[0, 1, 1], found.nll.sel(data="clean")[0, 0, 0]
    assert np.isfinite(middle)
    assert np.isnan(corner)
    assert float(found.infinite.sel(data="clean")[0, 0, 0]) == 1
    assert np.isnan(rise("nll", "clean", 1.0)(found)["small",])
    assert "infinite losses" in measure.sentence(found)
    assert "cross" in measure.chart(found).to_json()


def test_batch_statistics_are_those_of_the_images_and_go_again(subject: Subject) -> None:
    images = 5 + 3 * torch.randn(8, 3, 32, 32)
    module = inside(subject.module)
    stored = module.norm.running_mean.clone()
    with torch.no_grad(), batch_statistics(subject.module):
        seen = module.norm(module.stem(images))
    assert seen.mean((0, 2, 3)).abs().max() < 1e-4
    assert torch.equal(module.norm.running_mean, stored)
    assert not module.norm.training
    with torch.no_grad(), batch_statistics(subject.module):
        module.norm(torch.full((2, 8, 4, 4), torch.inf))
    assert torch.equal(module.norm.running_mean, stored)


def test_pictures_that_cannot_be_augmented_have_no_landscape(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does one stop the exam, nor is its loss 0."""
    monkeypatch.setattr(Subject, "colours", None)
    assert np.isnan(examine(Landscape(images=16, steps=3), subject, images=16).nll.values).all()


def test_what_is_mixed_together_stays_together_in_a_fold(subject: Subject) -> None:
    """A draw of mixup that all folds share would have no interval."""
    source = open_images("sample")
    found = anatomy_of("small", subject.module, subject.prepare(source.pictures([0, 1])), call=subject.call)
    where = Scene((found,), 32, 2, 16, 16, source.classes, {"small": tuple(range(10))})
    measure = Landscape(images=32, steps=3)
    batches = plan_batches(source, limit=32, block=16).batches(0)
    tally = examine_shard([TappedSubject(subject, found, [measure])], source, batches, [measure], where)["landscape"]
    assert tally.fold_counts.tolist() == [4.0] * 4 + [0.0] * 12  # the first block: four groups of 4


def test_weights_come_back_after_an_error(subject: Subject) -> None:
    weights = dict(moved(subject.module))
    before = weights["head.weight"].detach().clone()
    with pytest.raises(RuntimeError), at(weights, {"head.weight": torch.ones(10, 8)}):
        raise RuntimeError
    assert torch.equal(weights["head.weight"], before)


def test_bad_options_and_unmatched_classes() -> None:
    with pytest.raises(UsageError, match="odd"):
        Landscape(steps=10)
    with pytest.raises(DoesNotApply, match="classes"):
        Landscape().check_labels(scene(anatomy("net", [])))
    head = site("head", role="head", axes="NC", grid=None)
    where = replace(scene(anatomy("net", [head]), images=64, block=4), classes=("a",), label_maps={"net": (0,)})
    assert Landscape().tally(where).nll.shape == (16, 1, 2, 11, 11)
    with pytest.raises(DoesNotApply, match="groups of 4 images, and there are 3"):
        Landscape().tally(replace(where, images=3))
    with pytest.raises(DoesNotApply, match="blocks of 4; give at least 960"):
        Landscape(batch_norm="images").tally(where)


def test_statistics_of_the_pictures_are_those_of_whole_blocks(subject: Subject) -> None:
    """Of 62 pictures although 8 were asked for; of the 10 pictures of a last block none can be taken."""
    source = open_images("sample")
    pictures = subject.prepare(source.pictures(range(62)))
    found = anatomy_of("small", subject.module, pictures[:2], call=subject.call)
    labels = np.asarray(source.labels)[:62]
    block = Batch(0, 0, np.arange(62), labels, 0, np.arange(62) % 16, True)
    bench = Bench(subject, found, block, pictures, torch.as_tensor(labels))
    measure = Landscape(images=8, steps=3, batch_norm="images")
    losses = measure.experiment(bench)["losses"][0, 1, 1]
    subject.module.train()
    with torch.no_grad():
        own = nn.functional.cross_entropy(subject.module(pictures[:60]), torch.as_tensor(labels[:60]), reduction="none")
    subject.module.eval()
    assert torch.allclose(losses, own, atol=1e-4)
    assert measure.experiment(bench.picked(torch.arange(10))) == {}
    assert len(Landscape(images=8, steps=3).experiment(bench)["group"]) == 8
