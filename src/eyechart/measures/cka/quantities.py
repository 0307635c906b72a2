"""What a table of CKA says: layers that stay alike, stages, which depth of one subject is which of another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from eyechart.quantity import subjects_in
from eyechart.reading_estimates import places_of, thirds

if TYPE_CHECKING:
    import xarray

    from eyechart.quantity import PerSubjects


def uniformity(estimate: xarray.Dataset) -> PerSubjects:
    result: PerSubjects = {}
    for subject in subjects_in(estimate):
        low, high = thirds(places_of(estimate, subject, "block"))
        if len(low):
            result[subject,] = float(estimate.cka.values[np.ix_(low, high)].mean())
    return result


def uniformity_gap(estimate: xarray.Dataset) -> PerSubjects:
    of = uniformity(estimate)
    return {
        (vit, cnn): of[vit,] - of[cnn,]
        for vit in subjects_in(estimate, "vit")
        for cnn in subjects_in(estimate, "cnn")
        if (vit,) in of and (cnn,) in of
    }


def contrast(cka: np.ndarray, stages: np.ndarray) -> float:
    """Mean CKA of two blocks of the same part minus that of two blocks of different parts."""
    one, two = np.triu_indices(len(stages), k=1)
    same = stages[one] == stages[two]
    if same.all() or not same.any():
        return float("nan")
    values = cka[one, two]
    return float(values[same].mean() - values[~same].mean())


def block_contrast(estimate: xarray.Dataset) -> PerSubjects:
    result: PerSubjects = {}
    for subject in subjects_in(estimate):
        places = places_of(estimate, subject, "block")
        stages = estimate.stage.values[places]
        if len(set(stages)) > 1:
            result[subject,] = contrast(estimate.cka.values[np.ix_(places, places)], stages)
    return result


def contrast_over_vit(estimate: xarray.Dataset, family: str) -> PerSubjects:
    """Contrast of a subject with stages minus that of a ViT cut at the same relative depths.

    CKA falls with distance in any network, so a contrast above zero proves nothing; equal cuts cancel that.
    """
    own = block_contrast(estimate)
    result: PerSubjects = {}
    for staged in subjects_in(estimate, family):
        stages = estimate.stage.values[places_of(estimate, staged, "block")]
        for vit in subjects_in(estimate, "vit"):
            places = places_of(estimate, vit, "block")
            cuts = stages[((np.arange(len(places)) + 0.5) / len(places) * len(stages)).astype(int)]
            result[staged, vit] = own[staged,] - contrast(estimate.cka.values[np.ix_(places, places)], cuts)
    return result


def step(cka: np.ndarray, stages: np.ndarray) -> float:
    """What a stage boundary costs: CKA of two blocks of one stage minus that of two equally far apart across one.

    Layers that only drift away from each other, at whatever speed, have a contrast but no step. Distances that only
    one of the two kinds has do not count; the others count by the rarer kind.
    """
    one, two = np.triu_indices(len(stages), k=1)
    same, far, values = stages[one] == stages[two], two - one, cka[one, two]
    gaps, weights = [], []
    for distance in np.unique(far):
        kinds = [values[(far == distance) & kind] for kind in (same, ~same)]
        if all(map(len, kinds)):
            gaps.append(kinds[0].mean() - kinds[1].mean())
            weights.append(min(map(len, kinds)))
    return float(np.average(gaps, weights=weights)) if gaps else float("nan")


def step_beside_vit(estimate: xarray.Dataset, family: str) -> PerSubjects:
    """The step at the stage boundaries of a subject, told of it and every ViT: a part of claims about both."""
    result: PerSubjects = {}
    for staged in subjects_in(estimate, family):
        places = places_of(estimate, staged, "block")
        own = step(estimate.cka.values[np.ix_(places, places)], estimate.stage.values[places])
        result |= {(staged, vit): own for vit in subjects_in(estimate, "vit")}
    return result


def turned(pairs: PerSubjects) -> PerSubjects:
    """The same numbers for the ViT and the other, in this order."""
    return {(vit, other): value for (other, vit), value in pairs.items()}


def lag_map(estimate: xarray.Dataset) -> xarray.DataArray:
    """For every site, the depth of the stem or block of each subject that it resembles most."""
    import xarray

    subjects = subjects_in(estimate)
    depths = np.full((estimate.sizes["site"], len(subjects)), np.nan)
    for column, subject in enumerate(subjects):
        places = places_of(estimate, subject, "stem", "block")
        table = np.where(np.isnan(estimate.cka.values[:, places]), -np.inf, estimate.cka.values[:, places])
        if len(places):
            best = estimate.depth.values[places][table.argmax(1)]
            depths[:, column] = np.where(np.isinf(table).all(1), np.nan, best)
    attributes = {"smooth": False, "limits": (0.0, 1.0)}
    return xarray.DataArray(depths, dims=("site", "matched"), coords={"matched": subjects}, attrs=attributes)


def best_matches(estimate: xarray.Dataset, rows: str = "site", cka: str = "cka") -> xarray.DataArray:
    """The highest CKA of each row with a stem or block of each subject."""
    import xarray

    subjects = subjects_in(estimate)
    best = np.full((estimate.sizes[rows], len(subjects)), np.nan)
    for column, subject in enumerate(subjects):
        table = estimate[cka].values[:, places_of(estimate, subject, "stem", "block")]
        best[:, column] = np.where(np.isnan(table), -np.inf, table).max(1, initial=-np.inf)
    attributes = {"smooth": False, "limits": (-1.0, 1.0)}
    found = np.where(np.isinf(best), np.nan, best)
    return xarray.DataArray(found, dims=(rows, "matched"), coords={"matched": subjects}, attrs=attributes)


def half_way(estimate: xarray.Dataset, cnn: str) -> np.ndarray:
    """The blocks of a CNN that end about half-way.

    Not the whole lower half, because with no lag at all its mean depth would be 0.25.
    """
    places = places_of(estimate, cnn, "block")
    depths = (np.arange(len(places)) + 1) / len(places)
    half = places[(depths > 3 / 8) & (depths <= 1 / 2)]
    return half if len(half) else places[depths <= 1 / 2][-1:]


def last_quarter(estimate: xarray.Dataset, subject: str) -> np.ndarray:
    """Blocks whose middle lies in the last quarter; at least the last one."""
    places = places_of(estimate, subject, "block")
    middle = (np.arange(len(places)) + 0.5) / len(places)
    late = places[middle > 3 / 4]
    return late if len(late) else places[-1:]


def peak(values: np.ndarray, depths: np.ndarray) -> float:
    """Where the highest value lies, between places: the top of the parabola through it and its two neighbours.

    The place itself is a lattice: of nine blocks 3/9 and 4/9, on both sides of a limit of .35.

    >>> round(peak(np.array([0.0, 0.8, 0.9, 0.8]), np.arange(4) / 3), 3)
    0.667
    """
    if np.isnan(values).any() or not len(values):
        return float("nan")
    at = int(values.argmax())
    if at in (0, len(values) - 1):
        return float(depths[at])
    before, here, after = values[at - 1 : at + 2]
    bend = before - 2 * here + after
    offset = (before - after) / (2 * bend) if bend < 0 else 0.0
    return float(np.interp(at + offset, np.arange(len(depths)), depths))


def matched_depth(estimate: xarray.Dataset, choose: Callable[[xarray.Dataset, str], np.ndarray]) -> PerSubjects:
    """How deep in each ViT the chosen blocks of each CNN land: the mean depth of what they resemble most."""
    result: PerSubjects = {}
    for vit, cnn in _pairs(estimate):
        places = places_of(estimate, vit, "stem", "block")
        depths = estimate.depth.values[places]
        rows = estimate.cka.values[choose(estimate, cnn)][:, places]
        result[vit, cnn] = float(np.mean([peak(row, depths) for row in rows])) if len(rows) else float("nan")
    return result


def within_half_a_block(
    estimate: xarray.Dataset, choose: Callable[[xarray.Dataset, str], np.ndarray]
) -> dict[tuple[str, ...], tuple[float, float]]:
    """Bounds of that depth where the match is the first or the last place: half a block.

    Nothing lies beyond the last block through which a parabola could go, so the depth of 1 is one of a lattice.
    """
    result: dict[tuple[str, ...], tuple[float, float]] = {}
    for (vit, cnn), depth in matched_depth(estimate, choose).items():
        places = places_of(estimate, vit, "stem", "block")
        best = estimate.cka.values[choose(estimate, cnn)][:, places].argmax(1)
        at_an_end = float(np.mean((best == 0) | (best == len(places) - 1))) if len(best) else 0.0
        half = 0.5 * at_an_end / max(len(places_of(estimate, vit, "block")), 1)
        result[vit, cnn] = (max(depth - half, 0.0), min(depth + half, 1.0))
    return result


def match_above_stem(estimate: xarray.Dataset, choose: Callable[[xarray.Dataset, str], np.ndarray]) -> PerSubjects:
    """How much more the chosen blocks of a CNN resemble their match in a ViT than its stem.

    A ViT whose blocks change nothing (untrained, or switched off) is as like a CNN at its stem as anywhere: then the
    depth of the best match is small, but nothing has been computed there.
    """
    result: PerSubjects = {}
    for vit, cnn in _pairs(estimate):
        rows = estimate.cka.values[choose(estimate, cnn)]
        blocks, stem = places_of(estimate, vit, "block"), places_of(estimate, vit, "stem")
        gain = rows[:, blocks].max(1, initial=-np.inf) - rows[:, stem].max(1, initial=-np.inf)
        result[vit, cnn] = float(gain.mean()) if len(stem) and len(blocks) and len(rows) else float("nan")
    return result


def top_quarter_is_matched(estimate: xarray.Dataset) -> PerSubjects:
    """By how much the last quarter of a ViT is the best match of any CNN layer, or (below 0) is not of the nearest."""
    result: PerSubjects = {}
    for vit, cnn in _pairs(estimate):
        late = last_quarter(estimate, vit)
        early = np.setdiff1d(places_of(estimate, vit, "stem", "block"), late)
        rows = estimate.cka.values[places_of(estimate, cnn, "stem", "block")]
        ahead = rows[:, late].max(1, initial=-np.inf) - rows[:, early].max(1, initial=-np.inf)
        result[vit, cnn] = float(ahead.max()) if len(early) else float("nan")
    return result


def _pairs(estimate: xarray.Dataset) -> Iterator[tuple[str, str]]:
    return itertools.product(subjects_in(estimate, "vit"), subjects_in(estimate, "cnn"))


def top_is_unlike(estimate: xarray.Dataset) -> PerSubjects:
    """Best match of the ViT's lowest third with any CNN site minus that of its highest third."""
    places = {vit: places_of(estimate, vit, "block") for vit in subjects_in(estimate, "vit")}
    return _drop_of_the_best(estimate, estimate.match_cka, places)


