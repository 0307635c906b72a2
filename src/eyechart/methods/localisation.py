"""Comparisons of how well the tokens of subjects know their place, from the finding of M7."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from eyechart.estimates import subjects_in
from eyechart.methods.twins import untrained_twin

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import PerSubjects


def at_end(estimate: xarray.Dataset, subject: str, variable: str = "hit_rate") -> float:
    """A number of the last block of a subject; NaN where that has too small a grid."""
    values = estimate[variable].values[(estimate.subject.values == subject) & estimate.final.values]
    return float(values[0]) if len(values) else math.nan


def of_each(variable: str) -> Callable[[xarray.Dataset], PerSubjects]:
    return lambda estimate: {(s,): at_end(estimate, s, variable) for s in subjects_in(estimate)}


def class_token_vits(estimate: xarray.Dataset) -> list[str]:
    """ViTs whose classifier reads the class token: of these the claims speak."""
    reads = dict(zip(estimate.subject.values.tolist(), estimate.classifier_reads.values.tolist(), strict=True))
    return [subject for subject in subjects_in(estimate, "vit") if reads[subject] == "cls"]


def edge_likeness(estimate: xarray.Dataset) -> PerSubjects:
    return {(vit,): at_end(estimate, vit, "edge_likeness") for vit in class_token_vits(estimate)}


def with_cnn(compare: Callable[[xarray.Dataset, str, str], float]) -> Callable[[xarray.Dataset], PerSubjects]:
    """A comparison of every class-token ViT with every CNN."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        pairs = itertools.product(class_token_vits(estimate), subjects_in(estimate, "cnn"))
        return {(vit, cnn): compare(estimate, vit, cnn) for vit, cnn in pairs}

    return compute


def ratio(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """The CNN's hit-rate counts at least as chance: of a few interior cells none may hit, and the ratio be infinite."""
    return at_end(estimate, vit) / float(np.maximum(at_end(estimate, cnn), at_end(estimate, cnn, "chance")))


def earlier_units(estimate: xarray.Dataset, cnn: str) -> np.ndarray:
    """Hit-rates of the units before the last, as far as they were looked at."""
    return np.asarray(estimate.hit_rate.values[(estimate.subject.values == cnn) & ~estimate.final.values])


def best_third(rates: np.ndarray) -> float:
    """The best mean over the lower, middle and upper third of some units.

    Of units that are all as good as the last, the best single one of 7 (15) is clear of it in 5–15 (13–28) of 100
    simulated exams, the best third in 3–5 of either.
    """
    thirds = [third.mean() for third in np.array_split(rates, 3) if len(third)]
    return float(np.max(thirds)) if thirds else math.nan


def earlier_gain(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    return best_third(earlier_units(estimate, cnn)) - at_end(estimate, cnn)


def over_best(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """The ViT minus the best unit; as that is too high by chance, the difference is if anything too small."""
    return at_end(estimate, vit) - float(np.max([*earlier_units(estimate, cnn), at_end(estimate, cnn)]))


def units_sentence(finding: xarray.Dataset, subject: str) -> list[str]:
    """Which unit of a CNN hits most, among how many."""
    mine = finding.isel(site=(finding.subject.values == subject) & np.isfinite(finding.hit_rate.values))
    if subject not in subjects_in(finding, "cnn") or mine.sizes["site"] < 2:
        return []
    best = mine.isel(site=int(mine.hit_rate.values.argmax()))
    return [f"of the {mine.sizes['site']} units looked at {best.name.item()} hits most ({float(best.hit_rate):.0%})"]


def over_gap_twin(estimate: xarray.Dataset) -> PerSubjects:
    """A class-token ViT minus every ViT of the same build whose classifier reads the mean of the tokens."""
    about = zip(*(estimate[name].values.tolist() for name in ("subject", "build", "classifier_reads")), strict=True)
    build, reads = {}, {}
    for subject, built, read_by in about:
        build[subject], reads[subject] = built, read_by
    return {
        (vit, twin): at_end(estimate, vit) - at_end(estimate, twin)
        for vit in class_token_vits(estimate)
        for twin in subjects_in(estimate, "vit")
        if reads[twin] == "gap" and build[twin] == build[vit]
    }


def over_untrained(estimate: xarray.Dataset) -> PerSubjects:
    subjects = subjects_in(estimate)
    pairs = ((subject, untrained_twin(subject, subjects)) for subject in subjects)
    return {(s, twin): at_end(estimate, s) - at_end(estimate, twin) for s, twin in pairs if twin is not None}
