"""Spatial smoothing: a small blur before sub-sampling (SPEC 1.10; Park & Kim, "Blurs behave like ensembles")."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn


class Smoothing(nn.Module):
    """t · tanh(x / t), then ReLU, then the mean of each cell and its right, lower and lower right neighbours.

    The map keeps its size: cells beyond the edge repeat it, as in the authors' `Blur` (their other way, average
    pooling with padding 1, grows the map by one).

    >>> import torch
    >>> Smoothing()(torch.tensor([[[[0.0, 4.0], [0.0, 0.0]]]])).shape
    torch.Size([1, 1, 2, 2])
    """

    def __init__(self, scale: float = 10.0, padding: Literal["replicate", "circular"] = "replicate") -> None:
        super().__init__()
        self.scale = scale
        self.padding = padding

    def forward(self, maps: Tensor) -> Tensor:
        bounded = F.relu(self.scale * (maps / self.scale).tanh())
        return F.avg_pool2d(F.pad(bounded, (0, 1, 0, 1), mode=self.padding), kernel_size=2, stride=1)

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}, padding={self.padding}"