def top_is_unlike_without_cls(estimate: xarray.Dataset) -> PerSubjects:
    """The same for the patch tokens of ViTs that have a class token: is the top third only the class token's work?"""
    blocks = estimate.patch_role.values == "block"
    places = {
        vit: np.flatnonzero(blocks & (estimate.patch_subject.values == vit)) for vit in subjects_in(estimate, "vit")
    }
    return _drop_of_the_best(estimate, estimate.patch_match_cka, places)


def top_likeness(estimate: xarray.Dataset) -> PerSubjects:
    """The best match of the ViT's highest third with any CNN site."""
    return {
        (vit, cnn): float(estimate.match_cka.sel(matched=cnn).values[high].max())
        for vit, cnn in _pairs(estimate)
        if len(high := thirds(places_of(estimate, vit, "block"))[1])
    }


def top_likeness_without_cls(estimate: xarray.Dataset) -> PerSubjects:
    blocks = estimate.patch_role.values == "block"
    return {
        (vit, cnn): float(estimate.patch_match_cka.sel(matched=cnn).values[high].max())
        for vit, cnn in _pairs(estimate)
        if len(mine := np.flatnonzero(blocks & (estimate.patch_subject.values == vit))) and len(high := thirds(mine)[1])
    }


def _drop_of_the_best(
    estimate: xarray.Dataset, matches: xarray.DataArray, places: Mapping[str, np.ndarray]
) -> PerSubjects:
    result: PerSubjects = {}
    for vit, blocks in places.items():
        low, high = thirds(blocks) if len(blocks) else (blocks, blocks)
        for cnn in subjects_in(estimate, "cnn"):
            if len(low):
                best = matches.sel(matched=cnn).values
                result[vit, cnn] = float(best[low].max() - best[high].max())
    return result
