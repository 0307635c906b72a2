"""Quantities of a table of CKA: layers that stay alike, stages, and which depths of two subjects correspond."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray

from eyechart.quantity import Bounds, Compute, of_each, of_pairs, subjects_in
from eyechart.reading_estimates import site_indices, thirds

Blocks = Callable[[xarray.Dataset, str], np.ndarray]
"""Some blocks of a subject, as indices on the site axis."""


def uniformity_of(estimate: xarray.Dataset, subject: str) -> float | None:
    """Mean CKA of the lowest third of the blocks with the highest."""
    low, high = thirds(site_indices(estimate, subject, "block"))
    return float(estimate.cka.values[np.ix_(low, high)].mean()) if len(low) else None


uniformity = of_each(uniformity_of)


def contrast(cka: np.ndarray, stages: np.ndarray) -> float:
    """Mean CKA of two blocks of the same part minus that of two blocks of different parts."""
    one, two = np.triu_indices(len(stages), k=1)
    same = stages[one] == stages[two]
    if same.all() or not same.any():
        return float("nan")
    values = cka[one, two]
    return float(values[same].mean() - values[~same].mean())


def block_contrast(estimate: xarray.Dataset, subject: str) -> float | None:
    blocks = site_indices(estimate, subject, "block")
    stages = estimate.stage.values[blocks]
    return contrast(estimate.cka.values[np.ix_(blocks, blocks)], stages) if len(set(stages)) > 1 else None


def contrast_over_vit(estimate: xarray.Dataset, staged: str, vit: str) -> float | None:
    """Contrast of a subject with stages minus that of a ViT cut at the same relative depths.

    CKA falls with distance in any network, so a contrast above zero proves nothing; equal cuts cancel that.
    """
    of_staged = block_contrast(estimate, staged)
    if of_staged is None:
        return None
    stages = estimate.stage.values[site_indices(estimate, staged, "block")]
    blocks = site_indices(estimate, vit, "block")
    cuts = stages[((np.arange(len(blocks)) + 0.5) / len(blocks) * len(stages)).astype(int)]
    return of_staged - contrast(estimate.cka.values[np.ix_(blocks, blocks)], cuts)


def step(cka: np.ndarray, stages: np.ndarray) -> float:
    """CKA of two blocks of one stage minus that of two blocks equally far apart on both sides of a stage boundary.

    Layers that only drift apart, at whatever speed, have a contrast but no step. A distance counts only if pairs of
    both kinds have it, and its weight is the number of pairs of the rarer kind.
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


def step_beside_vit(estimate: xarray.Dataset, staged: str, vit: str) -> float:
    """The step at the stage boundaries of a subject, for it and every ViT: a part of claims about both."""
    blocks = site_indices(estimate, staged, "block")
    return step(estimate.cka.values[np.ix_(blocks, blocks)], estimate.stage.values[blocks])


def turned(compute: Compute) -> Compute:
    """The same numbers of pairs in the other order."""
    return lambda estimate: {(two, one): value for (one, two), value in compute(estimate).items()}


def lag_map(estimate: xarray.Dataset) -> xarray.DataArray:
    """For every site, the depth of the stem or block of each subject that it resembles most."""
    subjects = subjects_in(estimate)
    depths = np.full((estimate.sizes["site"], len(subjects)), np.nan)
    for column, subject in enumerate(subjects):
        sites = site_indices(estimate, subject, "stem", "block")
        table = np.where(np.isnan(estimate.cka.values[:, sites]), -np.inf, estimate.cka.values[:, sites])
        if len(sites):
            best = estimate.depth.values[sites][table.argmax(1)]
            depths[:, column] = np.where(np.isinf(table).all(1), np.nan, best)
    attributes = {"smooth": False, "limits": (0.0, 1.0)}
    return xarray.DataArray(depths, dims=("site", "matched"), coords={"matched": subjects}, attrs=attributes)


def best_matches(estimate: xarray.Dataset, rows: str = "site", cka: str = "cka") -> xarray.DataArray:
    """The highest CKA of each row with a stem or block of each subject."""
    subjects = subjects_in(estimate)
    best = np.full((estimate.sizes[rows], len(subjects)), np.nan)
    for column, subject in enumerate(subjects):
        table = estimate[cka].values[:, site_indices(estimate, subject, "stem", "block")]
        best[:, column] = np.where(np.isnan(table), -np.inf, table).max(1, initial=-np.inf)
    attributes = {"smooth": False, "limits": (-1.0, 1.0)}
    best = np.where(np.isinf(best), np.nan, best)
    return xarray.DataArray(best, dims=(rows, "matched"), coords={"matched": subjects}, attrs=attributes)


def half_way(estimate: xarray.Dataset, cnn: str) -> np.ndarray:
    """The blocks of a CNN that end about half-way.

    Not the whole lower half, because with no lag at all its mean depth would be 0.25.
    """
    blocks = site_indices(estimate, cnn, "block")
    depths = (np.arange(len(blocks)) + 1) / len(blocks)
    half = blocks[(depths > 3 / 8) & (depths <= 1 / 2)]
    return half if len(half) else blocks[depths <= 1 / 2][-1:]


