"""The Hessian as a measure: a convex subject, dense Hessians of its minibatches, and pairs of snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.engines.shard import Station, examine_shard
from eyechart.errors import DoesNotApply, UsageError
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.hessian import VARIANTS, HessianSpectrum, HessianTally
from eyechart.measures.measure import Scene, Views, with_option
from eyechart.methods.hessian import against, ape_ends, kind_of, time_of
from eyechart.sites import AttentionGeometry
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
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
    found = load_subject(module, name="net", input_size=size)
    found.classes = open_images("sample").classes
    return found


def examine(
    measure: HessianSpectrum, subject: Subject, images: int = 32, block: int = 16
) -> tuple[HessianTally, Scene]:
    source = open_images("sample")
    plan = plan_batches(source, limit=images, block=block)
    found = anatomy_of("net", subject.module, subject.prepare(source.pictures([0, 1])), call=subject.call)
    where = Scene((found,), images, images // block, block, 16, source.classes, {"net": tuple(range(10))})
    station = Station(subject, found, [measure])
    tally = measure.tally(where)
    for shard in range(len(plan.shards)):
        tally = tally.merge(examine_shard([station], source, plan.batches(shard), [measure], where)["hessian"])
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
    labels = torch.as_tensor(source.labels)[list(order)]  # type: ignore[arg-type]
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
        ]  # type: ignore[arg-type]
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
    assert whole.image.tolist() == [0, 1]  # type: ignore[attr-defined] # 32 of 48 images
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
        HessianSpectrum().tally(where)
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


GLOBAL = AttentionGeometry("global", None, 1, 0, 0, (4.0, 4.0), 10.0, 4)


def stage(**eigenvalues: Any) -> tuple[HessianSpectrum, HessianTally, Scene]:
    """A tally of hand-made eigenvalues (minibatch, rank) for each subject, the same for all losses."""
    kinds = {"vit": "transformer", "pit": "transformer", "swin": "transformer", "resnet": "cnn"}
    looks = {"pit": GLOBAL, "swin": replace(GLOBAL, kind="windowed", window=(1, 1))}
    people = []
    for name in eigenvalues:
        word = name.split("_")[0]
        stages = (0,) if word == "vit" else (0, 1)
        sites = [site(f"b{s}{i}", stage=s, block=i) for s in stages for i in range(2)]
        if word in looks:
            sites.append(site("a", "attention", "attention", heads=2, attention=looks[word]))
        people.append(replace(anatomy(name.replace("_", "@"), sites, kinds[word], cls=0)))
    count = len(next(iter(eigenvalues.values())))
    where = replace(scene(*people, images=count * 16, block=16), classes=("a",))
    where = replace(where, label_maps={who.subject: (0,) for who in people})
    measure = HessianSpectrum(images=count * 16)
    tally = measure.tally(where)
    values = torch.stack([torch.as_tensor(np.asarray(v), dtype=torch.float64) for v in eigenvalues.values()], 1)
    values = values[:, :, None].expand(-1, -1, 4, -1)
    fold = torch.arange(count) % where.folds
    tally.append(
        image=torch.arange(count),
        fold=fold,
        values=values,
        residuals=torch.full_like(values, 1e-3),
        errors=torch.full_like(values, 1e-6),
        ends=torch.stack([values.amin(-1), values.amax(-1)], -1),
        end_errors=torch.full((*values.shape[:3], 2), 1e-6, dtype=torch.float64),
        products=torch.full(values.shape[:3], 20.0),
    )
    ones = torch.ones(count, dtype=torch.float64)
    tally.minibatches.index_add_(0, fold, ones)
    tally.dealt.index_put_((fold, fold), ones, accumulate=True)
    return measure, tally, where


def curves(count: int, negative: int, size: float, seed: int = 0) -> np.ndarray:
    values = size * (1 + np.random.default_rng(seed).random((count, 5)))
    values[:, 5 - negative :] *= -1
    values[::2, 4] = np.abs(values[::2, 4])
    return values


def read(finding: xarray.Dataset, quantity: str) -> dict[str, float]:
    rows = finding["quantity"].values == quantity
    return dict(zip(finding.quantity_subjects.values[rows].tolist(), finding.quantity_value.values[rows], strict=True))


def test_shares_and_means_are_those_of_the_values() -> None:
    measure, tally, where = stage(vit_warmup=curves(32, 2, 30.0), resnet_warmup=curves(32, 0, 200.0, 1))
    found = with_intervals(measure, tally, where)
    values = curves(32, 2, 30.0)
    own = found.sel(subject="vit@warmup", variant="clean")
    assert float(own.nep) == pytest.approx((values < 0).mean())
    assert float(own.ape) == pytest.approx(values[values > 0].mean())
    assert float(own.negative_size) == pytest.approx(-values[values < 0].mean())
    assert float(own.smallest) == pytest.approx(values.min(1).mean())
    assert float(own.nep_low) < float(own.nep) < float(own.nep_high)
    without = values[np.arange(32) % 16 != 3]
    assert float(found.nep_replicates.sel(subject="vit@warmup", variant="clean")[3]) == pytest.approx(
        (without < 0).mean()
    )
    assert read(found, "nep_gap_clean") == {"vit@warmup | resnet@warmup": pytest.approx((values < 0).mean())}


def test_what_lies_within_its_residual_or_next_to_zero_has_no_sign() -> None:
    values = np.tile([[100.0, -50.0, -0.005, -2.0, 3.0]], (16, 1))
    measure, tally, where = stage(vit=values)
    tally.residuals[..., 3:] = 5.0
    found = measure.estimate(tally.total(), where)
    assert float(found.nep[0, 0]) == pytest.approx(1 / 5)
    assert float(found.ape[0, 0]) == 100


def facts(*names: str) -> dict[str, Facts]:
    return {
        name: Facts(name, "cnn" if "resnet" in name else "transformer", trained=True, recipe="zoo") for name in names
    }


def test_the_claims_on_snapshots() -> None:
    measure, tally, where = stage(
        vit_warmup=curves(32, 2, 30.0),
        resnet_warmup=curves(32, 0, 200.0, 1),
        vit=curves(32, 1, 100.0, 2),
        resnet=curves(32, 0, 90.0, 3),
    )
    found = with_intervals(measure, tally, where)
    verdicts = judge(measure.tests(), {"hessian": found}, facts(*where.subjects))
    said = {(verdict.claim, verdict.subjects): verdict.verdict for verdict in verdicts if verdict.subjects}
    early, late = ("vit@warmup", "resnet@warmup"), ("vit", "resnet")
    assert said == {
        ("C44", early): "holds",
        ("C44", late): "undecided",
        ("C46", early): "holds",
        ("C46", late): "fails",
    }
    readings = {verdict.subjects: verdict.reading for verdict in verdicts if verdict.claim == "C44"}
    assert readings == {early: "", late: "at the end of training"}


def test_stages_are_compared_by_the_share_and_windows_by_the_size_of_negative_eigenvalues() -> None:
    measure, tally, where = stage(
        vit=curves(32, 3, 30.0), pit=curves(32, 1, 30.0, 1), swin=curves(32, 3, 2.0, 2), resnet=curves(32, 0, 9.0, 3)
    )
    found = with_intervals(measure, tally, where)
    shares = {name: (curves(32, count, 1.0) < 0).mean() for name, count in (("vit", 3), ("pit", 1))}
    assert read(found, "nep_over_staged") == {"vit | pit": pytest.approx(shares["vit"] - shares["pit"])}
    sizes = [-values[values < 0].mean() for values in (curves(32, 3, 30.0), curves(32, 3, 2.0, 2))]
    assert read(found, "negative_size_over_windowed") == {"vit | swin": pytest.approx(sizes[0] - sizes[1])}
    verdicts = judge(measure.tests(), {"hessian": found}, facts(*where.subjects))
    said = {verdict.subjects: verdict.verdict for verdict in verdicts if verdict.claim == "C51"}
    assert said == {("vit", "pit"): "holds", ("vit", "swin"): "holds"}


@pytest.mark.parametrize(("name", "kind"), [("pit", "staged"), ("swin", "windowed"), ("alternet", "hybrid")])
def test_the_parts_of_real_models(name: str, kind: str) -> None:
    subject = load_subject(f"zoo:{name}@random")
    found = anatomy_of(name, subject.module, torch.randn(2, 3, 32, 32))
    assert kind_of(found) == kind


def test_a_share_of_zero_is_not_certainty() -> None:
    measure, tally, where = stage(vit_warmup=curves(16, 0, 30.0), resnet_warmup=curves(16, 0, 200.0, 1))
    found = with_intervals(measure, tally, where)
    row = int(np.flatnonzero(found["quantity"].values == "nep_gap_clean")[0])
    room = 1 - 0.025 ** (1 / 16)
    assert float(found.quantity_value[row]) == 0
    assert float(found.quantity_low[row]) == pytest.approx(-room)
    assert float(found.quantity_high[row]) == pytest.approx(room)
    assert float(found.nep_high.sel(subject="vit@warmup", variant="clean")) == pytest.approx(room)
    alone = np.flatnonzero(found["quantity"].values == "nep_clean")
    assert found.quantity_high.values[alone] == pytest.approx([room, room])  # of minibatches, not of images
    measure, tally, where = stage(vit_warmup=curves(16, 2, 30.0), resnet_warmup=curves(16, 0, 200.0, 1))
    found = with_intervals(measure, tally, where)
    shares = (curves(16, 2, 30.0) < 0).mean(1)
    half = 2.131 * shares.std(ddof=1) / 4
    assert float(found.quantity_low[row]) == pytest.approx(shares.mean() - half - room, abs=1e-3)
    assert float(found.quantity_high[row]) == pytest.approx(shares.mean() + half, abs=1e-3)


def test_a_mean_that_few_minibatches_carry_has_a_skewed_interval() -> None:
    """By hand: jackknife of the mean and of its logarithm, and the farther end of both."""
    values = 10 * np.exp(np.random.default_rng(0).normal(0, 1.0, (8, 5)))
    other = curves(8, 0, 30.0, 1)
    measure, tally, where = stage(vit_warmup=values, resnet_warmup=other)
    found = with_intervals(measure, tally, where)

    def by_hand(number: Callable[[np.ndarray], float]) -> tuple[float, float]:
        stays = [np.arange(8) != left for left in range(8)]
        ends = []
        for there, back in ((lambda x: x, lambda x: x), (np.log, np.exp)):
            without = np.array([there(number(stay)) for stay in stays])
            half = 2.3646 * np.sqrt(7 / 8 * ((without - without.mean()) ** 2).sum())
            middle = there(number(np.ones(8, dtype=bool)))
            ends.append((back(middle - half), back(middle + half)))
        return min(low for low, _ in ends), max(high for _, high in ends)

    for name, number in (
        ("ape_clean", lambda stay: values[stay].mean()),
        ("ape_ratio_clean", lambda stay: values[stay].mean() / other[stay].mean()),
    ):
        row = int(np.flatnonzero(found["quantity"].values == name)[0])
        expected = by_hand(number)
        assert (found.quantity_low[row], found.quantity_high[row]) == pytest.approx(expected, rel=1e-4)
        middle = float(found.quantity_value[row])
        assert expected[1] - middle > middle - expected[0]
    assert ape_ends(found, "vit@warmup", "clean") == pytest.approx(by_hand(lambda stay: values[stay].mean()), rel=1e-4)
    drawn = json.dumps(measure.chart(found).to_dict())
    assert f"{ape_ends(found, 'vit@warmup', 'clean')[1]:.6f}"[:8] in drawn


def test_a_subject_that_lacks_minibatches_is_compared_over_those_it_has() -> None:
    """It knows fewer of the images; the interval must be about the same number as the value."""
    values, other = curves(8, 1, 30.0), curves(8, 1, 30.0, 1)
    values[6:] = np.nan
    other[6:] *= 10
    other[6:, 1:] *= -1
    measure, tally, where = stage(vit_warmup=values, resnet_warmup=other)
    found = with_intervals(measure, tally, where)
    ends = {}
    for name in ("ape_ratio_clean", "nep_gap_clean"):
        row = int(np.flatnonzero(found["quantity"].values == name)[0])
        ends[name] = [float(found[f"quantity_{end}"][row]) for end in ("low", "value", "high")]
        assert ends[name] == sorted(ends[name])

    def ratio(stay: np.ndarray) -> float:
        one, two = values[stay], other[stay]
        return float(one[one > 0].mean() / two[two > 0].mean())

    without = np.array([ratio(np.arange(8) != left) for left in range(8)])
    half = 2.3646 * np.sqrt(7 / 8 * ((without - without.mean()) ** 2).sum())
    whole = ratio(np.ones(8, dtype=bool))
    assert ends["ape_ratio_clean"][1] == pytest.approx(whole)
    assert ends["ape_ratio_clean"][2] == pytest.approx(
        max(whole + half, whole * np.exp(2.3646 * np.sqrt(7) * np.log(without).std())), rel=1e-3
    )


def test_a_share_of_zero_is_bounded_by_the_subject_s_own_minibatches() -> None:
    values = curves(8, 0, 30.0)
    values[6:] = np.nan
    measure, tally, where = stage(vit_warmup=values, resnet_warmup=curves(8, 0, 30.0, 1))
    found = with_intervals(measure, tally, where).sel(variant="clean")
    assert found.nep_high.values == pytest.approx([1 - 0.025 ** (1 / 6), 1 - 0.025 ** (1 / 8)])
    rows = np.flatnonzero(found["quantity"].values == "nep_clean")
    assert found.quantity_high.values[rows] == pytest.approx([1 - 0.025 ** (1 / 6)] * 2)  # the wider for both


def test_what_was_not_measured_is_not_told_as_a_number() -> None:
    for values in (-curves(8, 0, 30.0), curves(1, 1, 30.0), np.full((8, 5), np.nan)):
        measure, tally, where = stage(vit_warmup=values)
        text = measure.sentence(with_intervals(measure, tally, where))
        assert "nan" not in text
        assert ("none is positive" in text) == (values < 0).all()
        assert ("left out" in text) == np.isnan(values).all()


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
    assert "all of these are known to 1 %" in text
    assert "smallest one is not known to 1 % in up to 100% of the minibatches" in text
    assert "largest one is not" not in text
    drawn = json.dumps(measure.chart(found).to_dict())
    assert "datum.smallest_unsettled > 0" in drawn


def test_kinds_and_times() -> None:
    assert time_of("zoo:vit@runs/vit.warmup.safetensors") == "warmup"
    assert time_of("timm:resnet18") == ""
    assert time_of("timm:resnet18@random") == "init"  # not the end of any training
    assert kind_of(anatomy("r", [site("b", stage=s, block=b) for s in (0, 1) for b in (0, 1)], "cnn")) == "cnn"


def test_the_chart_draws_few_values_and_none() -> None:
    for values in (curves(16, 2, 30.0), np.full((16, 5), np.nan)):
        measure, tally, where = stage(vit=values)
        chart = measure.chart(with_intervals(measure, tally, where))
        assert chart.to_dict()


def test_a_class_token_vit_is_compared_with_its_twin_only() -> None:
    names = ["vit@warmup", "twin@warmup", "other@warmup", "resnet@warmup"]
    estimate = xarray.Dataset(
        {"nep": (("subject", "variant"), [[0.5], [0.25], [0.0], [0.0]])},
        coords={
            "subject": names,
            "variant": ["clean"],
            "kind": ("subject", ["vit class-token", "vit mean", "vit mean", "cnn"]),
            "snapshot": ("subject", ["warmup"] * 4),
            "build": ("subject", ["nine blocks", "nine blocks", "twelve blocks", "stages"]),
        },
    )
    twins = against("nep", "clean", lambda one, two: one - two, "class-token", "mean")(estimate)
    assert twins == {("vit@warmup", "twin@warmup"): 0.25}
    assert ("vit@warmup", "resnet@warmup") in against("nep", "clean", lambda one, two: one - two)(estimate)
