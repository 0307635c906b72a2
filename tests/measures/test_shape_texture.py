"""M25: filtered, shuffled and conflicting pictures, and what counts as going by shape."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eyechart.claims.asking import asked_of
from eyechart.claims.judge import judge
from eyechart.intervals import room_for, with_intervals
from eyechart.measure import Views
from eyechart.measures.shape_texture.measure import (
    CONDITIONS,
    CUTOFFS,
    PIECES,
    ShapeTexture,
    changed,
    cut_apart,
    in_range,
    tile_side,
)
from eyechart.methods.patches import partners
from eyechart.methods.spectrum import split, swapped
from eyechart.reading_estimates import scored_vit_minus_cnn
from eyechart.subjects.load import load_subject
from eyechart.tracing.bench import Bench
from tests.measures import staging
from tests.measures.benches import bench_of, whole_and_in_shards
from tests.measures.test_band_noise import actor


@pytest.fixture(scope="module")
def bench() -> Bench:
    return bench_of("zoo:resnet", 20)


def test_low_and_high_pass_of_real_pictures_add_up(bench: Bench) -> None:
    pixels = bench.pixels()
    for cutoff in CUTOFFS:
        low, high = split(pixels, cutoff * math.pi)
        assert torch.allclose(low + high, pixels, atol=1e-5)


def test_swapping_a_picture_with_itself_changes_nothing(bench: Bench) -> None:
    pixels = bench.pixels()
    assert torch.allclose(swapped(pixels, pixels), pixels, atol=1e-5)


def test_clipping_says_what_it_touched() -> None:
    pixels = torch.tensor([[0.0, 0.5, 1.0, -0.1], [0.2, 2.0, 1.5, -3.0]]).view(2, 1, 2, 2)
    clipped, touched = in_range(pixels)
    assert clipped.min() == 0
    assert clipped.max() == 1
    assert touched.tolist() == [0.25, 0.75]


@pytest.mark.parametrize(("side", "pieces"), [(32, 4), (32, 3), (33, 9), (224, 5)])
def test_shuffling_moves_whole_tiles_and_nothing_else(side: int, pieces: int) -> None:
    """Tiles numbered by colour: each appears once, in one piece, and the remainder stays."""
    tile = tile_side(side, pieces)
    row, column = (torch.arange(side) // tile).clamp_max(pieces), (torch.arange(side) // tile).clamp_max(pieces)
    number = (row[:, None] * (pieces + 1) + column[None]).float()
    images = number.expand(3, 2, side, side).clone()
    found = cut_apart(images, pieces, torch.Generator().manual_seed(1))
    inside = found[..., : tile * pieces, : tile * pieces]
    blocks = inside.reshape(3, 2, pieces, tile, pieces, tile)
    assert (blocks.amax((3, 5)) == blocks.amin((3, 5))).all()
    before = images[..., : tile * pieces, : tile * pieces].reshape(blocks.shape)
    numbers = [each[:, :, :, 0, :, 0].flatten(2).sort(2)[0] for each in (blocks, before)]
    assert torch.equal(numbers[0], numbers[1])
    assert torch.equal(found[..., tile * pieces :], images[..., tile * pieces :])
    assert torch.equal(found[:, 0], found[:, 1])  # all channels together
    assert not torch.equal(found[0], found[1])  # every image in its own way


def test_the_inside_of_a_tile_stays_as_it_is() -> None:
    picture = torch.arange(36.0).view(1, 1, 6, 6)
    found = cut_apart(picture, 2, torch.Generator().manual_seed(0))
    tiles = [found[0, 0, y : y + 3, x : x + 3] for y in (0, 3) for x in (0, 3)]
    originals = [picture[0, 0, y : y + 3, x : x + 3] for y in (0, 3) for x in (0, 3)]
    assert all(any(torch.equal(tile, original) for original in originals) for tile in tiles)


def test_no_tile_fits_the_patches_of_usual_vits() -> None:
    for size, patch in ((32, 4), (64, 4), (96, 8), (224, 16), (224, 14), (224, 32), (378, 14), (384, 16)):
        assert all(tile_side(size, pieces) % patch for pieces in PIECES)


def test_partners_stay_in_their_fold() -> None:
    folds = torch.arange(62) % 16
    partner = partners(folds)
    assert torch.equal(folds[partner], folds)
    assert (partner != torch.arange(62)).all()
    assert torch.equal(partner.sort()[0], torch.arange(62))
    assert partners(torch.arange(3)).tolist() == [1, 2, 0]


def test_every_condition_shows_valid_pictures(bench: Bench) -> None:
    shown = list(changed(bench))
    assert len(shown) == len(CONDITIONS) - 1
    assert all(-1e-6 <= float(pixels.min()) <= float(pixels.max()) <= 1 + 1e-6 for pixels, _ in shown)
    edges, touched = shown[len(CUTOFFS)]
    assert torch.allclose(edges.mean((2, 3)), bench.pixels().mean((2, 3)), atol=0.03)
    assert 0 < float(touched.mean()) < 0.2
    assert in_range(swapped(bench.pixels(), bench.pixels()))[1].sum() == 0


def test_answers_are_counted_by_phase_and_by_amplitude(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject that always names the phases' class, and one that always names the amplitudes'."""
    measure, targets = ShapeTexture(images=20), bench.targets
    assert targets is not None
    for follows, name in ((torch.arange(20), "by_phase"), (partners(bench.folds()), "by_amplitude")):
        said = torch.nn.functional.one_hot(targets[follows], 10).float()
        shown: list[Tensor] = []

        def answer(self: Bench, images: Tensor | None = None, said: Tensor = said, shown: Any = shown) -> Tensor:
            shown.append(images)
            return said

        monkeypatch.setattr(Bench, "logits", answer)
        found = measure.experiment(bench)
        mixed = swapped(bench.pixels(), bench.pixels()[partners(bench.folds())]).clamp(0, 1)
        assert torch.allclose(shown[-1], bench.from_pixels(mixed), atol=1e-5)
        assert torch.equal(found[name], found["pairs"])
        other = "by_amplitude" if name == "by_phase" else "by_phase"
        assert found[other].sum() == 0
        assert torch.equal(found["pairs"].bool(), targets != targets[partners(bench.folds())])


