"""C80: does attention find what belongs together, and does it need its parameters for that?

Each picture is mixed with another one, patch by patch at random: half of the patches, each in its own place, come from
the partner. What belongs together is known then, and no place belongs to either picture, so attention that goes by
place alone, however local, finds nothing. Two attentions are compared on these mosaics, block by block:

    learned            softmax(Q Kᵀ / √d), the weights of every head
    without parameters softmax(X Xᵀ / √d), X the standardised tokens that enter the block

Both by the share of a patch's attention to other patches that stays within its own picture, s, against the share of
such patches, e: (s − e) / (1 − e). A sharp softmax keeps more, whatever it looks for, and the plain product is far
sharper than most heads: so they are compared by ranks as well (a patch of the own picture above one of the other).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views, site_coordinates
from eyechart.measures.grouping.mosaic import grouping, mosaics, sources, without_parameters
from eyechart.methods.attention_distance import tokens_from
from eyechart.methods.patches import partners
from eyechart.quantity import Quantity, of_each, subjects_in
from eyechart.reading_estimates import in_words, quantity_in_words, site_indices
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attentions, junctions_of
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look

PIECE = 64  # mosaics in one pass


def sum_after(anatomy: Anatomy, attention: Site) -> Site | None:
    """Where an attention meets its skip: the skip is what enters the block."""
    sums = [site for site in junctions_of(anatomy, attention) if site.kind == "attention"]
    return sums[0] if len(sums) == 1 and sums[0].skip_operand is not None and not sums[0].projected else None


def patch_attentions(anatomy: Anatomy) -> Sequence[Site]:
    """The attentions of a ViT on patches whose skip can be read: tokens and patches of the picture are the same."""
    if tokens_from(anatomy) != "patches":
        return []
    return [site for site in attentions(anatomy) if site.grid and sum_after(anatomy, site) is not None]


@dataclass
class GroupingTally(Tally):
    learned: Annotated[Tensor, Sum("fold", "site", "head", "way")]
    """By mass, by rank, and how often there was something to count."""
    free: Annotated[Tensor, Sum("fold", "site", "way")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def mean_over_blocks(variable: str, way: str, blocks: slice = slice(None)) -> Callable[[xarray.Dataset, str], float]:
    """Over heads too, where there are any."""

    def number(estimate: xarray.Dataset, subject: str) -> float:
        rows = estimate[variable].values[site_indices(estimate, subject)][blocks]
        return float(np.nanmean(rows[..., WAYS.index(way)]))

    return number


def gain(way: str, blocks: slice = slice(None)) -> Callable[[xarray.Dataset, str], float]:
    """What parameters add: the mean over heads minus attention without them, mean over blocks."""
    learned, free = (mean_over_blocks(variable, way, blocks) for variable in ("learned", "free"))
    return lambda estimate, subject: learned(estimate, subject) - free(estimate, subject)


WAYS = ("by mass", "by rank")
SUFFIXES = {"by mass": "", "by rank": "_by_rank"}
FIRST = slice(0, 1)


@dataclass(frozen=True)
class Grouping(SampledExperiment):
    name = "grouping"
    title = "Does attention find what belongs together?"
    title_ko = "어텐션은 함께 속한 것을 찾아내는가?"
    order = 16
    chapter = "look"
    sources = (
        Source(
            "eyechart", "mosaics of two pictures, for a teaching example of the reading notes with which eyechart began"
        ),
    )
    how_to_read = (
        "Each picture is mixed with another, patch by patch at random. 1: a patch attends only to patches of its own "
        "picture, or to each of them more than to any of the other; 0: to both pictures alike, as even attention does "
        "and any that goes by place alone. Points are heads, the line is their mean. Dashed: attention without "
        "parameters, the plain similarity of the tokens that enter the block. Where the line is above it, learned "
        "queries and keys group better than similarity alone; heads far below it look for something else. A sharper "
        "softmax keeps more mass, whatever it looks for: the first panel, by rank, does not depend on that."
    )
    how_to_read_ko = (
        "그림마다 다른 그림과 패치 단위로 무작위로 섞는다. 1은 자기 그림의 패치만 보거나, 그 하나하나를 다른 그림의 "
        "어느 패치보다 더 보는 것이고, 0은 두 그림을 똑같이 보는 것이다: 고른 어텐션이나 자리만 따르는 어텐션이 "
        "그렇다. 점은 헤드이고 선은 헤드의 평균이다. 파선은 파라미터 없는 어텐션, 곧 블록에 들어오는 토큰의 단순한 "
        "유사도이다. 선이 파선보다 높으면 학습된 쿼리와 키가 유사도만으로 묶는 것보다 잘 묶는다. 파선보다 훨씬 낮은 "
        "헤드는 다른 것을 찾는다. 질량은 소프트맥스가 날카로울수록 커지지만, 첫 그림의 순위는 그렇지 않다."
    )
    method = (
        "Half of the patches of a picture, drawn at random, are those of a partner from the same fold, each in its own "
        "place; the cells are the subject's patches. For every patch: its attention to other patches (prefix tokens "
        "and itself left out) that stays within its picture, s, against the share of such patches, e, as "
        "(s − e) / (1 − e); mean over patches, pictures, heads. By rank: of all pairs of a patch of its own and one of "
        "the other picture, those where the own one gets more minus those where it gets less. Attention without "
        "parameters is softmax(X Xᵀ / √d) of the tokens on the skip of the block's attention, standardised as by a "
        "LayerNorm without parameters, d their channels. The claim compares means over all blocks."
    )
    quantities = (
        *(
            Quantity(
                f"free_grouping{suffix}",
                of_each(mean_over_blocks("free", way)),
                f"grouping {way} without parameters, mean over blocks (0: none, 1: all)",
                limits=(-1, 1),
            )
            for way, suffix in SUFFIXES.items()
        ),
        *(
            Quantity(
                f"learned_grouping{suffix}",
                of_each(mean_over_blocks("learned", way)),
                f"grouping {way} by learned attention, mean over heads and blocks (0: none, 1: all)",
                limits=(-1, 1),
            )
            for way, suffix in SUFFIXES.items()
        ),
        *(
            Quantity(
                f"grouping_gain{suffix}",
                of_each(gain(way)),
                f"grouping {way}, learned minus without parameters, mean over heads and blocks",
                limits=(-2, 2),
            )
            for way, suffix in SUFFIXES.items()
        ),
        Quantity(
            "first_grouping_gain",
            of_each(gain("by rank", FIRST)),
            "grouping by rank in the first block, learned minus without parameters",
            limits=(-2, 2),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 1.2, "normal": 20.0, "full": 200.0}
    shown_from: ClassVar[int] = 16

    def passes(self, anatomy: Anatomy) -> float:
        return 1.0 if patch_attentions(anatomy) else 0.0

    # --- the experiment -----------------------------------------------------------------------------------------

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        few = bench.first(self.images) if self.images else bench
        sites = patch_attentions(bench.anatomy)
        if len(few) < 2 or not sites:
            return {}
        grid = sites[0].grid
        assert grid is not None
        borrowed = sources(len(few), grid[0] * grid[1], bench.generator("mosaics"))
        pictures = mosaics(few.images, partners(few.folds()), borrowed, grid)

        def work(size: int) -> list[dict[str, Tensor]]:
            pieces = zip(torch.split(pictures, size), torch.split(borrowed, size), strict=True)
            return [look(bench, sites, *piece) for piece in pieces]

        with bench.seeded():
            seen = bench.piece_size.fit(min(PIECE, len(few)), work)
        return {name: torch.cat([each[name] for each in seen]) for name in seen[0]} | {"folds": few.folds()}

    # --- the tally ----------------------------------------------------------------------------------------------

    def tally(self, scene: Scene) -> GroupingTally:
        sites = scene.sites(patch_attentions)
        if not sites:
            raise DoesNotApply("no subject is a ViT on patches, whose tokens could be exchanged one by one.")
        return GroupingTally.empty(
            fold=scene.folds, site=len(sites), head=max(site.heads or 1 for _, site in sites), way=3
        )

    def update(self, tally: GroupingTally, batch: Batch, views: Views, scene: Scene) -> None:
        subjects, rows_of = scene.subjects_with(patch_attentions), scene.rows(patch_attentions)
        for row, results in views.experiments(subjects):
            folds, rows = results["folds"], rows_of[subjects[row]]
            heads = slice(results["learned"].shape[2])
            tally.add("learned", folds, results["learned"], rows, heads)
            tally.add("free", folds, results["free"], rows)
            if row == 0:
                tally.add("images", folds)

    def estimate(self, total: GroupingTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(patch_attentions)
        limits = {"limits": (-1.0, 1.0)}
        return xarray.Dataset(
            {
                "learned": (("site", "head", "way"), means(total.learned), limits),
                "free": (("site", "way"), means(total.free), limits),
            },
            coords={**site_coordinates(scene, sites), "head": np.arange(total.learned.shape[1]), "way": list(WAYS)},
            attrs={
                "images": int(total.images),
                "left_out": " and ".join(name for name in scene.subjects if not patch_attentions(scene.anatomy(name))),
            },
        )

    # --- the report ---------------------------------------------------------------------------------------------

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            free, learned = (
                quantity_in_words(finding, f"{name}_grouping_by_rank", ".2f", subject) for name in ("free", "learned")
            )
            heads = finding.isel(site=site_indices(finding, subject)).sel(way="by rank")
            best = heads.stack(each=("site", "head")).isel(each=int(np.nanargmax(heads.learned.values)))
            parts.append(
                f"{subject} groups patches of one picture by {learned} (by rank; 0: not at all, 1: wholly) with its "
                f"learned attention, mean over heads, and by {free} without parameters; its best head by "
                f"{in_words(best, 'learned', '.2f')}"
            )
        left_out = finding.attrs.get("left_out", "")
        why = "only in ViTs on patches can these be exchanged one by one"
        return ". ".join(parts) + "." + (f"\nLeft out: {left_out} ({why})." if left_out else "")


def means(sums: Tensor) -> np.ndarray:
    """Sums over images by what they count, the last of them; NaN where that is nothing."""
    values: np.ndarray = np.where(sums[..., -1:] > 0, sums[..., :-1] / sums[..., -1:].clamp_min(1), np.nan)
    return values


def look(bench: Bench, sites: Sequence[Site], pictures: Tensor, borrowed: Tensor) -> dict[str, Tensor]:
    """Grouping of mosaics by every head (image, site, head, way), and without parameters (image, site, way)."""
    learned = View("grouping", lambda seen: grouping(between_patches(seen.weights, seen.site), borrowed))
    free = View("grouping without parameters", lambda seen: grouping(similarity_on_skip(seen), borrowed), before=True)
    sums = [site for each in sites if (site := sum_after(bench.anatomy, each)) is not None]
    wanted = {site.name: [learned] for site in sites} | {site.name: [free] for site in sums}
    seen = Tap(bench.subject.module, bench.anatomy, wanted).run(pictures, bench.subject.call)[1]
    heads = max(site.heads or 1 for site in sites)
    by_head = torch.zeros(len(pictures), len(sites), heads, 3, dtype=torch.float64)
    for at, site in enumerate(sites):
        values = seen[site.name][learned.name]
        by_head[:, at, : values.shape[1]] = values.cpu()
    alone = [seen[site.name][free.name][:, 0].double().cpu() for site in sums]
    return {"learned": by_head, "free": torch.stack(alone, 1)}


def similarity_on_skip(seen: Look) -> Tensor:
    return without_parameters(seen.tokens(seen.skip)[:, seen.site.layout.prefix :])


def between_patches(weights: Tensor, site: Site) -> Tensor:
    """Attention between patches (image, head, query, key), of the one window that a global attention has."""
    geometry = site.attention
    assert geometry is not None
    return weights[:, 0, :, geometry.query_prefix :, geometry.key_prefix :]