def last_quarter(estimate: xarray.Dataset, subject: str) -> np.ndarray:
    """Blocks whose middle lies in the last quarter; at least the last one."""
    blocks = site_indices(estimate, subject, "block")
    middle = (np.arange(len(blocks)) + 0.5) / len(blocks)
    late = blocks[middle > 3 / 4]
    return late if len(late) else blocks[-1:]


def peak(values: np.ndarray, depths: np.ndarray) -> float:
    """The depth of the highest value, between sites: the top of the parabola through it and its two neighbours.

    The site itself would move in steps: of nine blocks 3/9 and 4/9, on both sides of a limit of .35.

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


def matched_depth(choose: Blocks) -> Compute:
    """The mean depth, in each ViT, of what the chosen blocks of each CNN resemble most."""

    def number(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
        sites = site_indices(estimate, vit, "stem", "block")
        depths = estimate.depth.values[sites]
        rows = estimate.cka.values[choose(estimate, cnn)][:, sites]
        return float(np.mean([peak(row, depths) for row in rows])) if len(rows) else float("nan")

    return of_pairs(number)


def within_half_a_block(choose: Blocks) -> Callable[[xarray.Dataset], Bounds]:
    """Bounds of that depth where the match is the first or the last site: half a block.

    No parabola can be fitted there, since there is no neighbour on one side: such depths move in steps of a block.
    """

    def bounds(estimate: xarray.Dataset) -> Bounds:
        result: dict[tuple[str, ...], tuple[float, float]] = {}
        for (vit, cnn), depth in matched_depth(choose)(estimate).items():
            sites = site_indices(estimate, vit, "stem", "block")
            best = estimate.cka.values[choose(estimate, cnn)][:, sites].argmax(1)
            at_an_end = float(np.mean((best == 0) | (best == len(sites) - 1))) if len(best) else 0.0
            half = 0.5 * at_an_end / max(len(site_indices(estimate, vit, "block")), 1)
            result[vit, cnn] = (max(depth - half, 0.0), min(depth + half, 1.0))
        return result

    return bounds


def match_above_stem(choose: Blocks) -> Compute:
    """How much more the chosen blocks of a CNN resemble their match in a ViT than its stem.

    A ViT whose blocks change nothing (untrained, or switched off) resembles a CNN at its stem as much as anywhere: the
    depth of the best match is then small, but nothing has been computed there.
    """

    def number(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
        rows = estimate.cka.values[choose(estimate, cnn)]
        blocks, stem = site_indices(estimate, vit, "block"), site_indices(estimate, vit, "stem")
        gain = rows[:, blocks].max(1, initial=-np.inf) - rows[:, stem].max(1, initial=-np.inf)
        return float(gain.mean()) if len(stem) and len(blocks) and len(rows) else float("nan")

    return of_pairs(number)


def top_quarter_is_matched(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """Largest lead, over the layers of a CNN, of a ViT's last quarter over its earlier sites; below 0: never ahead."""
    late = last_quarter(estimate, vit)
    early = np.setdiff1d(site_indices(estimate, vit, "stem", "block"), late)
    rows = estimate.cka.values[site_indices(estimate, cnn, "stem", "block")]
    ahead = rows[:, late].max(1, initial=-np.inf) - rows[:, early].max(1, initial=-np.inf)
    return float(ahead.max()) if len(early) else float("nan")


def top_is_unlike(estimate: xarray.Dataset, vit: str, cnn: str) -> float | None:
    """Best match of the ViT's lowest third with any CNN site minus that of its highest third."""
    return _drop_of_the_best(estimate.match_cka.sel(matched=cnn).values, site_indices(estimate, vit, "block"))


def top_is_unlike_without_cls(estimate: xarray.Dataset, vit: str, cnn: str) -> float | None:
    """The same for the patch tokens of ViTs that have a class token: is it only the class token that differs?"""
    return _drop_of_the_best(estimate.patch_match_cka.sel(matched=cnn).values, _blocks_without_cls(estimate, vit))


def top_likeness(estimate: xarray.Dataset, vit: str, cnn: str) -> float | None:
    """The best match of the ViT's highest third with any CNN site."""
    high = thirds(site_indices(estimate, vit, "block"))[1]
    return float(estimate.match_cka.sel(matched=cnn).values[high].max()) if len(high) else None


def top_likeness_without_cls(estimate: xarray.Dataset, vit: str, cnn: str) -> float | None:
    blocks = _blocks_without_cls(estimate, vit)
    high = thirds(blocks)[1] if len(blocks) else blocks
    return float(estimate.patch_match_cka.sel(matched=cnn).values[high].max()) if len(high) else None


def _blocks_without_cls(estimate: xarray.Dataset, vit: str) -> np.ndarray:
    """Indices on the axis `patch_site`."""
    return np.flatnonzero((estimate.patch_role.values == "block") & (estimate.patch_subject.values == vit))


def _drop_of_the_best(best: np.ndarray, blocks: np.ndarray) -> float | None:
    low, high = thirds(blocks) if len(blocks) else (blocks, blocks)
    return float(best[low].max() - best[high].max()) if len(low) else None
