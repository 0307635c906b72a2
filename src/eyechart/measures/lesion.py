"""M20: which unit matters? One unit at a time is cut out of the trained subject, and the accuracy lost is counted.

    a residual branch (attention, MLP, convolutions):  sum = skip               instead of skip + branch
    a spatial convolution of a CNN's block:            output = input, or zero  instead of weights ∗ input

Park & Kim do not say what they put in the place of a ResNet's 3×3 convolution, so it is an option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from eyechart.claims.verdict import ClaimTest, Part
from eyechart.errors import DoesNotApply
from eyechart.estimates import halves, subjects_in
from eyechart.measures.measure import Batch, Measure, PerSubjects, Quantity, Scene, Source, Views
from eyechart.methods.answers import COUNTS, TRIED, accuracy_of, changed_of, known_of, outcomes
from eyechart.methods.units import CONVOLUTION, INTACT, Unit, spatial_convolutions, unit_coordinates, units_of
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.interventions import Lesion as CutBranch
from eyechart.tracing.interventions import ReplaceOperation

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import Chart
    from eyechart.tracing.bench import Bench
    from eyechart.tracing.interventions import Intervention
    from eyechart.tracing.needs import Need


@dataclass
class LesionTally(Tally):
    counted: Annotated[Tensor, Sum("fold", "unit", "outcome")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


# --- quantities ---------------------------------------------------------------------------------------------------


def mean_cost(kind: str) -> Any:
    """Accuracy lost, mean over the units of one kind."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        result: PerSubjects = {}
        for subject in subjects_in(estimate):
            mine = (estimate.subject.values == subject) & (estimate.kind.values == kind)
            if mine.any():
                result[subject,] = float(estimate.lost.values[mine].mean())
        return result

    return compute


def attention_over_mlp(estimate: xarray.Dataset, subject: str) -> dict[int, dict[int, float]]:
    """For each stage and block, what losing attention costs above losing the MLP; blocks with both only."""
    mine = estimate.isel(unit=estimate.subject.values == subject)
    costs: dict[int, dict[int, dict[str, float]]] = {}
    for at in range(mine.sizes["unit"]):
        row = mine.isel(unit=at)
        if row.kind.item() in ("attention", "mlp"):
            block = costs.setdefault(int(row.stage), {}).setdefault(int(row.block), {})
            block[str(row.kind.item())] = float(row.lost)
    return {
        stage: {number: block["attention"] - block["mlp"] for number, block in blocks.items() if len(block) == 2}
        for stage, blocks in costs.items()
    }


def stage_interaction(estimate: xarray.Dataset) -> PerSubjects:
    """Cost of attention minus MLP, last block of a stage minus first, mean over stages of two blocks or more."""
    result: PerSubjects = {}
    for subject in subjects_in(estimate, "staged transformer"):
        stages = [blocks for blocks in attention_over_mlp(estimate, subject).values() if len(blocks) >= 2]
        if stages:
            result[subject,] = float(np.mean([blocks[max(blocks)] - blocks[min(blocks)] for blocks in stages]))
    return result


def early_convolutions(estimate: xarray.Dataset) -> PerSubjects:
    """Accuracy lost with a spatial convolution, first half of them minus second half."""
    result: PerSubjects = {}
    for subject in subjects_in(estimate, "cnn"):
        mine = (estimate.subject.values == subject) & (estimate.kind.values == CONVOLUTION)
        if mine.sum() >= 2:
            first, second = halves(estimate.lost.values[mine])
            result[subject,] = first - second
    return result


