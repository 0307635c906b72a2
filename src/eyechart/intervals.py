"""Error bars on every number: which values would other images of the same kind have given?

Images are dealt to folds; a statistic is computed again from the sums of the folds, so that anything derived from it
(a mean over layers, a difference of two subjects) gets a joint interval for free.

- **Smooth statistics: delete-one-fold jackknife.** With θ₋ᵢ the statistic without fold i, of k non-empty folds,

      θ ± t(k−1) · sqrt((k−1)/k · Σᵢ (θ₋ᵢ − mean θ₋)²)

  without bias correction, cut at the limits of the statistic.
- **Minima, maxima, argmax, ranks, fractions: bootstrap over folds** (see `bootstrap`), since the jackknife of a minimum
  sees only the heads that are lowest now.

- **What is biased at few images (ranks, argmax, shares, hit-rates): also halves of the images** (see `halves.py`),
  for a quantity that asks for it (`Quantity.halving`).

How often these 95 % intervals hold the truth is measured on simulated data by `tests/test_coverage.py`, and on the
bundled models, against what all their images give, by `tests/test_halving.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray
from scipy.special import stdtrit
from torch import Tensor

from eyechart.exact_bounds import (
    CONFIDENCE,
    Array,
    Limits,
    at_the_ends,
    of_few_values,
    where_hardly_moved,
    where_no_pair_moved,
    within,
)
from eyechart.exact_bounds import room_for as room_for  # measures import it from here
from eyechart.halves import halves_of, still_moving

if TYPE_CHECKING:
    from eyechart.measure import Measure
    from eyechart.quantity import Quantity
    from eyechart.scene import Scene
    from eyechart.tally import Tally

Values = list[Mapping[tuple[str, ...], float]]

DRAWS = 250
"""Bootstrap draws as large as the sample: their spread is the interval's width."""
SMALL_DRAWS = 150
"""Draws of a quarter of the folds, for the bias of minima and maxima. A mean needs fewer draws than a quantile."""


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float
    half: float = math.nan
    """Its mean over halves of the images, where the quantity asks for it."""
    of_few: int = 0
    """1 where it is as wide as the few things that are counted make it, not as the images do."""


def leave_one_out_weights(counts: Tensor) -> Tensor:
    """Weights (replicate, fold): each leaves out one fold that is not empty. None at all if fewer than two hold data.

    >>> leave_one_out_weights(torch.tensor([3.0, 0.0, 2.0]))
    tensor([[0., 1., 1.],
            [1., 1., 0.]], dtype=torch.float64)
    """
    holding = torch.nonzero(counts > 0).flatten()
    weights = torch.ones(len(holding), len(counts), dtype=torch.float64)
    weights[torch.arange(len(holding)), holding] = 0
    return weights if len(holding) > 1 else weights[:0]


def jackknife(value: Array, replicates: Array, limits: Limits = (None, None)) -> tuple[Array, Array]:
    """Bounds of a smooth statistic from its leave-one-out `replicates` (replicate, …).

    NaN, in the value or in any replicate, gives NaN bounds. Where all are the same infinity the bounds are it as well;
    where some are infinite nothing is known, and the bounds are the limits.

    >>> low, high = jackknife(np.array(2.0), np.array([1.5, 2.0, 2.5]))
    >>> print(f"{low:.2f} {high:.2f}")
    -0.48 4.48
    """
    value, replicates = np.asarray(value, dtype=np.float64), np.asarray(replicates, dtype=np.float64)
    folds = len(replicates)
    if folds < 2:
        return np.full_like(value, np.nan), np.full_like(value, np.nan)
    with np.errstate(invalid="ignore"):
        error = np.sqrt((folds - 1) * replicates.var(axis=0))
    half = t_quantile(folds) * error
    return _finish(value, value - half, value + half, replicates, limits)


def bootstrap_weights(folds: int, draws: int, seed: int = 0, size: int | None = None) -> Tensor:
    """How often each fold is drawn, (draw, fold), when `size` folds (by default all) are drawn with replacement."""
    generator = np.random.default_rng(seed)
    return torch.from_numpy(generator.multinomial(size or folds, np.full(folds, 1 / folds), size=draws)).double()


