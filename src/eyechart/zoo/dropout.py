"""Dropout that stays on at test: one draw is one set of masks, the prediction is the mean over several (SPEC 1.10).

At test the masks of a draw belong to the picture: they are computed from its pixels, so a picture gets the same ones in
any batch, shard, process and device, and an exam that was stopped goes on with the same numbers. In training they come
from torch's generator, as any dropout's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class McDropout(nn.Module):
    """Dropout that `eval()` does not switch off; `switch_dropout` does.

    >>> dropout = McDropout(0.3).eval()
    >>> bool((dropout(torch.ones(1000)) == 0).any())
    True
    """

    def __init__(self, probability: float, index: int = 0) -> None:
        super().__init__()
        self.probability = probability
        self.index = index
        self.draw = 0
        self.at_test = True
        self.pictures: Tensor | None = None
        """One number a picture, while a model that `follow_pictures` is called."""

    def forward(self, maps: Tensor) -> Tensor:
        if self.training or self.pictures is None:
            return F.dropout(maps, self.probability, training=self.training or self.at_test)
        if not self.at_test:
            return maps
        with torch.no_grad(), torch._C.DisableTorchFunction():  # the taps see a constant, not how it is made
            kept = _uniform(self.pictures, maps.shape[1:], seed=self.draw * 4096 + self.index) >= self.probability
            mask = kept.to(maps.dtype) / (1 - self.probability)
        return maps * mask

    def extra_repr(self) -> str:
        return f"{self.probability}, at_test={self.at_test}"


def switch_dropout(module: nn.Module, on: bool) -> int:
    """Switch the test-time dropout of a model on or off; returns how many dropout layers it has."""
    dropouts = _dropouts(module)
    for dropout in dropouts:
        dropout.at_test = on
    return len(dropouts)


def has_draws(module: nn.Module) -> bool:
    """Does its test-time dropout make one draw differ from another?"""
    return any(dropout.at_test and dropout.probability > 0 for dropout in _dropouts(module))


def choose_draw(module: nn.Module, draw: int) -> None:
    """Which of its draws a model shows at test; the first is 0."""
    for dropout in _dropouts(module):
        dropout.draw = draw


def follow_pictures(module: nn.Module) -> None:
    """Let every `McDropout` in a model know which pictures the model is called on, at test."""
    module.register_forward_pre_hook(_tell)
    module.register_forward_hook(_forget, always_call=True)


def _tell(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    if module.training:
        return
    with torch.no_grad(), torch._C.DisableTorchFunction():
        bits = inputs[0].detach().float().contiguous().view(torch.int32).flatten(1).long()
        weights = _mixed(torch.arange(bits.shape[1], device=bits.device)) | 1
        pictures = _mixed((bits * weights).sum(dim=1))
    for dropout in _dropouts(module):
        dropout.pictures = pictures


def _forget(module: nn.Module, inputs: Any, output: Any) -> None:
    if not module.training:
        for dropout in _dropouts(module):
            dropout.pictures = None


def _dropouts(module: nn.Module) -> list[McDropout]:
    return [part for part in module.modules() if isinstance(part, McDropout)]


def _uniform(keys: Tensor, shape: torch.Size, seed: int) -> Tensor:
    """Numbers of 0 … 1 for each key, (key, *shape); the same for a key and a seed on every device."""
    cells = _mixed(torch.arange(shape.numel(), device=keys.device) + (seed << 32))
    return (_mixed(keys[:, None] ^ cells) >> 40 & (1 << 24) - 1).reshape(len(keys), *shape) / float(1 << 24)


def _mixed(numbers: Tensor) -> Tensor:
    """The finaliser of splitmix64, on int64 that wraps around; the shifts let no sign in."""
    numbers = (numbers ^ (numbers >> 30 & (1 << 34) - 1)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    numbers = (numbers ^ (numbers >> 27 & (1 << 37) - 1)) * (0x94D049BB133111EB - (1 << 64))
    return numbers ^ (numbers >> 31 & (1 << 33) - 1)
