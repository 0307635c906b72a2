"""M17: what does the loss look like around the weights? A plane through them, in two random directions.

    loss(a, b) = loss(θ + a·d + b·e), with and without c·Σ‖p‖

Shown is the loss itself (NLL) beside the loss with the weight penalty c·Σ‖p‖ that Park & Kim add: in their released
landscapes about three quarters of the rise is the penalty, which says nothing of the pictures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply, UsageError
from eyechart.images.plan import SMALLEST_BLOCK
from eyechart.measure import SampledExperiment, Source, Views, option
from eyechart.measures.landscape.plane import at, batch_statistics, direction, moved, on_ring
from eyechart.methods.scoring import labelled
from eyechart.quantity import Compute, Quantity, of_each
from eyechart.reading_estimates import quantity_in_words
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.training.as_trained import as_trained

DATA = ("clean", "augmented")
MIXED = SMALLEST_BLOCK
"""Images that are mixed with one another (mixup, cutmix) when augmented: see error_vs_nll."""
STATISTICS = 60
"""Images in a block from which batch normalisation can take statistics; the bundled 1,000 come in blocks of 62.

The loss of zoo:resnet as it is, .243 with its stored ones, is .72 with those of 4 images, .46 of 8, .27 of 64.
"""


@dataclass
class LandscapeTally(Tally):
    nll: Annotated[Tensor, Sum("fold", "subject", "data", "a", "b")]
    """Sums over the images whose loss is finite."""
    infinite: Annotated[Tensor, Sum("fold", "subject", "data", "a", "b")]
    """How many were not."""
    penalty: Annotated[Tensor, Sum("subject", "a", "b")]
    seen: Annotated[Tensor, Sum("fold", "subject")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def rise(loss: str, data: str, radius: float) -> Compute:
    """Mean loss on the circle at a radius minus the loss in the middle; NaN where an infinite loss is next to it."""

    def number(estimate: xarray.Dataset, subject: str) -> float:
        surface, middle = estimate[loss].sel(data=data, subject=subject).values, len(estimate.a) // 2
        return on_ring(surface, radius) - float(surface[middle, middle])

    return of_each(number)


def penalty_share_of(estimate: xarray.Dataset, subject: str) -> float:
    """Median over the plane of the penalty's share of the rise of NLL + penalty."""
    middle = len(estimate.a) // 2
    surfaces = estimate.nll.sel(data="augmented", subject=subject).values, estimate.penalty.sel(subject=subject).values
    loss, penalty = (surface - surface[middle, middle] for surface in surfaces)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(loss + penalty > 0, penalty / (loss + penalty), np.nan)
    shares = shares.clip(0, 1)  # where the loss falls, all of the rise is the penalty's
    return float(np.nanmedian(shares)) if np.isfinite(shares).any() else np.nan


penalty_share = of_each(penalty_share_of)


