"""How well does each subject recognise these pictures? The gate of most claims, and the first thing people ask.

Top-1 accuracy and the mean negative log-likelihood over the images whose classes match the subject's.

    accuracy = share of images whose class is argmax p        NLL = mean of −ln p(class)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
import xarray

from eyechart.measure import Measure, Source, Views
from eyechart.methods.scoring import LOGITS, with_classes
from eyechart.quantity import Quantity
from eyechart.reading_estimates import in_words, per_subject
from eyechart.scene import Batch, Scene
from eyechart.site_choice import classifier
from eyechart.tally import Concat, Sum, Tally
from eyechart.tracing.needs import Need


@dataclass
class RecognitionTally(Tally):
    correct: Annotated[torch.Tensor, Sum("fold", "subject")]
    nll: Annotated[torch.Tensor, Sum("fold", "subject")]
    images: Annotated[torch.Tensor, Sum("fold", counts=True)]
    image: Annotated[torch.Tensor, Concat("image", dtype="int64")]
    right: Annotated[torch.Tensor, Concat("image", "subject", dtype="bool")]


def of_each(variable: str) -> Quantity:
    words = {"accuracy": "share of images named right (common crop)", "nll": "mean negative log-likelihood, in nats"}
    return Quantity(
        variable,
        partial(per_subject, variable=variable),
        words[variable],
        limits=(0.0, 1.0 if variable == "accuracy" else None),
        share=variable == "accuracy",
    )


@dataclass(frozen=True)
class Recognition(Measure):
    name = "recognition"
    title = "How well does it recognise?"
    title_ko = "얼마나 잘 알아보는가?"
    order = 5
    adds_up_anywhere = True
    chapter = "tell"
    labels = "subjects"
    sources = (Source("eyechart", "the accuracy gate of the verdicts"),)
    how_to_read = (
        "Each point is the share of pictures a subject names right, with its 95 % interval over the pictures drawn. "
        "All subjects see the same central square, so the number can differ from a published one with another crop."
    )
    how_to_read_ko = (
        "점은 대상이 바르게 답한 그림의 비율이고, 선은 뽑은 그림들에 걸친 95 % 구간이다. 모든 대상이 같은 중앙 "
        "정사각형을 보므로, 다른 크롭으로 발표된 값과 다를 수 있다."
    )
    method = (
        "Top-1 accuracy and mean negative log-likelihood on the common crop, where the classes of the images match the "
        "subject's; delete-one-fold jackknife over images."
    )
    quantities = (of_each("accuracy"), of_each("nll"))

    def needs(self) -> Sequence[Need]:
        return [Need(LOGITS, classifier)]

    def tally(self, scene: Scene) -> RecognitionTally:
        return RecognitionTally.empty(fold=scene.folds, subject=len(scene.scored_subjects))

    def update(self, tally: RecognitionTally, batch: Batch, views: Views, scene: Scene) -> None:
        folds, answers = with_classes(batch, views, scene)
        right = torch.zeros(len(folds), tally.right.shape[1], dtype=torch.bool, device=folds.device)
        for column, (logits, target) in enumerate(answers):
            right[:, column] = logits.argmax(1) == target
            nll = torch.nn.functional.cross_entropy(logits, target, reduction="none")
            tally.add("correct", folds, right[:, column].double(), column)
            tally.add("nll", folds, nll, column)
        tally.add("images", folds)
        assert batch.labels is not None
        tally.append(image=views.put(batch.images[batch.labels >= 0]), right=right)

    def estimate(self, total: RecognitionTally, scene: Scene) -> xarray.Dataset:
        return xarray.Dataset(
            {
                "accuracy": (
                    "subject",
                    (total.correct / total.images).numpy(),
                    {"limits": (0.0, 1.0), "trials": float(total.images)},
                ),
                "nll": ("subject", (total.nll / total.images).numpy(), {"limits": (0.0, np.inf)}),
                "right": (("image", "subject"), total.right.numpy()),
            },
            coords={"subject": scene.scored_subjects, "image": total.image.numpy()},
        )

    def sentence(self, finding: xarray.Dataset) -> str:
        parts = []
        for subject in finding.subject.values:
            share = in_words(finding.sel(subject=subject), "accuracy", ".1%")
            parts.append(f"{subject} names {share} of the pictures right")
        return "; ".join(parts) + "."
