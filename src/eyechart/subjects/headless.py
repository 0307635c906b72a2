"""Does a user's module end in a classifier, or in features? Both may come out as (image, number) and look alike.

A module that says so itself (`num_classes`, `classes`, a Hugging Face config) or whose owner does is not asked. Of any
other, the last of its parts with weights that ran is looked at. Where that is a normalisation, or a matrix that gave as
many channels of every token as come out, these were pooled or flattened: features. What cannot be told is taken for a
classifier: a convolution whose map is averaged may be one (SqueezeNet), and a head without a module of its own
(`x @ self.weight`) changes the number of channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn


class LastPart:
    """The last part with weights of its own that ran, and what it gave."""

    part: nn.Module | None = None
    shape: tuple[int, ...] = ()

    def _ran(self, part: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            self.part, self.shape = part, tuple(output.shape)

    def gave_features(self, output: Tensor) -> bool:
        """Whether this (image, number) output is what the last part gave, pooled or flattened, and no matrix made it.

        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
        >>> import torch
        >>> with watched(net) as last:
        ...     last.gave_features(net(torch.zeros(1, 3, 8, 8)))
        True
        """
        if self.part is None or len(self.shape) < 2:
            return False
        weight = getattr(self.part, "weight", None)
        matrix = isinstance(weight, Tensor) and weight.dim() > 1
        size = math.prod(self.shape[1:])
        channels = self.shape[-1] if len(self.shape) == 3 else self.shape[1]
        if matrix and (size == channels or isinstance(self.part, nn.Conv2d)):  # a vector, or one once averaged
            return False
        return output.shape[1] in (channels, size)


@contextmanager
def watched(module: nn.Module) -> Iterator[LastPart]:
    """Look at the parts of a module while it runs. One that has none, all of it in its own forward, cannot be told."""
    last = LastPart()
    with ExitStack() as hooks:
        for part in (part for part in module.modules() if part is not module):
            if next(part.parameters(recurse=False), None) is not None and not any(True for _ in part.children()):
                hooks.enter_context(part.register_forward_hook(last._ran))
        yield last
