"""A short stand-in for millions of weights that keeps their distances and angles (CountSketch).

Every weight is added, with a random sign, to one of `BUCKETS` buckets. Inner products of two sketches are unbiased, and
squared lengths are off by a relative standard deviation of sqrt(2 / BUCKETS): 0.6 %, so lengths by 0.3 %. An angle θ is
off by sin θ / sqrt(BUCKETS), 0.2° at most, and the ratio of two lengths by 1 / sqrt(BUCKETS) of itself at most (0.4 %).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

BUCKETS = 1 << 16
ERROR = 1.96 / math.sqrt(BUCKETS)
"""95 % of ratios of lengths lie as close to the true one, as a share of it, and of angles θ in radians, times sin θ."""


def sketch(weights: Mapping[str, Tensor]) -> Tensor:
    """(bucket,) float64; places and signs depend on the names alone, so that snapshots of one network compare.

    >>> one, two = {"w": torch.ones(1000)}, {"w": torch.linspace(-1, 3, 1000)}
    >>> exact = float((one["w"] - two["w"]).norm())
    >>> abs(float((sketch(one) - sketch(two)).norm()) / exact - 1) < 0.02
    True
    """
    result = torch.zeros(BUCKETS, dtype=torch.float64)
    for name, weight in weights.items():
        digest = hashlib.sha256(f"eyechart sketch 1, {name}".encode()).digest()
        draw = np.random.RandomState(int.from_bytes(digest[:4], "big")).randint(0, 2 * BUCKETS, weight.numel())
        place, sign = torch.from_numpy(draw // 2), torch.from_numpy(draw % 2 * 2.0 - 1)
        result.index_add_(0, place, sign * weight.detach().double().cpu().flatten())
    return result
