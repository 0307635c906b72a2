"""M23: does it know when it is wrong? Confidence against accuracy, before and after temperature scaling.

Images fall into ten equal bins of confidence (the highest softmax probability). With n_b images, c_b their confidences
summed and r_b how many of them are right,

    ECE = Σ_b |r_b − c_b| / n          signed ECE = Σ_b (c_b − r_b) / n = mean confidence − accuracy

ECE is not 0 for a perfectly calibrated model: chance alone gives the floor sqrt(2/π) · Σ_b sqrt(Σ_i c_i(1 − c_i)) / n,
drawn beside it. The signed error has no such floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
import xarray
from torch import Tensor
from torch.nn import functional as F

from eyechart.intervals import room_for
from eyechart.measure import Measure, Source, Views, subject_coordinates
from eyechart.methods.calibration import BINS, bin_of, calibration_error, lowest, value_at
from eyechart.methods.scoring import LOGITS, with_classes
from eyechart.quantity import Bounds, Compute, Quantity, known_to, of_pairs
from eyechart.reading_estimates import by_subject, in_points, in_words, jackknifed, per_subject, spanned, with_ends
from eyechart.scene import Batch, Scene
from eyechart.site_choice import classifier
from eyechart.tally import Sum, Tally, sums_by
from eyechart.tracing.needs import Need

SURE = 0.9
AT_ONCE = 1 << 22  # logits divided by temperatures at a time: twenty thousand classes would take gigabytes
TEMPERATURES = 2.0 ** torch.arange(-2, 2.01, 0.125, dtype=torch.float64)
"""Tried on one half of the images; the best, read between them, is used on the other half."""
PLAIN = int(TEMPERATURES.log2().abs().argmin())


@dataclass
class CalibrationTally(Tally):
    images_in: Annotated[Tensor, Sum("fold", "half", "temperature", "subject", "bin")]
    confidence: Annotated[Tensor, Sum("fold", "half", "temperature", "subject", "bin")]
    right: Annotated[Tensor, Sum("fold", "half", "temperature", "subject", "bin")]
    chance: Annotated[Tensor, Sum("fold", "half", "temperature", "subject", "bin")]
    """Σ c(1 − c): the variance of how many would be right if confidences were true."""
    nll: Annotated[Tensor, Sum("fold", "half", "temperature", "subject")]
    brier: Annotated[Tensor, Sum("fold", "subject")]
    sure: Annotated[Tensor, Sum("fold", "subject", "was_right")]
    """Images above 90 % confidence: wrong ones, right ones."""
    half_images: Annotated[Tensor, Sum("fold", "half")]
    images: Annotated[Tensor, Sum("fold", counts=True)]


def each(variable: str) -> Compute:
    return partial(per_subject, variable=variable)


def no_interval(_: xarray.Dataset, __: str) -> float:
    """Of a temperature that no draw of images moved: it stands at an end of those tried, and the best lies beyond."""
    return math.nan


def advantage(variable: str) -> Compute:
    """How much farther a CNN's confidence is from its accuracy than a ViT's: above 0 the ViT is better calibrated.

    By the signed error: the bootstrap of a difference of two calibration errors covered only .83 near their floor. But
    errors of both signs cancel in it, so the calibration error itself must not say the opposite.
    """

    def number(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
        error = by_subject(estimate, variable)
        return float(abs(error[cnn]) - abs(error[vit]))

    return of_pairs(number)


def of_all_or_nothing(estimate: xarray.Dataset) -> Bounds:
    """Signed errors where no image, or each, was named right: folds do not differ, but other images may."""
    errors, accuracies = by_subject(estimate, "signed_ece"), by_subject(estimate, "accuracy")
    return {
        (subject,): (
            errors[subject] - room * (accuracies[subject] == 0),
            errors[subject] + room * (accuracies[subject] == 1),
        )
        for subject, room in room_of(accuracies, estimate.attrs["images"]).items()
    }


def either_way(estimate: xarray.Dataset, variable: str) -> Bounds:
    """The same of calibration errors, which have no sign."""
    errors, rooms = by_subject(estimate, variable), room_of(by_subject(estimate, "accuracy"), estimate.attrs["images"])
    return {(subject,): (errors[subject] - room, errors[subject] + room) for subject, room in rooms.items()}


def room_of(accuracies: Mapping[str, float], images: float) -> dict[str, float]:
    """How far the accuracy of each subject may lie from 0 or 1, which folds do not show; 0 where it is between."""
    return {subject: float(room_for(images)) * (accuracy in (0, 1)) for subject, accuracy in accuracies.items()}


@dataclass(frozen=True)
class Calibration(Measure):
    name = "calibration"
    title = "Does it know when it is wrong?"
    title_ko = "틀릴 때 틀린 줄 아는가?"
    order = 90
    adds_up_anywhere = True
    chapter = "tell"
    sources = (Source("Park & Kim 2022", "uncertainty of the released models"), Source("Guo et al. 2017", "Figure 4"))
    how_to_read = (
        "Each point is a tenth of the confidence range: how confident the model was there, and how often it was right, "
        "with a 95 % interval; larger points hold more pictures, and one without an interval holds too few. On the "
        "dashed diagonal confidence equals accuracy; below it the model is over-confident. Next: the calibration error "
        "before and after one temperature was fitted on other pictures; the short stroke is what a perfectly "
        "calibrated model of the same confidences would score by chance."
    )
    how_to_read_ko = (
        "점 하나는 확신도의 십분의 일 구간이다. 가로는 확신도, 세로는 실제 정답률과 95 % 구간이고 점이 클수록 "
        "그림이 많다. 구간이 없는 점은 그림이 너무 적은 것이다. 파선에 놓이면 확신도가 정답률과 같고, 아래면 "
        "지나치게 확신한다. 다음은 온도 하나를 다른 그림에서 맞추기 전과 후의 보정 오차이며, 짧은 선은 완벽히 보정된 "
        "모델도 우연히 얻는 값이다."
    )
    method = (
        "Expected calibration error over ten equal-width bins of confidence, and mean confidence minus accuracy "
        "(signed). Temperature scaling divides the logits by the temperature that is best on the other half of the "
        "images, between 1/4 and 4: the minimum of a cubic spline through eight temperatures an octave. The error "
        "after scaling is counted at the nearest of these, at most 4.4 % off. Freq-90: how often the confidence "
        "is above 90 %. Calibration error: bootstrap over folds."
    )
    quantities = (
        Quantity(
            "ece",
            each("ece"),
            "expected calibration error",
            smooth=False,
            limits=(0, 1),
            if_unmoved=partial(either_way, variable="ece"),
        ),
        Quantity(
            "signed_ece",
            each("signed_ece"),
            "mean confidence minus accuracy",
            limits=(-1, 1),
            if_unmoved=of_all_or_nothing,
        ),
        Quantity(
            "ece_floor",
            each("floor"),
            "what a perfectly calibrated model would score by chance",
            reference=True,
            limits=(0, 1),
        ),
        Quantity("brier", each("brier"), "squared distance of the probabilities from the truth", limits=(0, 2)),
        Quantity(
            "temperature",
            each("temperature"),
            "temperature that calibrates it best; above 1: over-confident",
            smooth=False,
            limits=(1 / 4, 4),
            if_unmoved=known_to(no_interval, each("temperature")),
        ),
        Quantity(
            "scaled_ece",
            each("scaled_ece"),
            "expected calibration error after temperature scaling",
            smooth=False,
            limits=(0, 1),
            if_unmoved=partial(either_way, variable="scaled_ece"),
        ),
        Quantity(
            "scaled_nll",
            each("scaled_nll"),
            "negative log-likelihood after temperature scaling",
            unit="nats",
            limits=(0, None),
        ),
        Quantity("freq_90", each("freq_90"), "how often it is more than 90 % sure", limits=(0, 1), share=True),
        Quantity(
            "calibration_advantage",
            advantage("signed_ece"),
            "distance of confidence from accuracy, CNN minus ViT",
            limits=(-1, 1),
        ),
        Quantity(
            "calibration_error_advantage",
            advantage("ece"),
            "expected calibration error, CNN minus ViT",
            smooth=False,
            limits=(-1, 1),
        ),
    )
    labels = "subjects"

    def needs(self) -> Sequence[Need]:
        return [Need(LOGITS, classifier)]

    def tally(self, scene: Scene) -> CalibrationTally:
        return CalibrationTally.empty(
            fold=scene.folds,
            half=2,
            temperature=len(TEMPERATURES),
            subject=len(scene.scored_subjects),
            bin=BINS,
            was_right=2,
        )

    def update(self, tally: CalibrationTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds, answers = with_classes(batch, views, scene)
        # Halves within a fold, so that every fold has both; the order of images is random, so any rule will do.
        assert batch.labels is not None
        halves = (batch.start + np.arange(len(batch.images))) // scene.folds % 2
        cells = folds * 2 + views.put(halves[batch.labels >= 0])
        for column, (logits, targets) in enumerate(answers):
            at_once = max(1, AT_ONCE // max(1, logits.numel()))
            for first in range(0, len(TEMPERATURES), at_once):
                self.add(tally, cells, slice(first, first + at_once), column, logits, targets)
            probabilities = logits.softmax(1)
            distance = (probabilities - F.one_hot(targets, logits.shape[1])).square().sum(1)
            tally.add("brier", folds, distance, column)
            confidence, named = probabilities.max(1)
            sure = F.one_hot((named == targets).long(), 2).double() * (confidence > SURE)[:, None]
            tally.add("sure", folds, sure, column)
        tally.half_images.view(-1).add_(sums_by(cells, torch.ones_like(cells)[None].double(), 2 * scene.folds)[0])
        tally.add("images", folds)

    def add(
        self, tally: CalibrationTally, cells: Tensor, rows: slice, column: int, logits: Tensor, targets: Tensor
    ) -> None:
        """The answers at some of the temperatures."""
        scaled = logits / TEMPERATURES[rows, None, None].to(logits.device, non_blocking=True)
        confidence, named = scaled.softmax(2).max(2)  # (temperature, image)
        summed = {
            "images_in": torch.ones_like(confidence),
            "confidence": confidence,
            "right": (named == targets).double(),
            "chance": confidence * (1 - confidence),
        }
        half, places = (len(tally.images), 2), len(tally.images) * 2 * BINS
        counted = sums_by(cells * BINS + bin_of(confidence), torch.stack([*summed.values()], dim=1), places)
        for name, counts in zip(summed, counted.unbind(1), strict=True):
            getattr(tally, name)[:, :, rows, column] += counts.view(-1, *half, BINS).permute(1, 2, 0, 3)
        nll = F.cross_entropy(scaled.flatten(0, 1), targets.repeat(len(scaled)), reduction="none").view_as(confidence)
        of_halves = sums_by(cells, nll, len(tally.images) * 2)
        tally.nll[:, :, rows, column] += of_halves.view(-1, *half).permute(1, 2, 0)

    def estimate(self, total: CalibrationTally, scene: Scene) -> xarray.Dataset:
        subjects, images = scene.scored_subjects, float(total.images)
        bins = {name: getattr(total, name).numpy() for name in ("images_in", "confidence", "right", "chance")}
        plain = {name: values[:, PLAIN].sum(0) for name, values in bins.items()}
        with np.errstate(invalid="ignore", divide="ignore"):
            confidence, accuracy = (plain[name] / plain["images_in"] for name in ("confidence", "right"))
            sure, brier = total.sure.numpy(), total.brier.numpy() / images
            wrong = (plain["images_in"] - plain["right"]).sum(1)
            unc_90 = 1 - sure[:, 0] / wrong
            acc_90 = sure[:, 1] / sure.sum(1)
        # The temperature of one half is used on the other: it never saw the images it is scored on.
        nll, columns = total.nll.numpy(), np.arange(len(subjects))
        logs = np.log2(TEMPERATURES.numpy())
        best = np.array([[lowest(logs, nll[half, :, at]) for at in columns] for half in (0, 1)])
        scaled_nll = sum(
            np.array([value_at(logs, nll[half, :, at], best[1 - half, at]) for at in columns]) / images
            for half in (0, 1)
        )
        # Bins of confidence are counted at the temperatures themselves: the nearest is at most 4.4 % off.
        nearest = np.abs(best[..., None] - logs).argmin(-1)
        scaled = {
            name: np.stack([values[half, nearest[1 - half], columns] for half in (0, 1)]).sum(0)
            for name, values in bins.items()
        }
        floor = math.sqrt(2 / math.pi) * np.sqrt(plain["chance"]).sum(1) / images
        accuracy_of_all = plain["right"].sum(1) / images
        room = [*room_of(dict(zip(subjects, accuracy_of_all.tolist(), strict=True)), images).values()]
        step, unit = {"limits": (0.0, 1.0), "smooth": False, "room": room}, {"limits": (0.0, 1.0)}
        gap, positive = {"limits": (-1.0, 1.0)}, {"limits": (0.0, np.inf)}
        counted = {**unit, "trials": images}
        return xarray.Dataset(
            {
                "accuracy_in_bin": (("subject", "bin"), accuracy, {**unit, "trials": plain["images_in"]}),
                "confidence_in_bin": (("subject", "bin"), confidence, unit),
                "share_in_bin": (("subject", "bin"), plain["images_in"] / images, unit),
                "accuracy": ("subject", accuracy_of_all, counted),
                "ece": ("subject", calibration_error(*(plain[k] for k in ("images_in", "confidence", "right"))), step),
                "signed_ece": ("subject", (plain["confidence"] - plain["right"]).sum(1) / images, gap),
                "floor": ("subject", floor, unit),
                "brier": ("subject", brier, {"limits": (0.0, 2.0)}),
                "temperature": ("subject", 2 ** best.mean(0), {"smooth": False, "limits": (1 / 4, 4.0)}),
                "scaled_ece": (
                    "subject",
                    calibration_error(*(scaled[k] for k in ("images_in", "confidence", "right"))),
                    step,
                ),
                "scaled_nll": ("subject", scaled_nll, positive),
                "acc_90": ("subject", acc_90, {**unit, "trials": sure.sum(1)}),
                "freq_90": ("subject", sure.sum(1) / images, counted),
                "unc_90": ("subject", unc_90, {**unit, "trials": wrong}),
            },
            coords={
                **subject_coordinates(scene, subjects),
                "bin": [f"{edge / BINS:.1f}–{(edge + 1) / BINS:.1f}" for edge in range(BINS)],
            },
            attrs={"images": int(images), "guessing": 1 / len(scene.classes) if scene.classes else np.nan},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in finding.subject.values:
            here = finding.sel(subject=subject)
            if guesses(here):
                sure = jackknifed(here, lambda each: float(each.accuracy + each.signed_ece), "accuracy", "signed_ece")
                parts.append(
                    f"{subject} names {in_words(here, 'accuracy', '.1%')} right, not clearly more than guessing "
                    f"one of the images' classes ({here.attrs['guessing']:.1%}), with a mean confidence of "
                    f"{spanned(sure, '.1%')}: it knows nothing yet to be sure of"
                )
                continue
            signed, low, high = with_ends(here, "signed_ece")
            verdict = (
                "too sure of itself"
                if low > 0
                else "not sure enough"
                if high < 0
                else "not clearly too sure or too unsure"
            )
            apart = (signed, low, high) if signed > 0 else (-signed, -high, -low)
            scaling = with_ends(here, "temperature")
            at_an_end = scaling[1] == scaling[2]
            fitted = spanned((scaling[0], math.nan, math.nan) if at_an_end else scaling, ".2f")
            parts.append(
                f"{subject} is {verdict}: its confidence is {in_points(apart)} points "
                f"{'above' if signed > 0 else 'below'} its accuracy; calibration "
                f"error {in_words(here, 'ece', '.3f')} (chance alone {in_words(here, 'floor', '.3f')}), "
                f"{in_words(here, 'scaled_ece', '.3f')} at temperature {fitted}"
            )
        return ". ".join(parts) + "."


def guesses(finding: xarray.Dataset) -> bool:
    """Of one subject, whether its accuracy may be that of guessing; a finding of an older version does not tell."""
    return "accuracy" in finding and not float(finding.accuracy_low) > finding.attrs["guessing"]
