"""Intervals against textbook formulas, and the finding of a small measure. How often they cover: test_coverage.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
import xarray
from scipy import stats
from torch import Tensor

from eyechart import exact_bounds, intervals
from eyechart.intervals import bootstrap, bootstrap_weights, images_to_decide, jackknife, leave_one_out_weights
from eyechart.measure import Measure
from eyechart.quantity import Quantity
from eyechart.scene import Scene
from eyechart.tally import Sum, Tally

pytestmark = pytest.mark.all_draws


def leave_one_out_means(values: np.ndarray) -> np.ndarray:
    return np.array([np.delete(values, fold, axis=0).mean(axis=0) for fold in range(len(values))])


def test_the_jackknife_of_a_mean_is_the_t_interval() -> None:
    values = np.random.default_rng(0).normal(size=(16, 3))
    low, high = jackknife(values.mean(axis=0), leave_one_out_means(values))
    expected = stats.t.interval(0.95, 15, loc=values.mean(axis=0), scale=stats.sem(values, axis=0))
    np.testing.assert_allclose([low, high], expected)


def test_bounds_are_cut_at_the_limits() -> None:
    values = np.array([[0.02, 0.5], [0.2, 0.5], [0.0, 0.6]])
    low, high = jackknife(values.mean(axis=0), leave_one_out_means(values), (0.0, 0.55))
    assert low[0] == 0
    assert high[1] == 0.55
    assert low[1] > 0


def test_bounds_of_few_values_are_cut_at_the_limits_too() -> None:
    """All four heads of Swin's first two attentions are local: 1 [0.63, 1.37] is no share."""
    share = Quantity(
        "local", lambda _: {("a",): 1.0}, "", limits=(0, 1), if_unmoved=lambda _: {("a",): (0.63, 1.37)}, smooth=False
    )
    low, high = exact_bounds.of_few_values(share, xarray.Dataset(), ("a",), np.array(1.0), np.array(1.0))
    assert (float(low), float(high)) == (0.63, 1.0)


def test_nan_stays_and_infinity_is_no_knowledge() -> None:
    value = np.array([np.nan, 1.0, np.inf, np.inf, 1.0, -np.inf, 1.0])
    replicates = np.array(
        [[1.0, np.nan, np.inf, 3.0, np.inf, -np.inf, np.nan], [2.0, 1.0, np.inf, np.inf, 1.0, -np.inf, np.inf]]
    )
    low, high = jackknife(value, replicates, (0.0, None))
    np.testing.assert_array_equal(low, [np.nan, np.nan, np.inf, 0.0, 0.0, -np.inf, np.nan])
    np.testing.assert_array_equal(high, [np.nan, np.nan, np.inf, np.inf, np.inf, -np.inf, np.nan])
    low, high = bootstrap(value, replicates, replicates, folds=2, limits=(0.0, None))
    np.testing.assert_array_equal(low, [np.nan, np.nan, np.inf, 0.0, 0.0, -np.inf, np.nan])
    np.testing.assert_array_equal(high, [np.nan, np.nan, np.inf, np.inf, np.inf, -np.inf, np.nan])


def test_one_fold_tells_nothing() -> None:
    assert np.isnan(jackknife(np.array(1.0), np.empty(0))).all()
    assert np.isnan(bootstrap(np.array(1.0), np.ones(9), np.ones(9), folds=1)).all()


def test_only_folds_that_hold_something_are_left_out() -> None:
    weights = leave_one_out_weights(torch.tensor([0, 4, 0, 5, 1]))
    assert weights.tolist() == [[1, 0, 1, 1, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 0]]
    assert leave_one_out_weights(torch.tensor([0, 4, 0])).shape == (0, 3)
    assert leave_one_out_weights(torch.zeros(0)).shape == (0, 0)


def test_bootstrap_draws_folds_with_replacement() -> None:
    weights = bootstrap_weights(folds=8, draws=2000, seed=3)
    assert weights.sum(1).eq(8).all()
    assert weights.mean(0).sub(1).abs().max() < 0.1
    assert abs(float(weights.eq(0).double().mean()) - (7 / 8) ** 8) < 0.02
    assert torch.equal(weights, bootstrap_weights(folds=8, draws=2000, seed=3))
    assert bootstrap_weights(folds=8, draws=5, size=2).sum(1).eq(2).all()


