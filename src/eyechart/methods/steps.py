"""Steps of sub-layers: by how much each changes a number of the stream."""

from __future__ import annotations

import numpy as np
import xarray

KIND_WORDS = {"mlp": "MLP", "conv": "convolution"}  # in sentences, as the legends have them

UNMOVED = 1e-5
"""Log changes no larger than this are rounding: a branch that adds a constant changes the variance by 1e-7."""


def within_rounding(estimate: object, *subjects: str) -> float:
    """How far a mean of changes may lie from what is left of them beyond rounding."""
    return UNMOVED


def beyond_rounding(changes: np.ndarray) -> np.ndarray:
    """Changes of at most `UNMOVED` become 0: their intervals are as narrow, and could exclude 0 by rounding alone."""
    return np.where(np.abs(changes) > UNMOVED, changes, np.where(np.isfinite(changes), 0.0, np.nan))


def surely(finding: xarray.Dataset, name: str) -> np.ndarray:
    """The low ends of changes, so that what is above 0 rises clearly; the changes themselves where there are none."""
    low = finding[f"{name}_low"].values
    return np.where(np.isnan(low), finding[name].values, low)
