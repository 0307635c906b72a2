"""Bins of confidence: sums that calibration errors are read from, whatever the answers are answers to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

BINS = 10


def bin_of(confidence: Tensor) -> Tensor:
    """Equal bins (a, b]: a confidence of exactly 0.3 lies in the third.

    >>> bin_of(torch.tensor([0.3, 0.31, 1.0], dtype=torch.float64))
    tensor([2, 3, 9])
    """
    return (confidence.double() * BINS).ceil().long().clamp(1, BINS) - 1


def add_to_bins(sums: Sequence[Tensor], place: tuple[Tensor, ...], confidence: Tensor, right: Tensor) -> None:
    """Add answers to sums (…, bin) of images, of confidences and of right ones; `place` says where, before the bin."""
    for field, values in zip(sums, (torch.ones_like(confidence), confidence, right), strict=True):
        field.index_put_((*place, bin_of(confidence)), values, accumulate=True)


def calibration_error(images: np.ndarray, confidence: np.ndarray, right: np.ndarray) -> np.ndarray:
    """ECE from the sums of the bins, on the last axis."""
    errors: np.ndarray = np.abs(right - confidence).sum(-1) / images.sum(-1)
    return errors
