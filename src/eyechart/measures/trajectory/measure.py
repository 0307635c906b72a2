"""M17b: which way did training go? Snapshots of one training in polar coordinates around the first weights θ₀.

    radius = ‖θ_t − θ₀‖ / ‖θ₀‖          angle = ∠(θ_t − θ₀, θ_end − θ₀)

A straight path stays at angle 0. The paper's own definition could not be confirmed; this one is ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import Experiment, Source, Views
from eyechart.measures.trajectory.sketch import BUCKETS, ERROR, sketch
from eyechart.quantity import PerSubjects, Quantity, known_to
from eyechart.reading_estimates import quantity_in_words
from eyechart.scene import Batch, Scene
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench

MOMENTS = ("init", "warmup", "quarter", "end")
NAME = re.compile(rf"^(?P<training>.*?)(?:[@.](?P<moment>{'|'.join(MOMENTS[:-1])}))?(?P<file>\.safetensors)?$")


@dataclass
class TrajectoryTally(Tally):
    sketch: Annotated[Tensor, Sum("subject", "bucket")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def snapshot(spec: str) -> tuple[str, str]:
    """Which training a subject is a snapshot of, and of which moment.

    >>> snapshot("zoo:vit@warmup"), snapshot("zoo:vit"), snapshot("zoo:vit@runs/train/my.init.safetensors")
    (('zoo:vit', 'warmup'), ('zoo:vit', 'end'), ('zoo:vit@runs/train/my', 'init'))
    """
    match = NAME.match(spec)
    assert match is not None  # every string matches
    return match["training"], match["moment"] or "end"


def moments_in_time(card: Mapping[str, Any]) -> list[str]:
    """The moments by their epochs: of a short training a quarter is over before its warm-up is.

    >>> moments_in_time({"recipe": {"epochs": 20, "warmup_epochs": 10}}), moments_in_time({})
    (['init', 'quarter', 'warmup', 'end'], ['init', 'warmup', 'quarter', 'end'])
    """
    recipe = card.get("recipe")
    if not isinstance(recipe, Mapping) or not recipe.keys() >= {"epochs", "warmup_epochs"}:
        return list(MOMENTS)
    epochs, warmup = recipe["epochs"], recipe["warmup_epochs"]
    when = {"init": 0, "warmup": warmup, "quarter": math.ceil(epochs / 4), "end": epochs}  # as training.loop saves them
    return sorted(MOMENTS, key=lambda moment: when[moment])


def trainings(
    specs: Mapping[str, str], cards: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, list[str]]:
    """Labels by training, in the order of time; only trainings whose first weights and two later ones are there."""
    by_training: dict[str, dict[str, str]] = {}
    for subject, spec in specs.items():
        training, moment = snapshot(spec)
        by_training.setdefault(training, {})[moment] = subject
    ordered = {}
    for training, seen in by_training.items():
        card = next((card for subject in seen.values() if (card := cards.get(subject))), {})
        if "init" in seen and len(seen) >= 3:
            ordered[training] = [seen[moment] for moment in moments_in_time(card) if moment in seen]
    return ordered


def trainings_of(scene: Scene) -> dict[str, list[str]]:
    return trainings({subject: scene.spec(subject) for subject in scene.subjects}, scene.cards)


def widest(estimate: xarray.Dataset) -> PerSubjects:
    """The largest angle of a training on its way."""
    result: PerSubjects = {}
    for training in dict.fromkeys(estimate.training.values.tolist()):
        path = estimate.isel(subject=estimate.training.values == training)
        result[str(path.subject.values[-1]),] = float(np.nanmax(path.angle.values))
    return result


def travelled(estimate: xarray.Dataset) -> PerSubjects:
    """How far each training had moved at its end."""
    ends = dict(zip(estimate.training.values.tolist(), range(estimate.sizes["subject"]), strict=True))
    return {(str(estimate.subject.values[row]),): float(estimate.radius[row]) for row in ends.values()}


def room_of_length(estimate: xarray.Dataset, end: str) -> float:
    return ERROR * travelled(estimate)[end,]


def room_of_angle(estimate: xarray.Dataset, end: str) -> float:
    return angle_room(widest(estimate)[end,])


def angle_room(degrees: float) -> float:
    return math.degrees(ERROR * math.sin(math.radians(degrees)))


@dataclass(frozen=True)
class Trajectory(Experiment):
    name = "trajectory"
    title = "Which way did training go?"
    title_ko = "학습은 어느 길로 갔는가?"
    order = 73
    chapter = "loss"
    sources = (Source("Park & Kim 2022", "Figure 1b"),)
    how_to_read = (
        "Each line is a training, from its first weights (the corner) to its last. The distance from the corner is how "
        "far the weights have moved, in lengths of the first weights; the angle is that between the movement so far "
        "and the movement of the whole training. A training that goes straight lies on the horizontal axis."
    )
    how_to_read_ko = (
        "선 하나가 학습 하나이고, 왼쪽 아래 모서리가 처음 가중치이다. 모서리에서의 거리는 가중치가 움직인 거리(처음 "
        "가중치의 길이 단위), 각도는 그때까지의 방향이 마지막 방향과 이루는 각이다. 곧게 간 학습은 가로축 위에 있다."
    )
    method = (
        "Over all parameters, read off sketches of 65,536 numbers that keep lengths to about 0.3 % and angles to 0.2°: "
        "that is what the intervals are of. The paper's own definition could not be confirmed; this one is eyechart's."
    )
    quantities = (
        Quantity(
            "travelled",
            travelled,
            "‖θ_end − θ_0‖ / ‖θ_0‖",
            limits=(0, None),
            bounds=known_to(room_of_length, travelled),
        ),
        Quantity(
            "widest_angle",
            widest,
            "largest angle on the way",
            unit="degrees",
            limits=(0, 180),
            bounds=known_to(room_of_angle, widest),
        ),
    )

    def tally(self, scene: Scene) -> TrajectoryTally:
        if not self.subjects(scene):
            raise DoesNotApply(
                "it needs three snapshots of one training, the first weights among them; `eyechart train` keeps them "
                "as NAME.init, NAME.warmup and NAME.quarter beside the end."
            )
        return TrajectoryTally.empty(fold=scene.folds, subject=len(self.subjects(scene)), bucket=BUCKETS)

    def subjects(self, scene: Scene) -> list[str]:
        return [subject for path in trainings_of(scene).values() for subject in path]

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        if bench.batch.index:
            return {}
        return {"sketch": sketch(dict(bench.subject.module.named_parameters()))}

    def update(self, tally: TrajectoryTally, batch: Batch, views: Views, scene: Scene) -> None:
        tally.images[batch.fold] += len(batch.images)
        for row, results in views.experiments(self.subjects(scene)):
            tally.sketch[row] += results["sketch"]

    def estimate(self, total: TrajectoryTally, scene: Scene) -> xarray.Dataset:
        subjects = self.subjects(scene)
        rows = dict(zip(subjects, total.sketch.numpy(), strict=True))
        radius, angle, moments, names = [], [], [], []
        for path in trainings_of(scene).values():
            first = rows[path[0]]
            whole = rows[path[-1]] - first
            for subject in path:
                moved = rows[subject] - first
                length = np.linalg.norm(moved)
                cosine = moved @ whole / (length * np.linalg.norm(whole)) if length else 1.0
                radius.append(length / np.linalg.norm(first))
                angle.append(np.degrees(np.arccos(np.clip(cosine, -1, 1))) if length else np.nan)
                moments.append(snapshot(scene.spec(subject))[1])
                names.append(path[-1])
        rooms = np.array([angle_room(each) for each in angle])
        return xarray.Dataset(
            {
                "radius": ("subject", radius, {"exact": True, "room": ERROR * np.array(radius), "limits": (0, None)}),
                "angle": ("subject", angle, {"exact": True, "room": rooms, "limits": (0, 180)}),
            },
            coords={"subject": subjects, "training": ("subject", names), "moment": ("subject", moments)},
            attrs={"of_weights": 1, "sample": "No image was drawn: these are the weights themselves"},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = [
            f"{end} moved {quantity_in_words(finding, 'travelled', '.2f', end)} lengths of its first weights, at most "
            f"{quantity_in_words(finding, 'widest_angle', '.0f', end)} degrees off its final direction"
            for (end,) in travelled(finding)
        ]
        return "; ".join(parts) + "."