# --- statistics -------------------------------------------------------------------------------------------------------


def play(
    chances: dict[str, dict[str, float]], labels: bool = True, images: int = 512, side: int = 32, seed: int = 0
) -> Any:
    """A ViT and a CNN with given chances to be right on filtered and shuffled pictures and to follow the phases.

    The CNN is fed pictures of `side` × `side`, the ViT 32×32.
    """
    vit, cnn = actor("vit", "transformer"), replace(actor("cnn", "cnn"), input_size=(side, side))
    scene = staging.scene(vit, cnn, images=images)
    if labels:
        scene = replace(scene, classes=("a", "b"), label_maps={"vit": (0, 1), "cnn": (0, 1)})
    measure, dice = ShapeTexture(images=images), torch.Generator().manual_seed(seed)

    def draw(chance: float, *shape: int) -> Tensor:
        return (torch.rand(shape, generator=dice) < chance).double()

    tally = measure.tally(scene)
    for batch in staging.batches(images, 64):
        count = len(batch.images)
        found = {}
        for who, chance in chances.items():
            right = [torch.ones(count, 1).double()]
            right += [draw(chance[name], count, len(CUTOFFS)) for name in ("low", "high")]
            phase = draw(chance["phase"], count)
            found[who] = {
                "right": torch.cat([*right, draw(chance["shuffled"], count, len(PIECES))], dim=1),
                "clipped": torch.zeros(count, len(CONDITIONS)).double(),
                "seen": torch.ones(count).double(),
                "by_phase": phase,
                "by_amplitude": 1 - phase,
                "pairs": torch.ones(count).double(),
                "conflict_clipped": torch.full((count,), 0.25).double(),
                "folds": torch.as_tensor(batch.image_folds),
            }
        measure.update(tally, batch, Views({}, found), scene)
    return with_intervals(measure, tally, scene)


SHAPE = {"low": 0.8, "high": 0.4, "shuffled": 0.3, "phase": 0.8}
TEXTURE = {"low": 0.5, "high": 0.7, "shuffled": 0.7, "phase": 0.4}


def quantity(finding: Any, name: str) -> tuple[float, float, float]:
    (row,) = np.flatnonzero(finding.quantity.values == name)
    value, low, high = (float(finding[f"quantity_{end}"][row]) for end in ("value", "low", "high"))
    return value, low, high


def test_a_shape_biased_vit_passes_all_three_tests() -> None:
    finding = play({"vit": SHAPE, "cnn": TEXTURE})
    assert quantity(finding, "filter_bias_difference")[0] == pytest.approx(0.6, abs=0.05)
    assert quantity(finding, "shuffle_loss_difference")[0] == pytest.approx(0.4, abs=0.05)
    assert quantity(finding, "phase_share_difference")[0] == pytest.approx(0.4, abs=0.07)
    assert finding.clipped.values == pytest.approx([0.25, 0.25])
    said = ShapeTexture().sentence(finding)
    assert "follows the phases" in said
    assert re.search(r"minus what high-passed ones keep is [+-]\d+ \[[+-]\d+, [+-]\d+\] points", said)
    assert ShapeTexture().chart(finding).to_dict()