def test_the_bootstrap_of_a_mean_is_close_to_the_t_interval() -> None:
    values = np.random.default_rng(1).normal(size=16)
    draws, small = (bootstrap_weights(16, 4000, 0, size).numpy() / size @ values for size in (16, 4))
    bounds = bootstrap(values.mean(), draws, small, folds=16)
    expected = stats.t.interval(0.95, 15, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose(bounds, expected, atol=0.05 * np.ptp(expected))


@pytest.mark.parametrize(("value", "margin"), [(0.12, 0.1), (0.07, 0.1), (-3.0, 1.0)])
def test_so_many_images_would_decide_and_one_less_would_not(value: float, margin: float) -> None:
    images, half = 1000, 5.0
    needed = images_to_decide(value, value - half, value + half / 2, margin, images)
    assert needed is not None
    assert half * math.sqrt(images / needed) < abs(value - margin)
    assert half * math.sqrt(images / (needed - 1)) >= abs(value - margin) * (1 - 1e-6)


@pytest.mark.parametrize(
    ("value", "low", "high"), [(0.1, 0.0, 0.2), (np.nan, np.nan, np.nan), (0.3, np.nan, np.nan), (np.inf, 0, np.inf)]
)
def test_where_no_number_of_images_would_decide(value: float, low: float, high: float) -> None:
    assert images_to_decide(value, low, high, margin=0.1, images=100) is None


@dataclass
class HeadTally(Tally):
    distance: Annotated[Tensor, Sum("fold", "subject", "head")]
    square: Annotated[Tensor, Sum("fold", "subject")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def per_subject(estimate: xarray.Dataset) -> dict[tuple[str, ...], float]:
    return {(str(name),): float(estimate.distance.sel(subject=name).min()) for name in estimate.subject.values}


def difference(estimate: xarray.Dataset) -> dict[tuple[str, ...], float]:
    means = estimate.distance.mean("head").values
    return {("a", "b"): float(means[0] - means[1])}


class HeadDistance(Measure):
    """Mean per head, the mean square as a ratio of sums, and a table that has no sampling."""

    name = "head_distance"
    quantities = (
        Quantity("difference", difference, "a minus b", unit="px"),
        Quantity("lowest", per_subject, "the lowest head", smooth=False, limits=(0.0, None)),
    )
    estimates = 0

    def needs(self) -> Any:
        return []

    def tally(self, scene: Scene) -> HeadTally:
        return HeadTally.empty(fold=scene.folds, subject=2, head=3)

    def update(self, tally: Any, batch: Any, views: Any, scene: Scene) -> None: ...

    def estimate(self, total: HeadTally, scene: Scene) -> xarray.Dataset:
        type(self).estimates += 1
        distance = total.distance / total.images
        relative = (total.square / total.images) / distance.mean(1) ** 2
        return xarray.Dataset(
            {
                "distance": (("subject", "head"), distance.numpy(), {"limits": (0.0, None)}),
                "relative": ("subject", relative.numpy()),
                "filters": ("subject", np.array([1.5, 2.5]), {"exact": True}),
                "blocks": ("subject", np.array([12, 8])),
            },
            coords={"subject": ["a", "b"]},
            attrs={"unit": "px"},
        )

    def chart(self, finding: xarray.Dataset) -> Any: ...

    def sentence(self, finding: xarray.Dataset) -> str:
        return ""


def heads(folds: int = 16, empty: int = 0, images: int = 320) -> tuple[np.ndarray, HeadTally, Scene]:
    """Images with a large common part (some make every head look far), dealt to folds; the first `empty` get none."""
    generator = np.random.default_rng(5)
    common = generator.normal(size=(images, 1, 1))
    values = 20 + np.array([[[0.0], [1.0]]]) + np.arange(3) * 4 + 3 * common + generator.normal(size=(images, 2, 3))
    tally = HeadTally.empty(fold=folds + empty, subject=2, head=3)
    dealt = torch.arange(images) % folds + empty
    tally.distance.index_add_(0, dealt, torch.from_numpy(values))
    tally.square.index_add_(0, dealt, torch.from_numpy((values**2).mean(2)))
    tally.images.index_add_(0, dealt, torch.ones(images, dtype=torch.float64))
    scene = Scene(anatomies=(), images=images, whole_blocks=16, block=images // 16, folds=folds + empty, classes=None)
    return values, tally, scene


def test_a_finding_has_the_value_and_its_interval() -> None:
    values, tally, scene = heads()
    finding = intervals.with_intervals(HeadDistance(), tally, scene)
    folds = np.array([values[fold::16].mean(axis=0) for fold in range(16)])
    expected = stats.t.interval(0.95, 15, loc=values.mean(axis=0), scale=stats.sem(folds, axis=0))
    np.testing.assert_allclose(finding.distance, values.mean(axis=0))
    np.testing.assert_allclose([finding.distance_low, finding.distance_high], expected)
    assert finding.distance_replicates.dims == ("replicate", "subject", "head")
    np.testing.assert_allclose(finding.distance_replicates[3], np.delete(folds, 3, axis=0).mean(axis=0))
    assert finding.attrs == {"images": 320, "folds": 16, "unit": "px"}


def test_exact_and_whole_numbers_get_no_replicates() -> None:
    _, tally, scene = heads()
    finding = intervals.with_intervals(HeadDistance(), tally, scene)
    assert finding.filters_low.values.tolist() == finding.filters_high.values.tolist() == [1.5, 2.5]
    assert "filters_replicates" not in finding
    assert "blocks_low" not in finding


def row(finding: xarray.Dataset, quantity: str, subjects: str) -> xarray.Dataset:
    chosen = (finding["quantity"] == quantity) & (finding["quantity_subjects"] == subjects)
    return finding.isel(quantity_row=int(np.flatnonzero(chosen.values)[0]))


def test_differences_are_jackknifed_jointly() -> None:
    values, tally, scene = heads()
    finding = intervals.with_intervals(HeadDistance(), tally, scene)
    found = row(finding, "difference", "a | b")
    by_fold = np.array([(values[fold::16, 0] - values[fold::16, 1]).mean() for fold in range(16)])
    expected = stats.t.interval(0.95, 15, loc=by_fold.mean(), scale=stats.sem(by_fold))
    np.testing.assert_allclose([found.quantity_low, found.quantity_high], expected)
    assert str(found["quantity_unit"].values) == "px"
    separate = float((finding.distance_high - finding.distance_low).mean())
    assert float(found.quantity_high - found.quantity_low) < separate / 3


@pytest.mark.parametrize("count", [16, 4])  # of four folds 35 draws can be told apart: each comes several times
def test_a_minimum_is_bootstrapped(count: int) -> None:
    values, tally, scene = heads(folds=count)
    found = row(intervals.with_intervals(HeadDistance(), tally, scene), "lowest", "b")
    folds = np.array([values[fold::count, 1].mean(axis=0) for fold in range(count)])
    size = intervals.small_size(count)
    draws = [(row @ folds / count).min() for row in bootstrap_weights(count, intervals.DRAWS, 0).numpy()]
    small = [(row @ folds / size).min() for row in bootstrap_weights(count, intervals.SMALL_DRAWS, 1, size).numpy()]
    expected = bootstrap(folds.mean(axis=0).min(), np.array(draws), np.array(small), folds=count)
    np.testing.assert_allclose([found.quantity_low, found.quantity_high], expected)
    np.testing.assert_allclose(found.quantity_value, values[:, 1].mean(axis=0).min())


def test_empty_folds_change_nothing() -> None:
    _, tally, scene = heads(folds=6)
    _, padded, wider = heads(folds=6, empty=10)
    finding = intervals.with_intervals(HeadDistance(), tally, scene)
    other = intervals.with_intervals(HeadDistance(), padded, wider)
    xarray.testing.assert_allclose(finding, other)
    assert other.attrs["folds"] == other.sizes["replicate"] == 6


def test_with_one_fold_the_value_stands_alone(tmp_path: Path) -> None:
    values, tally, scene = heads(folds=1, empty=15)
    finding = intervals.with_intervals(HeadDistance(), tally, scene)
    np.testing.assert_allclose(finding.distance, values.mean(axis=0))
    for bound in (finding.distance_low, finding.distance_high, finding.quantity_low, finding.quantity_high):
        assert np.isnan(bound.values).all()
    assert np.isfinite(finding.quantity_value.values).all()
    assert finding.filters_low.values.tolist() == [1.5, 2.5]
    finding.to_netcdf(tmp_path / "finding.nc")


def test_a_finding_can_be_written_and_read(tmp_path: Path) -> None:
    _, tally, scene = heads()
    finding = intervals.with_intervals(HeadDistance(), tally, scene)
    finding.to_netcdf(tmp_path / "finding.nc")
    with xarray.open_dataset(tmp_path / "finding.nc") as read:
        xarray.testing.assert_allclose(read.load(), finding)
        assert read.distance.attrs["limits"].tolist() == [0, np.inf]
        assert read.filters.attrs["exact"] == 1


def test_draws_are_made_only_for_what_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _, tally, scene = heads()
    monkeypatch.setattr(HeadDistance, "estimates", 0)
    intervals.with_intervals(HeadDistance(), tally, scene)
    drawn = [bootstrap_weights(16, intervals.DRAWS, 0), bootstrap_weights(16, intervals.SMALL_DRAWS, 1, size=4)]
    distinct: int = sum(len(draws.unique(dim=0)) for draws in drawn)
    assert 390 < distinct < 400  # the same draw twice is estimated once
    assert HeadDistance.estimates == 1 + 16 + distinct
    monkeypatch.setattr(HeadDistance, "estimates", 0)
    monkeypatch.setattr(HeadDistance, "quantities", HeadDistance.quantities[:1])
    intervals.with_intervals(HeadDistance(), tally, scene)
    assert HeadDistance.estimates == 1 + 16


def test_a_quantity_that_vanishes_in_a_replicate_has_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    _, tally, scene = heads()
    whole = float(tally.total().images)

    def sometimes(estimate: xarray.Dataset) -> dict[tuple[str, ...], float]:
        return difference(estimate) if estimate.attrs["images"] == whole else {}

    def estimate(self: HeadDistance, total: HeadTally, scene: Scene) -> xarray.Dataset:
        return plain(self, total, scene).assign_attrs(images=float(total.images))

    plain = HeadDistance.estimate
    monkeypatch.setattr(HeadDistance, "estimate", estimate)
    monkeypatch.setattr(HeadDistance, "quantities", (Quantity("sometimes", sometimes, ""),))
    found = row(intervals.with_intervals(HeadDistance(), tally, scene), "sometimes", "a | b")
    assert np.isfinite(found.quantity_value)
    assert np.isnan(found.quantity_low)
    assert np.isnan(found.quantity_high)


def test_a_share_of_few_things_that_no_draw_moved_gets_the_exact_bound() -> None:
    """Hit-rates of exactly 1 used to show [1, 1]; of 36 tokens the exact bound is .90.

    And of four tokens of which none hits, [0, .05] beside [0, .60]: a draw or two of 250 had moved them.
    """
    value, trials = np.array([1.0, 0.5, 0.0, 0.7, 0.0]), np.array([36, 4, 36, 36, 4])
    ends = np.array([1, 0.5, 0, 0.6, 0]), np.array([1, 0.5, 0, 0.8, 0.05])
    low, high = exact_bounds.where_hardly_moved(value, *ends, exact_bounds.room_for(trials), (0.0, 1.0))
    room = 1 - 0.025 ** (1 / trials)
    np.testing.assert_allclose(low, [1 - room[0], 0, 0, 0.6, 0])
    np.testing.assert_allclose(high, [1, 1, room[2], 0.8, room[4]])  # where draws moved it, their interval stays


def test_a_finding_has_that_bound_for_a_share_of_few_things(monkeypatch: pytest.MonkeyPatch) -> None:
    _, tally, scene = heads()

    def estimate(self: HeadDistance, total: HeadTally, scene: Scene) -> xarray.Dataset:
        share = ("thing", np.array([0.0]), {"limits": (0.0, 1.0), "smooth": False, "trials": 4.0})
        return plain(self, total, scene).assign(share=share)

    plain = HeadDistance.estimate
    monkeypatch.setattr(HeadDistance, "estimate", estimate)
    found = intervals.with_intervals(HeadDistance(), tally, scene)
    assert float(found.share_high.values[0]) == pytest.approx(exact_bounds.room_for(4))


def test_bounds_of_unmoved_quantities_and_ceilings_are_those_of_the_quantity() -> None:
    estimate = xarray.Dataset()
    still = Quantity(
        "rate", lambda _: {("a",): 1.0}, "", if_unmoved=lambda _: {("a",): (0.9, 1.0)}, ceiling=lambda _: {("a",): 0.95}
    )
    ends = exact_bounds.of_few_values(still, estimate, ("a",), np.array(1.0), np.array(1.0 + 1e-16))
    assert tuple(map(float, ends)) == (0.9, 0.95)
    # C19 showed −0.33333 [−0.33448, −0.33333] for a place known to half a block.
    ends = exact_bounds.of_few_values(still, estimate, ("a",), np.array(0.995), np.array(1.0))
    assert tuple(map(float, ends)) == (0.9, 0.95)
    ends = exact_bounds.of_few_values(still, estimate, ("a",), np.array(0.2), np.array(0.4))
    assert tuple(map(float, ends)) == (0.2, 0.4)
    # C28 held by a ratio of 16 [13.1, 16] whose parts are [.9, 1] and [0, .6]: it had reached far beyond the possible.
    ends = exact_bounds.of_few_values(still, estimate, ("a",), np.array(0.94), np.array(1.2))
    assert tuple(map(float, ends)) == (0.9, 0.95)
