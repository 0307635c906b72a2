"""M2: how far does each head look? For a query patch i and keys j at positions p, in pixels of the input,

    distance = mean over images and queries of Σ_j A_ij ‖p_i − p_j‖

with the class token's row and column dropped and the rows renormalised; the dropped mass is reported beside it. With
`cls=keep` rows stay as they are, and what goes to the class token counts as no distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch

from eyechart.errors import DoesNotApply
from eyechart.intervals import room_for
from eyechart.measure import Measure, Source, Views, option, site_coordinates
from eyechart.methods.attention_distance import HOW_FAR, HOW_FAR_WITH_PREFIX, Cls, tokens_from
from eyechart.quantity import PerSubjects, Quantity, subjects_in
from eyechart.reading_estimates import places_of, thirds
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attentions
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View

if TYPE_CHECKING:
    import xarray

Bounds = Mapping[tuple[str, ...], tuple[float, float]]
LOCAL = 0.5  # SPEC: a head is local if it looks less than half as far as uniform attention


@dataclass
class DistanceTally(Tally):
    distance: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    prefix_mass: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    coverage: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    counted: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def heads_of(estimate: xarray.Dataset, subject: str, places: slice, variable: str = "relative") -> np.ndarray:
    """Values of all heads of the chosen attention sites of one subject, pooled."""
    rows: np.ndarray = estimate[variable].values[places_of(estimate, subject)][places]
    return np.asarray(rows[np.isfinite(rows)])


def vits(estimate: xarray.Dataset) -> list[str]:
    """Single-stage ViTs with at least four attention sites: of these the claims speak."""
    return [
        subject
        for subject in subjects_in(estimate, "vit")
        if len(places_of(estimate, subject)) >= 4
        and np.isfinite(estimate.relative.values[places_of(estimate, subject)]).any(axis=1).all()
    ]


def over_heads(
    summary: Callable[[np.ndarray], float], places: Callable[[xarray.Dataset, str], slice], variable: str = "relative"
) -> Callable[[xarray.Dataset], PerSubjects]:
    """The nearest or farthest head of some attention sites, for every ViT. Not smooth: it gets the bootstrap."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        return {
            (subject,): float(summary(heads_of(estimate, subject, places(estimate, subject), variable)))
            for subject in vits(estimate)
        }

    return compute


def early(estimate: xarray.Dataset, subject: str) -> slice:
    return slice(0, 2)


def late(estimate: xarray.Dataset, subject: str) -> slice:
    """The last attention; the last two where it has fewer than six heads."""
    return slice(-1, None) if len(heads_of(estimate, subject, slice(-1, None))) >= 6 else slice(-2, None)


def near_and_far(summary: Callable[[np.ndarray], float], *, covering: float) -> Callable[[xarray.Dataset], PerSubjects]:
    """The nearest or farthest of the early heads that give patches at least half of their attention.

    What is left of a head with 99 % on the class token reads as uniform attention. A far head must also cover the
    picture: one that always looks at a corner scores 1.3 of uniform attention. 0 where there is no such head.
    """

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        result: PerSubjects = {}
        for subject in vits(estimate):
            rows = places_of(estimate, subject)[:2]
            relative, mass, coverage = (estimate[name].values[rows] for name in ("relative", "prefix_mass", "coverage"))
            heads = relative[np.isfinite(relative) & (mass <= 0.5) & (coverage >= covering)]
            result[subject,] = float(summary(heads)) if len(heads) else 0.0 if covering else math.nan
        return result

    return compute


def growth(estimate: xarray.Dataset) -> PerSubjects:
    """Mean distance of all heads over the last third of the attentions minus over the first."""
    result: PerSubjects = {}
    for subject in vits(estimate):
        first, last = (np.nanmean(estimate.relative.values[rows]) for rows in thirds(places_of(estimate, subject)))
        result[subject,] = float(last - first)
    return result


def farthest_prefix_mass(estimate: xarray.Dataset) -> PerSubjects:
    """What the farthest early head gives to the class token: one with all its mass there reads as uniform."""
    result: PerSubjects = {}
    for subject in vits(estimate):
        rows = places_of(estimate, subject)[:2]
        farthest = np.unravel_index(np.nanargmax(estimate.relative.values[rows]), estimate.relative.values[rows].shape)
        result[subject,] = float(estimate.prefix_mass.values[rows][farthest])
    return result


def local_share(estimate: xarray.Dataset) -> PerSubjects:
    return {(s,): float((heads_of(estimate, s, slice(None)) < LOCAL).mean()) for s in subjects_in(estimate)}


def unmoved_local_share(estimate: xarray.Dataset) -> Bounds:
    """What the share may be where no draw of images moved it: the exact bound of as many trials as heads."""
    rooms = {who: float(room_for(len(heads_of(estimate, who, slice(None))))) for who in subjects_in(estimate)}
    return {(s,): (max(share - rooms[s], 0), share + rooms[s]) for (s,), share in local_share(estimate).items()}