def verdict_of(finding: Any) -> Any:
    from eyechart.claims.gates import Facts

    facts = {name: Facts(name, "cnn", True, accuracy=(0.9, 0.9, 0.9), recipe="one") for name in ("vit", "cnn")}
    verdicts = judge(asked_of([ShapeTexture()]), {"shape_texture": finding}, facts)
    (said,) = (each for each in verdicts if each.claim == "C68")
    return said


@pytest.mark.parametrize(
    ("vit", "parts", "verdict"),
    [
        (SHAPE | {"shuffled": 0.9}, ["holds", "fails", "holds"], "holds"),
        (SHAPE | {"shuffled": 0.9, "phase": 0.1}, ["holds", "fails", "fails"], "fails"),
        (TEXTURE | {"low": 0.3, "shuffled": 0.9, "phase": 0.1}, ["fails", "fails", "fails"], "fails"),
    ],
)
def test_two_of_three_decide(vit: dict[str, float], parts: list[str], verdict: str) -> None:
    said = verdict_of(play({"vit": vit, "cnn": TEXTURE}))
    assert [part.verdict for part in said.parts] == parts
    assert said.verdict == verdict


def test_two_signs_of_which_one_is_chance_are_not_enough() -> None:
    """One clear test, and a second that happens to lie above 0: a count of signs would say two of three."""
    finding = play({"vit": SHAPE | {"shuffled": 0.9, "phase": 0.42}, "cnn": TEXTURE})
    value, low, _ = quantity(finding, "phase_share_difference")
    assert low < 0 < value
    assert verdict_of(finding).verdict == "undecided"


def test_pictures_of_two_sizes_are_not_compared() -> None:
    """A cut-off is a frequency a pixel and a tile a share of the picture: other sizes are other tests."""
    equal, unequal = (play({"vit": SHAPE, "cnn": TEXTURE}, side=side) for side in (32, 48))
    asked = [f"{name}_difference" for name in ("filter_bias", "shuffle_loss", "phase_share")]
    assert equal.quantity.values.tolist() == asked
    assert set(equal.quantity_subjects.values.tolist()) == {"vit | cnn"}
    assert "quantity" not in unequal.coords
    assert np.isfinite(unequal.filter_bias.values).all()  # each subject alone is told all the same
    verdicts = judge(asked_of([ShapeTexture()]), {"shape_texture": unequal}, {})
    (said,) = (each for each in verdicts if each.claim == "C68")
    assert said.verdict == "not tested"


def test_without_labels_no_claim_is_decided() -> None:
    finding = play({"vit": SHAPE, "cnn": TEXTURE}, labels=False)
    assert scored_vit_minus_cnn(finding, "phase_share") == {}
    assert "agreement with its own answers" in ShapeTexture().sentence(finding)
    assert ShapeTexture().chart(finding).to_dict()


# --- real subjects --------------------------------------------------------------------------------------------------


def test_a_loss_of_nothing_has_the_bound_of_so_many_pictures() -> None:
    """Answers that no shuffling or filter changes (an untrained module names one class) are no certain zero."""
    same = {"low": 1.0, "high": 1.0, "shuffled": 1.0, "phase": 0.5}
    finding = play({"vit": same, "cnn": same}, images=64)
    for name in ("shuffle_loss", "filter_bias"):
        value, low, high = (finding[f"{name}{end}"].values for end in ("", "_low", "_high"))
        assert (value == 0).all()
        assert low == pytest.approx(-room_for(64))
        assert high == pytest.approx(room_for(64))


def test_one_shard_and_many_give_the_same() -> None:
    whole, merged, _ = whole_and_in_shards(ShapeTexture(images=20), [load_subject("zoo:resnet")], 32)
    for name, values in whole.tensors().items():
        assert torch.allclose(values, merged.tensors()[name], rtol=1e-12)
    assert float(whole.tensors()["images"].sum()) == 20


def test_unknown_labels_and_missing_classes(bench: Bench) -> None:
    few = bench.picked(torch.arange(4))
    assert few.targets is not None
    part = replace(few, targets=torch.where(torch.arange(4) < 2, few.targets, -1))
    found = ShapeTexture(images=4).experiment(part)
    assert found["seen"].tolist() == [1, 1, 0, 0]
    assert found["pairs"][1:].tolist() == [0, 0, 0]  # partners are the next ones, and only the first two are known
    alone = ShapeTexture(images=4).experiment(replace(few, targets=None))
    assert alone["right"][:, 0].tolist() == [1, 1, 1, 1]


def test_a_subject_whose_colours_cannot_be_undone_is_left_out(bench: Bench) -> None:
    def squared(picture: Any) -> Tensor:
        return torch.from_numpy(np.array(picture.resize((32, 32)))).permute(2, 0, 1).float().square()

    strange = load_subject(bench.subject.module, transform=squared, label="strange")
    assert ShapeTexture(images=4).experiment(replace(bench, subject=strange)) == {}
