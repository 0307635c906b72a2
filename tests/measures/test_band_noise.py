"""M21: rings of noise whose spectrum and strength are known, and one strength for all subjects."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.intervals import jackknife, with_intervals
from eyechart.measure import Views
from eyechart.measures.band_noise.measure import (
    RINGS,
    STRENGTHS,
    BandNoise,
    between,
    crossing,
    ring_noise,
    rungs_of,
    slope,
)
from eyechart.reading_estimates import scored_vit_minus_cnn
from eyechart.scene import Scene
from eyechart.sites import Anatomy, Architecture
from eyechart.subjects.load import load_subject
from eyechart.tracing.bench import Bench
from tests.measures import staging
from tests.measures.benches import bench_of, whole_and_in_shards


def signs(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).sign()


def test_noise_of_equal_strength_has_the_stated_rms_in_every_ring() -> None:
    scale = torch.tensor([0.1, 0.5])
    for ring in range(RINGS):
        made = ring_noise(signs(2, 3, 32, 32), ring, scale, "equal")
        assert torch.allclose(made.square().mean((1, 2, 3)).sqrt(), scale, rtol=1e-5)


def test_the_papers_noise_has_the_strength_of_its_share_of_the_plane() -> None:
    parts = [ring_noise(signs(2, 3, 32, 32), ring, torch.tensor([0.1, 0.5]), "paper") for ring in range(RINGS)]
    assert torch.allclose(
        torch.stack(parts).sum(0), signs(2, 3, 32, 32) * torch.tensor([0.1, 0.5]).view(2, 1, 1, 1), atol=1e-5
    )
    strengths = [float(part[0].square().mean().sqrt()) for part in parts]
    assert max(strengths) > 2 * min(strengths)  # the outer rings are larger


def test_strengths_take_turns_within_every_fold() -> None:
    one = rungs_of(0, 128, 1).flatten()
    for fold in range(16):
        assert sorted(one[fold::16].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert torch.equal(rungs_of(48, 16, 1), rungs_of(0, 128, 1)[48:64])
    assert sorted(rungs_of(0, 1, 4).flatten().tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("drops", "at"),
    [
        ((0.0, 0.05, 0.15, 0.6), 1.5),
        ((0.1, 0.2, 0.3, 0.4), 0.0),
        ((0.0, 0.01, 0.02, 0.1), 3.0),
        ((0.0, 0.01, 0.02, 0.03), math.nan),  # nobody minds
        ((0.2, 0.3, 0.4, 0.5), math.nan),  # all are blind already
        ((0.02, -0.01, 0.05, 0.15), 2.5),
    ],
)
def test_where_ten_points_are_lost(drops: tuple[float, ...], at: float) -> None:
    assert crossing(np.array(drops)) == pytest.approx(at, nan_ok=True)


def test_reading_between_strengths() -> None:
    table = np.array([[0.0, 0.0], [0.1, 0.2], [0.3, 0.6]])
    assert between(table, 1.5) == pytest.approx([0.2, 0.4])
    assert between(table, 2.0) == pytest.approx([0.3, 0.6])
    assert np.isnan(between(table, math.nan)).all()


def test_slopes() -> None:
    centres = (np.arange(RINGS) + 0.5) / RINGS
    assert slope(0.3 * centres + 7) == pytest.approx(0.3)
    assert slope(np.stack([centres, -centres])) == pytest.approx([1, -1])


# --- statistics -----------------------------------------------------------------------------------------------------


def actor(subject: str, architecture: Architecture) -> Anatomy:
    sites = [
        staging.site("stem", "stem", block=-1),
        *(staging.site(f"b{n}", "block", "conv", axes="NCYX", stage=n // 2, block=n) for n in range(4)),
        staging.site("head", "head", axes="NC", grid=None),
    ]
    if architecture == "transformer":
        geometry = staging.full_grid(2, 8)
        sites[1:5] = [
            staging.site("b0", "block", "attention"),
            staging.site("a", "attention", "attention", attention=geometry),
        ]
    return replace(staging.anatomy(subject, sites, architecture), pooling="gap")


def play(chances: dict[str, np.ndarray], labels: bool = True, images: int = 1024, seed: int = 0) -> Any:
    """A finding of a ViT and a CNN, right on intact images and with `chances` (strength, ring) on noisy ones."""
    vit, cnn = actor("vit", "transformer"), actor("cnn", "cnn")
    scene = staging.scene(vit, cnn, images=images)
    if labels:
        scene = replace(scene, classes=("a", "b"), label_maps={"vit": (0, 1), "cnn": (0, 1)})
    measure = BandNoise(images=images, rungs=1)
    tally, dice = measure.tally(scene), np.random.default_rng(seed)
    for batch in staging.batches(images, 64):
        rungs = rungs_of(batch.start, len(batch.images), 1)
        found = {
            who: {
                "right": torch.from_numpy(dice.random((len(rungs), 1, RINGS)) < chance[rungs.numpy()]).double(),
                "intact": torch.ones(len(rungs)).double(),
                "known": torch.ones(len(rungs)).double(),
                "rungs": rungs,
                "folds": torch.as_tensor(batch.image_folds),
            }
            for who, chance in chances.items()
        }
        measure.update(tally, batch, Views({}, found), scene)
    return with_intervals(measure, tally, scene)


def tilted(tilt: float) -> np.ndarray:
    """Chances to be right: 3, 7, 15, 40 % are lost on average, more at the high rings where `tilt` is positive."""
    centres = (np.arange(RINGS) + 0.5) / RINGS - 0.5
    return 1 - np.array([0.03, 0.07, 0.15, 0.4])[:, None] * (1 + tilt * centres)


def test_a_vit_hurt_at_low_and_a_cnn_hurt_at_high_frequencies() -> None:
    finding = play({"vit": tilted(-1.0), "cnn": tilted(1.0)}, images=4096)
    rows = {
        (str(name), str(who)): tuple(float(finding[f"quantity_{end}"][row]) for end in ("value", "low", "high"))
        for row, (name, who) in enumerate(zip(finding.quantity.values, finding.quantity_subjects.values, strict=True))
    }
    # 10 % are lost between the second and third strength, where the slopes are ±.1; three rings lie .35 off.
    both = {"low_noise_difference": 0.07, "high_noise_difference": 0.07, "noise_slope_difference": 0.2}
    each = {("low", "vit"): 0.135, ("high", "vit"): 0.065, ("low", "cnn"): 0.065, ("high", "cnn"): 0.135}
    expected = {(name, "vit | cnn"): value for name, value in both.items()}
    expected |= {(f"{end}_noise_loss", who): value for (end, who), value in each.items()}
    assert rows.keys() == expected.keys()
    for name, (value, low, high) in rows.items():
        assert low < expected[name] < high
        assert expected[name] / 2 < value < 1.5 * expected[name]
    strength = float(finding.read_at[0])
    assert strength == pytest.approx(math.exp(math.log(0.16) + 3 / 8 * math.log(2)), rel=0.1)
    assert float(finding.cost.mean()) == pytest.approx(0.1)
    said = BandNoise().sentence(finding)
    assert said.startswith("At noise of RMS 0.2")
    assert "quarters of the pixel range: vit" in said
    assert "points of accuracy below 0.3 π" in said
    paper = BandNoise().sentence(finding.assign_attrs(scaling="paper"))
    assert paper.startswith("At noise of height 0.2")  # of the signs, of which a ring holds a part: not its RMS
    assert BandNoise().chart(finding).to_dict()


def test_where_no_strength_fits_nothing_is_compared() -> None:
    finding = play({"vit": np.full((4, RINGS), 0.99), "cnn": np.full((4, RINGS), 0.99)})
    assert np.isnan(finding.quantity_value.values).all()
    assert "frequencies are not compared" in BandNoise().sentence(finding)
    assert BandNoise().chart(finding).to_dict()
    finding["mean_cost"][:, 1:] = np.nan  # as few images leave it
    assert BandNoise().sentence(finding).startswith("No noise of up to 0.08 quarters")
    finding["clean"][:] = [0.0, 0.0625]  # untrained: it was said that no noise costs 10 points, as if they withstood it
    assert BandNoise().sentence(finding).startswith("Without noise all subjects together name 3.1% of the pictures")
    finding["mean_cost"][:] = np.nan
    assert "nothing to compare" in BandNoise().sentence(finding)


def test_pictures_of_two_sizes_are_not_compared() -> None:
    finding = play({"vit": tilted(-1.0), "cnn": tilted(1.0)})
    compare = partial(scored_vit_minus_cnn, variable="low_cost")
    assert list(compare(finding)) == [("vit", "cnn")]
    assert compare(finding.assign_coords(pictures=("subject", ["(32, 32)", "(224, 224)"]))) == {}


def test_without_labels_no_claim_is_decided() -> None:
    finding = play({"vit": tilted(-1.0), "cnn": tilted(1.0)}, labels=False)
    assert finding.scored.values.tolist() == ["agreement", "agreement"]
    assert scored_vit_minus_cnn(finding, "low_cost") == {}
    assert "agreement with its own intact answers" in BandNoise().sentence(finding)


@pytest.mark.parametrize("middle", [0.16, 0.22], ids=["at a strength of the ladder", "between two"])
def test_intervals_hold_the_calibrated_slopes(middle: float) -> None:
    """300 exams of 512 images whose answers to all rings depend on one another, as those of hard images do."""
    centres = (np.arange(RINGS) + 0.5) / RINGS - 0.5
    tilts = np.array([-0.5, 0.8])[:, None, None]  # of the ViT and of the CNN
    level = 0.1 * (np.array(STRENGTHS) / middle) ** 1.5
    lost = np.clip(level[None, :, None] * (1 + tilts * centres), 0, 0.9)
    dice, folds, each = np.random.default_rng(0), 16, 8

    def gap(drops: np.ndarray) -> float:
        slopes = slope(between(drops.swapaxes(0, 1), crossing(drops.mean((0, 2)))))
        return float(slopes[1] - slopes[0])

    truth, held = gap(lost), []
    for _ in range(300):
        hard = dice.normal(size=(1, folds, each, len(STRENGTHS), 1))
        luck = 0.7 * hard + math.sqrt(0.51) * dice.normal(size=(2, folds, each, len(STRENGTHS), RINGS))
        wrong = luck < ndtri(lost)[:, None, None]
        sums = wrong.sum(2).astype(float)  # subject, fold, strength, ring
        whole = gap(sums.sum(1) / (folds * each))
        without = np.array([gap((sums.sum(1) - sums[:, fold]) / ((folds - 1) * each)) for fold in range(folds)])
        low, high = jackknife(np.array(whole), without)
        held.append(low <= truth <= high)
    assert 0.90 <= np.mean(held) <= 0.99


# --- real subjects --------------------------------------------------------------------------------------------------


def test_noise_is_added_to_the_normalised_image_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of("zoo:resnet", 6)
    assert bench.targets is not None
    shown: list[Tensor] = []
    plain = type(bench).logits

    def watched(self: Bench, images: Tensor | None = None) -> Tensor:
        shown.append(self.images if images is None else images)
        return plain(self, images)

    monkeypatch.setattr(type(bench), "logits", watched)
    found = BandNoise(images=5, rungs=1).experiment(bench)
    assert torch.equal(shown[0], bench.images[:5])
    assert len(shown) == 1 + RINGS
    assert bench.subject.colours is not None
    for ring, noisy in enumerate(shown[1:]):
        added = 4 * (noisy - bench.images[:5]) / torch.tensor(bench.subject.colours[1]).view(1, 3, 1, 1)
        assert torch.allclose(added.square().mean((1, 2, 3)).sqrt(), torch.tensor(STRENGTHS[0]), rtol=1e-3)
        truth = plain(bench, noisy).argmax(1) == bench.targets[:5]
        assert torch.equal(found["right"][:, 0, ring].bool(), truth)


def test_one_shard_and_many_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyechart.measures.band_noise.measure.RINGS", 2)
    whole, merged, _ = whole_and_in_shards(BandNoise(images=40, rungs=2), [load_subject("zoo:resnet")])
    assert all(torch.equal(values, merged.tensors()[name]) for name, values in whole.tensors().items())
    assert float(whole.tensors()["images"].sum()) == 40
    assert whole.tensors()["seen"].sum((0, 1)).tolist() == [16.0, 32.0, 24.0, 8.0]


def test_unknown_labels_and_missing_classes() -> None:
    bench = bench_of("zoo:resnet", 4)
    assert bench.targets is not None
    part = replace(bench, targets=torch.where(torch.arange(4) < 2, bench.targets, -1))
    assert BandNoise(images=4, rungs=1).experiment(part)["known"].tolist() == [1, 1, 0, 0]
    alone = BandNoise(images=4, rungs=1).experiment(replace(bench, targets=None))
    assert alone["intact"].tolist() == [1, 1, 1, 1]
    assert BandNoise(images=0, rungs=1).experiment(bench) == {}


def test_the_budget_buys_images_first_and_strengths_then() -> None:
    vit = replace(actor("vit", "transformer"), flops=4e8)
    few, many = (Scene((vit,), images, images // 16, 16, 16, None) for images in (1008, 100_000))
    normal, full, all_of = (
        BandNoise().sized(effort, scene) for effort, scene in (("normal", few), ("full", few), ("full", many))
    )
    assert isinstance(normal, BandNoise)
    assert isinstance(full, BandNoise)
    assert isinstance(all_of, BandNoise)
    assert (normal.rungs, full.rungs, all_of.rungs) == (1, 4, 1)
    assert normal.images < 1008 == full.images < all_of.images
    quick = BandNoise().sized("quick", few)
    assert isinstance(quick, BandNoise)
    assert (quick.rungs, quick.images) == (1, 128)  # 14.5 s · 4e10 FLOP/s over 11 passes of 4e8, in whole folds
    with pytest.raises(
        DoesNotApply,
        match=r"128 images, which takes longer than --effort quick allows .* --measures band_noise runs it",
    ):
        BandNoise().sized("quick", replace(few, anatomies=(replace(vit, flops=4e10),)))
    shown = BandNoise().sized("quick", replace(few, anatomies=(replace(vit, flops=4e9),)))
    assert isinstance(shown, BandNoise)
    assert (shown.rungs, shown.images) == (1, 16)  # too few to decide, enough to see


def test_tiny_pictures_have_no_ten_rings() -> None:
    with pytest.raises(DoesNotApply, match="20 pixels"):
        BandNoise().tally(staging.scene(replace(actor("vit", "transformer"), input_size=(8, 8))))