@dataclass(frozen=True)
class Landscape(SampledExperiment):
    name = "landscape"
    title = "What does the loss look like around it?"
    title_ko = "가중치 둘레의 손실은 어떤 모양인가?"
    order = 72
    chapter = "loss"
    sources = (Source("Park & Kim 2022", "Figures 1a, C.4a"), Source("Li et al. 2018", "Figure 1"))
    how_to_read = (
        "Each square is a plane through the weights of a model: the middle is the model as it is, a step of 1 to the "
        "side moves every filter by its own length in a random direction. Colour is the loss above its value in the "
        "middle, in bands on one logarithmic scale for all; a loss below it is drawn like the middle. In this order: "
        "the loss alone on clean pictures, the loss alone on augmented ones, and both with the weight penalty "
        "that the paper's figure adds. Crosses mark infinite or undefined losses. The nets show the second surface "
        "from the side; the curves are means over all directions at a distance."
    )
    how_to_read_ko = (
        "네모 하나는 가중치를 지나는 평면이다. 가운데가 모델 그대로이고, 옆으로 1만큼 가면 모든 필터가 자기 "
        "길이만큼 무작위 방향으로 움직인다. 색은 가운데보다 높아진 손실을 모두에게 같은 로그 눈금의 띠로 나눈 "
        "것이고, 더 낮은 곳은 가운데와 같게 칠한다. 차례로 원본 그림의 손실, 증강한 그림의 손실, 두 손실에 논문의 "
        "그림처럼 가중치 벌점을 더한 것. ×는 무한하거나 정의되지 않은 손실이다. 그물은 둘째 면을 옆에서 본 "
        "것이고, 곡선은 거리마다 모든 방향에 걸친 평균이다."
    )
    method = (
        "θ + a·d + b·e with seeded Gaussian directions d, e for linear and convolution weights, normalised per output "
        "filter (option normalisation=paper: over the output axis, as in the paper's code); biases, norms and tables "
        "stay. Batch normalisation uses stored statistics, which do not fit moved weights, so part of a CNN's rise can "
        "be due to them: where one subject has batch normalisation and another does not, compare option "
        "batch_norm=images (statistics of the pictures, in whole blocks of at least 60). Cross-entropy with soft "
        "targets on the augmented pictures, by the recipe of the bundled models; penalty c·Σ‖p‖ over all parameters "
        "with c = 0.05. The pictures are the exam's, usually test pictures, where the paper took training pictures "
        "(--images sample:train gives some)."
    )
    quantities = (
        *(
            Quantity(
                f"rise_{data}_at_{radius:g}",
                rise("nll", data, radius),
                f"mean loss at distance {radius:g} above the middle, {data} pictures, without penalty",
                unit="nats",
            )
            for data in DATA
            for radius in (0.5, 1.0)
        ),
        Quantity(
            "penalty_share",
            penalty_share,
            "share of the rise that the weight penalty makes, median over the plane, augmented pictures",
            limits=(0, 1),
        ),
    )
    labels = "subjects"
    budget: ClassVar[Mapping[str, float]] = {"normal": 90.0, "full": 900.0}
    least_images: ClassVar[int] = 32

    images: int = option(
        0, "how many images are used (with batch_norm=images in whole blocks); 0: as many as the effort allows"
    )
    steps: int = option(0, "points a side, odd; 0: 11, or 21 at full effort")
    normalisation: Literal["filter", "paper"] = option(
        "filter", "length of a random direction: that of each filter, or over the output axis (the paper's code)"
    )
    batch_norm: Literal["stored", "images"] = option(
        "stored", "statistics of batch normalisation: as stored, or of the pictures"
    )
    recipe: str = option("zoo", "the recipe whose augmentation is used")
    weight_decay: float = option(0.05, "weight of the penalty")

    def __post_init__(self) -> None:
        if self.steps and (self.steps < 3 or self.steps % 2 == 0):
            raise UsageError(f"landscape.steps takes an odd number of at least 3; got {self.steps}.")

    def passes(self, anatomy: Anatomy) -> float:
        return len(DATA) * self.offsets().size ** 2

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        finer = self if self.steps else replace(self, steps=21 if effort == "full" else 11)
        return super(Landscape, finer).sized(effort, scene, asked_for=asked_for, decides=decides)

    def offsets(self) -> np.ndarray:
        return np.linspace(-1, 1, self.steps or 11)

    def tally(self, scene: Scene) -> LandscapeTally:
        if scene.images < MIXED:
            raise DoesNotApply(f"it mixes groups of {MIXED} images, and there are {scene.images}.")
        if self.batch_norm == "images" and scene.block < STATISTICS:
            raise DoesNotApply(
                f"batch_norm=images takes statistics of blocks of at least {STATISTICS} images, and {scene.images} "
                f"images come in blocks of {scene.block}; give at least {scene.folds * STATISTICS}."
            )
        side, subjects = self.offsets().size, len(scene.scored_subjects)
        return LandscapeTally.empty(fold=scene.folds, subject=subjects, data=len(DATA), a=side, b=side)

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        few = bench.first(self.images)
        if few.targets is None or few.subject.colours is None or not len(few):
            return {}
        few = labelled(few if self.batch_norm == "stored" else bench)  # statistics of a part of a block are too noisy
        few = few.picked(torch.arange(len(few) - len(few) % MIXED))
        if len(few) < (MIXED if self.batch_norm == "stored" else STATISTICS):
            return {}
        with torch.no_grad():
            classes = few.logits(few.images[:1]).shape[1]
        shown = [
            (few.images, torch.nn.functional.one_hot(few.targets, classes).float()),  # type: ignore[arg-type]
            as_trained(few, self.recipe, MIXED, "landscape", classes),
        ]
        module = bench.subject.module
        weights = dict(moved(module))
        one, two = (direction(weights, number, self.normalisation) for number in (1, 2))
        side = self.offsets().size
        losses = torch.zeros(len(DATA), side, side, len(few))
        penalties = torch.zeros(side, side, dtype=torch.float64)
        everything = dict(module.named_parameters())
        for row, a in enumerate(self.offsets()):
            for column, b in enumerate(self.offsets()):
                with at(weights, {name: a * one[name] + b * two[name] for name in weights}), self.norms(bench):
                    for number, (images, targets) in enumerate(shown):
                        logits = few.logits(images)
                        losses[number, row, column] = -(targets.cpu() * logits.log_softmax(1)).sum(1)
                    total = sum(weight.detach().double().norm() for weight in everything.values())
                    penalties[row, column] = self.weight_decay * total
        # What is mixed together stays together in a fold: a draw that all folds share would have no interval.
        return {"losses": losses, "penalty": penalties, "group": torch.arange(len(few)) // MIXED}

    def norms(self, bench: Bench) -> contextlib.AbstractContextManager[None]:
        return batch_statistics(bench.subject.module) if self.batch_norm == "images" else contextlib.nullcontext()

    def update(self, tally: LandscapeTally, batch: Batch, views: Views, scene: Scene) -> None:
        counted = False
        for row, results in views.experiments(scene.scored_subjects):
            losses = results["losses"].double().movedim(-1, 0)
            fold = (batch.index * (scene.block // MIXED) + results["group"]) % scene.folds
            finite = losses.isfinite()
            tally.add("nll", fold, torch.where(finite, losses, 0.0), row)
            tally.add("infinite", fold, (~finite).double(), row)
            tally.add("seen", fold, None, row)
            if batch.index == 0:
                tally.penalty[row] += results["penalty"]
            if not counted:
                tally.add("images", fold)
            counted = True

    def estimate(self, total: LandscapeTally, scene: Scene) -> xarray.Dataset:
        seen = np.where(total.seen > 0, total.seen, np.nan)[:, None, None, None]
        nll = np.where(total.infinite.numpy() > 0, np.nan, total.nll.numpy() / seen)
        steps = self.offsets()
        return xarray.Dataset(
            {
                "nll": (("subject", "data", "a", "b"), nll, {"limits": (0.0, np.inf)}),
                "infinite": (
                    ("subject", "data", "a", "b"),
                    total.infinite.numpy() / seen,
                    {"exact": True},
                ),
                "penalty": (("subject", "a", "b"), total.penalty.numpy(), {"exact": True}),
            },
            coords={"subject": scene.scored_subjects, "data": list(DATA), "a": steps, "b": steps},
            attrs={"images": int(total.images)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in map(str, finding.subject.values):
            near, far = (quantity_in_words(finding, f"rise_augmented_at_{at}", ".2f", subject) for at in ("0.5", "1"))
            share = quantity_in_words(finding, "penalty_share", ".0%", subject)
            bad = int((finding.infinite.sel(subject=subject).values > 0).sum())
            broken = f"; {bad} points have infinite losses" if bad else ""
            parts.append(
                f"On augmented pictures the loss of {subject} rises by {near} at distance 0.5 and by {far} at "
                f"distance 1; with the penalty added, {share} of the rise would be the penalty's{broken}."
            )
        return " ".join(parts)