@dataclass(frozen=True)
class Lesion(Measure):
    name = "lesion"
    title = "Which parts does it need?"
    title_ko = "어느 부분이 꼭 필요한가?"
    order = 80
    sources = (Source("Park & Kim 2022", "Figures 10 right, D.4"),)
    how_to_read = (
        "Each mark is the change of accuracy when one unit is cut out of the trained model and everything else stays: "
        "the branch of an attention (grey circles) or of an MLP (white squares), of a CNN the spatial convolution "
        "(white diamonds) or the whole branch of a block (triangles). Zero means that nobody misses it. Shaded bands "
        "are the stages of the model. Papers report that early convolutions are missed most, and that in a transformer "
        "with stages MLPs matter where a stage begins and attention where it ends: the small panels compare the first "
        "and the last block of the stages."
    )
    how_to_read_ko = (
        "표 하나는 학습된 모델에서 한 부분만 없앴을 때의 정확도 변화이다. 회색 원은 어텐션, 흰 사각형은 MLP, 흰 "
        "마름모는 CNN의 공간 합성곱, 삼각형은 블록의 가지 전체이다. 0이면 없어도 된다는 뜻이다. 음영은 단계이고, 작은 "
        "그림은 단계의 첫 블록과 마지막 블록을 비교한다."
    )
    method = (
        "One unit at a time: a residual addition returns its skip alone; or a convolution with a kernel larger than "
        "1×1 inside a convolutional block returns its input (option operation: zero), where that has the shape of its "
        "output; at most the first two such of a block. Batch normalisation keeps its trained statistics. Accuracy "
        "with and without on the same images, so intervals are those of the answers that moved."
    )
    quantities = (
        Quantity("lesion_attention", mean_cost("attention"), "accuracy lost with an attention, mean over units"),
        Quantity("lesion_mlp", mean_cost("mlp"), "accuracy lost with an MLP, mean over units"),
        Quantity("lesion_convolution", mean_cost(CONVOLUTION), "accuracy lost with a spatial convolution, mean"),
        Quantity("early_convolutions", early_convolutions, "accuracy lost with a convolution, first half minus second"),
        Quantity(
            "lesion_stage_interaction",
            stage_interaction,
            "accuracy lost with attention minus MLP, last minus first block of a stage",
        ),
    )
    claims = (
        ClaimTest(
            "C61",
            (
                Part(
                    "lesion_stage_interaction",
                    "above",
                    0,
                    "accuracy lost with attention minus MLP in {0}, last minus first block of a stage",
                ),
            ),
        ),
    )
    # With the 64 images of ten seconds intervals are ±5 points, and most units cost less than 3: nothing for "quick".
    budget: ClassVar[Mapping[str, float]] = {"normal": 60.0, "full": 600.0}

    images: int = 0
    """How many images are used; 0: as many as the effort allows."""
    operation: Literal["identity", "zero"] = "identity"
    """What takes the place of a spatial convolution: its input, or zero."""

    def needs(self) -> Sequence[Need]:
        return []

    def passes(self, anatomy: Anatomy) -> float:
        return float(len(units_of(anatomy)))

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        """Outcomes (unit, image, outcome); a convolution that a block does not have is not tried."""
        few = bench.first(self.images) if self.images else bench
        units = units_of(bench.anatomy)
        if not len(few) or not units or not bench.subject.classifier:
            return {}
        convolutions = spatial_convolutions(few) if any(unit.slot >= 0 for unit in units) else []
        intact = few.logits()
        counted = torch.zeros(len(units), len(few), COUNTS, dtype=torch.float64)
        for row, unit in enumerate(units):
            change = self.change(unit, convolutions)
            if unit.site is None or change is not None:
                logits = intact if change is None else few.logits(interventions=[change])
                counted[row] = outcomes(logits, intact, few.targets)
        return {"counted": counted, "folds": few.folds()}

    def change(self, unit: Unit, convolutions: Sequence[str]) -> Intervention | None:
        """None: nothing is to be cut out (intact), or the block has no such convolution."""
        if unit.site is None:
            return None
        if unit.slot < 0:
            return CutBranch(unit.site.name)
        path = unit.site.path
        mine = [each for each in convolutions if each == path or each.startswith(f"{path}.")]
        if unit.slot >= len(mine):
            return None
        # A copy, because what follows may work in place on what is also the skip.
        return ReplaceOperation(mine[unit.slot], torch.clone if self.operation == "identity" else torch.zeros_like)

    def tally(self, scene: Scene) -> LesionTally:
        units = self._units(scene)
        if not units:
            raise DoesNotApply("no subject has both a classifier and units that can be cut out.")
        return LesionTally.empty(fold=scene.folds, unit=len(units), outcome=COUNTS)

    @staticmethod
    def _units(scene: Scene) -> list[Unit]:
        return [unit for anatomy in scene.anatomies for unit in units_of(anatomy)]

    def update(self, tally: LesionTally, batch: Batch, views: Views, scene: Scene) -> None:
        first, seen = 0, False
        for anatomy in scene.anatomies:
            found, count = views.experiment(anatomy.subject), len(units_of(anatomy))
            if found:
                counted = found["counted"].transpose(0, 1)
                tally.counted[:, first : first + count].index_add_(0, found["folds"], counted)
                if not seen:
                    tally.images.index_add_(0, found["folds"], torch.ones(len(counted), dtype=torch.float64))
                seen = True
            first += count

    def estimate(self, total: LesionTally, scene: Scene) -> xarray.Dataset:
        import xarray

        units, images = self._units(scene), float(total.images)
        owner = np.maximum.accumulate([at if unit.site is None else 0 for at, unit in enumerate(units)])
        accuracy = accuracy_of(total.counted)
        known = known_of(total.counted)
        estimate = xarray.Dataset(
            {
                "accuracy": ("unit", accuracy, {"limits": (0.0, 1.0), "trials": known}),
                "lost": ("unit", accuracy[owner] - accuracy, {"limits": (-1.0, 1.0), "pairs": known}),
                "changed": ("unit", changed_of(total.counted), {"limits": (0.0, 1.0), "trials": images}),
            },
            coords=unit_coordinates(units),
            attrs={"images": int(images)},
        )
        estimate = estimate.isel(unit=(total.counted[:, TRIED] > 0).numpy())
        cut = set(estimate.subject.values[estimate.kind.values != INTACT].tolist())
        estimate = estimate.isel(unit=[subject in cut for subject in estimate.subject.values.tolist()])
        left_out = [subject for subject in scene.subjects if subject not in estimate.subject.values]
        return estimate.merge(by_place(estimate)).assign_attrs(left_out=" and ".join(left_out))

    def chart(self, finding: xarray.Dataset) -> Chart:
        from eyechart.report.drawings import lesion

        return lesion.draw(finding)

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in subjects_in(finding):
            mine = finding.isel(unit=(finding.subject.values == subject) & (finding.kind.values != INTACT))
            known = bool(np.isfinite(mine.lost.values).all())
            value = mine.lost if known else mine.changed
            worst = int(value.values.argmax())
            if not value.values[worst] > 0:
                parts.append(f"{subject} misses none of its {mine.sizes['unit']} units on these images")
                continue
            said = "points of accuracy" if known else "% of its answers change"
            parts.append(
                f"{subject} misses {mine.unit_name.values[worst]} most ({100 * value.values[worst]:.1f} {said}); half "
                f"of its {mine.sizes['unit']} units cost {100 * np.median(value.values):.1f} or less"
            )
        if finding.attrs["left_out"]:
            parts.append(f"Left out, without answers or without anything to cut out: {finding.attrs['left_out']}")
        return ". ".join(parts) + "."


def by_place(estimate: xarray.Dataset) -> xarray.Dataset:
    """Mean cost of each kind of unit in the first and in the last block of the stages of two blocks or more."""
    import xarray

    table = pd.DataFrame({name: estimate[name].values for name in ("subject", "kind", "stage", "block", "lost")})
    rows = []
    for (subject, kind), mine in table[table["kind"] != INTACT].groupby(["subject", "kind"], sort=False):
        stages = [stage for _, stage in mine.groupby("stage") if stage["block"].nunique() >= 2]
        if len(stages) >= 2:
            for place, end in (("first", "min"), ("last", "max")):
                costs = [stage["lost"][stage["block"] == stage["block"].agg(end)].mean() for stage in stages]
                rows.append((subject, kind, place, float(np.mean(costs))))
    names = ("place_subject", "place_kind", "place")
    return xarray.Dataset(
        {"place_cost": ("group", np.array([row[3] for row in rows], dtype=float), {"limits": (-1.0, 1.0)})},
        coords={name: ("group", [row[at] for row in rows]) for at, name in enumerate(names)},
    )
