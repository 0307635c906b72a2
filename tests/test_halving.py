"""Do intervals of what is biased at few images hold what many images give? Hit-rates and ranks of the bundled models.

The truth is the hit-rate (or rank correlation) on all 992 bundled images (62 blocks of 16). An exam is 16 or 32 blocks
of them, drawn at random, in 16 folds. `pytest -s` prints the shares.
"""

# numpy's stubs call an indexed array Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor

from eyechart.engines.shard import TappedSubject, examine_shard
from eyechart.halves import BIAS_POWER, half_weights, still_moving
from eyechart.images import open_images, plan_batches
from eyechart.intervals import DRAWS, SMALL_DRAWS, bootstrap, bootstrap_weights, small_size, with_intervals
from eyechart.measure import Measure
from eyechart.measures.head_subsets.measure import HeadSubsets, HeadSubsetsTally, falls_with_distance
from eyechart.measures.localisation.measure import Localisation, LocalisationTally
from eyechart.methods.places import cells_of
from eyechart.quantity import Quantity
from eyechart.scene import Scene
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need
from tests.cases import inside
from tests.measures.on_subjects import staged

pytestmark = pytest.mark.all_draws

FOLDS, BLOCK, BLOCKS, EXAMS = 16, 16, 62, 40
UNITS = ("blocks.8", "layer2.0", "layer2.1", "layer3.0", "layer4.1")


class OfSomeUnits(Localisation):
    """Units whose hit-rate has nearly risen, is rising, or stays where it is."""

    def sites(self, anatomy: Anatomy) -> Sequence[Site]:
        return [site for site in anatomy.pick("block") if site.name in UNITS]


@dataclass(frozen=True)
class Unit:
    """The sums over each block of images from which a unit's hit-rate comes; computed not as the measure does."""

    name: str
    hsic: np.ndarray
    """(block, interior token, patch)"""
    patch: np.ndarray
    """(block, patch)"""
    own: np.ndarray
    """The patch of each interior token."""

    def rates(self, weights: np.ndarray) -> np.ndarray:
        """Hit-rates (draw,), for how often each block is counted (draw, block)."""
        across = (weights @ self.hsic.reshape(len(self.hsic), -1)).reshape(len(weights), *self.hsic.shape[1:])
        best = (across / np.sqrt(weights @ self.patch)[:, None]).argmax(-1)  # a token's own length scales all alike
        return (best == self.own).mean(1)


@pytest.fixture(scope="module")
def units() -> list[Unit]:
    measure = OfSomeUnits()
    subjects, scene = staged("zoo:vit", "zoo:resnet", images=BLOCKS * BLOCK)
    scene = Scene(scene.anatomies, BLOCKS * BLOCK, BLOCKS, BLOCK, BLOCKS, None)
    source = open_images("sample")
    plan = plan_batches(source, limit=BLOCKS * BLOCK, block=BLOCK, folds=BLOCKS, blocks_per_shard=BLOCKS)
    tapped = [TappedSubject(who, scene.anatomy(who.name), [measure]) for who in subjects]
    tally = examine_shard(tapped, source, plan.batches(0), [measure], scene)[measure.name]
    assert isinstance(tally, LocalisationTally)
    assert tally.folds == BLOCKS
    found = []
    for row, (_, site) in enumerate(scene.sites(measure.sites)):
        assert site.grid is not None
        rows, columns = cells_of(site.grid)
        own = np.arange(rows * columns).reshape(rows, columns)[1:-1, 1:-1].ravel()
        patches = slice(0, rows * columns)
        hsic, patch = tally.hsic[:, row, own, patches].numpy(), tally.patch[:, row, patches].numpy()
        found.append(Unit(site.name, hsic, patch, own))
    return found


