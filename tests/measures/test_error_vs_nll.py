"""Error against training loss: the floor of soft targets, the reading rule, and what a training wrote down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import xarray
from torch import Tensor, nn

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.errors import DoesNotApply
from eyechart.images import open_images, plan_batches
from eyechart.intervals import with_intervals
from eyechart.measures.error_vs_nll.measure import (
    RECORDED,
    ErrorNllTally,
    ErrorVsNll,
    bias_correlation,
    error_nll_correlation,
    reading,
    soft_nll,
    steps,
    what_of_how_many,
)
from eyechart.report.sections import sample
from eyechart.scene import Scene
from eyechart.sites import Anatomy, Architecture
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.training.subject_records import record_of
from tests.measures.benches import bench_of, whole_and_in_shards
from tests.measures.on_subjects import staged, tally_of
from tests.measures.staging import anatomy, full_grid, scene, site


def test_soft_target_loss_is_entropy_plus_divergence() -> None:
    """SPEC Appendix A: NLL = mean target entropy + KL; so NLL ≥ entropy, with equality iff prediction = target."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    targets = torch.randn(50, 7, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    targets[0] = F.one_hot(torch.tensor(3), 7)
    nll, entropy = soft_nll(logits, targets)
    divergence = F.kl_div(logits.log_softmax(1), targets, reduction="none").sum(1)
    torch.testing.assert_close(nll, entropy + divergence)
    assert float(entropy[0]) == 0
    assert bool((nll > entropy).all())
    same, floor = soft_nll(targets[1:].log(), targets[1:])
    torch.testing.assert_close(same, floor)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.head = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stem(images).relu().mean((2, 3)))
        return logits


@pytest.fixture(scope="module")
def subject() -> Subject:
    torch.manual_seed(0)
    found = load_subject(Small(), label="small", input_size=32)
    found.classes = open_images("sample").classes
    return found


@pytest.fixture(scope="module")
def measured(subject: Subject) -> tuple[ErrorVsNll, ErrorNllTally, ErrorNllTally, Scene]:
    measure = ErrorVsNll(images=32, train="sample:train")
    whole, in_shards, where = whole_and_in_shards(measure, [subject])
    assert isinstance(whole, ErrorNllTally)
    assert isinstance(in_shards, ErrorNllTally)
    return measure, whole, in_shards, where


def test_clean_numbers_are_those_of_plain_calls(
    subject: Subject, measured: tuple[ErrorVsNll, ErrorNllTally, ErrorNllTally, Scene]
) -> None:
    measure, tally, _, where = measured
    found = measure.estimate(tally.total(), where).isel(subject=0)
    for name, images in (("sample", 48), ("sample:train", 32)):
        source = open_images(name)
        order = plan_batches(source, limit=images).order
        labels = torch.as_tensor(source.labels)[list(order)]
        with torch.no_grad():
            logits = subject.call(subject.prepare(source.pictures(order)))
        nll = float(F.cross_entropy(logits, labels))
        if name == "sample":
            assert float(found.error) == pytest.approx(float((logits.argmax(1) != labels).double().mean()))
            assert float(found.nll) == pytest.approx(nll, rel=1e-5)
        else:
            assert float(found.nll_train_clean) == pytest.approx(nll, rel=1e-5)
    assert float(found.nll_train) > float(found.floor_train) > 0
    assert float(found.nll_augmented) > float(found.floor) > 0
    assert np.isnan(found.recorded_test_error)
    assert found.attrs["images"] == 32


def test_shards_change_nothing(measured: tuple[ErrorVsNll, ErrorNllTally, ErrorNllTally, Scene]) -> None:
    _, whole, in_shards, _ = measured
    for name, values in whole.tensors().items():
        torch.testing.assert_close(values, in_shards.tensors()[name])


def test_what_is_mixed_together_stays_together_in_a_fold(
    measured: tuple[ErrorVsNll, ErrorNllTally, ErrorNllTally, Scene],
) -> None:
    """A draw of mixup that all folds share would have no interval."""
    _, tally, _, _ = measured
    for place in (0, 1):  # 32 images of the exam and 32 of training, mixed in groups of 4
        assert tally.shown[:, 0, place].tolist() == [4.0] * 8 + [0.0] * 8
    assert tally.images.tolist() == [3.0] * 16
    assert tally.train_shown[:, 0].tolist() == [2.0] * 16


