"""A subject's answers: whether it gives any, which count as right, and how they change under an intervention.

Experiments that cut something out or put something in (skip removal, lesions, other attention) score the same images
with and without the change, so that the interval of the difference of two accuracies depends on the few answers that
changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.scene import Batch, Scene
from eyechart.site_choice import classifier
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View

if TYPE_CHECKING:
    from eyechart.measure import Views

RIGHT, NLL, CONFIDENCE = range(3)
"""Columns of `scored`."""
HAS_CLASS, SAME, TRIED = range(1, 4)
"""Columns of `outcomes` after the first, which is RIGHT too."""
COUNTS = 4
LOGITS = View("logits", lambda look: look.output.float())


def strangers(scene: Scene) -> list[str]:
    """Subjects that are not scored: they have no classifier, or other classes than the images."""
    return [subject for subject in scene.subjects if subject not in scene.scored_subjects]


def about_strangers(finding: xarray.Dataset) -> str:
    """A paragraph, after a line break, about the subjects that are left out; empty where there are none."""
    names = finding.stranger.values.tolist()
    if not names:
        return ""
    return f"\nLeft out, because they do not answer in the classes of the images: {', '.join(names)}."


def with_classes(batch: Batch, views: Views, scene: Scene) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Of the images whose class is known: their folds, and of each scored subject its logits and their targets."""
    assert batch.labels is not None  # a label map exists, so the images have classes
    chosen = views.put(np.flatnonzero(batch.labels >= 0))
    answers = []
    for subject in scene.scored_subjects:
        (site,) = classifier(scene.anatomy(subject))
        targets = scene.targets(subject, batch)
        assert targets is not None  # the subject is scored
        answers.append((views(subject, site, LOGITS)[chosen].double(), views.put(targets)[chosen]))
    return views.put(batch.image_folds)[chosen], answers


def labelled(bench: Bench) -> Bench:
    """The bench with the images whose class is known; no images where the subject's classes do not match."""
    chosen = torch.arange(0) if bench.targets is None else (bench.targets >= 0).nonzero().flatten().cpu()
    return bench.picked(chosen)


def scored_by(scene: Scene, subject: str) -> Literal["accuracy", "agreement"]:
    """Agreement with the intact answer says nothing of right or wrong, so no claim is decided by it."""
    return "accuracy" if subject in scene.label_maps else "agreement"


def wanted(bench: Bench, intact: Tensor) -> Tensor:
    """The answer (image,) that counts as right, -1 where none does; `intact` are the logits of the intact pictures.

    It is the class, or else what the subject itself said of the intact picture.
    """
    return answers_of(intact) if bench.targets is None else bench.targets.cpu()


def right(logits: Tensor, target: Tensor) -> Tensor:
    """1.0 where an answer is the wanted one, (image,); 0 also where no class is known, which `has_class` says.

    As in `outcomes`, what is not a number is no answer: `argmax` would name the class of the first NaN.
    """
    answers = answers_of(logits)
    return ((answers == target) & (answers >= 0)).double()


def has_class(target: Tensor) -> Tensor:
    return (target >= 0).to(torch.float64)


def scored(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """(image, score) from (image, class): named right (0 or 1), negative log-likelihood, highest probability.

    Of what is not a number the last two are not either, and nothing is right.

    >>> scored(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0])).round(decimals=2)
    tensor([[0.0000, 1.3900, 0.7500]], dtype=torch.float64)
    """
    exact = log_probabilities.double()
    highest, named = exact.max(1)
    nll = -exact.gather(1, targets[:, None])[:, 0]
    return torch.stack([((named == targets) & ~highest.isnan()).double(), nll, highest.exp()], dim=1)


def outcomes(logits: Tensor, intact: Tensor, targets: Tensor | None) -> Tensor:
    """(image, 4) in float64: named right, class known, same answer as intact, tried.

    An answer that is not a number is no answer: neither right nor the same. Logits of no class at all (a subject
    without a classifier) count as nothing tried.

    >>> one, two = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [torch.nan, 0.0]])
    >>> outcomes(two, one, torch.tensor([1, -1])).tolist()
    [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]
    """
    counted = torch.zeros(len(logits), COUNTS, dtype=torch.float64)
    if not logits.shape[1]:
        return counted
    answers, before = answers_of(logits), answers_of(intact)
    counted[:, SAME] = ((answers == before) & (answers >= 0)).double()
    counted[:, TRIED] = 1
    if targets is not None:
        counted[:, HAS_CLASS] = has_class(targets.cpu())
        counted[:, RIGHT] = counted[:, HAS_CLASS] * (answers == targets.cpu())
    return counted


def answers_of(logits: Tensor) -> Tensor:
    """The class each image is given, -1 where its logits are not finite."""
    return torch.where(logits.isfinite().all(1), logits.argmax(1), -1).cpu()


def accuracy_of(counted: Tensor) -> np.ndarray:
    """Share named right of those whose class is known, from counts (…, 4); NaN where none is."""
    return share(counted[..., RIGHT], counted[..., HAS_CLASS])


def changed_of(counted: Tensor) -> np.ndarray:
    """Share of images that get another answer than from the intact subject."""
    return 1 - share(counted[..., SAME], counted[..., TRIED])


def images_with_class(counted: Tensor) -> float:
    """How many images have a class: the trials of an accuracy. The same for all that is compared; at least 1."""
    return max(float(counted[..., HAS_CLASS].max()), 1.0)


def share(part: Tensor, whole: Tensor) -> np.ndarray:
    """
    >>> share(torch.tensor([1.0, 0.0]).double(), torch.tensor([4.0, 0.0]).double())
    array([0.25,  nan])
    """
    some = whole.numpy()
    shares: np.ndarray = part.numpy() / np.where(some > 0, some, np.nan)
    return shares
