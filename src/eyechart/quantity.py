"""A quantity: a number with an interval that claims are judged by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray

#: A number for each tuple of subjects it applies to. No key: the tuple does not qualify; NaN: it has no number.
PerSubjects = dict[tuple[str, ...], float]
Compute = Callable[["xarray.Dataset"], PerSubjects]
Bounds = Mapping[tuple[str, ...], tuple[float, float]]
"""The low and the high end of an interval, for each tuple of subjects."""


@dataclass(frozen=True)
class Quantity:
    """A number a claim can be judged by: a function of an estimate, for each tuple of subjects it applies to.

    `smooth` ones get the jackknife; the others (minima, argmax) a bootstrap over folds. `exact` ones have no sampling.
    """

    name: str
    compute: Compute
    explain: str
    smooth: bool = True
    unit: str = ""
    limits: tuple[float | None, float | None] = (None, None)
    exact: bool = False
    """Computed from the weights alone, without images: it has no interval."""
    share: bool = False
    """A share of the images, or of what the estimate counts as `trials`: at exactly 0 or 1 it gets the exact bound."""
    paired: bool = False
    """A difference of two shares of the same images: where no image changed sides it gets the exact bound."""
    halving: bool = False
    """A rank, an argmax, a share of heads, a hit-rate: biased where images are few. It is computed on halves of the
    images as well, and the change from half to all widens its interval (see `intervals.still_moving`)."""
    bounds: Callable[[xarray.Dataset], Bounds] | None = None
    """An interval that the estimate holds itself (from random draws), in place of one over images."""
    if_unmoved: Callable[[xarray.Dataset], Bounds] | None = None
    """Bounds where resampling the images changed it not at all, or hardly. A number with few possible values (a share
    of heads or tokens, the position of a maximum) would otherwise look certain, as [1, 1]."""
    among: Compute | None = None
    """For a sign test: of how many things (sub-layers) it is a share. The interval is the exact one of that many
    trials, wider by what images change."""
    reference: bool = False
    """What chance, or a perfect model, would score: to compare with, and no finding of its own."""
    ceiling: Compute | None = None
    """The largest possible value, where that depends on the subjects: the interval ends there at the latest."""


def known_to(room: Callable[..., float], compute: Compute) -> Callable[[xarray.Dataset], Bounds]:
    """For `if_unmoved`: the value less and plus what `room(estimate, *subjects)` says."""

    def bounds(estimate: xarray.Dataset) -> Bounds:
        spans = {subjects: (value, room(estimate, *subjects)) for subjects, value in compute(estimate).items()}
        return {subjects: (value - half, value + half) for subjects, (value, half) in spans.items()}

    return bounds


# --- From a number of one subject, or of two, to a quantity ----------------------------------------------------------

OfOne = Callable[..., float | None]
"""(estimate, subject) → its number; None: the subject does not qualify."""
OfTwo = Callable[..., float | None]
"""(estimate, one, other) → their number; None: the pair does not qualify."""
Choice = str | Callable[["xarray.Dataset"], Iterable[str]] | None
"""Which subjects: those of a family (see `Anatomy.family`), those that a function names, or all."""


def of_each(number: OfOne, subjects: Choice = None) -> Compute:
    """A quantity of every chosen subject that has a number.

    >>> import xarray
    >>> depths = xarray.Dataset({"depth": ("subject", [3.0, 5.0])}, coords={"subject": ["a", "b"]})
    >>> of_each(lambda estimate, subject: float(estimate.depth.sel(subject=subject)))(depths)
    {('a',): 3.0, ('b',): 5.0}
    """

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        numbers = {(subject,): number(estimate, subject) for subject in _chosen(estimate, subjects)}
        return {subject: value for subject, value in numbers.items() if value is not None}

    return compute


def of_pairs(number: OfTwo, first: Choice = "vit", second: Choice = "cnn") -> Compute:
    """A quantity of every first subject with every second one, where the pair has a number."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        pairs = itertools.product(_chosen(estimate, first), _chosen(estimate, second))
        numbers = {pair: number(estimate, *pair) for pair in pairs if pair[0] != pair[1]}
        return {pair: value for pair, value in numbers.items() if value is not None}

    return compute


def minus_cnn(compute: Compute) -> Compute:
    """From a quantity of single subjects to the difference of every ViT and every CNN that have it."""

    def differences(estimate: xarray.Dataset) -> PerSubjects:
        values = compute(estimate)
        pairs = itertools.product(subjects_in(estimate, "vit"), subjects_in(estimate, "cnn"))
        return {(vit, cnn): values[vit,] - values[cnn,] for vit, cnn in pairs if (vit,) in values and (cnn,) in values}

    return differences


def _chosen(estimate: xarray.Dataset, subjects: Choice) -> Iterable[str]:
    return subjects(estimate) if callable(subjects) else subjects_in(estimate, subjects)


def subjects_in(estimate: xarray.Dataset, family: str | None = None) -> list[str]:
    """The subjects of an estimate, in the order of the exam; of one family (see `Anatomy.family`) or all."""
    columns = estimate.variables  # `estimate.subject` would gather all coordinates, a tenth of the time of an interval
    chosen = slice(None) if family is None else columns["family"].values == family
    return list(dict.fromkeys(columns["subject"].values[chosen].tolist()))


# --- Out of a finding ------------------------------------------------------------------------------------------------


def quantities_in(finding: xarray.Dataset) -> Iterator[dict[str, Any]]:
    """The quantities of a finding, a row each, as plain values by the names of their columns: quantity,
    quantity_subjects, quantity_value, …

    Column by column: `isel` copies every variable of the finding for each row, which was a tenth of a small exam.
    """
    columns = {
        str(name): variable.values.tolist()
        for name, variable in finding.variables.items()
        if variable.dims == ("quantity_row",)
    }
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
