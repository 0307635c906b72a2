"""What a change does to a subject's answers: named right or wrong, and the same as the intact subject's or not.

Experiments that cut something out or put something in (skip removal, lesions, other attention) score the same images
with and without the change, so that the difference of two accuracies has the interval of the few answers that moved.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from eyechart.sites import Anatomy

RIGHT, KNOWN, SAME, TRIED = range(4)
COUNTS = 4


def gives_answers(anatomy: Anatomy) -> bool:
    """Whether classes come out: features of a subject without a classifier look like logits, but nothing reads them.

    A fully convolutional classifier pools last, so of a CNN only the experiment itself can tell.
    """
    return bool(anatomy.pick("head")) and (anatomy.pooling is not None or anatomy.architecture == "cnn")


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
        known = targets.cpu() >= 0
        counted[:, KNOWN] = known.double()
        counted[:, RIGHT] = (known & (answers == targets.cpu())).double()
    return counted


def answers_of(logits: Tensor) -> Tensor:
    """The class each image is given, -1 where its logits are not finite."""
    return torch.where(logits.isfinite().all(1), logits.argmax(1), -1).cpu()


def accuracy_of(counted: Tensor) -> np.ndarray:
    """Share named right of those whose class is known, from counts (…, 4); NaN where none is."""
    return share(counted[..., RIGHT], counted[..., KNOWN])


def changed_of(counted: Tensor) -> np.ndarray:
    """Share of images that get another answer than from the intact subject."""
    return 1 - share(counted[..., SAME], counted[..., TRIED])


def known_of(counted: Tensor) -> float:
    """How many images have a class: the trials of an accuracy. The same for all that is compared; at least 1."""
    return max(float(counted[..., KNOWN].max()), 1.0)


def share(part: Tensor, whole: Tensor) -> np.ndarray:
    """
    >>> share(torch.tensor([1.0, 0.0]).double(), torch.tensor([4.0, 0.0]).double())
    array([0.25,  nan])
    """
    some = whole.numpy()
    found: np.ndarray = part.numpy() / np.where(some > 0, some, np.nan)
    return found
