"""Localisation's controls and direct readings, on networks whose tokens hold something known."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.images import open_images, plan_batches
from eyechart.measures.token_place.chart import controls
from eyechart.measures.token_place.linear_maps import Sums, explained, place_explained
from eyechart.measures.token_place.measure import TokenPlace, TokenPlaceTally, related, same_ranking
from eyechart.measures.token_place.moved_patches import exchanged, put_together, shuffled
from eyechart.methods.places import asked, cut
from eyechart.scene import Scene
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.load import load_subject
from tests import cases
from tests.measures.on_subjects import finding_of, module_subject


def sums(x: np.ndarray, y: np.ndarray) -> Sums:
    """Of features (image, place, feature) and targets (image, place, target)."""
    flat, aims = x.reshape(-1, x.shape[2]), y.reshape(-1, y.shape[2])
    return Sums(flat.T @ flat, flat.T @ aims, (aims**2).sum(0), x.sum(0), y.sum(0), len(x))


def test_explained_against_regression_row_by_row() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((40, 6, 5)) + draw.standard_normal((6, 5)) * 3
    y = np.concatenate([x[..., :2] @ draw.standard_normal((2, 2)), np.zeros((40, 6, 2))], axis=2)
    y += draw.standard_normal(y.shape) * 0.7 + draw.standard_normal((6, 4)) * 5
    halves = [(x[:20], y[:20]), (x[20:], y[20:])]
    expected = []
    for fit in (0, 1):
        (fx, fy), (sx, sy) = ([part - part.mean(0) for part in halves[which]] for which in (fit, 1 - fit))
        fx, fy, sx, sy = (part.reshape(-1, part.shape[2]) for part in (fx, fy, sx, sy))
        weights = np.linalg.solve(fx.T @ fx + 1e-3 * np.diag((fx**2).sum(0)), fx.T @ fy)
        error = (sy - sx @ weights) ** 2
        expected.append(
            [1 - error[:, :2].sum() / (sy[:, :2] ** 2).sum(), 1 - error[:, 2:].sum() / (sy[:, 2:] ** 2).sum()]
        )
    np.testing.assert_allclose(explained(sums(*halves[0]), sums(*halves[1]), 2), np.mean(expected, axis=0), rtol=1e-9)


def test_a_place_is_found_where_it_is_written_and_nowhere_else() -> None:
    draw = np.random.default_rng(1)
    where = np.stack(np.divmod(np.arange(16), 4), axis=1) / 3
    noise, nothing = draw.standard_normal((64, 16, 4)), np.zeros((64, 16, 1))
    told = np.concatenate([noise, np.broadcast_to(where @ [[2.0, 1.0], [0.5, -1.0]], (64, 16, 2))], axis=2)

    def half(x: np.ndarray) -> tuple[Sums, Sums]:
        return sums(x[:32], nothing[:32]), sums(x[32:], nothing[32:])

    assert place_explained(*half(told), where) > 0.999
    assert abs(place_explained(*half(noise), where)) < 0.05
    assert np.isnan(explained(*half(noise))).all()  # targets that never vary have no R²


def test_shuffling_moves_patches_and_changes_none() -> None:
    pictures = torch.randn(3, 3, 8, 12)
    mixed = shuffled(pictures, (4, 3), torch.Generator().manual_seed(0))
    before, after = (cut(batch, (4, 3)).flatten(2) for batch in (pictures, mixed))
    match = (before[:, :, None] == after[:, None]).all(3)
    assert match.sum(1).eq(1).all()
    orders = match.float().argmax(1)
    assert not torch.equal(orders[0], orders[1])
    assert torch.equal(put_together(cut(pictures, (4, 3)), (4, 3)), pictures)


def test_an_exchange_touches_one_patch() -> None:
    pictures, places = torch.randn(3, 3, 8, 8), torch.tensor([0, 5, 15])
    before, after = cut(pictures, (4, 4)), cut(exchanged(pictures, (4, 4), places), (4, 4))
    changed = (before != after).flatten(2).any(2)
    assert changed.nonzero()[:, 1].tolist() == places.tolist()
    assert torch.equal(after[1, 5], before[0, 5])


def test_related_patches_by_hand() -> None:
    own, adjacent, far = related((4, 4))
    assert own.tolist() == list(range(16))
    assert (adjacent[0], adjacent[3], adjacent[14]) == (1, 2, 15)
    assert (far[0], far[15]) == (10, 5)
    assert len(related((14, 14))[0]) == len(asked((14, 14))) == 64


class Patches(nn.Module):
    """A token is its own raw patch, or (told `everywhere`) the mean of all patches; blocks add nothing."""

    def __init__(self, everywhere: bool) -> None:
        super().__init__()
        self.everywhere = everywhere
        self.stem = nn.Conv2d(3, 48, 4, 4, bias=False)
        self.stem.weight.data = torch.eye(48).reshape(48, 3, 4, 4)
        self.blocks = nn.ModuleList(Nothing() for _ in range(3))
        self.head = nn.Linear(48, 10)

    def forward(self, images: Tensor) -> Tensor:
        grid = self.stem(images)
        if self.everywhere:
            grid = 0 * grid + grid.mean((2, 3), keepdim=True)
        for block in self.blocks:
            grid = block(grid)
        logits: Tensor = self.head(grid.mean((2, 3)))
        return logits


class Nothing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Conv2d(48, 48, 3, padding=1)
        nn.init.zeros_(self.branch.weight)
        assert self.branch.bias is not None
        nn.init.zeros_(self.branch.bias)

    def forward(self, grid: Tensor) -> Tensor:
        return grid + self.branch(grid).relu()


@pytest.mark.parametrize("everywhere", [False, True])
def test_tokens_that_are_patches_and_tokens_that_know_no_place(everywhere: bool) -> None:
    subject = load_subject(Patches(everywhere), label="patches", input_size=32)
    source, measure = open_images("sample"), TokenPlace(images=128)
    plan = plan_batches(source, limit=128, block=32)
    anatomy = anatomy_of("patches", subject.module, subject.prepare(source.pictures([0, 1])), call=subject.call)
    scene = Scene((anatomy,), 128, 4, 32, 16, source.classes)
    station = TappedSubject(subject, anatomy, [measure])
    shards = [examine_shard([station], source, plan.batches(at), [measure], scene) for at in range(len(plan.shards))]
    tally = reduce(lambda one, two: one.merge(two), (shard["token_place"] for shard in shards))
    assert isinstance(tally, TokenPlaceTally)
    estimate = measure.estimate(tally.total(), scene)
    found = {quantity.name: quantity.compute(estimate)["patches",] for quantity in measure.quantities}
    if everywhere:
        assert found["change_that_stays"] == pytest.approx(1 / 64, abs=1e-6)
        assert found["hit_rate_patches_shuffled"] < 0.15
        assert found["place_decoded"] < 0.05
        assert abs(found["own_patch_above_adjacent"]) < 0.05
    else:
        assert found["hit_rate_plain"] == found["hit_rate_patches_shuffled"] == 1
        assert found["change_that_stays"] == pytest.approx(1)
        assert found["own_patch_decoded"] > 0.99
        assert 0.1 < found["own_patch_above_adjacent"] < 0.9
    assert estimate.attrs["images"] == 128
    assert tally.folds == 8


def test_the_order_of_subjects_under_each_reading() -> None:
    readings = {
        "CKA": {"a": (0.9, 0.8, 1.0), "b": (0.1, 0.0, 0.2)},
        "places": {"a": (0.2, 0.19, 0.21), "b": (0.1, 0.09, 0.11)},
        "patches": {"a": (0.0, -0.1, 0.1), "b": (0.3, 0.2, 0.4)},
    }
    rule = " “>” stands where the interval of the difference, made of both, lies above 0, “≈” where it does not."
    assert same_ranking(readings) == "By CKA the order is a > b; by patches it is b > a." + rule
    assert same_ranking({"CKA": readings["CKA"], "places": readings["places"]}).endswith(
        "by every other reading, too." + rule
    )
    overlapping = {"CKA": {"a": (0.42, 0.2, 0.6), "b": (0.25, 0.1, 0.4)}, "places": readings["places"]}
    assert same_ranking(overlapping) == "By CKA the order is a ≈ b; by places it is a > b." + rule


def test_a_last_block_without_places_is_not_spoken_of() -> None:
    """Grids of 8, 4, 2 and 1: the last tokens that have places of their own are those of the second stage."""
    finding = finding_of(TokenPlace(images=64), module_subject(cases.resnet(), "cnn"), images=64)
    assert "In block 3, the last with places, of cnn" in TokenPlace().sentence(finding)
    whole = finding_of(TokenPlace(images=64), module_subject(cases.vit(), "vit"), images=64)
    assert "In the last block of vit" in TokenPlace().sentence(whole)


def test_sentence_figure_and_table_give_a_hit_rate_one_interval() -> None:
    """Of four tokens without a hit the table said [0 %, 60 %], the sentence and the figure [0 %, 4 %]."""
    finding = finding_of(TokenPlace(images=64), module_subject(cases.vit(), "vit"), images=64)
    name = "hit_rate_patches_shuffled"
    at = list(finding["quantity"].values).index(name)
    finding["quantity_value"][at], finding["quantity_low"][at], finding["quantity_high"][at] = 0.0, 0.0, 0.6
    assert "0% [0%, 60%] when patches are shuffled" in TokenPlace().sentence(finding)
    drawn = controls(finding).to_dict()
    rows = [row for rows in drawn["datasets"].values() for row in rows if row.get("control") == "patches shuffled"]
    assert {row["hit_rate_high"] for row in rows if row["hit_rate"] is not None} == {0.6}
