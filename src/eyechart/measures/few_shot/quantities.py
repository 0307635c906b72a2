"""Quantities of few-shot accuracies: trends over shots and ways, and whether tight classes go with accuracy.

"Tight" compares feature spaces, so the unit of that comparison is a subject. Of two it can only be said whether the
more accurate one has the tighter classes; of four or more, whether accuracy and spread go together more than they would
by the chance of which subjects were given. The intervals of both are over images.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray

from eyechart.methods.twins import snapshot
from eyechart.quantity import Compute, PerSubjects, of_each, subjects_in
from eyechart.reading_estimates import in_points, spanned, spec_of


def slope(values: np.ndarray, over: np.ndarray) -> float:
    """Least-squares slope against the logarithm to base 2, of the mean over the other axis' common cells."""
    x = np.log2(over)
    return float(np.cov(x, values, bias=True)[0, 1] / x.var())


def trend(axis: str) -> Compute:
    """Change of episode accuracy for each doubling of shots or ways, averaged over the other."""
    other = "way" if axis == "shot" else "shot"

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        table = estimate.episodes.sel(subject=subject).transpose(axis, other).values
        measured = ~np.isnan(table).all(1), ~np.isnan(table).all(0)
        if measured[0].sum() < 2:
            return None
        return slope(table[np.ix_(*measured)].mean(1), estimate[axis].values[measured[0]])

    return of_each(number)


def spread_of(estimate: xarray.Dataset) -> dict[str, float]:
    """Distance within a class over distance between two: small is tight."""
    ratio = (estimate.within / estimate.between).values
    return dict(zip(estimate.subject.values.tolist(), ratio.tolist(), strict=True))


def accuracy_of(estimate: xarray.Dataset) -> dict[str, float]:
    """Episode accuracy, mean over the ways and shots that there are images for: the same ones for all subjects."""
    table = estimate.episodes.transpose("subject", "way", "shot").values
    measured = ~np.isnan(table).all(0)
    means = table[:, measured].mean(1) if measured.any() else np.full(len(table), np.nan)
    return dict(zip(estimate.subject.values.tolist(), means.tolist(), strict=True))


def spread_ratio(estimate: xarray.Dataset) -> PerSubjects:
    return {(subject,): value for subject, value in spread_of(estimate).items()}


def compared(estimate: xarray.Dataset) -> list[str]:
    """The subjects whose classes may be compared: untrained weights have learnt none."""
    return [subject for subject in subjects_in(estimate) if snapshot(spec_of(estimate, subject))[1] > 0]


def lead(number: Callable[[xarray.Dataset], dict[str, float]]) -> Compute:
    """The first of exactly two subjects minus the second."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        subjects, values = compared(estimate), number(estimate)
        return {tuple(subjects): values[subjects[0]] - values[subjects[1]]} if len(subjects) == 2 else {}

    return compute


def leads_together(estimate: xarray.Dataset) -> PerSubjects:
    """Lead in accuracy × lead in spread: negative where the more accurate of two has the tighter classes.

    Choosing the more accurate one and then comparing spreads would forget that the choice may be wrong. The product is
    clear of zero only where both leads are: its error is the smaller lead's, relative to its size.
    """
    accuracy, spread = lead(accuracy_of)(estimate), lead(spread_of)(estimate)
    return {pair: accuracy[pair] * spread[pair] for pair in accuracy}


def correlation(estimate: xarray.Dataset) -> PerSubjects:
    """Of accuracy and spread over three subjects or more."""
    subjects = compared(estimate)
    if len(subjects) < 3:
        return {}
    numbers = np.array(
        [[table[subject] for subject in subjects] for table in (accuracy_of(estimate), spread_of(estimate))]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return {tuple(subjects): float(np.corrcoef(numbers)[0, 1])}


def correlation_z(estimate: xarray.Dataset) -> PerSubjects:
    """The same in standard errors over subjects: Fisher's atanh(r) · √(n − 3), so of four subjects or more.

    Images alone do not make a relation: of three subjects without any, every other triple has a correlation below 0
    whose interval over images ends before it.
    """
    return {
        subjects: float(np.arctanh(np.clip(r, -1 + 1e-9, 1 - 1e-9)) * np.sqrt(len(subjects) - 3))
        for subjects, r in correlation(estimate).items()
        if len(subjects) > 3
    }


def pair_sentence(finding: xarray.Dataset) -> list[str]:
    """Of two subjects, which is ahead and which has the tighter classes, where the intervals of both leads tell."""
    leads = {}
    for name in ("few_shot_lead", "class_spread_lead"):
        rows = finding.isel(quantity_row=finding["quantity"].values == name)
        if not rows.sizes["quantity_row"]:
            return []
        leads[name] = [float(rows[f"quantity_{end}"][0]) for end in ("value", "low", "high")]
        subjects = str(rows.quantity_subjects.values[0]).split(" | ")
    ahead, spread = leads["few_shot_lead"], leads["class_spread_lead"]
    if not np.isfinite([*ahead, *spread]).all():
        return []
    if ahead[0] < 0:
        subjects = subjects[::-1]
        ahead, spread = ([-numbers[0], -numbers[2], -numbers[1]] for numbers in (ahead, spread))
    points = in_points((ahead[0], ahead[1], ahead[2]))
    one, other = subjects
    tighter, wider = (one, other) if spread[0] < 0 else (other, one)
    if spread[0] > 0:
        spread = [-spread[0], -spread[2], -spread[1]]
    spreads = spanned((spread[0], spread[1], spread[2]), "+.3f")
    return [
        f"In episodes {one} is ahead of {other} by {points} points"
        if ahead[1] > 0
        else f"In episodes {one} and {other} cannot be told apart ({points} points)",
        f"The classes of {tighter} are tighter than those of {wider} ({spreads})"
        if spread[2] < 0
        else f"The classes of {tighter} and {wider} cannot be told apart by tightness ({spreads})",
    ]
