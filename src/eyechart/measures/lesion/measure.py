"""M20: which unit matters? One unit at a time is cut out of the trained subject, and the accuracy lost is counted.

    a residual branch (attention, MLP, convolutions):  sum = skip               instead of skip + branch
    a spatial convolution of a CNN's block:            output = input, or zero  instead of weights ∗ input

Park & Kim do not say what they put in the place of a ResNet's 3×3 convolution, so it is an option.

Batch normalisations behind the cut then see other numbers than in training, and the loss may be due to
the statistics: 84 points without a convolution of zoo:resnet's second block, 9 with statistics that fit. So subjects
that have them are measured a second time, with statistics re-estimated on other images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views, option
from eyechart.measures.lesion.units import (
    CONVOLUTION,
    INTACT,
    Unit,
    outcomes_without,
    spatial_convolutions,
    unit_coordinates,
    units_of,
)
from eyechart.methods.scoring import COUNTS, TRIED, accuracy_of, changed_of, images_with_class
from eyechart.quantity import Compute, PerSubjects, Quantity, of_each, subjects_in
from eyechart.reading_estimates import ends_of, halves, in_points, jackknifed, spanned, states, with_ends
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.tracing.interventions import Intervention, ReplaceOperation
from eyechart.tracing.interventions import Lesion as CutBranch
from eyechart.tracing.recalibration import batch_norms

LEAST_OTHERS = 16
"""Images that statistics of batch normalisations are re-estimated on, at least."""


@dataclass
class LesionTally(Tally):
    counted: Annotated[Tensor, Sum("fold", "unit", "outcome")]
    recalibrated: Annotated[Tensor, Sum("fold", "unit", "outcome")]
    """The same with batch normalisations re-estimated; zero where there are none."""
    images: Annotated[Tensor, Sum("fold", counts=True)]


# --- quantities ---------------------------------------------------------------------------------------------------


def mean_cost(kind: str) -> Compute:
    """Accuracy lost, mean over the units of one kind."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        units = (estimate.subject.values == subject) & (estimate.kind.values == kind)
        return float(estimate.lost.values[units].mean()) if units.any() else None

    return of_each(number)


def attention_over_mlp(estimate: xarray.Dataset, subject: str) -> dict[int, dict[int, float]]:
    """For each stage and block, what losing attention costs above losing the MLP; blocks with both only."""
    units = estimate.isel(unit=estimate.subject.values == subject)
    costs: dict[int, dict[int, dict[str, float]]] = {}
    for at in range(units.sizes["unit"]):
        row = units.isel(unit=at)
        if row.kind.item() in ("attention", "mlp"):
            block = costs.setdefault(int(row.stage), {}).setdefault(int(row.block), {})
            block[str(row.kind.item())] = float(row.lost)
    return {
        stage: {number: block["attention"] - block["mlp"] for number, block in blocks.items() if len(block) == 2}
        for stage, blocks in costs.items()
    }


def stage_interaction_of(estimate: xarray.Dataset, subject: str) -> float | None:
    """Cost of attention minus MLP, last block of a stage minus first, mean over stages of two blocks or more."""
    stages = [blocks for blocks in attention_over_mlp(estimate, subject).values() if len(blocks) >= 2]
    return float(np.mean([blocks[max(blocks)] - blocks[min(blocks)] for blocks in stages])) if stages else None


stage_interaction = of_each(stage_interaction_of, "staged transformer")


def at_stage_ends(end: Literal["start", "end"]) -> Compute:
    """In the first block of a stage the cost of the MLP minus attention, in the last that of attention minus the MLP.

    Mean over the stages after the first, which are those the paper reports: the first stage begins where the network
    does, and there everything may matter (zoo:pit loses 75 points with its very first MLP, and 1 with any other).
    """

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        stages = attention_over_mlp(estimate, subject)
        later = [blocks for stage, blocks in stages.items() if stage > min(stages) and len(blocks) >= 2]
        costs = [-blocks[min(blocks)] if end == "start" else blocks[max(blocks)] for blocks in later]
        return float(np.mean(costs)) if costs else None

    return of_each(number, "staged transformer")


def early_convolutions_of(estimate: xarray.Dataset, subject: str) -> float | None:
    """Accuracy lost with a spatial convolution, first half of them minus second half."""
    units = (estimate.subject.values == subject) & (estimate.kind.values == CONVOLUTION)
    if units.sum() < 2:
        return None
    first, second = halves(estimate.lost.values[units])
    return first - second


