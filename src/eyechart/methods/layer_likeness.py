"""What a table of CKA says: layers that stay alike, stages, which depth of one subject is which of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from eyechart.estimates import places_of, subjects_in, thirds

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import PerSubjects


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


def staged_block_contrast(estimate: xarray.Dataset) -> PerSubjects:
    """Contrast of a staged transformer minus that of a ViT cut at the same relative depths.

    CKA falls with distance in any network, so a contrast above zero proves nothing; equal cuts cancel that.
    """
    own = block_contrast(estimate)
    result: PerSubjects = {}
    for staged in subjects_in(estimate, "staged transformer"):
        stages = estimate.stage.values[places_of(estimate, staged, "block")]
        for vit in subjects_in(estimate, "vit"):
            places = places_of(estimate, vit, "block")
            cuts = stages[((np.arange(len(places)) + 0.5) / len(places) * len(stages)).astype(int)]
            result[staged, vit] = own[staged,] - contrast(estimate.cka.values[np.ix_(places, places)], cuts)
    return result


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


def lag_at_half(estimate: xarray.Dataset) -> PerSubjects:
    """How deep in the ViT the half-way blocks of the CNN land: output depth of the most similar ViT site.

    At the half-way mark and not over the whole lower half, because with no lag at all that mean would be 0.25.
    """
    result: PerSubjects = {}
    for cnn in subjects_in(estimate, "cnn"):
        places = places_of(estimate, cnn, "block")
        depths = (np.arange(len(places)) + 1) / len(places)
        half = places[(depths > 3 / 8) & (depths <= 1 / 2)]
        if not len(half):
            half = places[depths <= 1 / 2][-1:]
        for vit in subjects_in(estimate, "vit"):
            result[vit, cnn] = float(estimate.match_depth.sel(matched=vit).values[half].mean())
    return result


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
