"""Dropout that stays on at test: one pass is one draw, the prediction is the mean of several (SPEC 1.10)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class McDropout(nn.Module):
    """Dropout that `eval()` does not switch off; `switch_dropout` does.

    >>> import torch
    >>> dropout = McDropout(0.3).eval()
    >>> bool((dropout(torch.ones(1000)) == 0).any())
    True
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.at_test = True

    def forward(self, maps: Tensor) -> Tensor:
        return F.dropout(maps, self.probability, training=self.training or self.at_test)

    def extra_repr(self) -> str:
        return f"{self.probability}, at_test={self.at_test}"


def switch_dropout(module: nn.Module, on: bool) -> int:
    """Switch the test-time dropout of a model on or off; returns how many places it has."""
    places = [part for part in module.modules() if isinstance(part, McDropout)]
    for place in places:
        place.at_test = on
    return len(places)