def exams(unit: Unit, images: int, moving: bool) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (exam,) of exams on so many images."""
    generator = np.random.default_rng(images)
    draws, small = bootstrap_weights(FOLDS, DRAWS), bootstrap_weights(FOLDS, SMALL_DRAWS, 1, small_size(FOLDS))
    weights = torch.cat([torch.ones(1, FOLDS, dtype=torch.float64), draws, small, half_weights(FOLDS)]).numpy()
    lows, highs = [], []
    for _ in range(EXAMS):
        chosen = generator.permutation(BLOCKS)[: images // BLOCK].reshape(FOLDS, -1)
        folds = Unit(unit.name, unit.hsic[chosen].sum(1), unit.patch[chosen].sum(1), unit.own)
        value, drawn, fewer, halves = np.split(folds.rates(weights), np.cumsum([1, DRAWS, SMALL_DRAWS]))
        low, high = bootstrap(value[0], drawn, fewer, FOLDS, (0, 1))
        if moving:
            low, high = still_moving(value[0], low, high, halves, (0, 1))
        lows.append(float(low))
        highs.append(float(high))
    return np.array(lows), np.array(highs)


def covered(units: Sequence[Unit], images: int, moving: bool) -> dict[str, float]:
    shares = {}
    for unit in units:
        truth = unit.rates(np.ones((1, BLOCKS)))[0]
        low, high = exams(unit, images, moving)
        shares[unit.name] = float(np.mean((low <= truth) & (truth <= high)))
        about = f"{unit.name}, {images} images{', halves' if moving else ''}"
        print(
            f"\n{about:36s} truth {truth:.2f} covered {shares[unit.name]:.2f}   width {np.mean(high - low):.2f}", end=""
        )
    return shares


def test_a_rate_that_rises_with_the_images_is_held_by_the_interval_of_few(units: list[Unit]) -> None:
    """Without halves the interval of a unit of zoo:resnet, .25 at 256 images and .78 at 992, holds that in .03."""
    before, after = (covered(units, 256, moving) for moving in (False, True))
    assert min(before.values()) < 0.15
    assert min(after.values()) > 0.75, "what has only begun to rise is still missed at times"
    assert np.mean(list(after.values())) > 0.90
    assert after["layer4.1"] > 0.95, "what stays is not lost"


def test_with_twice_the_images_it_nearly_always_is(units: list[Unit]) -> None:
    assert min(covered(units, 512, moving=True).values()) > 0.93


# --- ranks: C18 -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranks:
    """The sums over each block of 8 images behind C18's rank correlation; not computed as the measure does."""

    hsic: np.ndarray
    """(block, part, part): the heads of a ViT's first attention, then four low units of the CNN."""
    distance: np.ndarray
    """(block, head)"""

    def fall(self, weights: np.ndarray) -> np.ndarray:
        """Rank correlation (draw,) of likeness and distance over groups of two heads, mean over units."""
        heads = self.distance.shape[1]
        table = np.einsum("db,bij->dij", weights, self.hsic)
        order = (weights @ self.distance).argsort(1)
        draw, near, far = np.arange(len(weights))[:, None], order[:, :-1], order[:, 1:]
        own = table[draw, near, near] + table[draw, far, far] + 2 * table[draw, near, far]
        units = table[:, heads:, heads:].diagonal(axis1=1, axis2=2)
        both = table[draw, near][..., heads:] + table[draw, far][..., heads:]
        places = (both / np.sqrt(own[..., None] * units[:, None])).argsort(1).argsort(1)
        apart = (places - np.arange(heads - 1)[:, None]) ** 2
        return (1 - 6 * apart.sum(1) / ((heads - 1) * ((heads - 1) ** 2 - 1))).mean(1)


@pytest.fixture(scope="module")
def ranks() -> tuple[Ranks, float]:
    """And what the measure itself says of all these images."""
    measure, blocks, block = HeadSubsets(), 2 * BLOCKS, BLOCK // 2
    subjects, scene = staged("zoo:vit-gap", "zoo:resnet")
    # Only the first attention is looked at: the blocks after it get two tokens, and take no time.
    inside(subjects[0].module).blocks[1].register_forward_pre_hook(lambda _, tokens: tokens[0][:, :2])
    scene = Scene(scene.anatomies, blocks * block, blocks, block, blocks, None)
    source = open_images("sample")
    plan = plan_batches(source, limit=blocks * block, block=block, folds=blocks, blocks_per_shard=blocks)
    tapped = [TappedSubject(who, scene.anatomy(who.name), [measure]) for who in subjects]
    tally = examine_shard(tapped, source, plan.batches(0), [measure], scene)[measure.name]
    assert isinstance(tally, HeadSubsetsTally)
    assert tally.folds == blocks
    said = falls_with_distance(measure.estimate(tally.total(), scene))["zoo:vit-gap", "zoo:resnet"]
    return Ranks(tally.hsic.numpy(), tally.distance.numpy()), said