early_convolutions = of_each(early_convolutions_of, "cnn")


def early_convolutions_recalibrated(estimate: xarray.Dataset) -> PerSubjects:
    """The same with batch norms recalibrated; for a CNN without batch norms the number without recalibration.

    NaN where there were too few images to recalibrate on; no key where recalibration was switched off.
    """
    if estimate.attrs.get("recalibrate") == "no":
        return {}
    again = early_convolutions(estimate.assign(lost=estimate.lost_recalibrated))
    stale, plain = estimate.attrs.get("stale", "").split(" and "), early_convolutions(estimate)
    return {key: value if np.isfinite(value) or key[0] in stale else plain[key] for key, value in again.items()}


@dataclass(frozen=True)
class Lesion(SampledExperiment):
    name = "lesion"
    title = "Which parts does it need?"
    title_ko = "어느 부분이 꼭 필요한가?"
    order = 80
    chapter = "break"
    sources = (Source("Park & Kim 2022", "Figures 10 right, D.4"),)
    how_to_read = (
        "Each mark is the change of accuracy when one unit is cut out of the trained model and everything else stays: "
        "the branch of an attention (grey circles) or of an MLP (white squares), of a CNN the spatial convolution "
        "(white diamonds) or the whole branch of a block (triangles). Zero means that it is not needed. Shaded bands "
        "are the stages of the model. The paper reports that early convolutions are needed most, and that in a "
        "transformer with stages MLPs matter where a stage begins and attention where it ends: the small panels "
        "compare the first and the last block of the stages after the first. After a cut, the stored statistics of "
        "batch norms no longer fit; a further panel of a CNN shows the loss with re-estimated statistics."
    )
    how_to_read_ko = (
        "표시 하나는 학습된 모델에서 한 부분만 없애고 나머지를 그대로 두었을 때의 정확도 변화이다. 어텐션의 가지(회색 "
        "원), MLP의 가지(흰 사각형), CNN에서는 공간 합성곱(흰 마름모)이나 블록의 가지 전체(삼각형)를 없앤다. 0이면 "
        "없어도 된다는 뜻이다. 음영은 모델의 단계이다. 논문에 따르면 초기 합성곱이 가장 필요하고, 단계가 있는 "
        "트랜스포머에서는 단계가 시작하는 곳의 MLP와 끝나는 곳의 어텐션이 중요하다. 작은 그림은 둘째 단계부터 첫 "
        "블록과 마지막 블록을 비교한다. 없앤 뒤에는 배치 정규화에 저장된 통계가 맞지 않으므로, CNN의 또 다른 그림은 "
        "통계를 다시 잰 뒤에 잃는 정확도를 보인다."
    )
    method = (
        "One unit at a time: a residual addition returns its skip alone; or a convolution with a kernel larger than "
        "1×1 inside a convolutional block returns its input (option operation: zero), where that has the shape of its "
        "output; at most the first two of a block. Accuracy with and without the unit is of the same images, so "
        "intervals depend only on the answers that changed. Batch normalisation keeps its trained statistics, as in "
        "the paper, which no longer fit after the cut; so it is measured again with statistics of other images under "
        "the same cut, intact included (lost_recalibrated in the findings, option recalibrate; needs blocks of 32 "
        "images, so 512 in all). Its intervals are over the images scored. They do not include that other images would "
        "have given other statistics, so they are somewhat too narrow."
    )
    quantities = (
        Quantity(
            "lesion_attention",
            mean_cost("attention"),
            "accuracy lost with an attention, mean over units",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "lesion_mlp",
            mean_cost("mlp"),
            "accuracy lost with an MLP, mean over units",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "lesion_convolution",
            mean_cost(CONVOLUTION),
            "accuracy lost with a spatial convolution, mean",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "early_convolutions",
            early_convolutions,
            "accuracy lost with a convolution, first half minus second",
            paired=True,
            limits=(-2, 2),
        ),
        Quantity(
            "early_convolutions_recalibrated",
            early_convolutions_recalibrated,
            "accuracy lost with a convolution, first half minus second, batch norms recalibrated",
            paired=True,
            limits=(-2, 2),
        ),
        Quantity(
            "lesion_stage_start",
            at_stage_ends("start"),
            "accuracy lost with MLP minus attention, first block of a later stage",
            paired=True,
            limits=(-2, 2),
        ),
        Quantity(
            "lesion_stage_end",
            at_stage_ends("end"),
            "accuracy lost with attention minus MLP, last block of a later stage",
            paired=True,
            limits=(-2, 2),
        ),
        Quantity(
            "lesion_stage_interaction",
            stage_interaction,
            "accuracy lost with attention minus MLP, last minus first block of a stage",
            paired=True,
            limits=(-4, 4),
        ),
    )
    # With the 64 images of ten seconds intervals are ±5 points, and most units cost less than 3: nothing for "quick".
    budget: ClassVar[Mapping[str, float]] = {"normal": 100.0, "full": 600.0}

    operation: Literal["identity", "zero"] = option(
        "identity", "what takes the place of a spatial convolution: its input, or zero"
    )
    recalibrate: Literal["yes", "no"] = option(
        "yes", "whether subjects with batch normalisation are measured a second time with re-estimated statistics"
    )

    def passes(self, anatomy: Anatomy) -> float:
        return len(units_of(anatomy)) * (3.0 if self._twice(anatomy) else 1.0)  # re-estimate, score again

    def _twice(self, anatomy: Anatomy) -> bool:
        """An anatomy does not say whether there are batch norms; subjects with convolutions are taken to have them."""
        return self.recalibrate == "yes" and anatomy.architecture not in ("transformer", "mixer")

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        """Outcomes (unit, image, outcome); a convolution that a block does not have is not tried."""
        few = bench.first(self.images) if self.images else bench
        units = units_of(bench.anatomy)
        if not len(few) or not units or not bench.subject.classifier:
            return {}
        convolutions = spatial_convolutions(few) if any(unit.slot >= 0 for unit in units) else []
        changes = {at: self.change(unit, convolutions) for at, unit in enumerate(units)}
        tried = {at: change for at, change in changes.items() if change is not None or units[at].site is None}
        results = {"counted": outcomes_without(few, len(units), tried), "folds": few.folds()}
        if self.recalibrate == "yes" and batch_norms(bench.subject.module) and len(bench) >= 2 * LEAST_OTHERS:
            images, again = torch.arange(len(bench)), []
            for half in torch.tensor_split(images[: len(few)], 2):
                others = images[~torch.isin(images, half)][: max(len(half), LEAST_OTHERS)]
                again.append(outcomes_without(bench.picked(half), len(units), tried, bench.picked(others).images))
            results["recalibrated"] = torch.cat(again, dim=1)
        return results

    def change(self, unit: Unit, convolutions: Sequence[str]) -> Intervention | None:
        """None: nothing is to be cut out (intact), or the block has no such convolution."""
        if unit.site is None:
            return None
        if unit.slot < 0:
            return CutBranch(unit.site.name)
        path = unit.site.path
        inside = [each for each in convolutions if each == path or each.startswith(f"{path}.")]
        if unit.slot >= len(inside):
            return None
        # A copy, because what follows may work in place on what is also the skip.
        return ReplaceOperation(inside[unit.slot], torch.clone if self.operation == "identity" else torch.zeros_like)

    def tally(self, scene: Scene) -> LesionTally:
        units = self._units(scene)
        if not units:
            raise DoesNotApply("no subject has both a classifier and units that can be cut out.")
        return LesionTally.empty(fold=scene.folds, unit=len(units), outcome=COUNTS)

    @staticmethod
    def _units(scene: Scene) -> list[Unit]:
        return [unit for anatomy in scene.anatomies for unit in units_of(anatomy)]

    def update(self, tally: LesionTally, batch: Batch, views: Views, scene: Scene) -> None:
        counted = False
        for subject, units in scene.rows(units_of).items():
            if results := views.experiment(subject):
                folds = results["folds"]
                for name in {"counted", "recalibrated"} & results.keys():
                    tally.add(name, folds, results[name].transpose(0, 1), units)
                if not counted:
                    tally.add("images", folds)
                counted = True

    def estimate(self, total: LesionTally, scene: Scene) -> xarray.Dataset:
        units, images = self._units(scene), float(total.images)
        owner = np.maximum.accumulate([at if unit.site is None else 0 for at, unit in enumerate(units)])
        accuracy, again = accuracy_of(total.counted), accuracy_of(total.recalibrated)
        labelled, again_labelled = images_with_class(total.counted), images_with_class(total.recalibrated)
        estimate = xarray.Dataset(
            {
                "accuracy": ("unit", accuracy, {"limits": (0.0, 1.0), "trials": labelled}),
                "lost": ("unit", accuracy[owner] - accuracy, {"limits": (-1.0, 1.0), "pairs": labelled}),
                "lost_recalibrated": ("unit", again[owner] - again, {"limits": (-1.0, 1.0), "pairs": again_labelled}),
                "changed": ("unit", changed_of(total.counted), {"limits": (0.0, 1.0), "trials": images}),
            },
            coords=unit_coordinates(units),
            attrs={"images": int(images)},
        )
        estimate = estimate.isel(unit=(total.counted[:, TRIED] > 0).numpy())
        cut = set(estimate.subject.values[estimate.kind.values != INTACT].tolist())
        estimate = estimate.isel(unit=[subject in cut for subject in estimate.subject.values.tolist()])
        left_out = [subject for subject in scene.subjects if subject not in estimate.subject.values]
        small = scene.block < 2 * LEAST_OTHERS
        stale = [
            anatomy.subject
            for anatomy in scene.anatomies
            if small and self._twice(anatomy) and anatomy.subject not in left_out
        ]
        return estimate.merge(by_place(estimate, labelled)).assign_attrs(
            left_out=" and ".join(left_out),
            stale=" and ".join(stale),
            images_in_all=scene.images,
            recalibrate=self.recalibrate,
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            units = finding.isel(unit=(finding.subject.values == subject) & (finding.kind.values != INTACT))
            has_labels = bool(np.isfinite(units.lost.values).all())
            value = units.lost if has_labels else units.changed
            worst = int(value.values.argmax())
            if not value.values[worst] > 0:
                parts.append(f"{subject} misses none of its {units.sizes['unit']} units on these images")
                continue
            told, said = (in_points, "points of accuracy") if has_labels else (in_percent, "of its answers change")
            name = str(units.unit_name.values[worst]).removesuffix(" junction").replace(" mlp", " MLP")
            most = told(with_ends(units.isel(unit=worst), str(value.name)))
            typical = told(jackknifed(units, partial(typical_cost, name=str(value.name)), str(value.name)))
            parts.append(
                f"{subject} misses {name} most ({most} {said}); half of its {units.sizes['unit']} units cost {typical} "
                f"{'points ' if has_labels else ''}or less"
            )
        parts += [
            f"Convolutions in the first half of {subject} cost "
            f"{in_points(ends_of(finding, 'early_convolutions', subject))} points more than in the second, "
            f"{in_points(ends_of(finding, 'early_convolutions_recalibrated', subject))} with its batch norms "
            "recalibrated"
            for subject in subjects_in(finding)
            if states(finding, "early_convolutions_recalibrated", subject)
            and np.isfinite(ends_of(finding, "early_convolutions_recalibrated", subject)[0])
        ]
        remarks = []
        if finding.attrs["stale"]:
            remarks.append(
                f"Batch norms of {finding.attrs['stale']}, if any, kept their trained statistics only: to re-estimate "
                f"them takes at least {32 * LEAST_OTHERS} images, and there are {finding.attrs['images_in_all']}"
            )
        if finding.attrs["left_out"]:
            remarks.append(f"Left out, without answers or without anything to cut out: {finding.attrs['left_out']}")
        return "\n".join(f"{each}." for each in [". ".join(parts), *remarks])


in_percent = partial(spanned, form=".1%")


def typical_cost(units: xarray.Dataset, name: str) -> float:
    return float(np.median(units[name].values))


def by_place(estimate: xarray.Dataset, labelled: float) -> xarray.Dataset:
    """Mean cost of each kind of unit in the first and in the last block of the stages after the first.

    Of `labelled` images: where none of them was lost, they say how certain that is.
    """
    table = pd.DataFrame({name: estimate[name].values for name in ("subject", "kind", "stage", "block", "lost")})
    rows = []
    for (subject, kind), units in table[table["kind"] != INTACT].groupby(["subject", "kind"], sort=False):
        first = units["stage"].min()
        stages = [stage for at, stage in units.groupby("stage") if at > first and stage["block"].nunique() >= 2]
        if stages:
            for place, end in (("first", "min"), ("last", "max")):
                costs = [stage["lost"][stage["block"] == stage["block"].agg(end)].mean() for stage in stages]
                rows.append((subject, kind, place, float(np.mean(costs))))
    names = ("place_subject", "place_kind", "place")
    attributes = {"limits": (-1.0, 1.0), "pairs": labelled}
    return xarray.Dataset(
        {"place_cost": ("group", np.array([row[3] for row in rows], dtype=float), attributes)},
        coords={name: ("group", [row[at] for row in rows]) for at, name in enumerate(names)},
    )
