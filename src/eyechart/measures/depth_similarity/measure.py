"""M10, M10b, M11: at which depth do twins part? CKA by depth between subjects that belong together.

Twins (`methods.twins`) are two trainings of one build: on less and on more data, before and after fine-tuning, with a
class token and with average pooling, with another seed (the ceiling), or not at all (the floor). Their blocks are
compared one by one. Two sizes of one architecture are compared block by block with every other; the curve is then each
block's best match. The Gram matrices K, L are those of `cka`, taken once:

    CKA = mean HSIC(K, L) / sqrt(mean HSIC(K, K) · mean HSIC(L, L))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import Measure, Source, Views
from eyechart.methods.hsic import PREFIX, WHOLE, check_blocks, hsic_table, patch_gram
from eyechart.methods.twins import WORDS, Pair, pairs_of
from eyechart.quantity import Compute, PerSubjects, Quantity
from eyechart.reading_estimates import in_words, late_over_rest, thirds
from eyechart.scene import Batch, Scene
from eyechart.site_choice import blocks, blocks_with_prefix
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need


@dataclass
class TwinTally(Tally):
    hsic: Annotated[Tensor, Sum("fold", "pair", "block", "other_block")]
    own: Annotated[Tensor, Sum("fold", "pair", "side", "block")]
    """HSIC of each block of either twin with itself."""
    blocks: Annotated[Tensor, Sum("fold", counts=True)]


def curve_of(estimate: xarray.Dataset, at: int) -> np.ndarray:
    """Similarity over the blocks of the first twin; best matches, of two sizes."""
    name = "best" if str(estimate.relation.values[at]) == "size" else "similarity"
    return np.asarray(estimate[name].values[at, : int(estimate.one_blocks.values[at])])


def chosen(estimate: xarray.Dataset, *relations: str) -> list[tuple[int, tuple[str, str]]]:
    """Pairs of these relations that have the three blocks thirds need: their row and subjects."""
    return [
        (at, (str(estimate.one.values[at]), str(estimate.other.values[at])))
        for at in range(estimate.sizes["pair"])
        if str(estimate.relation.values[at]) in relations and int(estimate.one_blocks.values[at]) >= 3
    ]


def over_curves(number: Callable[[np.ndarray], float], relation: str) -> Compute:
    """A number of the curve of every pair of this relation."""
    return lambda estimate: {subjects: number(curve_of(estimate, row)) for row, subjects in chosen(estimate, relation)}


def decline(relation: str) -> Compute:
    """Similarity of such pairs in the lowest third of the blocks minus the highest."""

    def number(curve: np.ndarray) -> float:
        low, high = thirds(np.arange(len(curve)))
        return float(curve[low].mean() - curve[high].mean())

    return over_curves(number, relation)


def low_similarity(relation: str) -> Compute:
    """Similarity of such pairs in the lowest third of the blocks by itself."""
    return over_curves(lambda curve: float(curve[thirds(np.arange(len(curve)))[0]].mean()), relation)


late_difference = over_curves(lambda curve: late_over_rest(1 - curve), "head")
"""1 − CKA of a GAP and a class-token twin, mean of the last third minus twice the mean of the blocks before."""


def slope(estimate: xarray.Dataset) -> PerSubjects:
    """Slope over depth (0 … 1) of the similarity of two trainings on less and more data, less the ceiling's.

    The ceiling is the curve of two seeds, one of them the subject with more data. It is subtracted where there is one:
    that part of the slope is not due to data.
    """
    ceilings = {subject: curve_of(estimate, row) for row, pair in chosen(estimate, "seed") for subject in pair}
    result: PerSubjects = {}
    for row, subjects in chosen(estimate, "data"):
        curve = curve_of(estimate, row)
        curve = curve - ceilings[subjects[1]] if subjects[1] in ceilings else curve
        depth = (np.arange(len(curve)) + 1) / len(curve)
        result[subjects] = float(np.polynomial.polynomial.polyfit(depth, curve, 1)[1])
    return result


@dataclass(frozen=True)
class DepthSimilarity(Measure):
    name = "depth_similarity"
    title = "At which depth do twins part?"
    title_ko = "쌍둥이는 어느 깊이에서 갈라지는가?"
    order = 60
    adds_up_anywhere = True
    chapter = "share"
    sources = (Source("Raghu et al. 2021", "Figures 12, G.1, G.2, D.4"),)
    how_to_read = (
        "Each curve compares two subjects block by block: 1 means that a block arranges these pictures in the same way "
        "in both, 0 that nothing is shared. A curve that falls says that the low layers are what the two have in "
        "common. Where a second seed is among the subjects, it has a grey dashed curve (the ceiling: the most to be "
        "expected), and where an untrained twin is, that has a dotted one (the floor). Where two sizes of a model are, "
        "they have a map of all blocks against all, and a curve of each block's best match."
    )
    how_to_read_ko = (
        "곡선 하나는 두 모델을 블록마다 비교한 것이다. 1은 그 블록이 두 모델에서 그림들을 같은 방식으로 배열한다는 "
        "뜻이고 0은 공통점이 없다는 뜻이다. 내려가는 곡선은 낮은 층이 두 모델의 공통점이라는 뜻이다. 대상에 다른 "
        "시드가 있으면 회색 파선으로(상한: 기대할 수 있는 최대), 학습하지 않은 쌍둥이가 있으면 점선으로(하한) 그린다. "
        "크기가 다른 두 모델이 있으면 모든 블록 사이의 맵과 블록마다 가장 비슷한 블록의 곡선으로 보인다."
    )
    method = (
        "Linear minibatch CKA with the unbiased HSIC estimator, as in the section on CKA and from the same Gram "
        "matrices, between block i of one subject and block i of its twin. A class-token model is compared with its "
        "GAP twin by patch tokens alone. Twins are recognised by their anatomy (blocks, grids, heads) and their cards."
    )
    quantities = (
        Quantity(
            "size_decline",
            decline("size"),
            "CKA of each block with its best match in another size, lowest third of the blocks minus highest",
            smooth=False,
            limits=(-2, 2),
        ),
        Quantity(
            "tuning_decline",
            decline("fine-tuned"),
            "CKA before and after fine-tuning, lowest third of the blocks minus highest",
            limits=(-2, 2),
        ),
        Quantity(
            "size_low",
            low_similarity("size"),
            "CKA of each block with its best match in another size, lowest third of the blocks",
            smooth=False,
            limits=(-1.0, 1.0),
        ),
        Quantity(
            "tuning_low",
            low_similarity("fine-tuned"),
            "CKA before and after fine-tuning, lowest third of the blocks",
            limits=(-1.0, 1.0),
        ),
        Quantity(
            "cka_divergence",
            late_difference,
            "1 − CKA of the patch tokens of a GAP and a class-token ViT, last third minus twice the rest",
            limits=(-4, 2),
        ),
        Quantity("data_slope", slope, "slope over depth of the CKA with the model of more data, less the ceiling's"),
    )

    def needs(self) -> Sequence[Need]:
        return [Need(WHOLE, blocks), Need(PREFIX, blocks_with_prefix)]

    def tally(self, scene: Scene) -> TwinTally:
        check_blocks(scene)
        pairs = pairs_of(scene)
        if not pairs:
            raise DoesNotApply(
                "no two subjects are twins; give two trainings of one model, two sizes of one architecture, a ViT with "
                "a class token and its GAP twin, or a subject and its untrained twin (NAME and NAME@random)."
            )
        most = max(len(blocks(anatomy)) for anatomy in scene.anatomies)
        return TwinTally.empty(fold=scene.folds, pair=len(pairs), side=2, block=most, other_block=most)

    def update(self, tally: TwinTally, batch: Batch, views: Views, scene: Scene) -> None:
        if not batch.whole:
            return
        for at, pair in enumerate(pairs_of(scene)):
            one, other = (grams_of(scene.anatomy(subject), views, pair) for subject in (pair.one, pair.other))
            table = hsic_table(torch.cat([one, other]))  # more pairs than needed: cheap beside the Gram matrices
            tally.hsic[batch.fold, at, : len(one), : len(other)] += table[: len(one), len(one) :]
            self_hsic = table.diagonal()
            tally.own[batch.fold, at, 0, : len(one)] += self_hsic[: len(one)]
            tally.own[batch.fold, at, 1, : len(other)] += self_hsic[len(one) :]
        tally.blocks[batch.fold] += 1

    def estimate(self, total: TwinTally, scene: Scene) -> xarray.Dataset:
        pairs = pairs_of(scene)
        counts = np.array(
            [[len(blocks(scene.anatomy(subject))) for subject in (pair.one, pair.other)] for pair in pairs]
        )
        self_hsic = np.where(total.own.numpy() > 0, total.own.numpy(), np.nan)  # also where there is no such block
        cka = total.hsic.numpy() / np.sqrt(self_hsic[:, 0, :, None] * self_hsic[:, 1, None, :])
        same = counts[:, :1] == counts[:, 1:]
        similarity = np.where(same, np.diagonal(cka, axis1=1, axis2=2), np.nan)
        best = np.where(np.isnan(cka), -np.inf, cka).max(2)
        limits = {"limits": (-1.0, 1.0)}
        return xarray.Dataset(
            {
                "cka": (("pair", "block", "other_block"), cka, limits),
                "similarity": (("pair", "block"), similarity, limits),
                "best": (("pair", "block"), np.where(np.isinf(best), np.nan, best), {**limits, "smooth": False}),
            },
            coords={
                "pair": [f"{pair.one} – {pair.other}" for pair in pairs],
                "one": ("pair", [pair.one for pair in pairs]),
                "other": ("pair", [pair.other for pair in pairs]),
                "relation": ("pair", [pair.relation for pair in pairs]),
                "one_blocks": ("pair", counts[:, 0]),
                "other_blocks": ("pair", counts[:, 1]),
                "block": np.arange(cka.shape[1]) + 1,
                "other_block": np.arange(cka.shape[2]) + 1,
            },
            attrs={"images": scene.images_in_blocks},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for at in range(finding.sizes["pair"]):
            curve, relation = curve_of(finding, at), str(finding.relation.values[at])
            words = WORDS[relation]  # type: ignore[index]
            matched = "best matches" if relation == "size" else "CKA"
            names = {0: "the first block", len(curve) - 1: "the last"}
            least = int(np.nanargmin(curve))
            variable = "best" if relation == "size" else "similarity"
            values = [
                f"{in_words(finding.isel(pair=at, block=block), variable, '.2f')} at "
                + names.get(block, f"block {block + 1}")
                + (", where it is least" if block == least else "")
                for block in sorted({*names, least})
            ]
            parts.append(
                f"{finding.one.values[at]} and {finding.other.values[at]} ({words}): {matched} {', '.join(values)}"
            )
        return "; ".join(parts) + "."


def grams_of(anatomy: Anatomy, views: Views, pair: Pair) -> Tensor:
    """(block, n, n): of whole layers, or of patch tokens where one twin has a class token and the other has none."""
    sites = blocks(anatomy)
    if pair.relation == "head":
        return torch.stack([patch_gram(views, anatomy.subject, site).double() for site in sites])
    return torch.stack([views(anatomy.subject, site, WHOLE).double() for site in sites])