def test_a_rank_correlation_of_128_images_holds_what_992_give(ranks: tuple[Ranks, float]) -> None:
    """Of four sets of heads (first and second attention of two ViTs) this is the one that is held least often: in .83
    of 400 exams on 64 images, .92 on 128, .99 on 256, against a CKA of all images at once.
    """
    of, said = ranks
    truth = of.fall(np.ones((1, len(of.hsic))))[0]
    assert truth == pytest.approx(said)
    generator, exams = np.random.default_rng(0), 100
    draws, small = bootstrap_weights(FOLDS, DRAWS), bootstrap_weights(FOLDS, SMALL_DRAWS, 1, small_size(FOLDS))
    weights = torch.cat([torch.ones(1, FOLDS, dtype=torch.float64), draws, small, half_weights(FOLDS)]).numpy()
    for blocks, least in ((16, 0.9), (32, 0.95)):
        held, wrong = 0, 0
        for _ in range(exams):
            chosen = generator.permutation(len(of.hsic))[:blocks].reshape(FOLDS, -1)
            folds = Ranks(of.hsic[chosen].sum(1), of.distance[chosen].sum(1))
            value, drawn, fewer, halves = np.split(folds.fall(weights), np.cumsum([1, DRAWS, SMALL_DRAWS]))
            low, high = bootstrap(value[0], drawn, fewer, FOLDS, (-1, 1))
            low, high = still_moving(value[0], low, high, halves, (-1, 1))
            held += bool(low <= truth <= high)
            wrong += bool(low >= -0.5)
        print(f"\nC18's ranks, {8 * blocks} images: truth {truth:.3f} covered {held / exams:.3f}", end="")
        assert held / exams > least
        assert wrong / exams < 0.02, "it holds on all images, and must not fail on few"


# --- the option of a quantity -----------------------------------------------------------------------------------


def test_the_end_it_moves_to_moves_on_and_the_other_stays() -> None:
    onward = 1 / (2**BIAS_POWER - 1)
    low, high = still_moving(np.array(0.5), np.array(0.4), np.array(0.6), np.array([0.44, 0.46]))
    assert (float(low), float(high)) == pytest.approx((0.4, 0.6 + 0.05 * onward))
    low, high = still_moving(np.array(0.5), np.array(0.4), np.array(0.6), np.array([0.6, 0.7]), (0.0, 1.0))
    assert (float(low), float(high)) == (0.0, 0.6)
    low, high = still_moving(np.array(0.5), np.array(0.4), np.array(0.6), np.array([0.5, 0.5]))
    assert (float(low), float(high)) == (0.4, 0.6)


def test_what_has_no_number_on_a_half_is_not_known() -> None:
    assert np.isnan(still_moving(np.array(0.5), np.array(0.4), np.array(0.6), np.array([0.5, np.nan]))).all()
    ends = still_moving(np.array(np.inf), np.array(0.0), np.array(np.inf), np.array([np.inf, np.inf]))
    assert [float(end) for end in ends] == [0.0, np.inf]


def test_halves_are_halves() -> None:
    weights = half_weights(16)
    assert weights.shape == (64, 16)
    assert (weights.sum(1) == 8).all()
    assert torch.equal(weights[::2] + weights[1::2], torch.ones(32, 16, dtype=torch.float64))


@dataclass
class MeanTally(Tally):
    sums: Annotated[Tensor, Sum("fold", "place")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def highest(estimate: xarray.Dataset) -> dict[tuple[str, ...], float]:
    """Of many places that are all 0 the highest: the fewer images, the higher."""
    return {("it",): float(estimate.mean_value.max())}


class Highest(Measure):
    name = "highest"
    quantities = (
        Quantity("highest", highest, "", smooth=False),
        Quantity("highest_halved", highest, "", smooth=False, halving=True),
    )

    def needs(self) -> Sequence[Need]:
        return []

    def tally(self, scene: Scene) -> MeanTally:
        return MeanTally.empty(fold=16, place=48)

    def update(self, *about: object) -> None:
        raise NotImplementedError

    def estimate(self, total: MeanTally, scene: Scene) -> xarray.Dataset:
        return xarray.Dataset({"mean_value": ("place", (total.sums / total.images).numpy(), {"exact": True})})

    def sentence(self, finding: xarray.Dataset) -> str:
        return ""


def test_a_quantity_that_asks_for_it_is_widened_and_its_half_is_recorded() -> None:
    measure, where = Highest(), Scene((), 256, 16, 16, 16, None)
    tally = measure.tally(where)
    tally.sums += torch.from_numpy(np.random.default_rng(0).normal(size=(16, 48))) * 4
    tally.images += 16
    finding = with_intervals(measure, tally, where)
    plain, halved = (finding.isel(quantity_row=row) for row in range(2))
    assert math.isnan(plain.quantity_half_value)
    assert float(halved.quantity_half_value) > float(halved.quantity_value) > 0
    assert float(halved.quantity_high) == float(plain.quantity_high)
    assert float(halved.quantity_low) < float(plain.quantity_low)
