"""How every quantity differs between runs over the same images, with an interval.

Two runs over the same images in the same folds move together: a hard fold is hard for both. Where the findings hold
the estimate without each fold (`…_replicates`), a quantity q is computed on each of them in both runs, and the
difference gets the jackknife of the *paired* differences, q′₋ᵢ − q₋ᵢ. This is done only where the same jackknife gives
back the intervals that the runs themselves state: so nothing is paired whose interval has another source (a bootstrap,
an exact bound, a change from half of the images to all).

Elsewhere the two intervals are combined as if *independent* (Zou's MOVER): low = d − √((q′ − low′)² + (high − q)²), and
high likewise. As runs over the same images agree more than independent ones, this is rather too wide
than too narrow where they share images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eyechart.intervals import jackknife
from eyechart.quantity import Quantity

if TYPE_CHECKING:
    import xarray

How = Literal["paired", "independent", "exact"]
Key = tuple[str, tuple[str, ...]]
"""A quantity and the subjects it is of."""


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, (self.value, self.low, self.high)))


@dataclass(frozen=True)
class Difference:
    """One quantity in every run, and by how much each later run differs from the first."""

    measure: str
    quantity: str
    explain: str
    unit: str
    subjects: tuple[str, ...]
    """As the first run calls them."""
    values: tuple[Estimate, ...]
    """One for each run."""
    changes: tuple[Estimate, ...]
    """One for each run after the first: that run minus the first."""
    hows: tuple[How, ...]

    @property
    def clearness(self) -> float:
        """The largest change in half-widths of its interval; above 1, the interval does not hold 0."""
        return max((clearness(change) for change in self.changes), default=0.0)


def clearness(change: Estimate) -> float:
    if not change.is_finite or change.value == 0:
        return 0.0
    half = change.value - change.low if change.value > 0 else change.high - change.value
    return abs(change.value) / half if half > 0 else math.inf


def rank(clearness: float) -> float:
    """For an order of changes, clearest first: what is read off the weights has no interval, so any change of it is
    infinitely clear, and stood before all others however small it was; it comes behind them.

    >>> sorted([0.5, math.inf, 3.0], key=rank, reverse=True)
    [3.0, inf, 0.5]
    """
    return 1.0 if math.isinf(clearness) else clearness


def changes_of(
    quantity: Quantity,
    keys: Sequence[Key],
    findings: Sequence[xarray.Dataset],
    replicates: Sequence[Mapping[Key, np.ndarray]],
    same_folds: Sequence[bool],
) -> tuple[tuple[Estimate, ...], tuple[Estimate, ...], tuple[How, ...]]:
    """The values of a quantity in all runs, and each later run minus the first."""
    values = tuple(stored(finding, key) for finding, key in zip(findings, keys, strict=True))
    made: list[tuple[Estimate, How]] = []
    for place in range(1, len(values)):
        series = [replicates[at].get(keys[at]) if same_folds[place] else None for at in (0, place)]
        made.append(change(quantity, values[0], values[place], *series))
    return values, tuple(each for each, _ in made), tuple(how for _, how in made)


def change(
    quantity: Quantity, first: Estimate, later: Estimate, of_first: np.ndarray | None, of_later: np.ndarray | None
) -> tuple[Estimate, How]:
    """Later minus first, with the interval that the runs allow.

    >>> from eyechart.quantity import Quantity
    >>> plain = Quantity("q", lambda estimate: {}, "a number")
    >>> change(plain, Estimate(1.0, 0.7, 1.3), Estimate(3.0, 2.6, 3.4), None, None)
    (Estimate(value=2.0, low=1.5, high=2.5), 'independent')
    """
    value = later.value - first.value
    if quantity.exact:
        return Estimate(value, value, value), "exact"
    if of_first is not None and of_later is not None and of_first.shape == of_later.shape:
        plain = gives_back(quantity, first, of_first) and gives_back(quantity, later, of_later)
        low, high = (float(end) for end in jackknife(np.array(value), of_later - of_first))
        moved = high - low > 1e-9 * max(first.high - first.low, later.high - later.low)
        if plain and (moved or first == later):  # where no fold moved it, [d, d] would look certain
            return Estimate(value, low, high), "paired"
    down = math.hypot(later.value - later.low, first.high - first.value)
    up = math.hypot(later.high - later.value, first.value - first.low)
    return Estimate(value, value - down, value + up), "independent"


def gives_back(quantity: Quantity, stated: Estimate, replicates: np.ndarray) -> bool:
    """Whether the plain jackknife of these replicates is the interval that the run states."""
    low, high = jackknife(np.array(stated.value), replicates, quantity.limits)
    ends = np.array([stated.low, stated.high])
    return bool(np.allclose([low, high], ends, rtol=1e-6, atol=1e-9) and np.isfinite(ends).all())


def stored(finding: xarray.Dataset, key: Key) -> Estimate:
    row = rows_of(finding)[key]
    return Estimate(*(float(finding[f"quantity_{part}"].values[row]) for part in ("value", "low", "high")))


def rows_of(finding: xarray.Dataset) -> dict[Key, int]:
    """Where each quantity of each tuple of subjects stands in a finding."""
    if "quantity_row" not in finding.sizes:
        return {}
    named = zip(finding.quantity.values.tolist(), finding.quantity_subjects.values.tolist(), strict=True)
    return {(str(name), tuple(str(subjects).split(" | "))): row for row, (name, subjects) in enumerate(named)}


def leave_one_out(finding: xarray.Dataset, quantities: Sequence[Quantity]) -> dict[Key, np.ndarray]:
    """What each quantity is without each fold, as far as it is a function of variables that are kept without each."""
    kept = [str(name) for name in finding.data_vars if f"{name}_replicates" in finding]
    if not kept or "replicate" not in finding.sizes:
        return {}
    fixed = [str(name) for name in finding.data_vars if finding[name].attrs.get("exact")]
    series: dict[Key, list[float]] = {}
    for fold in range(finding.sizes["replicate"]):
        estimate = finding[fixed]
        estimate = estimate.assign(
            {
                name: finding[f"{name}_replicates"].isel(replicate=fold).assign_attrs(finding[name].attrs)
                for name in kept
            }
        )
        for quantity, values in computed(quantities, estimate):
            for subjects, value in values.items():
                series.setdefault((quantity.name, subjects), []).append(value)
    return {
        key: np.array(values, np.float64)
        for key, values in series.items()
        if len(values) == finding.sizes["replicate"] and np.isfinite(values).all()
    }


Computed = Iterator[tuple[Quantity, Mapping[Any, float]]]


def computed(quantities: Sequence[Quantity], estimate: xarray.Dataset) -> Computed:
    for quantity in quantities:
        if quantity.exact:
            continue
        try:
            yield quantity, quantity.compute(estimate)
        except (KeyError, AttributeError, IndexError, ValueError):
            continue  # it reads something that is not kept without each fold
