"""E10: can patches be matched between two pictures, and do they then tell its class better than one vector of each?

The first note asks it for re-identification: the output tokens of a ViT stay tied to their patches, so those of two
pictures may be compared pair by pair. Here every token of a picture looks for its like in another, and the mean of
these likenesses is how alike the pictures are:

    likeness(x, y) = ½ (mean_t max_u x_t·y_u + mean_u max_t x_t·y_u)

of tokens of length one (`pairs.py`). Of one picture of the same class and one of another, how
often is the first more alike, minus how often less: 1 always, 0 as by chance. The same is asked of the tokens in place,
of their mean, and of the class token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import Measure, Source, Views, option, site_coordinates
from eyechart.measures.matching.pairs import GROUP, WAYS, by_rank, similarities, to_compare, tokens_and_class_token
from eyechart.methods.twins import build_of, gap_twins
from eyechart.quantity import Compute, PerSubjects, Quantity, of_each, subjects_in
from eyechart.reading_estimates import by_subject, quantity_in_words, site_indices
from eyechart.scene import Batch, Scene
from eyechart.site_choice import blocks_with_grid, last_and_before
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.needs import Need, View

ALIKE = View("likeness of pictures by their tokens", tokens_and_class_token, reduce=similarities)
MATCHED, IN_PLACE, POOLED, CLASS_TOKEN = range(len(WAYS))
FEWEST = 16
"""Pictures that meet one of their class in a group, about one in each fold; fewer say nothing."""


@dataclass
class MatchingTally(Tally):
    rank: Annotated[Tensor, Sum("fold", "site", "way")]
    counted: Annotated[Tensor, Sum("fold", counts=True)]
    """Pictures that met one of their class and one of another."""


def at_end(estimate: xarray.Dataset, subject: str, way: int) -> float:
    return float(estimate.variables["rank"].values[site_indices(estimate, subject)[-1], way])


def of_way(way: int, minus: int | None = None) -> Compute:
    """The rank of the last block in one way, less that in another; of those with a class token, where that is asked."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        if CLASS_TOKEN in (way, minus) and not by_subject(estimate, "class_token")[subject]:
            return None
        return at_end(estimate, subject, way) - (0.0 if minus is None else at_end(estimate, subject, minus))

    return of_each(number)


def matched_over_gap(estimate: xarray.Dataset) -> PerSubjects:
    """Matched patches of a class-token ViT, less those of every twin that pools."""
    return {
        pair: at_end(estimate, pair[0], MATCHED) - at_end(estimate, pair[1], MATCHED) for pair in gap_twins(estimate)
    }


