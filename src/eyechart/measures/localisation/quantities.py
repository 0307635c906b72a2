"""Comparisons of how well tokens resemble their own patch, from the finding of M7."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import xarray

from eyechart.intervals import room_for
from eyechart.methods.twins import class_token_vits, gap_twins, untrained_twin
from eyechart.quantity import Bounds, Compute, PerSubjects, of_each, of_pairs, subjects_in
from eyechart.reading_estimates import in_words
from eyechart.sites import Anatomy


def at_end(estimate: xarray.Dataset, subject: str, variable: str = "hit_rate") -> float:
    """A number of the last block of a subject; NaN where that has too small a grid."""
    columns = estimate.variables
    values = columns[variable].values[(columns["subject"].values == subject) & columns["final"].values]
    return float(values[0]) if len(values) else math.nan


def of_last(variable: str) -> Compute:
    return of_each(partial(at_end, variable=variable))


def rate_bounds(estimate: xarray.Dataset, subject: str) -> tuple[float, float]:
    """Bounds of a hit-rate that no resampling changed: the exact ones of as many trials as interior tokens."""
    rate, room = at_end(estimate, subject), float(room_for(at_end(estimate, subject, "interior")))
    return max(rate - room, 0.0), min(rate + room, 1.0)


def unmoved_rates(estimate: xarray.Dataset) -> Bounds:
    return {(subject,): rate_bounds(estimate, subject) for subject in subjects_in(estimate)}


HALF_A_PICTURE = 0.52
"""Widths between two places chosen at random: how far off a token lies that does not know its place."""


def unmoved_displacements(estimate: xarray.Dataset) -> Bounds:
    """Bounds where every token always hits: as many as the exact bound of the hit-rate allows may lie anywhere."""
    result: dict[tuple[str, ...], tuple[float, float]] = {}
    for subject in subjects_in(estimate):
        displacement = at_end(estimate, subject, "displacement")
        room = HALF_A_PICTURE * float(room_for(at_end(estimate, subject, "interior")))
        result[subject,] = (max(displacement - room, 0.0), displacement + room)
    return result


edge_likeness = of_each(partial(at_end, variable="edge_likeness"), class_token_vits)


def edges_over_pictures(estimate: xarray.Dataset, vit: str) -> float:
    """The edges of pictures are alike before any model sees them: raw patches .23, against .10 with the inside."""
    return at_end(estimate, vit, "edge_contrast") - at_end(estimate, vit, "raw_edge_contrast")


def with_cnn(compare: Callable[[xarray.Dataset, str, str], float]) -> Compute:
    """A comparison of every class-token ViT with every CNN."""
    return of_pairs(compare, class_token_vits)


def ratio(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """The CNN's hit-rate counts at least as chance, its floor: of a few interior cells none may hit."""
    return at_end(estimate, vit) / float(np.maximum(at_end(estimate, cnn), at_end(estimate, cnn, "chance")))


def largest_ratio(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """Every token of the ViT hits, and the CNN is at its floor."""
    return 1 / at_end(estimate, cnn, "chance")


def unmoved_ratio(estimate: xarray.Dataset) -> Bounds:
    """From the least of the ViT over the most of the CNN to the most over its floor."""

    def bounds(vit: str, cnn: str) -> tuple[float, float]:
        (low, high), (least, most) = rate_bounds(estimate, vit), rate_bounds(estimate, cnn)
        return low / most, high / max(least, at_end(estimate, cnn, "chance"))

    return {pair: bounds(*pair) for pair in itertools.product(class_token_vits(estimate), subjects_in(estimate, "cnn"))}


def earlier_units(estimate: xarray.Dataset, cnn: str, variable: str = "peak") -> np.ndarray:
    """A number of the units before the last, as far as they were looked at."""
    return np.asarray(estimate[variable].values[(estimate.subject.values == cnn) & ~estimate.final.values])


def best_third(peaks: np.ndarray) -> float:
    """The best mean over the lower, middle and upper third of some units.

    Of units that are all as good as the last, the best single one of 7 (15) is clear of it in 5–15 (13–28) of 100
    simulated exams, the best third in 3–5 of either.
    """
    thirds = [third.mean() for third in np.array_split(peaks, 3) if len(third)]
    return float(np.max(thirds)) if thirds else math.nan


def earlier_gain(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    return best_third(earlier_units(estimate, cnn)) - at_end(estimate, cnn, "peak")


def over_best(variable: str) -> Callable[[xarray.Dataset, str, str], float]:
    """The ViT minus the best unit; as that is too high by chance, the difference is if anything too small."""

    def compare(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
        units = [*earlier_units(estimate, cnn, variable), at_end(estimate, cnn, variable)]
        return at_end(estimate, vit, variable) - float(np.max(units))

    return compare


def peak_of_vit(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    return at_end(estimate, vit, "peak")


def units_sentence(finding: xarray.Dataset, subject: str) -> list[str]:
    """Which unit of a CNN has the highest peak, among how many."""
    units = finding.isel(site=(finding.subject.values == subject) & np.isfinite(finding.peak.values))
    if subject not in subjects_in(finding, "cnn") or units.sizes["site"] < 2:
        return []
    best = units.isel(site=int(units.peak.values.argmax()))
    name, peak = best.name.item(), in_words(best, "peak", ".2f")
    return [f"its highest peak, of the {units.sizes['site']} units that were looked at, is that of {name} ({peak})"]


def with_gap_twin(compare: Callable[[float, float], float], variable: str) -> Compute:
    """A number of a class-token ViT and of every twin: a ViT of its build whose classifier reads the tokens' mean."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        return {
            (vit, twin): compare(at_end(estimate, vit, variable), at_end(estimate, twin, variable))
            for vit, twin in gap_twins(estimate)
        }

    return compute


def unmoved_over_gap(estimate: xarray.Dataset) -> Bounds:
    bounds = {pair: [rate_bounds(estimate, subject) for subject in pair] for pair in gap_twins(estimate)}
    return {pair: (vit[0] - twin[1], vit[1] - twin[0]) for pair, (vit, twin) in bounds.items()}


def over_untrained(estimate: xarray.Dataset) -> PerSubjects:
    subjects = subjects_in(estimate)
    pairs = ((subject, untrained_twin(estimate, subject)) for subject in subjects)
    return {(s, twin): at_end(estimate, s) - at_end(estimate, twin) for s, twin in pairs if twin is not None}


def last_block(anatomy: Anatomy) -> str:
    blocks = anatomy.pick("block")
    return blocks[-1].name if blocks else ""


def build_of(anatomy: Anatomy) -> str:
    """Twins share it: the blocks with their channels and grid, and the heads."""
    blocks = [f"{site.channels} on {site.grid}" for site in anatomy.pick("block")]
    return f"{'; '.join(dict.fromkeys(blocks))} × {len(blocks)}, heads {[s.heads for s in anatomy.pick('attention')]}"