def test_training_images_without_a_class_are_left_out(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    from eyechart.measures.error_vs_nll import measure as error_vs_nll

    source = open_images("sample:train")
    labels = np.array(source.labels)
    labels[::2] = -1
    object.__setattr__(source, "labels", labels)
    monkeypatch.setattr(error_vs_nll, "open_images", lambda name: source)
    training = ErrorVsNll(images=32, train="sample:train").training(bench_of(subject))
    assert training is not None
    assert training.targets is not None
    assert training.batch.labels is not None
    assert training.targets.tolist() == training.batch.labels.tolist()
    assert 0 < len(training) < 32


def test_training_images_nobody_knows_are_not_made_up(subject: Subject) -> None:
    measure = ErrorVsNll(images=16)
    whole, _, where = whole_and_in_shards(measure, [subject], limit=16)
    found = with_intervals(measure, whole, where)
    assert np.isnan(found.nll_train.values).all()
    assert np.isfinite(found.nll_augmented.values).all()
    assert "its training images are not known" in measure.sentence(found)
    assert "not known" not in str(measure.chart(found).to_dict())  # the loss on the exam's pictures stands in
    without = found.assign(nll_augmented=found.nll_augmented * np.nan)
    assert "augmented training NLL (nats): not known" in str(measure.chart(without).to_dict())


def test_without_classes_it_does_not_apply() -> None:
    with pytest.raises(DoesNotApply, match="classes"):
        ErrorVsNll().check_labels(scene(anatomy("net", [site("head", role="head")])))


# --- the reading rule and C42 ---------------------------------------------------------------------------------------


def person(name: str, kind: str) -> Anatomy:
    kinds: dict[str, Architecture] = {"cnn": "cnn", "mixer": "mixer"}
    head = site("head", role="head", axes="NC", grid=None)
    stages = (0,) if kind in ("vit", "mixer") else (0, 1)
    deep = {"vit": 2, "mixer": 3, "cnn": 5}.get(kind, 4)
    blocks = [site(f"b{s}{i}", stage=s, block=i) for s in stages for i in range(deep)]
    if kind == "windows":
        window = replace(full_grid(2, 1.0), kind="windowed")
        blocks.append(site("attention", role="attention", attention=window, heads=2))
    return anatomy(name, [*blocks, head], kinds.get(kind, "transformer"))


def stage(**people: tuple[str, float, float]) -> xarray.Dataset:
    """A finding of subjects with given (kind, error, training NLL), with a little noise between folds."""
    anatomies = [person(name, kind) for name, (kind, _, _) in people.items()]
    where = replace(scene(*anatomies, images=1600), classes=("a",), label_maps=dict.fromkeys(people, (0,)))
    measure = ErrorVsNll(images=1600)
    tally = measure.tally(where)
    noise = np.random.default_rng(0).standard_normal((16, len(people)))
    for column, (_, error, nll) in enumerate(people.values()):
        tally.wrong[:, column] = torch.as_tensor(100 * error + 0.3 * noise[:, column])
        tally.augmented[:, column, 1] = torch.as_tensor(100 * nll + 0.3 * noise[:, column])
        tally.shown[:, column, 1] = 100
    tally.images += 100
    return with_intervals(measure, tally, where)


def test_the_reading_rule() -> None:
    found = stage(
        best=("vit", 0.10, 1.0), worse=("vit", 0.20, 2.0), overfit=("vit", 0.30, 0.5), like_best=("vit", 0.10, 3.0)
    )
    assert reading(found, "best", "worse") == "best has the stronger representation"
    assert reading(found, "worse", "best") == "best has the stronger representation"
    assert reading(found, "overfit", "worse") == "worse is regularised, or overfit over-fits"
    assert reading(found, "best", "like_best") == ""
    assert "\nNothing is read from 1 of 6 pairs" in ErrorVsNll().sentence(found)


def test_families_settle_c42() -> None:
    families = {
        "mixer": ("mixer", 0.354, 2.57), "vit": ("vit", 0.335, 2.52), "pit": ("staged", 0.239, 2.30),
        "swin": ("windows", 0.232, 2.23), "resnet": ("cnn", 0.173, 2.09),
    }  # fmt: skip
    tests = asked_of([ErrorVsNll()])
    facts = {
        name: Facts(
            name, "cnn" if name == "resnet" else "transformer", trained=True, recipe="one", accuracy=(0.9, 0.8, 1)
        )
        for name in families
    }
    (verdict,) = [v for v in judge(tests, {"error_vs_nll": stage(**families)}, facts) if v.claim == "C42"]
    assert verdict.verdict == "holds"
    weakest = stage(**families | {"mixer": ("mixer", 0.1, 2.0)})  # of the weakest bias, and best in both
    assert set(bias_correlation("error")(weakest).values()) == {0.0}
    (verdict,) = [v for v in judge(tests, {"error_vs_nll": weakest}, facts) if v.claim == "C42"]
    assert verdict.verdict == "fails"
    families["swin"] = ("windows", 0.232, 1.5)  # it fits better than the CNN
    (verdict,) = [v for v in judge(tests, {"error_vs_nll": stage(**families)}, facts) if v.claim == "C42"]
    assert verdict.verdict == "fails"
    twice = {name: families[name] for name in ("vit", "swin", "resnet")}
    facts |= {f"{name}_early": replace(facts[name], subject=f"{name}_early") for name in twice}
    few = stage(**twice, **{f"{name}_early": told for name, told in twice.items()})  # six subjects, three builds
    (verdict,) = [v for v in judge(tests, {"error_vs_nll": few}, facts) if v.claim == "C42"]
    assert verdict.verdict == "not tested"
    few = stage(vit=families["vit"], resnet=families["resnet"])
    (verdict,) = [v for v in judge(tests, {"error_vs_nll": few}, facts) if v.claim == "C42"]
    assert verdict.verdict == "not tested"


def test_early_snapshots_do_not_rank_among_the_families() -> None:
    """They err most and fit worst, so with them error and loss go together whatever the families do."""
    ends = {
        "mixer": ("mixer", 0.30, 2.0), "vit": ("vit", 0.335, 2.5), "pit": ("staged", 0.239, 2.4),
        "swin": ("windows", 0.232, 2.45), "resnet": ("cnn", 0.173, 2.1),
    }  # fmt: skip
    early = {"vit@warmup": ("vit", 0.80, 4.0), "resnet@warmup": ("cnn", 0.85, 4.2), "vit@second": ("vit", 0.1, 1.0)}
    found = stage(**early, **ends)
    (key,) = error_nll_correlation(found)
    assert set(key) == {"vit@second", "resnet", "mixer", "pit", "swin"}  # of two ends the first
    alone = stage(**ends)
    assert error_nll_correlation(alone) == {tuple(ends): pytest.approx(0.3)}
    assert steps("error", "cnn", "windows")(found)[key] == pytest.approx(0.232 - 0.173, abs=0.02)
    untrained = {"vit@random": ("vit", 0.9, 2.3), "other@random": ("mixer", 0.9, 2.3)}  # the first of their builds
    assert set(error_nll_correlation(stage(**untrained, **ends))) == {tuple(ends)}
    untrained |= {name: told for name, told in ends.items() if name != "mixer"}
    assert error_nll_correlation(stage(**untrained)) == {}  # four families: the fifth was never trained


@pytest.mark.parametrize("images", [3, 4])
def test_too_few_images_to_augment_are_said_beside_their_number(subject: Subject, images: int) -> None:
    measure = ErrorVsNll(images=images, train="sample:train")
    people, where = staged(subject, images=images, block=4)
    where = replace(where, label_maps={subject.name: tuple(range(10))})
    finding = with_intervals(measure, tally_of(measure, people, where), where)
    for name in ("nll_augmented", "nll_train"):
        assert np.isfinite(finding[name].values).all() == (images == 4)
    said = sample(finding, measure, {"images": {"used": images}, "sized": [], "settings": {"effort": "quick"}})
    assert ("No picture is augmented: they are mixed in groups of 4, and there are 3." in said) == (images == 3)


def test_blocks_that_are_no_multiple_of_a_group_are_dealt_to_all_folds(subject: Subject) -> None:
    """Sixteen blocks of 7 images hold one group of 4 each: one for every fold."""
    measure = ErrorVsNll(images=112, train="sample:train")
    people, where = staged(subject, images=112, block=7)
    where = replace(where, label_maps={subject.name: tuple(range(10))})
    tally = tally_of(measure, people, where)
    assert tally.tensors()["shown"][:, 0, 0].tolist() == [4.0] * 16
    assert tally.tensors()["shown"][:, 0, 1].tolist() == [8.0] * 12 + [4.0] * 4  # 28 groups of training images


def test_zoo_subjects_bring_their_records() -> None:
    written = record_of(load_subject("zoo:resnet").card)
    assert all(name in written for name in RECORDED)
    assert written["augmented_train_nll"] == pytest.approx(0.882, abs=1e-3)


def test_its_sample_says_which_numbers_are_of_how_many_pictures() -> None:
    """ "124 of 1,000 images" stood under errors of all 1,000, and under losses of training pictures."""
    shown = torch.tensor([[124.0, 128.0], [124.0, 0.0]])
    said = "So many are augmented; the errors are of all 1,000; losses on training pictures are of 128 others"
    assert what_of_how_many(1000.0, shown) == {"note": said}
    assert what_of_how_many(124.0, shown) == what_of_how_many(1000.0, 0 * shown) == {}