def small_size(folds: int) -> int:
    """How many folds a small draw holds."""
    return max(2, folds // 4)


def bootstrap(
    value: Array, draws: Array, small_draws: Array, folds: int, limits: Limits = (None, None)
) -> tuple[Array, Array]:
    """Bounds of a statistic that is not smooth, from its values on bootstrap `draws` (draw, …) of the folds.

    The hull of two 95 % intervals, each of which fails where the other holds:

    - the percentiles of the draws, which follow the steps of an argmax, but move a minimum of near ties the wrong way
      (the lowest of twelve equal heads is too low, and the lowest in a draw is lower still: covers 0 %);
    - t(k−1) times the spread of the draws around the value less its bias. The bias is read off draws of a quarter of
      the folds: there the noise outweighs the differences that the noise itself made between tied heads (m-out-of-n
      bootstrap), and sqrt(m/(k−1)) brings it back to scale.

    Simulated coverage .95–.98 for minima over 6–48 heads half a standard error or more apart, .91–1 for argmax
    positions, .94–.98 for maxima over smooth tables; above .98 where few values are possible (ranks, shares, signs).
    It fails where *many* independent values are equal within a small part of their standard errors: .90 for 12 heads,
    .80 for 48.
    """
    value, draws = np.asarray(value, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    if folds < 2:
        return np.full_like(value, np.nan), np.full_like(value, np.nan)
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):
        # A draw spreads by sqrt((k−1)/k) less than samples do.
        half = t_quantile(folds) * draws.std(axis=0, ddof=1) * math.sqrt(folds / (folds - 1))
        bias = (np.mean(small_draws, axis=0) - value) * math.sqrt(small_size(folds) / (folds - 1))
        first, last = np.quantile(draws, [tail, 1 - tail], axis=0)
    low = np.minimum(np.minimum(first, value - bias - half), value)
    high = np.maximum(np.maximum(last, value - bias + half), value)
    return _finish(value, low, high, np.concatenate([draws, small_draws]), limits)


def t_quantile(folds: int) -> float:
    """What replaces 1.96 when the spread itself comes from so few folds: 2.131 for 16.

    >>> round(t_quantile(16), 3)
    2.131
    """
    return float(stdtrit(folds - 1, (1 + CONFIDENCE) / 2))


def images_to_decide(value: float, low: float, high: float, margin: float, images: int) -> int | None:
    """How many images would bring the whole interval to one side of the margin, if the value stayed as it is.

    Half-widths shrink with 1/sqrt(images). None where no number would do: no interval, or a value at the margin (more
    than a billion images counts as that).

    >>> images_to_decide(value=0.12, low=0.08, high=0.16, margin=0.10, images=1000)
    4001
    """
    half = max(value - low, high - value)  # The longer one: the other may be cut at a limit.
    distance = abs(value - margin)
    if not (math.isfinite(half) and math.isfinite(distance)) or distance == 0:
        return None
    needed = images * (half / distance) ** 2
    return math.floor(needed + 1e-6) + 1 if needed < 1e9 else None


def with_intervals(measure: Measure, tally: Tally, scene: Scene, threads: int = 1) -> xarray.Dataset:
    """The finding of a measure: its estimate, and for each number in it the interval.

    A float variable `v` gets `v_low`, `v_high` and `v_replicates` (replicate, …), unless it is marked `exact`; one
    marked `smooth: False` (an argmax) gets the bootstrap and no replicates. The measure's quantities lie along
    `quantity_row`. With fewer than two non-empty folds all bounds are NaN. Several `threads` estimate under several
    weightings of the folds at a time, and the numbers are the same to the bit.
    """
    resampled = partial(_resample, measure, tally, scene, threads=threads)
    estimate = _estimate(measure, tally.total(), scene)
    quantities = [quantity for quantity in measure.quantities if not quantity.smooth]
    variables = [str(name) for name, each in estimate.data_vars.items() if each.attrs.get("smooth") is False]
    left_out = resampled(leave_one_out_weights(tally.fold_counts), measure.quantities, None)
    draws, small_draws = _nothing(), _nothing()
    if (quantities or variables) and tally.folds > 1:
        draws = resampled(_draws(tally, DRAWS, 0, tally.folds), quantities, variables)
        fewer = _draws(tally, SMALL_DRAWS, 1, small_size(tally.folds))
        small_draws = resampled(fewer, quantities, variables)
    moving = [quantity for quantity in measure.quantities if quantity.halving]
    halves = resampled(halves_of(tally), moving, ()) if moving and tally.folds > 1 else _nothing()

    bounds: dict[str, tuple[tuple[Hashable, ...], Array]] = {}
    for name, variable in estimate.data_vars.items():
        if not np.issubdtype(variable.dtype, np.floating):
            continue
        value, limits = variable.values, variable.attrs.get("limits", (None, None))
        if variable.attrs.get("exact"):  # of the images; how it is computed may leave some room
            room = variable.attrs.get("room", 0.0)
            low, high = within(limits, value - room, value + room)
        elif name in variables:
            drawn = draws.stack(name, value), small_draws.stack(name, value)
            low, high = bootstrap(value, *drawn, tally.folds, limits)
            if "trials" in variable.attrs:
                low, high = where_hardly_moved(value, low, high, room_for(variable.attrs["trials"]), limits)
            if "room" in variable.attrs:
                low, high = where_hardly_moved(value, low, high, variable.attrs["room"], limits)
        else:
            replicates = left_out.stack(name, value)
            low, high = jackknife(value, replicates, limits)
            if "trials" in variable.attrs and len(replicates) > 1:
                low, high = at_the_ends(value, low, high, variable.attrs["trials"])
            if "pairs" in variable.attrs and len(replicates) > 1:
                low, high = within(limits, *where_no_pair_moved(value, low, high, variable.attrs["pairs"]))
            bounds[f"{name}_replicates"] = (("replicate", *variable.dims), replicates)
        bounds[f"{name}_low"] = (variable.dims, low)
        bounds[f"{name}_high"] = (variable.dims, high)
    rows = []
    for quantity in measure.quantities:
        own_bounds = quantity.bounds(estimate) if quantity.bounds is not None else None  # once: they are of all tuples
        for subjects, computed in quantity.compute(estimate).items():
            value = np.array(computed, dtype=np.float64)
            if quantity.exact:
                low = high = value
            elif own_bounds is not None:
                ends = (np.array(bound, dtype=np.float64) for bound in own_bounds[subjects])
                low, high = within(quantity.limits, *ends)
            elif quantity.smooth or tally.folds < 2:
                low, high = jackknife(value, left_out.series(quantity, subjects), quantity.limits)
                drawn_alone = int(estimate.attrs.get("trials", estimate.attrs.get("images", scene.images)))
                if quantity.share and tally.folds > 1:
                    low, high = at_the_ends(value, low, high, drawn_alone)
                if quantity.paired and tally.folds > 1:
                    low, high = where_no_pair_moved(value, low, high, max(drawn_alone, 1))
            else:
                drawn = draws.series(quantity, subjects), small_draws.series(quantity, subjects)
                low, high = bootstrap(value, *drawn, tally.folds, quantity.limits)
            half = math.nan
            if quantity.halving and tally.folds > 1:
                on_halves = halves.series(quantity, subjects)
                half = float(np.mean(on_halves))
                low, high = still_moving(value, low, high, on_halves, quantity.limits)
            by_images = float(high - low)
            low, high = of_few_values(quantity, estimate, subjects, low, high)
            of_few = int(float(high - low) > 2 * by_images)
            rows.append((quantity, subjects, Interval(float(value), float(low), float(high), half, of_few)))
    finding = estimate.assign(bounds).assign(_quantity_table(rows))  # all at once: each step aligns every coordinate
    for name in estimate.data_vars:
        if f"{name}_low" in bounds:
            finding[name].attrs = _plain(estimate[name].attrs)
    finding.attrs = {"images": scene.images, **estimate.attrs, "folds": tally.folds}
    return finding


def _estimate(measure: Measure, tally: Tally, scene: Scene) -> xarray.Dataset:
    """What a measure estimates, with the specs of subjects that go by a label: quantities see nothing but this."""
    estimate = measure.estimate(tally, scene)
    return estimate.assign_attrs(specs=json.dumps(dict(scene.specs))) if scene.specs else estimate


@dataclass(frozen=True)
class Resampled:
    """What variables and quantities became on each weighting of the folds."""

    variables: dict[str, list[Array]]
    quantities: dict[str, Values]

    def stack(self, name: Hashable, like: Array) -> Array:
        tables = self.variables.get(str(name), [])
        return np.stack(tables) if tables else np.empty((0, *like.shape))

    def series(self, quantity: Quantity, subjects: tuple[str, ...]) -> Array:
        """One quantity of one tuple of subjects; NaN where it does not exist."""
        values = self.quantities.get(quantity.name, [])
        return np.array([each.get(subjects, np.nan) for each in values], dtype=np.float64)


def _nothing() -> Resampled:
    return Resampled({}, {})


def _draws(tally: Tally, count: int, seed: int, size: int) -> Tensor:
    """Bootstrap weights over all folds; empty ones are never drawn."""
    holding = tally.fold_counts > 0
    weights = torch.zeros(count, len(holding), dtype=torch.float64)
    weights[:, holding] = bootstrap_weights(tally.folds, count, seed, size)
    return weights


def _resample(
    measure: Measure,
    tally: Tally,
    scene: Scene,
    weights: Tensor,
    quantities: Sequence[Quantity],
    variables: Sequence[str] | None,
    threads: int,
) -> Resampled:
    """Estimates under each row of `weights`; only what was asked for is kept (400 tables of CKA would be gigabytes).

    Rows that are the same are estimated once: of two folds, as eight images have, 250 draws are only three.
    """
    rows = [tuple(row.tolist()) for row in weights]
    once = list(dict.fromkeys(rows))

    def under(row: tuple[float, ...]) -> tuple[dict[str, Array], dict[str, Mapping[tuple[str, ...], float]]]:
        estimate = _estimate(measure, tally.weighted(torch.tensor(row, dtype=weights.dtype)), scene)
        names = estimate.data_vars if variables is None else variables
        tables = {str(name): estimate[name].values for name in names}
        return tables, {quantity.name: quantity.compute(estimate) for quantity in quantities}

    if threads > 1:
        with ThreadPoolExecutor(threads, thread_name_prefix="intervals") as pool:
            estimated = dict(zip(once, pool.map(under, once), strict=True))
    else:
        estimated = {row: under(row) for row in once}
    result = _nothing()
    for row in rows:
        tables, values = estimated[row]
        for name, table in tables.items():
            result.variables.setdefault(name, []).append(table)
        for name, by_subjects in values.items():
            result.quantities.setdefault(name, []).append(by_subjects)
    return result


def _quantity_table(rows: Sequence[tuple[Quantity, tuple[str, ...], Interval]]) -> xarray.Dataset:
    """The quantities with their intervals, a row each."""
    if not rows:
        return xarray.Dataset()
    return xarray.Dataset(
        {
            f"quantity_{part}": ("quantity_row", np.array([getattr(interval, part) for _, _, interval in rows]))
            for part in ("value", "low", "high")
        },
        coords={
            "quantity": ("quantity_row", np.array([quantity.name for quantity, _, _ in rows])),
            "quantity_subjects": ("quantity_row", np.array([" | ".join(subjects) for _, subjects, _ in rows])),
            "quantity_unit": ("quantity_row", np.array([quantity.unit for quantity, _, _ in rows])),
            "quantity_smooth": ("quantity_row", np.array([int(quantity.smooth) for quantity, _, _ in rows])),
            "quantity_of_few": ("quantity_row", np.array([interval.of_few for _, _, interval in rows])),
            "quantity_half_value": ("quantity_row", np.array([interval.half for _, _, interval in rows])),
        },
    )


def _finish(value: Array, low: Array, high: Array, resampled: Array, limits: Limits) -> tuple[Array, Array]:
    """Bounds where something is NaN or infinite, and the cut at the limits."""
    unknown = np.isnan(value) | np.isnan(resampled).any(axis=0)
    constant = (resampled == value).all(axis=0)
    infinite = np.isinf(value) | np.isinf(resampled).any(axis=0)
    low = np.where(infinite, -np.inf, low)
    high = np.where(infinite, np.inf, high)
    low, high = within(limits, low, high)
    low, high = np.where(constant, value, low), np.where(constant, value, high)
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)


def _plain(attrs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Attributes as netCDF can hold them: no bool, no None, no table."""
    kept = {key: item for key, item in attrs.items() if np.ndim(item) < 2}
    plain = {key: int(item) if isinstance(item, bool) else item for key, item in kept.items()}
    if "limits" in attrs:
        floor, ceiling = attrs["limits"]
        plain["limits"] = [-np.inf if floor is None else floor, np.inf if ceiling is None else ceiling]
    return plain
