"""The mathematics of skip removal: which skips can go, how much of a CKA map survives, what is compared with what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.methods.hsic import gram, scale_of
from eyechart.methods.twins import build_of
from eyechart.quantity import Compute, PerSubjects, minus_cnn, of_each
from eyechart.reading_estimates import by_subject
from eyechart.site_choice import blocks_trained_without_skips, has_projected_skip, junctions_of, stem_and_blocks
from eyechart.sites import Anatomy, Site
from eyechart.tracing.interventions import Intervention, RemoveSkip

MODES = ("as trained", "recalibrated")
LEAST_BLOCK = 12  # images: with 8 the CKA across a block spreads half as much again as with 12, 20 or 62
DIVISIBLE = 8  # images in a block of the exam, from which on it is scored by halves: four are the least for HSIC
INTACT = "intact"
SAME_FOR_ALL = 1e-5  # of the largest number: rounding leaves equal features this far apart


def removable(anatomy: Anatomy) -> list[tuple[Site, tuple[str, ...]]]:
    """Blocks whose skips all pass unchanged, each with its junctions."""
    blocks = [(block, junctions_of(anatomy, block)) for block in anatomy.pick("block")]
    return [
        (block, tuple(junction.name for junction in junctions))
        for block, junctions in blocks
        if junctions and not has_projected_skip(anatomy, block)
    ]


def projected_blocks(anatomy: Anatomy) -> list[str]:
    """Blocks that are left out because a skip of theirs is projected."""
    return [anatomy.words(block) for block in anatomy.pick("block") if has_projected_skip(anatomy, block)]


@dataclass(frozen=True)
class Variant:
    """A subject, intact (no block) or without the skips of one block."""

    anatomy: Anatomy
    block: Site | None = None
    junctions: tuple[str, ...] = ()

    @property
    def removed(self) -> str:
        return self.anatomy.words(self.block) if self.block else INTACT

    @property
    def changes(self) -> list[Intervention]:
        return [RemoveSkip(junction) for junction in self.junctions]


def variants_of(anatomy: Anatomy) -> list[Variant]:
    """Intact first, then without each block's skips."""
    return [Variant(anatomy), *(Variant(anatomy, block, names) for block, names in removable(anatomy))]


def sites_of(anatomy: Anatomy) -> list[Site]:
    """The stem and block outputs, as in the CKA maps."""
    return list(stem_and_blocks(anatomy))


