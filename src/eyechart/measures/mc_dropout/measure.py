"""M24: do many draws see better than one? A subject that is stochastic at test time, averaged over its draws.

    prediction of an ensemble of n = mean over n passes of softmax(logits)

Fifty passes are cut into 50/n ensembles that share none, and each number is the mean over them: the fall of the
negative log-likelihood with n is the ensemble's, not the luck of one sequence of draws. For a subject whose passes are
all alike every ensemble is a single pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.measure import SampledExperiment, Source, Views
from eyechart.methods.calibration import BINS, add_to_bins, calibration_error
from eyechart.methods.scoring import CONFIDENCE, NLL, RIGHT, labelled, scored
from eyechart.quantity import PerSubjects, Quantity
from eyechart.reading_estimates import in_words, per_subject
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy
from eyechart.tally import Sum, Tally
from eyechart.tracing.bench import Bench
from eyechart.zoo.dropout import choose_draw

SIZES = (1, 2, 5, 10, 20, 50)
DRAWS = SIZES[-1]
ENSEMBLES = np.repeat(SIZES, [DRAWS // size for size in SIZES])
"""The size of each ensemble that is formed, 93 in all."""


@dataclass
class EnsembleTally(Tally):
    nll: Annotated[Tensor, Sum("fold", "subject", "ensemble")]
    images_in: Annotated[Tensor, Sum("fold", "subject", "ensemble", "bin")]
    confidence: Annotated[Tensor, Sum("fold", "subject", "ensemble", "bin")]
    right: Annotated[Tensor, Sum("fold", "subject", "ensemble", "bin")]
    alike: Annotated[Tensor, Sum("fold", "subject")]
    """Share of the pairs of passes that name a picture alike."""
    moved: Annotated[Tensor, Sum("fold", "subject")]
    """Pictures whose probabilities were not the same in all passes."""
    images: Annotated[Tensor, Sum("fold", counts=True)]


def stochastic(scene: Scene) -> list[str]:
    """Stochastic subjects with a classifier whose classes match the images'."""
    return [subject for subject in scene.scored_subjects if scene.anatomy(subject).random]


def passes_of(bench: Bench, count: int) -> Tensor:
    """Log-probabilities of `count` passes, (draw, image, class).

    The zoo's dropout has numbered draws, which are used in turn; other subjects draw anew in every pass.
    """
    module = bench.subject.module
    try:
        passes = []
        for draw in range(count):
            choose_draw(module, draw)
            passes.append(bench.logits(draw=draw).double().log_softmax(1))
    finally:
        choose_draw(module, 0)
    return torch.stack(passes)


