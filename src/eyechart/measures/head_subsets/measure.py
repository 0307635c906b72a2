"""M3: do heads that look near see as a CNN's low layers do?

Heads of the first attention are sorted by how far they look, and each group of neighbours in that order is compared
with each low site of a CNN.

A group's representation is its heads' outputs, before the output projection, side by side. The Gram matrix of features
side by side is the sum of their Gram matrices, and unbiased HSIC is bilinear:

    HSIC(Σ K_i, L) = Σ HSIC(K_i, L)        HSIC(Σ K_i, Σ K_j) = Σ Σ HSIC(K_i, K_j)

so one table of HSIC between single heads and CNN sites holds every group exactly, whatever the order turns out to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import xarray

from eyechart.errors import DoesNotApply, UsageError
from eyechart.measure import Measure, Source, Views, option, site_coordinates
from eyechart.methods.attention_distance import HOW_FAR
from eyechart.methods.hsic import WHOLE, check_blocks, hsic_table, scale_of
from eyechart.methods.ranks import half_a_swap, rank_correlation
from eyechart.quantity import PerSubjects, Quantity, known_to, subjects_in
from eyechart.reading_estimates import in_words, site_indices
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attentions, first_units
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View
from eyechart.tracing.views import Look

LOW_UNITS = (3, 2)  # units of a CNN's first and second stage: Raghu et al. show block1unit1 to block2unit2


def head_outputs(look: Look) -> torch.Tensor:
    """(image, head, feature): what each head returns for all its queries, class token included."""
    return look.output.transpose(1, 2).flatten(2)


def head_grams(outputs: torch.Tensor) -> torch.Tensor:
    """(head, image, image), each feature centred over the images first, as in `gram`."""
    rows = outputs.transpose(0, 1)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    rows = rows - rows.mean(1, keepdim=True)
    return rows @ rows.mT


HEAD_GRAMS = View("gram of each head", head_outputs, reduce=head_grams)
SITE_GRAM = WHOLE  # the view of `cka`, so that both measures together compute it once


def low_sites(anatomy: Anatomy) -> Sequence[Site]:
    """The first units of the first two stages of a CNN; nothing of any other subject."""
    return first_units(anatomy, LOW_UNITS)


@dataclass
class HeadSubsetsTally(Tally):
    hsic: Annotated[torch.Tensor, Sum("fold", "part", "other_part")]
    """Between single heads of all subjects and, after them, the low CNN sites."""
    distance: Annotated[torch.Tensor, Sum("fold", "head")]
    counted: Annotated[torch.Tensor, Sum("fold", "head")]
    blocks: Annotated[torch.Tensor, Sum("fold", counts=True)]


def curves_of(estimate: xarray.Dataset, family: str | None = None) -> Iterator[tuple[tuple[str, str], np.ndarray]]:
    """((transformer, CNN), CKA (group, site)) for every pair; of single-stage ViTs and staged CNNs only, or of all."""
    cnn_family = None if family is None else "cnn"
    for subject in dict.fromkeys(estimate.group_subject.values.tolist()):
        groups = estimate.group_subject.values == subject
        if family in (None, estimate.group_family.values[groups][0]):
            for cnn in subjects_in(estimate, cnn_family):
                yield (subject, cnn), estimate.cka.values[np.ix_(groups, site_indices(estimate, cnn))]


def falls_with_distance(estimate: xarray.Dataset) -> PerSubjects:
    """Rank correlation of a group's CKA with its distance, for each low CNN site; their mean.

    Within each site, because sites differ in level: pooled into one cloud that would weaken any correlation.
    """
    result: PerSubjects = {}
    for (vit, cnn), cka in curves_of(estimate, "vit"):
        distance = estimate.distance.values[estimate.group_subject.values == vit]
        if len(distance) >= 3:
            result[vit, cnn] = float(np.mean([rank_correlation(distance, curve) for curve in cka.T]))
    return result


def half_a_swap_of_groups(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    return half_a_swap(int((estimate.group_subject.values == vit).sum()))


def near_minus_far(estimate: xarray.Dataset) -> PerSubjects:
    return {pair: float((cka[0] - cka[-1]).mean()) for pair, cka in curves_of(estimate, "vit") if len(cka) >= 2}


def spread_of_distance(estimate: xarray.Dataset) -> PerSubjects:
    """How much farther the farthest group looks than the nearest, uniform attention = 1.

    Untrained heads all look everywhere (within .01 of uniform): an order of theirs is one of noise.
    """
    result: PerSubjects = {}
    for (vit, cnn), _ in curves_of(estimate, "vit"):
        groups = estimate.group_subject.values == vit
        distance = estimate.distance.values[groups] / estimate.group_uniform.values[groups]
        result[vit, cnn] = float(distance[-1] - distance[0])
    return result


@dataclass(frozen=True)
class HeadSubsets(Measure):
    name = "head_subsets"
    title = "Do near-sighted heads see like a CNN?"
    title_ko = "가까이 보는 헤드는 CNN처럼 보는가?"
    order = 15
    adds_up_anywhere = True
    chapter = "share"
    sources = (Source("Raghu et al. 2021", "Figure 5"),)
    how_to_read = (
        "Each point is a group of heads of the first attention, from those that look nearest (left) to those that look "
        "farthest (right); its height says how alike the group and a low layer of the CNN are (CKA). Each curve is "
        "a layer of the CNN, the lowest first. Curves that fall from left to right mean that heads which look near do "
        "what low convolutions do, and heads which look far do something else. The dashed line is attention "
        "spread evenly over the picture. Neighbouring groups share heads."
    )
    how_to_read_ko = (
        "점 하나는 첫 어텐션의 헤드 무리이다. 왼쪽은 가장 가까이 보는 헤드들, 오른쪽은 가장 멀리 보는 헤드들이고, "
        "높이는 그 무리가 CNN의 낮은 층과 얼마나 닮았는지(CKA)이다. 곡선 하나가 CNN의 층 하나이며, 가장 낮은 "
        "것부터이다. 오른쪽으로 갈수록 내려가면, 가까이 보는 헤드는 낮은 합성곱처럼 일하고 멀리 보는 헤드는 다른 일을 "
        "한다는 뜻이다. 파선은 그림 전체를 고르게 볼 때이다. 이웃한 무리는 헤드를 공유한다."
    )
    method = (
        "Heads of the first attention (option blocks: of the first few, pooled) are sorted by attention distance; a "
        "window of a quarter of a block's heads slides over that order. The window's head outputs before the output "
        "projection, all tokens, are compared with the first units of the CNN's first two stages by minibatch CKA with "
        "the unbiased HSIC. The order can change from sample to sample, so the bootstrap of the intervals includes the "
        "sorting. Ranks alone do not decide: heads must differ in distance, and likeness must fall by more than a "
        "small margin."
    )
    quantities = (
        Quantity(
            "head_cka_falls",
            falls_with_distance,
            "rank correlation of head groups' CKA with their distance, mean over low CNN layers",
            smooth=False,
            limits=(-1, 1),
            halving=True,  # 64 images rank 17 of 22 curves right
            if_unmoved=known_to(half_a_swap_of_groups, falls_with_distance),
        ),
        Quantity(
            "near_heads_over_far",
            near_minus_far,
            "CKA with low CNN layers, nearest head group minus farthest",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "head_distance_spread",
            spread_of_distance,
            "distance of the farthest head group minus the nearest, uniform = 1",
            smooth=False,
        ),
    )

    blocks: int = option(1, "attentions whose heads are pooled, from the first on")

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise UsageError(f"head_subsets.blocks takes at least 1 block; got {self.blocks}.")

    @property
    def reading(self) -> str | None:
        return "" if self.blocks == 1 else f"for heads of the first {self.blocks} blocks together"

    def first_attentions(self, anatomy: Anatomy) -> Sequence[Site]:
        return attentions(anatomy)[: self.blocks]

    def needs(self) -> Sequence[Need]:
        return [
            Need(HEAD_GRAMS, self.first_attentions),
            Need(HOW_FAR, self.first_attentions),
            Need(SITE_GRAM, low_sites),
        ]

    def heads(self, scene: Scene) -> list[tuple[str, Site, int]]:
        """The `head` axis: every head of the first attentions of every subject."""
        return [(subject, site, h) for subject, site in scene.sites(self.first_attentions) for h in range(_heads(site))]

    def tally(self, scene: Scene) -> HeadSubsetsTally:
        heads, sites = self.heads(scene), scene.sites(low_sites)
        if not heads or not sites:
            raise DoesNotApply(
                "it compares heads with a CNN, so it needs a subject with attention over positions and a CNN; "
                f"got {' and '.join(scene.subjects)}."
            )
        check_blocks(scene)
        parts = len(heads) + len(sites)
        return HeadSubsetsTally.empty(fold=scene.folds, part=parts, other_part=parts, head=len(heads))

    def update(self, tally: HeadSubsetsTally, batch: Batch, views: Views, scene: Scene) -> None:
        if not batch.whole:
            return
        with_heads = scene.sites(self.first_attentions)
        grams = [views(subject, site, HEAD_GRAMS) for subject, site in with_heads]
        grams += [views(subject, site, SITE_GRAM)[None] for subject, site in scene.sites(low_sites)]
        tally.hsic[batch.fold] += hsic_table(torch.cat(grams))
        seen = torch.cat([views(subject, site, HOW_FAR).double() for subject, site in with_heads], dim=1)
        counted = (seen[..., 3] > 0).double()
        # By block and not by image: distance and HSIC of a fold then come from the same images.
        tally.distance[batch.fold] += (seen[..., 0] * counted).sum(0)
        tally.counted[batch.fold] += counted.sum(0)
        tally.blocks[batch.fold] += 1

    def estimate(self, total: HeadSubsetsTally, scene: Scene) -> xarray.Dataset:
        heads, sites = self.heads(scene), scene.sites(low_sites)
        distance = total.distance.numpy() / np.where(total.counted > 0, total.counted, np.nan)
        hsic = (total.hsic / total.blocks).numpy()
        members, rows = [], []
        for subject in dict.fromkeys(subject for subject, _, _ in heads):
            order = np.array([row for row, head in enumerate(heads) if head[0] == subject])
            order = order[np.argsort(distance[order], kind="stable")]
            first = heads[order[0]][1]
            assert first.attention is not None
            width, uniform = max(1, _heads(first) // 4), first.attention.uniform_distance
            for rank in range(len(order) - width + 1):
                members.append(np.isin(np.arange(len(hsic)), order[rank : rank + width]).astype(float))
                names = [f"{heads[h][1].name} {heads[h][2]}" for h in order[rank : rank + width]]
                rows.append((subject, scene.anatomy(subject).family, rank, ", ".join(names), uniform))
        groups = np.array(members)
        group_scale = scale_of(((groups @ hsic) * groups).sum(1))
        site_scale = scale_of(np.diagonal(hsic)[len(heads) :])
        return xarray.Dataset(
            {
                "cka": (
                    ("group", "site"),
                    groups @ hsic[:, len(heads) :] / np.outer(group_scale, site_scale),
                    {"limits": (-1.0, 1.0), "smooth": False},
                ),
                "distance": (
                    "group",
                    [distance[group[: len(heads)] > 0].mean() for group in groups],
                    {"unit": "px", "limits": (0.0, np.inf), "smooth": False},
                ),
            },
            coords={
                **site_coordinates(scene, sites),
                "group": [f"{row[0]}/heads from {row[2]}" for row in rows],
                **{
                    f"group_{name}": ("group", [row[column] for row in rows])
                    for column, name in enumerate(("subject", "family", "rank", "heads", "uniform"))
                },
            },
            attrs={"images": scene.images_in_blocks},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for (subject, cnn), _ in curves_of(finding):
            groups, low = np.flatnonzero(finding.group_subject.values == subject), site_indices(finding, cnn)[0]
            near, far = (finding.isel(group=groups[at], site=low) for at in (0, -1))
            parts.append(
                f"the group of heads of {subject} that looks nearest ({in_words(near, 'distance', '.1f')} px, their "
                f"mean) has a CKA of {in_words(near, 'cka', '.2f')} with the lowest layer of {cnn}, the one that looks "
                f"farthest ({in_words(far, 'distance', '.1f')} px) {in_words(far, 'cka', '.2f')}"
            )
        said = "; ".join(parts)
        return said[0].upper() + said[1:] + "."


def _heads(site: Site) -> int:
    return site.heads or 0
