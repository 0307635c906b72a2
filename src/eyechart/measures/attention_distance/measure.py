"""M2: how far does each head look? For a query patch i and keys j at positions p, in pixels of the input,

    distance = mean over images and queries of Σ_j A_ij ‖p_i − p_j‖

with the class token's row and column dropped and the rows renormalised; the dropped mass is reported beside it. With
`cls=keep` rows stay as they are, and what goes to the class token counts as no distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply
from eyechart.intervals import room_for
from eyechart.measure import Measure, Source, Views, option, site_coordinates
from eyechart.methods.attention_distance import HOW_FAR, HOW_FAR_WITH_PREFIX, Cls, tokens_from
from eyechart.methods.ranks import half_a_swap, rank_correlation
from eyechart.quantity import Bounds, Compute, Quantity, known_to, of_each, of_pairs, subjects_in
from eyechart.reading_estimates import by_subject, quantity_in_words, site_indices, states, thirds
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attentions
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View

ALL, FIRST_TWO = slice(None), slice(0, 2)  # attentions, from the input on
LOCAL = 0.5  # SPEC: a head is local if it looks less than half as far as uniform attention


@dataclass
class DistanceTally(Tally):
    distance: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    prefix_mass: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    coverage: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    counted: Annotated[torch.Tensor, Sum("fold", "site", "head")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]


def heads_of(estimate: xarray.Dataset, subject: str, attentions: slice, variable: str = "relative") -> np.ndarray:
    """Values of all heads of some attention sites of one subject, pooled."""
    rows: np.ndarray = estimate[variable].values[site_indices(estimate, subject)][attentions]
    return np.asarray(rows[np.isfinite(rows)])


def vits(estimate: xarray.Dataset) -> list[str]:
    """Single-stage ViTs with at least four attention sites: the subjects of the claims."""
    return [
        subject
        for subject in subjects_in(estimate, "vit")
        if len(site_indices(estimate, subject)) >= 4
        and np.isfinite(estimate.relative.values[site_indices(estimate, subject)]).any(axis=1).all()
    ]


def patch_vits(estimate: xarray.Dataset) -> list[str]:
    """Those whose tokens are patches."""
    tokens = by_subject(estimate, "tokens_from")
    return [vit for vit in vits(estimate) if tokens[vit] == "patches"]


def hybrids(estimate: xarray.Dataset) -> list[str]:
    """Subjects whose tokens come from a CNN, with at least four attention sites."""
    tokens = by_subject(estimate, "tokens_from")
    return [name for name in tokens if tokens[name] == "a CNN" and len(site_indices(estimate, name)) >= 4]


def over_heads(
    summary: Callable[[np.ndarray], float], choose: Callable[[xarray.Dataset, str], slice], variable: str = "relative"
) -> Compute:
    """The nearest or farthest head of some attention sites, for every ViT. Not smooth: it gets the bootstrap."""

    def number(estimate: xarray.Dataset, subject: str) -> float:
        return float(summary(heads_of(estimate, subject, choose(estimate, subject), variable)))

    return of_each(number, vits)


def early(estimate: xarray.Dataset, subject: str) -> slice:
    return slice(0, 2)


def late(estimate: xarray.Dataset, subject: str) -> slice:
    """The last attention; the last two where it has fewer than six heads."""
    return slice(-1, None) if len(heads_of(estimate, subject, slice(-1, None))) >= 6 else slice(-2, None)


def near_and_far(summary: Callable[[np.ndarray], float], *, covering: float) -> Compute:
    """The nearest or farthest of the early heads that give patches at least half of their attention.

    The little that a head with 99 % on the class token gives to patches looks like uniform attention. A far head must
    also cover the picture: one that always looks at a corner scores 1.3 of uniform attention. 0 where there is none.
    """

    def number(estimate: xarray.Dataset, subject: str) -> float:
        rows = site_indices(estimate, subject)[:2]
        relative, mass, coverage = (estimate[name].values[rows] for name in ("relative", "prefix_mass", "coverage"))
        heads = relative[np.isfinite(relative) & (mass <= 0.5) & (coverage >= covering)]
        return float(summary(heads)) if len(heads) else 0.0 if covering else math.nan

    return of_each(number, vits)


def with_prefix(estimate: xarray.Dataset) -> list[str]:
    """ViTs that have a class token: of the others a share that it gets would read 0.000 [0.000, 0.000]."""
    mass = estimate.prefix_mass.values
    return [subject for subject in vits(estimate) if (mass[site_indices(estimate, subject)] > 0).any()]


def growth(estimate: xarray.Dataset, subject: str) -> float:
    """Mean distance of all heads over the last third of the attentions minus over the first."""
    first, last = (np.nanmean(estimate.relative.values[rows]) for rows in thirds(site_indices(estimate, subject)))
    return float(last - first)


def farthest_prefix_mass(estimate: xarray.Dataset, subject: str) -> float:
    """What the farthest early head gives to the class token: one that gives it everything looks uniform."""
    rows = site_indices(estimate, subject)[:2]
    farthest = np.unravel_index(np.nanargmax(estimate.relative.values[rows]), estimate.relative.values[rows].shape)
    return float(estimate.prefix_mass.values[rows][farthest])


def local_share(which: slice) -> Callable[[xarray.Dataset, str], float]:
    """Of the heads of these attentions, the share that are local."""
    return lambda estimate, subject: float((heads_of(estimate, subject, which) < LOCAL).mean())


def unmoved_local_share(which: slice) -> Callable[[xarray.Dataset], Bounds]:
    """Bounds where resampling the images did not change the share: the exact ones of as many trials as heads."""

    def bounds(estimate: xarray.Dataset) -> Bounds:
        result: dict[tuple[str, ...], tuple[float, float]] = {}
        for subject in subjects_in(estimate):
            share, heads = local_share(which)(estimate, subject), heads_of(estimate, subject, which)
            room = float(room_for(len(heads)))
            result[subject,] = (max(share - room, 0), share + room)
        return result

    return bounds


def with_hybrids(compare: Callable[[np.ndarray, np.ndarray], float]) -> Compute:
    """Compares the heads of the first two attentions, of every ViT on patches with every hybrid."""

    def number(estimate: xarray.Dataset, vit: str, hybrid: str) -> float:
        return compare(heads_of(estimate, vit, slice(0, 2)), heads_of(estimate, hybrid, slice(0, 2)))

    return of_pairs(number, patch_vits, hybrids)


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


def half_a_swap_of_attentions(estimate: xarray.Dataset, subject: str) -> float:
    return half_a_swap(max(int((estimate.subject.values == subject).sum()), 2))


def distance_grows(estimate: xarray.Dataset, subject: str) -> float:
    rows = estimate.relative.values[estimate.subject.values == subject]
    return rank_correlation(np.arange(len(rows)), np.nanmean(rows, axis=1))


@dataclass(frozen=True)
class AttentionDistance(Measure):
    name = "attention_distance"
    title = "How far do they look?"
    title_ko = "얼마나 멀리 보는가?"
    order = 20
    adds_up_anywhere = True
    chapter = "look"
    sources = (
        Source("Dosovitskiy et al. 2020", "Figures 7 (right), 11"),
        Source("Raghu et al. 2021", "Figures 3, 4, C.5, C.6"),
    )
    how_to_read = (
        "Each point is one attention head: the mean distance, in pixels, between a patch and what it attends to. "
        "First, the heads of the two lowest and two highest blocks, sorted; next, all heads over depth. The upper "
        "dashed "
        "line is attention spread evenly over the picture, the lower one a patch that attends to itself. Low points in "
        "early blocks are local heads, as a convolution would be. A long distance alone does not make a head global: "
        "one that always looks at the same corner has one too. Coverage tells them apart (1: it looks everywhere, "
        "0: at one place); on a screen each point tells its own. For the claim, an early far head counts only if it "
        "covers half of the picture and gives patches at least half of its attention."
    )
    how_to_read_ko = (
        "점 하나가 어텐션 헤드 하나이고, 높이는 패치와 그 패치가 보는 곳 사이의 평균 거리(픽셀)이다. 처음은 가장 낮은 "
        "두 블록과 가장 높은 두 블록의 헤드를 정렬한 것, 다음은 깊이에 따른 모든 헤드이다. 위 파선은 그림 전체를 "
        "고르게 볼 때, 아래 파선은 자기 자신만 볼 때이다. 초기 블록의 낮은 점은 합성곱처럼 가까이 보는 국소 헤드이다. "
        "거리가 멀다고 해서 전역 헤드는 아니다: 늘 같은 구석만 보는 헤드도 거리가 멀다. 덮는 넓이가 이를 가른다(1: "
        "모든 곳, 0: 한곳). 화면에서는 점마다 이 값을 알려 준다. 주장에서는 그림의 절반을 덮고 어텐션의 절반 이상을 "
        "패치에 주는 초기 헤드만 멀리 본다고 친다."
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
            of_each(local_share(ALL)),
            "share of heads below half of uniform attention",
            smooth=False,
            limits=(0, 1),
            if_unmoved=unmoved_local_share(ALL),
        ),
        Quantity(
            "early_local_heads",
            of_each(local_share(FIRST_TWO)),
            "share of heads of the first two attentions below half of uniform attention",
            smooth=False,
            limits=(0, 1),
            if_unmoved=unmoved_local_share(FIRST_TWO),
        ),
        Quantity(
            "early_nearest_head",
            over_heads(np.min, early),
            "nearest head of the first two blocks, uniform = 1",
            smooth=False,
            limits=(0, None),
        ),
        Quantity(
            "early_farthest_head",
            over_heads(np.max, early),
            "farthest head of the first two blocks, uniform = 1",
            smooth=False,
            limits=(0, None),
        ),
        Quantity(
            "early_near_head",
            near_and_far(np.min, covering=0),
            "nearest head of the first two blocks that gives patches half of its attention, uniform = 1",
            smooth=False,
            limits=(0, None),
        ),
        Quantity(
            "early_far_head",
            near_and_far(np.max, covering=0.5),
            "farthest head of the first two blocks that gives patches half of its attention and covers half of the "
            "picture, uniform = 1",
            smooth=False,
            limits=(0, None),
        ),
        Quantity(
            "early_farthest_prefix_mass",
            of_each(farthest_prefix_mass, with_prefix),
            "attention of the farthest head of the first two blocks to the class token",
            smooth=False,
            limits=(0, 1),
        ),
        Quantity(
            "late_nearest_head",
            over_heads(np.min, late),
            "nearest head of the last block, uniform = 1",
            smooth=False,
            limits=(0, None),
        ),
        Quantity(
            "late_coverage",
            over_heads(np.min, late, "coverage"),
            "least coverage of a head of the last block",
            smooth=False,
            limits=(0, None),
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
            of_each(distance_grows, vits),
            "rank correlation of distance with depth",
            smooth=False,
            limits=(-1, 1),
            halving=True,
            if_unmoved=known_to(half_a_swap_of_attentions, of_each(distance_grows, vits)),
        ),
        Quantity(
            "distance_growth",
            of_each(growth, vits),
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
        folds = views.put(batch.image_folds)
        for rows, seen in views.stacked(scene.sites(attentions), self.view):
            distance, prefix_mass, coverage, share = seen.transpose(0, 1).double().unbind(-1)  # (image, site, head)
            counted = (share > 0).double()
            sums = {"distance": distance * counted, "coverage": coverage * counted, "prefix_mass": prefix_mass}
            for name, values in {**sums, "counted": counted}.items():
                tally.add(name, folds, values, rows, slice(values.shape[2]))
        tally.add("images", folds)

    def estimate(self, total: DistanceTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(attentions)
        counted = np.where(total.counted > 0, total.counted, np.nan)
        heads = np.array([site.heads for _, site in sites])
        exists = np.arange(total.distance.shape[1])[None] < heads[:, None]
        uniform = np.array([site.attention.uniform_distance for _, site in sites if site.attention])
        # Kept, an image whose rows are all on the class token has a distance, 0; dropped, it has none.
        measured = counted if self.cls == "drop" else np.where(exists, float(total.images), np.nan)
        distance = total.distance.numpy() / measured
        return xarray.Dataset(
            {
                "distance": (("site", "head"), distance, {"unit": "px", "limits": (0.0, np.inf)}),
                "relative": (("site", "head"), distance / uniform[:, None], {"limits": (0.0, np.inf)}),
                "coverage": (("site", "head"), total.coverage.numpy() / counted, {"limits": (0.0, np.inf)}),
                "prefix_mass": (
                    ("site", "head"),
                    np.where(exists, (total.prefix_mass / total.images).numpy(), np.nan),
                    {"limits": (0.0, 1.0)},
                ),
                "uniform": ("site", uniform, {"unit": "px", "exact": True}),
            },
            coords={
                **site_coordinates(scene, sites),
                "tokens_from": ("site", [tokens_from(scene.anatomy(subject)) for subject, _ in sites]),
                "head": np.arange(total.distance.shape[1]),
            },
            attrs={"left_out": " and ".join(name for name in scene.subjects if not attentions(scene.anatomy(name)))},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            count = len(heads_of(finding, subject, slice(None)))
            text = (
                f"{quantity_in_words(finding, 'local_heads', '.0%', subject)} of the {count} heads of {subject} look "
                "less than half as far as uniform attention"
            )
            if states(finding, "late_nearest_head", subject):
                near, far, late = (
                    quantity_in_words(finding, name, ".2f", subject)
                    for name in ("early_nearest_head", "early_farthest_head", "late_nearest_head")
                )
                text += (
                    f"; of its first two blocks the nearest looks {near} times as far as that and the farthest {far} "
                    f"times, of its last block the nearest {late} times"
                )
            parts.append(text)
        left_out = finding.attrs.get("left_out", "")
        remark = f"\nLeft out: {left_out} (no attention over positions that can be read)." if left_out else ""
        return "; ".join(parts) + "." + remark
