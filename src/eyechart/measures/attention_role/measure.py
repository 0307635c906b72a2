"""E12: does attention have to look at the picture? Its weights are replaced, the values stay.

Attention is an average, z = Σ A(x) v with Σ A = 1. What is lost when A is exchanged for one that smooths as well, but
depends less on the picture, is the value of its dependence on the data:

    even         A = 1 / keys, within the window or over the whole grid: smoothing alone
    mean         A = mean of other pictures' A, for each head and query: a learned kernel that no picture changes
    another's    A of another picture: as sharp and as varied as its own, but about something else

A kernel's variance over pictures is separated from that over heads (the channels of a head share one kernel):

    data-specific = Σ_keys Var_pictures(A) / Σ_keys A²        head-specific = Σ_keys Var_heads(A) / Σ_keys A²
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views, option, site_coordinates
from eyechart.measures.attention_role.kernels import EVEN, MEAN, OTHER, REPLACEMENTS, kernel_spread
from eyechart.methods.scoring import (
    COUNTS,
    LOGITS,
    accuracy_of,
    changed_of,
    images_with_class,
    outcomes,
    share,
)
from eyechart.quantity import Compute, PerSubjects, Quantity, of_each
from eyechart.reading_estimates import quantity_in_words, spanned, with_ends
from eyechart.scene import Batch, Scene
from eyechart.site_choice import attentions_of_classifiers, classifier
from eyechart.sites import Anatomy, Site
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.interventions import ReplaceAttention
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap

GROUP = 32  # pictures whose attention is averaged: the mean of 31 others has 1/31 of one picture's variance
WORDS = {
    EVEN: ("even", "even weights"),
    MEAN: ("mean", "the mean weights of other pictures"),
    OTHER: ("another", "the weights of another picture"),
}


@dataclass
class AttentionRoleTally(Tally):
    together: Annotated[Tensor, Sum("fold", "subject", "variant", "outcome")]
    """Intact, then all attentions replaced at once."""
    alone: Annotated[Tensor, Sum("fold", "site", "replacement", "outcome")]
    spread: Annotated[Tensor, Sum("fold", "site", "head", "moment")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def lost_by(replacement: str, variable: str = "lost") -> Compute:
    def compute(estimate: xarray.Dataset) -> PerSubjects:
        values = estimate[variable].sel(replacement=replacement).values
        return {
            (str(subject),): float(value) for subject, value in zip(estimate.each_subject.values, values, strict=True)
        }

    return compute


def data_specific(estimate: xarray.Dataset, subject: str) -> float:
    """Mean over heads and attentions of the data-specific share of a kernel."""
    return float(np.nanmean(estimate.data_specific.values[estimate.subject.values == subject]))


@dataclass(frozen=True)
class AttentionRole(SampledExperiment):
    name = "attention_role"
    title = "Must attention look at the picture?"
    title_ko = "어텐션은 그림을 보아야만 하는가?"
    order = 82
    chapter = "break"
    sources = (
        Source("Park & Kim 2022", "attention as an average over an ensemble; the replacement is ours"),
        Source("Yu et al. 2022", "attention exchanged for pooling"),
    )
    how_to_read = (
        "The weights of every attention are replaced in the trained model, its values stay. Even: all keys count the "
        "same, so only smoothing is left. Mean of others: each head and query keeps the pattern it has on average, "
        "whatever the picture shows. Another picture's: a pattern as sharp as its own, but of the wrong picture. The "
        "accuracy lost with the mean pattern is what attention gains by looking at this picture. First panel: all "
        "attentions at once. Second: how much of each head's pattern changes from picture to picture (1: nothing is "
        "shared; 0: it is fixed), with the mean over heads as a line; dashed, how much it changes from head to "
        "head. Further panels, where they were measured: one attention at a time, by depth."
    )
    how_to_read_ko = (
        "학습된 모델에서 모든 어텐션의 가중치만 바꾸고 값은 그대로 둔다. 균등: 모든 키를 똑같이 세므로 평활화만 "
        "남는다. 다른 것의 평균: 그림이 무엇이든 헤드와 쿼리마다 평균 무늬를 쓴다. 다른 그림의 것: 자기 것만큼 "
        "날카롭지만 틀린 그림의 무늬이다. 평균 무늬로 잃은 정확도가 어텐션이 이 그림을 보아서 얻은 것이다. 첫 "
        "그림은 모든 어텐션을 한꺼번에 바꾼 것이다. 둘째는 헤드의 무늬가 그림마다 얼마나 바뀌는지이고(1이면 "
        "공유하는 것이 없고, 0이면 고정된 무늬), 선은 헤드 평균, 파선은 헤드마다 얼마나 다른지이다. 그다음 "
        "그림들은, 쟀다면, 깊이에 따라 어텐션을 하나씩 바꾼 것이다."
    )
    method = (
        "The weights of the intact network are replaced for all queries and keys, class token included: evenly over "
        "the keys a query may see (its window, or the whole grid with prefix tokens); by the mean over the other "
        "pictures of a group of up to 32, for each head and query; by those of the next picture of the group. Accuracy "
        "and answers with and without the replacement are of the same images. The data-specific share of a head is the "
        "unbiased variance of its weights over pictures, summed over keys, divided by the sum of their squares; the "
        "head-specific share has the variance over the heads of the same attention instead."
    )
    quantities = (
        *(
            Quantity(
                f"lost_to_{key}_attention",
                lost_by(name),
                f"accuracy lost with {words}, all attentions at once",
                paired=True,
                limits=(-1, 1),
            )
            for name, (key, words) in WORDS.items()
        ),
        *(
            Quantity(
                f"changed_by_{key}_attention",
                lost_by(name, "changed"),
                f"answers that change with {words}, all attentions at once",
                limits=(0, 1),
                share=True,
            )
            for name, (key, words) in WORDS.items()
        ),
        Quantity(
            "data_specific_attention",
            of_each(data_specific),
            "share of a head's attention pattern that changes with the picture, mean over heads",
            limits=(0, 1),
        ),
    )
    budget: ClassVar[Mapping[str, float]] = {"quick": 4.0, "normal": 60.0, "full": 600.0}

    each: Literal["auto", "yes", "no"] = option(
        "auto", "whether attentions are also replaced one at a time; auto: not at the lowest effort"
    )

    def passes(self, anatomy: Anatomy) -> float:
        sites = attentions_of_classifiers(anatomy)
        alone = 0 if self.each == "no" else len(sites)
        return 1.0 + len(REPLACEMENTS) * (1 + alone) if sites else 0.0

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        each: Literal["yes", "no"] = "no" if effort == "quick" else "yes"
        decided = replace(self, each=each) if self.each == "auto" else self
        return super(AttentionRole, decided).sized(effort, scene, asked_for=asked_for, decides=decides)

    # --- the experiment -----------------------------------------------------------------------------------------

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        few = bench.first(self.images) if self.images else bench
        sites = attentions_of_classifiers(bench.anatomy)
        if len(few) < 2 or not sites:
            return {}

        def work(size: int) -> list[dict[str, Tensor]]:
            number = min(-(-len(few) // size), len(few) // 2)  # pairs at least: one picture alone has no others
            groups = torch.tensor_split(torch.arange(len(few)), number)
            return [self._group(few.picked(group), sites) for group in groups]

        groups_seen = bench.piece_size.fit(min(GROUP, len(few)), work)
        joined = {name: torch.cat([each[name] for each in groups_seen]) for name in groups_seen[0]}
        return joined | {"folds": few.folds()}

    def _group(self, bench: Bench, sites: Sequence[Site]) -> dict[str, Tensor]:
        logits, spread = all_replaced(bench, sites)
        results = {"together": torch.stack([outcomes(each, logits[0], bench.targets) for each in logits], 1)}
        results["spread"] = spread
        if self.each != "no":
            results["alone"] = torch.stack([self._alone(bench, site, logits[0]) for site in sites], 1)
        return results

    @staticmethod
    def _alone(bench: Bench, site: Site, intact: Tensor) -> Tensor:
        """Outcomes (image, replacement, outcome) with one attention replaced: what comes before it is intact anyway."""
        (head,) = classifier(bench.anatomy)
        counted = []
        for change in REPLACEMENTS.values():
            seen = look_whole(bench, {head.name: [LOGITS]}, [ReplaceAttention(site.name, change)], bench.images)
            counted.append(outcomes(seen[head.name][LOGITS.name], intact, bench.targets))
        return torch.stack(counted, 1)

    # --- the tally ----------------------------------------------------------------------------------------------

    def tally(self, scene: Scene) -> AttentionRoleTally:
        sites = scene.sites(attentions_of_classifiers)
        if not sites:
            raise DoesNotApply("no subject has both a classifier and attention between places.")
        return AttentionRoleTally.empty(
            fold=scene.folds,
            subject=len(scene.subjects_with(attentions_of_classifiers)),
            variant=1 + len(REPLACEMENTS),
            outcome=COUNTS,
            site=len(sites),
            replacement=len(REPLACEMENTS),
            head=max(site.heads or 1 for _, site in sites),
            moment=3,
        )

    def update(self, tally: AttentionRoleTally, batch: Batch, views: Views, scene: Scene) -> None:
        subjects, rows_of = scene.subjects_with(attentions_of_classifiers), scene.rows(attentions_of_classifiers)
        for row, results in views.experiments(subjects):
            folds, rows = results["folds"], rows_of[subjects[row]]
            tally.add("together", folds, results["together"], row)
            tally.add("spread", folds, results["spread"], rows, slice(results["spread"].shape[2]))
            if "alone" in results:
                tally.add("alone", folds, results["alone"], rows)
            if row == 0:
                tally.add("images", folds)

    def estimate(self, total: AttentionRoleTally, scene: Scene) -> xarray.Dataset:
        sites, subjects, images = (
            scene.sites(attentions_of_classifiers),
            scene.subjects_with(attentions_of_classifiers),
            float(total.images),
        )
        accuracy, alone = accuracy_of(total.together), accuracy_of(total.alone)
        owner = [subjects.index(subject) for subject, _ in sites]
        power, over_pictures, over_heads = total.spread.unbind(-1)
        counts: dict[str, Any] = {"limits": (0.0, 1.0), "trials": images}
        labelled = images_with_class(total.together)
        right: dict[str, Any] = {"limits": (0.0, 1.0), "trials": labelled}
        pairs: dict[str, Any] = {"limits": (-1.0, 1.0), "pairs": labelled}
        each, together = ("site", "replacement"), ("each_subject", "replacement")
        return xarray.Dataset(
            {
                "intact_accuracy": ("each_subject", accuracy[:, 0], right),
                "accuracy": (together, accuracy[:, 1:], right),
                "lost": (together, accuracy[:, :1] - accuracy[:, 1:], pairs),
                "changed": (together, changed_of(total.together)[:, 1:], counts),
                "lost_alone": (each, accuracy[owner, :1] - alone, pairs),
                "changed_alone": (each, changed_of(total.alone), counts),
                "data_specific": (("site", "head"), share(over_pictures, power), {"limits": (0.0, 1.0)}),
                "head_specific": ("site", share(over_heads.sum(1), power.sum(1)), {"limits": (0.0, 1.0)}),
            },
            coords={**site_coordinates(scene, sites), "each_subject": subjects, "replacement": list(REPLACEMENTS)},
            attrs={
                "images": int(images),
                "left_out": " and ".join(subject for subject in scene.subjects if subject not in subjects),
            },
        )

    # --- the report ---------------------------------------------------------------------------------------------

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in finding.each_subject.values.tolist():
            of_subject = finding.sel(each_subject=subject)
            has_labels = bool(np.isfinite(of_subject.lost.values).all())
            name, unit = ("lost", "points of accuracy") if has_labels else ("changed", "% of the answers change")
            numbers = {}
            for replacement in REPLACEMENTS:
                value, low, high = with_ends(of_subject.sel(replacement=replacement), name)
                numbers[replacement] = spanned((100 * value, 100 * low, 100 * high), ".1f")
            varies = quantity_in_words(finding, "data_specific_attention", ".0%", subject)
            parts.append(
                f"{subject} {'loses' if has_labels else 'differs:'} {numbers[EVEN]} {unit} with even weights, "
                f"{numbers[MEAN]} with the mean weights of other pictures and {numbers[OTHER]} with another "
                f"picture's; {varies} of a head's pattern changes with the picture"
            )
        left_out = finding.attrs["left_out"]
        return ". ".join(parts) + "." + (f"\nLeft out: {left_out} (no attention between places)." if left_out else "")


def all_replaced(bench: Bench, sites: Sequence[Site]) -> tuple[list[Tensor], Tensor]:
    """Logits, intact and with each replacement at all sites, and the spread of kernels (image, site, head, moment).

    Copies of the pictures go through together: the first one intact, the others with weights made of its. So the
    weights put in are always those of the intact network, also where every block before is changed.
    """
    count = len(bench)

    def replaced(weights: Tensor) -> Tensor:
        intact = weights[:count]
        return torch.cat([intact, *(change(intact) for change in REPLACEMENTS.values())])

    spread = View("spread of kernels", lambda look: kernel_spread(look.weights[:count]))
    (head,) = classifier(bench.anatomy)
    seen = look_whole(
        bench,
        {site.name: [spread] for site in sites} | {head.name: [LOGITS]},
        [ReplaceAttention(site.name, replaced) for site in sites],
        bench.images.repeat(1 + len(REPLACEMENTS), 1, 1, 1),
    )
    moments = torch.zeros(count, len(sites), max(site.heads or 1 for site in sites), 3, dtype=torch.float64)
    for at, site in enumerate(sites):
        values = seen[site.name][spread.name]
        moments[:, at, : values.shape[1]] = values
    return list(torch.split(seen[head.name][LOGITS.name], count)), moments


def look_whole(
    bench: Bench, views: Mapping[str, Sequence[View]], changes: Sequence[ReplaceAttention], images: Tensor
) -> dict[str, dict[str, Tensor]]:
    """One pass that is never cut into pieces, because pictures are given weights of one another."""
    seen = Tap(bench.subject.module, bench.anatomy, views, changes).run(images, bench.subject.call)[1]
    return {site: {name: value.cpu() for name, value in values.items()} for site, values in seen.items()}
