"""A quantity: a number with an interval that claims are judged by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray

#: A number for each tuple of subjects it applies to. No key: the tuple does not qualify; NaN: it has no number.
PerSubjects = dict[tuple[str, ...], float]


@dataclass(frozen=True)
class Quantity:
    """A number a claim can be judged by: a function of an estimate, for each tuple of subjects it applies to.

    `smooth` ones get the jackknife; the others (minima, argmax) a bootstrap over folds. `exact` ones have no sampling.
    """

    name: str
    compute: Callable[[xarray.Dataset], PerSubjects]
    explain: str
    smooth: bool = True
    unit: str = ""
    limits: tuple[float | None, float | None] = (None, None)
    exact: bool = False
    """Read off the weights alone: no image was drawn, so it has no interval."""
    share: bool = False
    """A share of the images, or of what the estimate's `trials` counts: at exactly 0 or 1 it gets the exact bound."""
    paired: bool = False
    """A difference of two shares of the same images: where none of them moved it gets the exact bound."""
    halving: bool = False
    """A rank, an argmax, a share of heads, a hit-rate: too low or too high where images are few. It is computed on
    halves of the images as well, and what it still moves widens its interval (see `intervals.still_moving`)."""
    bounds: Callable[[xarray.Dataset], Mapping[tuple[str, ...], tuple[float, float]]] | None = None
    """An interval that the estimate holds itself (from random draws), in place of one over images."""
    if_unmoved: Callable[[xarray.Dataset], Mapping[tuple[str, ...], tuple[float, float]]] | None = None
    """Bounds where no draw of images moved it, or hardly. Of few possible values (shares of heads, of tokens, places of
    maxima) a bare [1, 1] would pass for certainty."""
    among: Callable[[xarray.Dataset], PerSubjects] | None = None
    """Of how many things (sub-layers) it is a share, in a sign test over them: the interval is the exact one of that
    many trials, wider by what images move."""
    ceiling: Callable[[xarray.Dataset], PerSubjects] | None = None
    """The most that is possible, where that depends on the subjects: the interval is cut there."""


# --- From a number of one subject, or of two, to a quantity ----------------------------------------------------------

OfOne = Callable[..., float | None]
"""(estimate, subject) → its number; None: the subject does not qualify."""
OfTwo = Callable[..., float | None]
"""(estimate, one, other) → their number; None: the pair does not qualify."""


def of_each(number: OfOne, family: str | None = None) -> Callable[[xarray.Dataset], PerSubjects]:
    """A quantity of every subject (of a family, see `Anatomy.family`) that has a number.

    >>> import xarray
    >>> depths = xarray.Dataset({"depth": ("subject", [3.0, 5.0])}, coords={"subject": ["a", "b"]})
    >>> of_each(lambda estimate, who: float(estimate.depth.sel(subject=who)))(depths)
    {('a',): 3.0, ('b',): 5.0}
    """

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        numbers = {(who,): number(estimate, who) for who in subjects_in(estimate, family)}
        return {who: value for who, value in numbers.items() if value is not None}

    return compute


def of_pairs(number: OfTwo, first: str = "vit", second: str = "cnn") -> Callable[[xarray.Dataset], PerSubjects]:
    """A quantity of every subject of one family with every subject of another, where the pair has a number."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        pairs = itertools.product(subjects_in(estimate, first), subjects_in(estimate, second))
        numbers = {pair: number(estimate, *pair) for pair in pairs if pair[0] != pair[1]}
        return {pair: value for pair, value in numbers.items() if value is not None}

    return compute


def subjects_in(estimate: xarray.Dataset, family: str | None = None) -> list[str]:
    """The subjects that have sites here, in the order of the exam; of one family (see `Anatomy.family`) or all."""
    columns = estimate.variables  # not `estimate.subject`: that gathers all coordinates, a tenth of an interval's time
    chosen = slice(None) if family is None else columns["family"].values == family
    return list(dict.fromkeys(columns["subject"].values[chosen].tolist()))
