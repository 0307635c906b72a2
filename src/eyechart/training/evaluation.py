"""Error, NLL and calibration error of a model on labelled images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eyechart.methods.calibration import BINS, bin_of
from eyechart.training.augment import Normalisation


@dataclass(frozen=True)
class Scores:
    error: float
    nll: float
    ece: float

    def as_json(self) -> Mapping[str, float]:
        return asdict(self)


@torch.no_grad()
def evaluate(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    normalisation: Normalisation,
    *,
    bfloat16: bool = False,
    batch: int = 1000,
) -> Scores:
    """Scores on clean uint8 images, in eval mode; the module's mode and the random numbers are as before.

    What is random at test draws from seed 0, so that scoring more often changes no training.
    """
    was_training = module.training
    module.eval()
    logits = []
    with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
        torch.manual_seed(0)
        for start in range(0, len(images), batch):
            inputs = normalisation.apply(images[start : start + batch])
            with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=bfloat16):
                logits.append(module(inputs).float())
    module.train(was_training)
    return score(torch.cat(logits), labels)


def score(logits: Tensor, labels: Tensor) -> Scores:
    """Error, NLL and ECE of logits (N, classes)."""
    confidence, predicted = logits.softmax(dim=1).max(dim=1)
    right = predicted == labels
    return Scores(
        error=1 - float(right.double().mean()),
        nll=float(F.cross_entropy(logits, labels)),
        ece=calibration_error(confidence, right),
    )


def calibration_error(confidence: Tensor, right: Tensor) -> float:
    """Σ over equal bins (a, b] of confidence: share of images × |accuracy − mean confidence|.

    >>> import torch
    >>> calibration_error(torch.full((4,), 0.75), torch.tensor([True, True, True, False]))
    0.0
    """
    gap = torch.zeros(BINS, dtype=torch.float64, device=confidence.device)
    gap.index_add_(0, bin_of(confidence), right.double() - confidence.double())
    return float(gap.abs().sum()) / len(confidence)
