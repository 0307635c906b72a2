"""A quantity: a number with an interval that claims are judged by."""

from __future__ import annotations

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
    """Bounds where no draw of images moved it. Of few possible values (shares of heads, of tokens) a bare [1, 1] would
    pass for certainty."""
    ceiling: Callable[[xarray.Dataset], PerSubjects] | None = None
    """The most that is possible, where that depends on the subjects: the interval is cut there."""
