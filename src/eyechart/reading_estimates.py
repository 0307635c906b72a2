"""Reading an estimate or finding subject by subject, or ViT against CNN.

Subjects are an axis of their own, or their sites are one flat axis over all of them.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray

from eyechart.intervals import jackknife
from eyechart.phrases import span_of
from eyechart.quantity import PerSubjects


def spec_of(estimate: xarray.Dataset, subject: str) -> str:
    """Where a subject comes from in full; the label itself where that is its spec."""
    return str(json.loads(estimate.attrs.get("specs", "{}")).get(subject, subject))


def per_subject(estimate: xarray.Dataset, variable: str) -> PerSubjects:
    """A variable over subjects as a quantity."""
    names = estimate.variables["subject"].values.tolist()
    return {(name,): float(value) for name, value in zip(names, estimate.variables[variable].values, strict=True)}


def by_subject(estimate: xarray.Dataset, variable: str) -> dict[str, Any]:
    """The value of each subject; where it has several sites, that of the last."""
    columns = estimate.variables
    return dict(zip(columns["subject"].values.tolist(), columns[variable].values.tolist(), strict=True))


def with_ends(finding: xarray.Dataset, name: str) -> tuple[float, float, float]:
    """A single number of a finding and the ends of its interval."""
    return float(finding[name]), float(finding[f"{name}_low"]), float(finding[f"{name}_high"])


Ends = tuple[float, float, float]
"""A value with the low and the high end of its interval."""


def ends_of(finding: xarray.Dataset, quantity: str, *subjects: str) -> Ends:
    """A quantity of these subjects with the ends of its interval."""
    columns = finding.variables
    mine = (columns["quantity"].values == quantity) & (columns["quantity_subjects"].values == " | ".join(subjects))
    value, low, high = (float(columns[f"quantity_{part}"].values[mine][0]) for part in ("value", "low", "high"))
    return value, low, high


def states(finding: xarray.Dataset, quantity: str, *subjects: str) -> bool:
    """Whether a finding has this quantity of these subjects."""
    columns = finding.variables
    return "quantity" in columns and bool(
        ((columns["quantity"].values == quantity) & (columns["quantity_subjects"].values == " | ".join(subjects))).any()
    )


def jackknifed(finding: xarray.Dataset, number: Callable[[xarray.Dataset], float], *names: str) -> Ends:
    """A smooth number made of variables of a finding, with the jackknife over the folds that were left out of them.

    The ends are NaN where the finding keeps no replicates of one of these variables.
    """
    own = finding.drop_vars([str(name) for name in finding.data_vars if name not in names])
    value = float(number(own))
    if not all(f"{name}_replicates" in finding for name in names):
        return value, math.nan, math.nan
    kept = {name: finding[f"{name}_replicates"] for name in names}
    left_out = [
        float(number(own.assign({name: each.isel(replicate=fold) for name, each in kept.items()})))
        for fold in range(next(iter(kept.values())).sizes["replicate"])
    ]
    low, high = jackknife(np.array(value), np.array(left_out))
    return value, float(low), float(high)


def in_points(ends: Ends, form: str = ".1f") -> str:
    """A share as percentage points, with its interval.

    >>> in_points((0.594, 0.508, 0.679))
    '59.4 [50.8, 67.9]'
    """
    value, low, high = ends
    return spanned((100 * value, 100 * low, 100 * high), form)


def clearly_above(one: Ends, two: Ends) -> bool:
    """Whether one value is above another by more than both intervals, as of independent errors, leave open.

    The images are the same, so their errors go together: that is more often too careful than too bold.

    >>> clearly_above((0.5, 0.4, 0.6), (0.3, 0.2, 0.4)), clearly_above((0.5, 0.4, 0.6), (0.4, 0.3, 0.5))
    (True, False)
    """
    return one[0] - two[0] > math.hypot(one[0] - one[1], two[2] - two[0])


def in_words(finding: xarray.Dataset, name: str, form: str) -> str:
    """A single number of a finding with its interval: "92.0% [90.1%, 93.6%]"."""
    return spanned(with_ends(finding, name), form)


def quantity_in_words(finding: xarray.Dataset, quantity: str, form: str, *subjects: str) -> str:
    return spanned(ends_of(finding, quantity, *subjects), form)


def _told(low: float, high: float, form: str, *, change: bool) -> bool:
    """Whether the ends differ as written; and, of a change, on which side of zero each lies."""
    ends = [f"{end:z{form}}" for end in (low, high)]
    hidden = any(end and not words.strip("0.%") for end, words in zip((low, high), ends, strict=True))
    return ends[0] != ends[1] and not (change and hidden)


SAME = 1e-6
"""Ends no farther apart are written alike: more digits would be rounding."""
UNMOVED = "the same in all folds"
"""Said instead of an interval without width: whichever fold is left out, the number stays."""


def spanned(ends: Ends, form: str) -> str:
    """A number with its interval, with as many digits as tell its ends apart; by itself where it has no interval.

    Never "[x, x]": of an interval of mere rounding, what it is narrower than; where no fold moved the number, that.

    >>> spanned((0.61, 0.58, 0.64), ".2f"), spanned((0.94, 0.939, 0.941), ".2f"), spanned((0.5, math.nan, 1.0), ".0%")
    ('0.61 [0.58, 0.64]', '0.940 [0.939, 0.941]', '50%')
    >>> spanned((1.0, 0.9999999, 1.0), ".0%"), spanned((0.0, 0.0, 0.0), "+.1f")
    ('100.000% [± < 0.001%]', '0.0 [the same in all folds]')
    >>> spanned((-0.001, -0.004, 0.003), "+.2f"), spanned((-0.001, -0.3, 0.2), ".1f")
    ('-0.001 [-0.004, +0.003]', '0.0 [-0.3, 0.2]')
    """
    value, low, high = ends
    if not (math.isfinite(low) and math.isfinite(high)):
        return signed(value, form)
    if low == high:
        return f"{signed(value, form)} [{UNMOVED}]"
    sign, _, rest = form.partition(".")
    digits, kind = int(rest[:-1]), rest[-1]
    while digits < 5 and high - low > SAME and not _told(low, high, f".{digits}{kind}", change="+" in sign):
        digits += 1
    if f"{low:z.{digits}{kind}}" == f"{high:z.{digits}{kind}}":
        digits = max(int(rest[:-1]), 3)
    shown = [signed(each, f"{sign}.{digits}{kind}") for each in ends]
    return f"{shown[0]} [{span_of(shown[1], shown[2], digits, high - low, kind.strip('f'))}]"


def signed(value: float, form: str) -> str:
    """A number in a form; what rounds to zero has no sign, which would be a claim.

    >>> signed(-0.0016, "+.2f"), signed(0.004, "+.2f"), signed(-0.02, "+.2f"), signed(0.02, "+.2f")
    ('0.00', '0.00', '-0.02', '+0.02')
    """
    shown = f"{value:{form}}"
    return shown.lstrip("+-") if re.fullmatch(r"[+-]0(?:\.0+)?%?", shown) else shown


def vits_with_cnns(estimate: xarray.Dataset, *, alike: str) -> Iterator[tuple[int, int]]:
    """Indices on the subject axis of every ViT with every CNN that has the same value of the coordinate `alike`."""
    family, kind = (estimate.variables[name].values.tolist() for name in ("family", alike))
    for vit, cnn in itertools.product(range(len(family)), repeat=2):
        if family[vit] == "vit" and family[cnn] == "cnn" and kind[vit] == kind[cnn]:
            yield vit, cnn


def vit_minus_cnn(estimate: xarray.Dataset, variable: str, *, alike: str) -> PerSubjects:
    """A number of every ViT minus that of every CNN which has the same value of the coordinate `alike`.

    Where both are exactly 0 (an attack that nothing survives) there is no comparison: NaN, not a certain tie.
    """
    values, names = estimate.variables[variable].values, estimate.variables["subject"].values.tolist()
    return {
        (names[vit], names[cnn]): float(values[vit] - values[cnn]) if values[vit] or values[cnn] else math.nan
        for vit, cnn in vits_with_cnns(estimate, alike=alike)
    }


def scored_vit_minus_cnn(estimate: xarray.Dataset, variable: str, sign: int = 1) -> PerSubjects:
    """ViT minus CNN, times `sign`, for pairs scored by accuracy on pictures of one size: π is the same frequency."""
    values, names = estimate[variable].values, estimate.subject.values.tolist()
    by_accuracy = estimate.scored.values == "accuracy"
    return {
        (names[vit], names[cnn]): sign * float(values[vit] - values[cnn])
        for vit, cnn in vits_with_cnns(estimate, alike="pictures")
        if by_accuracy[vit] and by_accuracy[cnn]
    }


def site_indices(estimate: xarray.Dataset, subject: str, *roles: str) -> np.ndarray:
    """Indices of a subject's sites on the site axis, in execution order; of these roles or all."""
    columns = estimate.variables
    of_subject = columns["subject"].values == subject
    return np.flatnonzero(of_subject & np.isin(columns["role"].values, roles) if roles else of_subject)


def thirds(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest third of some blocks; a block belongs where the middle of its depth lies.

    >>> thirds(np.arange(8))
    (array([0, 1, 2]), array([5, 6, 7]))
    """
    middle = (np.arange(len(blocks)) + 0.5) / len(blocks)
    return blocks[middle < 1 / 3], blocks[middle > 2 / 3]


def late_over_rest(differences: np.ndarray) -> float:
    """Mean difference in the last third of the blocks minus twice that before: above 0 if they differ mostly late.

    Twice, because two trainings differ everywhere: a little larger at the end is not "alike, and then different".

    >>> round(late_over_rest(np.array([0.1, 0.1, 0.1, 0.1, 0.5, 0.3])), 3)
    0.2
    """
    _, high = thirds(np.arange(len(differences)))
    return float(differences[high].mean() - 2 * np.delete(differences, high).mean())


def halves(values: np.ndarray) -> tuple[float, float]:
    """Means over the first and the second half of the blocks; a middle block is in neither.

    >>> halves(np.array([1.0, 3.0, 100.0, 5.0, 7.0]))
    (2.0, 6.0)
    """
    half = len(values) // 2
    return float(values[:half].mean()), float(values[-half:].mean())