def with_hybrids(compare: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[xarray.Dataset], PerSubjects]:
    """Heads of the first two attentions, of every ViT on patches and every one whose tokens come from a CNN."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        stems = dict(zip(estimate.subject.values.tolist(), estimate.tokens_from.values.tolist(), strict=True))
        return {
            (vit, hybrid): compare(heads_of(estimate, vit, slice(0, 2)), heads_of(estimate, hybrid, slice(0, 2)))
            for vit in vits(estimate)
            for hybrid in stems
            if stems[vit] == "patches" and stems[hybrid] == "a CNN" and len(places_of(estimate, hybrid)) >= 4
        }

    return compute


def more_local(vit: np.ndarray, hybrid: np.ndarray) -> float:
    return float((vit < LOCAL).mean() - (hybrid < LOCAL).mean())


def looks_nearer(vit: np.ndarray, hybrid: np.ndarray) -> float:
    """How much farther the nearest quarter of the hybrid's heads looks: no head crosses a threshold in it."""
    nearest = [np.sort(heads)[: max(1, len(heads) // 4)].mean() for heads in (vit, hybrid)]
    return float(nearest[1] - nearest[0])


def unmoved_local_gap(estimate: xarray.Dataset) -> Bounds:
    gaps = with_hybrids(more_local)(estimate)
    rooms = with_hybrids(lambda vit, hybrid: float(room_for(min(len(vit), len(hybrid)))))(estimate)
    return {pair: (max(gap - rooms[pair], -1), min(gap + rooms[pair], 1)) for pair, gap in gaps.items()}


def distance_grows(estimate: xarray.Dataset) -> PerSubjects:
    from scipy.stats import spearmanr

    result: PerSubjects = {}
    for subject in vits(estimate):
        rows = estimate.relative.values[estimate.subject.values == subject]
        result[subject,] = float(spearmanr(np.arange(len(rows)), np.nanmean(rows, axis=1)).statistic)
    return result


@dataclass(frozen=True)
class AttentionDistance(Measure):
    name = "attention_distance"
    title = "How far do they look?"
    title_ko = "얼마나 멀리 보는가?"
    order = 20
    sources = (
        Source("Dosovitskiy et al. 2020", "Figures 7 (right), 11"),
        Source("Raghu et al. 2021", "Figures 3, 4, C.5, C.6"),
    )
    how_to_read = (
        "Each point is one attention head: the mean distance, in pixels, between a patch and what it attends to. Left, "
        "the heads of the two lowest and two highest blocks, sorted; right, all heads over depth. The upper dashed "
        "line is attention spread evenly over the picture, the lower one a patch that attends to itself. Low points in "
        "early blocks are local heads, as a convolution would be. A head far from its patch is not yet global: one "
        "that always looks at a corner is far too, so the coverage in the tooltip says whether it looks everywhere (1) "
        "or at one place (0). Early far heads count for the claim only where they cover half of the picture, and none "
        "counts that gives the class token most of its attention."
    )
    how_to_read_ko = (
        "점 하나가 어텐션 헤드 하나이고, 높이는 패치와 그 패치가 보는 곳 사이의 평균 거리(픽셀)이다. 왼쪽은 가장 낮은 "
        "두 블록과 가장 높은 두 블록의 헤드를 정렬한 것, 오른쪽은 깊이에 따른 모든 헤드이다. 위 점선은 그림 전체를 "
        "고르게 볼 때, 아래 점선은 자기 자신만 볼 때이다."
    )
    method = (
        "Attention weights are recomputed beside the model's own attention and checked to reproduce its output. Prefix "
        "tokens are dropped and rows renormalised (option cls=keep: they stay, at distance 0); their mass is reported. "
        "Distances are Euclidean between cell centres in input pixels, averaged over queries and images. Windowed "
        "attention is measured with the true positions of its windows, against the same whole-picture reference."
    )
    quantities = (
        Quantity(
            "local_heads",
            local_share,
            "share of heads below half of uniform attention",
            smooth=False,
            limits=(0, 1),
            if_unmoved=unmoved_local_share,
        ),
        Quantity(
            "early_nearest_head",
            over_heads(np.min, early),
            "nearest head of the first two blocks, uniform = 1",
            smooth=False,
        ),
        Quantity(
            "early_farthest_head",
            over_heads(np.max, early),
            "farthest head of the first two blocks, uniform = 1",
            smooth=False,
        ),
        Quantity(
            "early_near_head",
            near_and_far(np.min, covering=0),
            "nearest head of the first two blocks that gives patches half of its attention, uniform = 1",
            smooth=False,
        ),
        Quantity(
            "early_far_head",
            near_and_far(np.max, covering=0.5),
            "farthest of these that covers half of the picture, uniform = 1",
            smooth=False,
        ),
        Quantity(
            "early_farthest_prefix_mass",
            farthest_prefix_mass,
            "its attention to the class token",
            smooth=False,
            limits=(0, 1),
        ),
        Quantity(
            "late_nearest_head", over_heads(np.min, late), "nearest head of the last block, uniform = 1", smooth=False
        ),
        Quantity(
            "late_coverage",
            over_heads(np.min, late, "coverage"),
            "least coverage of a head of the last block",
            smooth=False,
        ),
        Quantity(
            "early_local_gap",
            with_hybrids(more_local),
            "share of local heads in the first two attentions, ViT minus hybrid",
            smooth=False,
            limits=(-1, 1),
            halving=True,
            if_unmoved=unmoved_local_gap,
        ),
        Quantity(
            "early_near_gap",
            with_hybrids(looks_nearer),
            "nearest quarter of the heads of the first two attentions, uniform = 1, hybrid minus ViT",
            smooth=False,
        ),
        Quantity(
            "distance_grows",
            distance_grows,
            "rank correlation of distance with depth",
            smooth=False,
            limits=(-1, 1),
            halving=True,
        ),
        Quantity(
            "distance_growth",
            growth,
            "distance, uniform = 1, mean over the last third of the attentions minus the first",
        ),
    )

    cls: Cls = option("drop", "attention to the class token: left out, or counted as distance 0")

    @property
    def view(self) -> View:
        return HOW_FAR if self.cls == "drop" else HOW_FAR_WITH_PREFIX

    @property
    def reading(self) -> str | None:
        """The papers do not say what they did with the class token, so verdicts with it kept say so."""
        return "with attention to the class token as distance 0" if self.cls == "keep" else ""

    def needs(self) -> Sequence[Need]:
        return [Need(self.view, attentions)]

    def tally(self, scene: Scene) -> DistanceTally:
        sites = scene.sites(attentions)
        if not sites:
            raise DoesNotApply(
                f"{' and '.join(scene.subjects)} {'have' if len(scene.subjects) > 1 else 'has'} no attention over "
                "positions that the taps can read, so there is no distance to measure."
            )
        return DistanceTally.empty(fold=scene.folds, site=len(sites), head=max(site.heads or 0 for _, site in sites))

    def update(self, tally: DistanceTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = torch.as_tensor(batch.image_folds)
        for row, (subject, site) in enumerate(scene.sites(attentions)):
            distance, prefix_mass, coverage, share = views(subject, site, self.view).double().unbind(-1)
            counted = (share > 0).double()
            for total, values in (
                (tally.distance, distance * counted),
                (tally.coverage, coverage * counted),
                (tally.prefix_mass, prefix_mass),
                (tally.counted, counted),
            ):
                total[:, row, : values.shape[1]].index_add_(0, folds, values)
        tally.add("images", folds)

    def estimate(self, total: DistanceTally, scene: Scene) -> xarray.Dataset:
        import xarray

        sites = scene.sites(attentions)
        counted = np.where(total.counted > 0, total.counted, np.nan)
        heads = np.array([site.heads for _, site in sites])
        there = np.arange(total.distance.shape[1])[None] < heads[:, None]
        uniform = np.array([site.attention.uniform_distance for _, site in sites if site.attention])
        # Kept, an image whose rows are all on the class token has a distance, 0; dropped, it has none.
        measured = counted if self.cls == "drop" else np.where(there, float(total.images), np.nan)
        distance = total.distance.numpy() / measured
        return xarray.Dataset(
            {
                "distance": (("site", "head"), distance, {"unit": "px", "limits": (0.0, np.inf)}),
                "relative": (("site", "head"), distance / uniform[:, None], {"limits": (0.0, np.inf)}),
                "coverage": (("site", "head"), total.coverage.numpy() / counted, {"limits": (0.0, np.inf)}),
                "prefix_mass": (
                    ("site", "head"),
                    np.where(there, (total.prefix_mass / total.images).numpy(), np.nan),
                    {"limits": (0.0, 1.0)},
                ),
                "uniform": ("site", uniform, {"unit": "px", "exact": True}),
            },
            coords={
                **site_coordinates(scene, sites),
                "tokens_from": ("site", [tokens_from(scene.anatomy(subject)) for subject, _ in sites]),
                "head": np.arange(total.distance.shape[1]),
            },
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            heads = heads_of(finding, subject, slice(None))
            first, last = heads_of(finding, subject, slice(0, 1)), heads_of(finding, subject, slice(-1, None))
            parts.append(
                f"{(heads < LOCAL).sum()} of {len(heads)} heads of {subject} look less than half as far as uniform "
                f"attention; its first block spans {first.min():.2f} to {first.max():.2f} of uniform, its last "
                f"{last.min():.2f} to {last.max():.2f}"
            )
        return "; ".join(parts) + "."
