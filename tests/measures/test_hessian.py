"""The Hessian as a measure of subjects: a convex one, dense Hessians of its minibatches, a crowded spectrum."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.errors import DoesNotApply, UsageError
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measure import Views
from eyechart.measure_options import with_option
from eyechart.measures.hessian.measure import HessianSpectrum, HessianTally
from eyechart.measures.hessian.quantities import VARIANTS
from eyechart.scene import Scene
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.tally import Tally
from eyechart.tracing.bench import Bench
from tests.measures.benches import whole_and_in_shards
from tests.measures.staging import anatomy, scene, site


class Linear(nn.Module):
    """Logistic regression on an 8×8 picture: its loss is convex in the weights, whatever the targets."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


class Deep(nn.Module):
    """Small enough for a dense Hessian, and not convex."""

    def __init__(self, gate: nn.Module | None = None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 8, 8)
        self.norm = nn.BatchNorm2d(6)
        self.gate = gate or nn.Tanh()
        self.head = nn.Linear(6, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.gate(self.norm(self.stem(images))).mean((2, 3)))
        return logits


def subject_of(module: nn.Module, size: int) -> Subject:
    found = load_subject(module, label="net", input_size=size)
    found.classes = open_images("sample").classes
    return found


def examine(
    measure: HessianSpectrum, subject: Subject, images: int = 32, block: int = 16
) -> tuple[HessianTally, Scene]:
    source = open_images("sample")
    plan = plan_batches(source, limit=images, block=block)
    found = anatomy_of("net", subject.module, subject.prepare(source.pictures([0, 1])), call=subject.call)
    where = Scene((found,), images, images // block, block, 16, source.classes, {"net": tuple(range(10))})
    station = TappedSubject(subject, found, [measure])
    tally: Tally = measure.tally(where)
    for shard in range(len(plan.shards)):
        tally = tally.merge(examine_shard([station], source, plan.batches(shard), [measure], where)["hessian"])
    assert isinstance(tally, HessianTally)
    return tally, where


def test_logistic_regression_has_no_negative_eigenvalue() -> None:
    torch.manual_seed(0)
    measure = HessianSpectrum(images=64)
    tally, where = examine(measure, subject_of(Linear(), 8), images=64, block=32)
    found = with_intervals(measure, tally, where)
    assert found.attrs["minibatches"] == 4
    assert found.attrs["images"] == 64
    assert found.nep.values.tolist() == [[0.0] * 4]
    assert (found.nep_high.values > 0.1).all()  # twenty values without any do not say "never"
    assert (found.ape.values > 0).all()
    assert float(found.unsettled.max()) == 0
    assert "0% [0%" in measure.sentence(found)


def test_eigenvalues_are_those_of_the_dense_hessian_and_the_subject_stays_as_it_was() -> None:
    torch.manual_seed(0)
    subject = subject_of(Deep(), 32)
    subject.module.requires_grad_(False)
    before = {name: value.clone() for name, value in subject.module.state_dict().items()}
    tally, _ = examine(HessianSpectrum(images=32, augmentation="none", l2="half", weight=0.5), subject, block=32)
    assert all(torch.equal(before[name], value) for name, value in subject.module.state_dict().items())
    assert not any(weight.requires_grad for weight in subject.module.parameters())
    source = open_images("sample")
    order = plan_batches(source, limit=32, block=32).order
    labels = torch.as_tensor(source.labels)[list(order)]
    images = subject.prepare(source.pictures(order)).double()
    module = subject.module.double()
    names = [name for name, _ in module.named_parameters()]

    def loss(*weights: Tensor) -> Tensor:
        logits = torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (images[16:],))
        return nn.functional.cross_entropy(logits, labels[16:])

    weights = tuple(weight.detach() for weight in module.parameters())
    blocks = torch.autograd.functional.hessian(loss, weights)
    sizes = [weight.numel() for weight in weights]
    dense = torch.cat(
        [
            torch.cat([b.reshape(n, m) for b, m in zip(row, sizes, strict=True)], 1)
            for row, n in zip(blocks, sizes, strict=True)
        ]
    )
    truth = torch.linalg.eigvalsh(dense).numpy()
    plain, shifted = truth[np.argsort(-np.abs(truth))][:5], truth + 0.5
    np.testing.assert_allclose(tally.values[1, 0, 1], plain, rtol=1e-3)
    np.testing.assert_allclose(tally.values[1, 0, 0], shifted[np.argsort(-np.abs(shifted))][:5], rtol=1e-3)
    np.testing.assert_allclose(tally.ends[1, 0, 1], [truth[0], truth[-1]], rtol=2e-2)
    assert (truth < 0).any()


def test_the_numbers_do_not_depend_on_how_the_exam_is_cut_into_shards() -> None:
    torch.manual_seed(0)
    measure = HessianSpectrum(images=32, augmentation="recipe")
    whole, in_shards, _ = whole_and_in_shards(measure, [subject_of(Deep(), 32)])
    assert isinstance(whole, HessianTally)
    assert whole.image.tolist() == [0, 1]  # 32 of 48 images
    for name, values in whole.tensors().items():
        assert torch.equal(values, in_shards.tensors()[name])