def ensembles(draws: Tensor, size: int) -> Tensor:
    """Log of the mean probabilities of each run of `size` draws, (ensemble, image, class); none for those left over.

    >>> draws = torch.tensor([[[0.2, 0.8]], [[0.6, 0.4]]]).log()
    >>> ensembles(draws, 2).exp()
    tensor([[[0.4000, 0.6000]]])
    """
    groups = draws[: len(draws) // size * size].view(-1, size, *draws.shape[1:])
    return groups.logsumexp(1) - math.log(size)


def agreement(named: Tensor, classes: int) -> Tensor:
    """Of the pairs of passes, how many name each image alike, (image,), from names (draw, image)."""
    votes = torch.nn.functional.one_hot(named, classes).sum(0).double()
    return (votes * (votes - 1)).sum(1) / (len(named) * (len(named) - 1))


def at_size(estimate: xarray.Dataset, variable: str, size: int) -> PerSubjects:
    return per_subject(estimate[[variable]].sel(size=size), variable)


def gained(estimate: xarray.Dataset, variable: str) -> PerSubjects:
    """What fifty draws have more than one."""
    one, many = (at_size(estimate, variable, size) for size in (1, DRAWS))
    return {subject: many[subject] - one[subject] for subject in one}


@dataclass(frozen=True)
class McDropout(SampledExperiment):
    name = "mc_dropout"
    title = "Do many draws see better than one?"
    title_ko = "여러 번 뽑아 평균하면 더 잘 보는가?"
    order = 91
    chapter = "tell"
    sources = (
        Source("Park & Kim 2022b (Blurs Behave Like Ensembles)", "MC-dropout against ensemble size"),
        Source("Gal & Ghahramani 2016", "MC-dropout"),
    )
    how_to_read = (
        "A subject that is stochastic at test time gives another answer in every pass; the mean of several is an "
        "ensemble. In this order: negative log-likelihood, accuracy and calibration error of ensembles of 1 to 50 "
        "passes, with 95 % intervals over the pictures. A curve that is soon flat needs few passes."
    )
    how_to_read_ko = (
        "시험 때도 확률적인 모델은 매번 답이 다르며, 여러 답의 평균이 앙상블이다. 차례로 앙상블 크기 1–50에 따른 "
        "음의 로그 가능도, 정확도, 보정 오차와 95 % 구간이다. 일찍 평평해지면 적은 횟수로 충분하다."
    )
    method = (
        "Fifty passes over the same pictures; the prediction of n of them is their mean softmax. Numbers at n are "
        "means over 50/n ensembles without a pass in common, also of the calibration error (ten bins), whose "
        "interval is a bootstrap over folds. Only subjects whose passes differ in the dry run are examined."
    )
    quantities = (
        Quantity(
            "mc_nll",
            partial(at_size, variable="nll", size=DRAWS),
            "negative log-likelihood of 50 draws",
            limits=(0, None),
        ),
        Quantity("mc_nll_gain", partial(gained, variable="nll"), "negative log-likelihood, 50 draws minus one"),
        Quantity(
            "mc_accuracy_gain",
            partial(gained, variable="accuracy"),
            "accuracy, 50 draws minus one",
            paired=True,
            limits=(-1, 1),
        ),
        Quantity(
            "mc_ece",
            partial(at_size, variable="ece", size=DRAWS),
            "calibration error of 50 draws",
            smooth=False,
            limits=(0, 1),
        ),
    )
    labels = "subjects"
    budget: ClassVar[Mapping[str, float]] = {"normal": 60.0, "full": 600.0}

    def passes(self, anatomy: Anatomy) -> float:
        return float(DRAWS) if anatomy.random else 0.0

    def tally(self, scene: Scene) -> EnsembleTally:
        if not any(anatomy.random for anatomy in scene.anatomies):
            raise DoesNotApply("no subject is stochastic at test time, so all passes are alike.")
        if not stochastic(scene):
            raise DoesNotApply("no stochastic subject has classes that match the classes of the images.")
        return EnsembleTally.empty(fold=scene.folds, subject=len(stochastic(scene)), ensemble=len(ENSEMBLES), bin=BINS)

    def experiment(self, bench: Bench) -> Mapping[str, Tensor]:
        bench = labelled(bench.first(self.images))
        if not len(bench) or bench.targets is None or not bench.anatomy.random:
            return {}
        draws, targets = passes_of(bench, DRAWS), bench.targets.cpu()
        scores = [scored(each, targets) for size in SIZES for each in ensembles(draws, size)]
        return {
            "folds": bench.folds(),
            "scores": torch.stack(scores, dim=1),  # (image, ensemble, score)
            "alike": agreement(draws.argmax(2), draws.shape[2]),
            "moved": ((draws - draws[0]).abs() > 1e-6).any(2).any(0),
        }

    def update(self, tally: EnsembleTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds = None
        for column, results in views.experiments(stochastic(scene)):
            folds = results["folds"]
            tally.add("alike", folds, results["alike"], column)
            tally.add("moved", folds, results["moved"].double(), column)
            scores = results["scores"]
            tally.add("nll", folds, scores[..., NLL], column)
            confidence = scores[..., CONFIDENCE]
            sums = [field[:, column] for field in (tally.images_in, tally.confidence, tally.right)]
            place = (folds[:, None].expand_as(confidence), torch.arange(len(ENSEMBLES)))
            add_to_bins(sums, place, confidence, scores[..., RIGHT])
        if folds is not None:
            tally.add("images", folds)

    def estimate(self, total: EnsembleTally, scene: Scene) -> xarray.Dataset:
        subjects, images = stochastic(scene), float(total.images)
        bins = [getattr(total, name).numpy() for name in ("images_in", "confidence", "right")]
        share: dict[str, Any] = {"limits": (0.0, 1.0)}
        each = {
            "accuracy": (bins[2].sum(2) / images, {**share, "trials": images}),
            "nll": (total.nll.numpy() / images, {"limits": (0.0, np.inf)}),
            "ece": (calibration_error(*bins), {**share, "smooth": False}),
            "signed_ece": ((bins[1] - bins[2]).sum(2) / images, {"limits": (-1.0, 1.0)}),
        }
        return xarray.Dataset(
            {
                **{
                    name: (
                        ("subject", "size"),
                        np.stack([values[:, size == ENSEMBLES].mean(1) for size in SIZES], axis=1),
                        attrs,
                    )
                    for name, (values, attrs) in each.items()
                },
                "agreement": ("subject", total.alike.numpy() / images, {**share, "trials": images}),
                "moved": ("subject", total.moved.numpy() / images, share),
            },
            coords={
                "subject": subjects,
                "size": list(SIZES),
                "still": [s for s in scene.subjects if not scene.anatomy(s).random],
            },
            attrs={"images": int(images)},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in finding.subject.values.tolist():
            row = finding.sel(subject=subject)
            if float(row.moved) == 0:
                parts.append(f"the passes of {subject} were all alike")
                continue
            forms = {"nll": ".3f", "accuracy": ".1%", "ece": ".3f"}
            one, many = (
                {name: in_words(row.sel(size=size), name, form) for name, form in forms.items()} for size in (1, DRAWS)
            )
            parts.append(
                f"two passes of {subject} name {in_words(row, 'agreement', '.0%')} of the pictures alike; from 1 to "
                f"{DRAWS} passes its negative log-likelihood goes from {one['nll']} to {many['nll']}, accuracy from "
                f"{one['accuracy']} to {many['accuracy']} and calibration error from {one['ece']} to {many['ece']}"
            )
        still = finding.still.values.tolist()
        if still:
            parts.append(
                f"{' and '.join(still)} {'is' if len(still) == 1 else 'are'} not stochastic: all passes would be alike"
            )
        said = "; ".join(parts)
        return f"{said[0].upper()}{said[1:]}."