def shown_blocks(names: Sequence[str]) -> list[str]:
    """The first, a middle and the last but one, as Raghu et al. show them.

    >>> shown_blocks([str(block) for block in range(1, 13)])
    ['1', '7', '11']
    """
    if not names:
        return []
    return list(dict.fromkeys((names[0], names[len(names) // 2], names[max(len(names) - 2, 0)])))


# --- CKA ----------------------------------------------------------------------------------------------------------


def small_block(block: int, images: int) -> int:
    """Images whose Gram matrix is taken at once: a part of a block of the exam, so that few images make many folds.

    HSIC is unbiased, so small blocks cost precision only. At least two to a block, where it has eight images: the
    statistics of batch normalisation come from the images beside those that are scored.

    >>> small_block(62, 80), small_block(62, 992), small_block(256, 4096)
    (12, 31, 128)
    """
    parts = max(block // max(LEAST_BLOCK, images // 16), 2 if block >= DIVISIBLE else 1)
    return block // parts


def used_of(block: int, images: int) -> int:
    """How many of the first `images` of an exam lie in whole small blocks.

    >>> used_of(62, 128), used_of(62, 144), used_of(16, 128)
    (120, 132, 128)
    """
    size = small_block(block, images)
    return images // block * (block // size * size) + images % block // size * size


def gram_of_blocks(size: int) -> Callable[[Tensor], Tensor]:
    """Gram matrices of consecutive images, `size` at a time: (block, size, size)."""

    def grams(features: Tensor) -> Tensor:
        return torch.stack([gram(_varying(block)) for block in torch.split(features.flatten(1), size)])

    return grams


def _varying(features: Tensor) -> Tensor:
    """Features that differ between images by rounding only become zero: their CKA is unknown, not noise."""
    spread = (features - features[:1]).abs().amax()
    return torch.zeros_like(features) if spread <= SAME_FOR_ALL * features.abs().amax() else features


def cka_of(hsic: np.ndarray) -> np.ndarray:
    """CKA (…, site, other_site) from HSIC."""
    scale = scale_of(np.diagonal(hsic, axis1=-2, axis2=-1))
    cka: np.ndarray = hsic / (scale[..., :, None] * scale[..., None, :])
    return cka


def across(cka: np.ndarray, place: int) -> np.ndarray:
    """Mean CKA of the sites before `place` with those from it on, of maps (…, site, other_site).

    >>> across(np.array([[1.0, 0.2, 0.4], [0.2, 1.0, 0.9], [0.4, 0.9, 1.0]]), 1).round(3)
    np.float64(0.3)
    """
    mean: np.ndarray = cka[..., :place, place:].mean((-2, -1))
    return mean


def within(cka: np.ndarray, place: int) -> np.ndarray:
    """Mean CKA of two sites that both lie before `place` or both from it on, of maps (…, site, other_site).

    >>> within(np.array([[1.0, 0.2, 0.4], [0.2, 1.0, 0.9], [0.4, 0.9, 1.0]]), 1).round(3)
    np.float64(0.9)
    """
    one, two = np.triu_indices(cka.shape[-1], k=1)
    same = (one < place) == (two < place)
    mean: np.ndarray = cka[..., one[same], two[same]].mean(-1)
    return mean


# --- the estimate's tables ----------------------------------------------------------------------------------------


def coordinates(variants: Sequence[Variant], normalised: np.ndarray, stale: np.ndarray) -> dict[str, Any]:
    """Along `variant`: whose, which block is without skips, where it lies; and what only concerns the subject."""
    columns: dict[str, list[Any]] = {
        "subject": [v.anatomy.subject for v in variants],
        "family": [v.anatomy.family for v in variants],
        "removed": [v.removed for v in variants],
        "depth": [v.block.depth if v.block else np.nan for v in variants],
        "stage": [v.block.stage if v.block else -1 for v in variants],
        "projected": [", ".join(projected_blocks(v.anatomy)) for v in variants],
        "trained_without": [
            " ".join(str(block.block) for block in blocks_trained_without_skips(v.anatomy)) for v in variants
        ],
        "shape_of": [f"{build_of(v.anatomy)}, {v.anatomy.pooling}" for v in variants],
        "normalised": normalised.astype(int).tolist(),
        "stale": stale.astype(int).tolist(),
    }
    names = [f"{v.anatomy.subject}, {v.removed}" for v in variants]
    return {"variant": names, "mode": list(MODES)} | {name: ("variant", list_) for name, list_ in columns.items()}


def intact_across(variants: Sequence[Variant], cka: np.ndarray) -> dict[str, Any]:
    """Mean CKA across every block of the intact subjects and on its two sides, along `place`: for comparing twins."""
    rows = []
    for at, variant in enumerate(variants):
        sites = sites_of(variant.anatomy)
        if variant.block is None:
            for place, site in enumerate(sites):
                if site.role == "block":
                    cells = cka[at, 0, : len(sites), : len(sites)]
                    means = float(across(cells, place)), float(within(cells, place))
                    rows.append((variant.anatomy.subject, site.block, *means))
    return {
        "place_subject": ("place", [row[0] for row in rows]),
        "place_block": ("place", [row[1] for row in rows]),
        "intact_across": ("place", np.array([row[2] for row in rows]), {"limits": (-1.0, 1.0)}),
        "intact_within": ("place", np.array([row[3] for row in rows]), {"limits": (-1.0, 1.0)}),
    }


def shown_maps(variants: Sequence[Variant], cka: np.ndarray, normalised: np.ndarray) -> xarray.Dataset:
    """CKA maps of the intact subjects and without some blocks' skips, one row a cell; recalibrated where there is."""
    columns: dict[str, list[Any]] = {name: [] for name in ("subject", "removed", "name", "other_name")}
    columns |= {"stage": [], "other_stage": []}
    values: list[float] = []
    for at, variant in enumerate(variants):
        removed = [v.removed for v in variants if v.anatomy is variant.anatomy and v.block]
        if variant.block is not None and variant.removed not in shown_blocks(removed):
            continue
        sites = sites_of(variant.anatomy)
        for x, site in enumerate(sites):
            for y, other in enumerate(sites):
                row = (
                    variant.anatomy.subject,
                    variant.removed,
                    *map(variant.anatomy.words, (site, other)),
                    site.stage,
                    other.stage,
                )
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
                values.append(cka[at, int(normalised[at]), x, y])
    named = {f"cell_{name}": ("cell", column) for name, column in columns.items()}
    return xarray.Dataset({"cka": ("cell", np.array(values), {"limits": (-1.0, 1.0)})}, coords=named)


# --- quantities ---------------------------------------------------------------------------------------------------


def mean_of(variable: str, mode: str) -> Compute:
    """The mean over a subject's removable blocks.

    Where there is nothing to recalibrate, as trained is the same; where there is but it was not done, it is unknown.
    """

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        removed = estimate.isel(variant=(estimate.subject.values == subject) & (estimate.removed.values != INTACT))
        if not removed.sizes["variant"]:
            return None
        fits = mode if removed.normalised.values.all() or removed.stale.values.any() else MODES[0]
        return float(removed[variable].sel(mode=fits).values.mean())

    return of_each(number)


def lost_share(mode: str) -> Compute:
    """The share of its accuracy above guessing that a subject loses; NaN where it is no better than guessing."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        lost, guessing = mean_of("lost", mode)(estimate), float(estimate.attrs["guessing"])
        intact = estimate.isel(variant=estimate.removed.values == INTACT).sel(mode=MODES[0])
        above = {subject: accuracy - guessing for subject, accuracy in by_subject(intact, "accuracy").items()}
        return {(s,): lost[s,] / above[s] if above[s] > 0 else np.nan for (s,) in lost}

    return compute


def drop_gap(mode: str) -> Compute:
    """Accuracy lost without a block's skips, ViT minus CNN."""
    return minus_cnn(mean_of("lost", mode))


def share_gap(mode: str) -> Compute:
    """The same as a share of what each had to lose."""
    return minus_cnn(lost_share(mode))


def twins(estimate: xarray.Dataset) -> list[tuple[str, str, list[int]]]:
    """(intact ViT, twin trained without some skips, the blocks that lack them): of one build, read out alike."""
    first = estimate.isel(variant=estimate.removed.values == INTACT)
    builds = {
        subject: (shape, [int(number) for number in missing.split()])
        for subject, shape, missing in zip(
            first.subject.values.tolist(), first.shape_of.values.tolist(), first.trained_without.values, strict=True
        )
    }
    return [
        (whole, twin, missing)
        for whole, (shape, none) in builds.items()
        for twin, (other, missing) in builds.items()
        if missing and not none and shape == other
    ]


def twin_relative(variable: str) -> Compute:
    """CKA across the blocks that were trained without skip, or on either side, in the twin over in the intact ViT."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        blocks = zip(estimate.place_subject.values.tolist(), estimate.place_block.values.tolist(), strict=True)
        cka = dict(zip(blocks, estimate[variable].values, strict=True))
        return {
            (whole, twin): float(np.mean([cka[twin, block] / cka[whole, block] for block in missing]))
            for whole, twin, missing in twins(estimate)
        }

    return compute


def twin_drop(estimate: xarray.Dataset) -> PerSubjects:
    """Accuracy of the intact ViT minus that of a twin trained without skip in the middle half of its depth."""
    first = estimate.isel(variant=estimate.removed.values == INTACT)
    accuracy = dict(zip(first.subject.values.tolist(), first.accuracy.sel(mode=MODES[0]).values, strict=True))
    depth = {s: estimate.place_subject.values.tolist().count(s) for s in accuracy}
    return {
        (whole, twin): float(accuracy[whole] - accuracy[twin])
        for whole, twin, missing in twins(estimate)
        if all(0.25 <= (block + 0.5) / depth[whole] <= 0.75 for block in missing)
    }