@dataclass(frozen=True)
class Matching(Measure):
    name = "matching"
    title = "Do patches find their like in another picture?"
    title_ko = "패치는 다른 그림에서 닮은 패치를 찾아내는가?"
    order = 57
    adds_up_anywhere = True
    chapter = "tell"
    labels = "images"
    sources = (
        Source(
            "eyechart",
            "patch tokens of two pictures compared pair by pair, as the reading notes with which eyechart began ask",
        ),
    )
    how_to_read = (
        "Two pictures are compared by their tokens. 1: a picture of the same class is always more alike than one of "
        "another class; 0: as often as not. Each panel compares in its own way: every patch with its most similar "
        "patch of the other picture; patches at the same place; the means of all patches; the class tokens. Where "
        "matched patches stand above their mean, it pays to compare pictures patch by patch; where they stand no "
        "higher than patches in place, matching finds nothing that place does not give. Give NAME@random for what an "
        "untrained network, and so the pictures alone, would show."
    )
    how_to_read_ko = (
        "두 그림을 토큰으로 견준다. 1은 같은 클래스의 그림이 다른 클래스의 그림보다 언제나 더 닮은 것이고, 0은 반반인 "
        "것이다. 그림판마다 견주는 방법이 다르다: 패치마다 다른 그림에서 가장 닮은 패치와, 같은 자리의 패치끼리, 모든 "
        "패치의 평균끼리, 클래스 토큰끼리. 짝지은 패치가 패치의 평균보다 높으면 그림을 패치별로 견줄 값어치가 있다. "
        "같은 자리의 패치보다 높지 않으면 짝짓기는 자리가 주는 것 말고는 찾아내지 못한다. NAME@random을 주면 학습하지 "
        "않은 모델, 곧 그림만으로 보이는 것을 알 수 있다."
    )
    method = (
        "Groups of 16 pictures of a block; whole blocks only. From every token the mean of all tokens of the block is "
        "taken (small blocks know it less well, and their ranks are a little lower), and it is scaled to length one; "
        "maps finer than 8×8 are averaged into cells first. Patches matched: "
        "each token's highest cosine with a token of the other picture, mean over tokens, mean of both directions. "
        "For each picture, over all pairs of one of its class and one of another: how often the first is more alike "
        "minus how often less; mean over pictures that have such pairs. Intervals by the jackknife over blocks."
    )
    quantities = (
        *(
            Quantity(
                name, of_way(way), f"{words}: same class before another, last block (0: by chance)", limits=(-1, 1)
            )
            for name, way, words in (
                ("matched_rank", MATCHED, "patches matched"),
                ("pooled_rank", POOLED, "mean of patches"),
                ("class_token_rank", CLASS_TOKEN, "class token"),
            )
        ),
        *(
            Quantity(name, of_way(MATCHED, way), f"patches matched minus {words}, last block", limits=(-2, 2))
            for name, way, words in (
                ("matching_over_pooling", POOLED, "mean of patches"),
                ("matching_over_class_token", CLASS_TOKEN, "class token"),
                ("matching_over_place", IN_PLACE, "patches in place"),
            )
        ),
        Quantity(
            "matched_over_gap",
            matched_over_gap,
            "patches matched, class-token ViT minus its GAP twin, last block",
            limits=(-2, 2),
        ),
    )

    depths: int = option(3, "blocks looked at: the last, and others evenly before it")

    def runs_at(self, effort: str) -> bool:
        return effort != "quick"

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        """It costs little, but no claim reads it, and a quick page is to be short."""
        if not asked_for and not self.runs_at(effort):
            raise DoesNotApply("no claim needs it in a quick exam; --effort normal or --measures matching runs it.")
        return self

    def sites(self, anatomy: Anatomy) -> Sequence[Site]:
        return last_and_before(blocks_with_grid(anatomy, 2), self.depths)

    def needs(self) -> Sequence[Need]:
        return [Need(ALIKE, self.sites)]

    def tally(self, scene: Scene) -> MatchingTally:
        sites = scene.sites(self.sites)
        if not sites:
            raise DoesNotApply("no subject has blocks whose output is a grid of positions.")
        assert scene.classes is not None  # labels = "images"
        others = min(GROUP, scene.block) - 1
        meeting = scene.images_in_blocks * (1 - (1 - 1 / len(scene.classes)) ** others)
        if meeting < FEWEST:
            raise DoesNotApply(
                f"of {scene.images:,} images of {len(scene.classes):,} classes about {meeting:.0f} meet one of their "
                f"class in a group of {others + 1}; at least {FEWEST} are needed."
            )
        return MatchingTally.empty(fold=scene.folds, site=len(sites), way=len(WAYS))

    def update(self, tally: MatchingTally, batch: Batch, views: Views, scene: Scene) -> None:
        if not batch.whole:
            return
        assert batch.labels is not None
        same, other = to_compare(batch.labels)
        both = [views.put(each) for each in (same, other)]
        for rows, alike in views.stacked(scene.sites(self.sites), ALIKE):
            tally.rank[batch.fold, rows] += by_rank(alike, *both).sum(1)
        tally.counted[batch.fold] += int((same.any(1) & other.any(1)).sum())

    def estimate(self, total: MatchingTally, scene: Scene) -> xarray.Dataset:
        sites = scene.sites(self.sites)
        token = np.array([scene.anatomy(subject).cls == 0 and site.layout.prefix > 0 for subject, site in sites])
        with np.errstate(invalid="ignore"):
            rank = (total.rank / total.counted).numpy()
        rank[~token, CLASS_TOKEN] = np.nan
        return xarray.Dataset(
            {"rank": (("site", "way"), rank, {"limits": (-1.0, 1.0)})},
            coords={
                **site_coordinates(scene, sites),
                "way": list(WAYS),
                "class_token": ("site", token),
                "classifier_reads": ("site", [str(scene.anatomy(subject).pooling) for subject, _ in sites]),
                "build": ("site", [str(build_of(scene.anatomy(subject))) for subject, _ in sites]),
            },
            attrs={"counted": int(total.counted), "images": scene.images_in_blocks},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            matched, pooled = (
                quantity_in_words(finding, name, ".2f", subject) for name in ("matched_rank", "pooled_rank")
            )
            text = (
                f"In the last block of {subject}, matched patches put a picture of the same class before one of "
                f"another by {matched} (0: by chance, 1: always), the mean of the patches by {pooled}"
            )
            if by_subject(finding, "class_token")[subject]:
                text += f", the class token by {quantity_in_words(finding, 'class_token_rank', '.2f', subject)}"
            parts.append(text)
        return ". ".join(parts) + "."