def test_augmentation_and_penalty_change_the_loss() -> None:
    torch.manual_seed(0)
    tally, _ = examine(HessianSpectrum(images=16, weight=1.0), subject_of(Deep(), 32), images=16)
    values = tally.values[0, 0]
    for one in range(4):
        for two in range(one):
            assert not torch.allclose(values[one], values[two], rtol=1e-4), (VARIANTS[one], VARIANTS[two])


def test_variants_follow_the_options() -> None:
    assert HessianSpectrum().variants() == list(VARIANTS)
    assert HessianSpectrum(augmentation="none").variants() == ["clean + penalty", "clean"]
    assert HessianSpectrum(augmentation="recipe", l2="none").variants() == ["augmented"]
    with pytest.raises(UsageError, match="norms, half, none"):
        with_option(HessianSpectrum(), "l2", "all")
    with pytest.raises(UsageError, match="at least 1"):
        HessianSpectrum(batch=0)


def test_an_operation_without_second_derivative_leaves_the_subject_out() -> None:
    measure = HessianSpectrum(images=32)
    tally, where = examine(measure, subject_of(Deep(nn.Hardsigmoid()), 32))
    found = with_intervals(measure, tally, where)
    assert np.isnan(found.nep.values).all()
    assert "no second derivative" in measure.sentence(found)


def test_it_needs_classes_and_whole_minibatches() -> None:
    where = scene(anatomy("net", [site("block")]), images=64, block=4)
    with pytest.raises(DoesNotApply, match="classes"):
        HessianSpectrum().check_labels(where)
    where = replace(where, classes=("a",), label_maps={"net": (0,)})
    with pytest.raises(DoesNotApply, match="at least 256 images"):
        HessianSpectrum().tally(where)


def test_pictures_that_cannot_be_augmented_do_not_stop_the_exam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subject, "colours", None)
    measure = HessianSpectrum(images=32)
    tally, where = examine(measure, subject_of(Deep(), 32))
    found = with_intervals(measure, tally, where)
    assert np.isnan(found.nep.values).all()
    assert measure.sentence(found)
    clean = HessianSpectrum(images=32, augmentation="none")
    tally, where = examine(clean, subject_of(Deep(), 32))
    assert np.isfinite(clean.estimate(tally.total(), where).nep.values).all()


def test_images_of_unknown_class_are_not_used() -> None:
    subject = subject_of(Deep(), 32)
    source = open_images("sample")
    batch = plan_batches(source, limit=64, block=32).batch(1)
    images = subject.prepare(source.pictures(batch.images))
    targets = torch.zeros(32, dtype=torch.long)
    targets[:20] = -1
    where = anatomy("net", [site("block")])
    assert HessianSpectrum(images=64).experiment(Bench(subject, where, batch, images, targets)) == {}
    assert HessianSpectrum(images=64).experiment(Bench(subject, where, batch, images, None)) == {}
    found = HessianSpectrum(images=64, batch=4).experiment(Bench(subject, where, batch, images, targets))
    assert found["number"].tolist() == [8, 9, 10]


# --- quantities and claims ------------------------------------------------------------------------------------------


class Crowded(nn.Module):
    """Cross-entropy of (0, …, −c) for the last class is c to within rounding, so the Hessian is that of c itself."""

    def __init__(self, spectrum: Tensor) -> None:
        super().__init__()
        self.spectrum, self.weight = spectrum, nn.Parameter(torch.ones(len(spectrum)))

    def forward(self, images: Tensor) -> Tensor:
        bowl = 80 + (self.spectrum * self.weight.square()).sum() / 2 - self.spectrum.sum() / 2
        return torch.where(torch.arange(10) == 9, -bowl, torch.zeros(())).expand(len(images), -1)


def test_an_end_in_a_crowd_is_called_unsettled() -> None:
    """The five largest are found at once; 3,000 eigenvalues from −0.02 to 1 need more than the 40 products."""
    spectrum = torch.cat([torch.tensor([90.0, 80.0, 70.0, 60.0, 50.0]), torch.linspace(-0.02, 1, 3000)])
    subject = subject_of(Crowded(spectrum), 32)
    measure = HessianSpectrum(images=32, augmentation="none", l2="none")
    source = open_images("sample")
    batch = plan_batches(source, limit=32, block=32).batch(0)
    images, targets = subject.prepare(source.pictures(batch.images)), torch.full((32,), 9)
    where = replace(scene(anatomy("net", [site("block")]), images=32, block=32), label_maps={"net": tuple(range(10))})
    tally = measure.tally(where)
    seen = measure.experiment(Bench(subject, where.anatomies[0], batch, images, targets))
    measure.update(tally, batch, Views({}, {"net": seen}), where)
    found = with_intervals(measure, tally, where)
    np.testing.assert_allclose(found.eigenvalue.values[0, 0, 0], spectrum[:5], rtol=1e-4)
    assert found.unsettled.item() == 0
    assert found.largest_unsettled.item() == 0
    assert found.smallest_unsettled.item() == 1
    assert abs(found.smallest.item() + 0.02) > 0.01 * 0.02  # and it is indeed off
    text = measure.sentence(found)
    assert "\nAll of these are known to 1 %" in text
    assert "smallest one is not known to 1 % in up to 100% of the minibatches" in text
    assert "largest one is not" not in text
    drawn = json.dumps(measure.chart(found).to_dict())
    assert "datum.smallest_unsettled > 0" in drawn
