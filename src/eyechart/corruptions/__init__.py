"""The fifteen common corruptions of ImageNet-C and CIFAR-10-C, five severities each, made here from any pictures.

Whose method: Hendrycks & Dietterich 2019. The package `imagecorruptions` is not used: its last release (1.1.2, 2020)
does not run with today's setuptools, NumPy and scikit-image, needs OpenCV, draws from NumPy's global generator and
knows the constants of ImageNet only. Pillow makes what is Pillow's in the published sets (JPEG, box filter).

What differs from the published files: pictures are neither rounded to 8 bits nor saved as JPEG afterwards, frost is a
texture made by rule instead of photographs, and one draw serves all severities of a type, which are so comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Generator, Tensor

from eyechart.corruptions import blur, digital, noise, weather
from eyechart.corruptions.strengths import GROUPS, SEVERITIES, STRENGTHS, TYPES, Set, set_for

__all__ = ["GROUPS", "SEVERITIES", "STRENGTHS", "TYPES", "corrupt", "set_for"]

METHODS: Mapping[str, Callable[[Tensor, Any, Generator], Tensor]] = {
    name: getattr(module, name)
    for module, group in ((noise, "noise"), (blur, "blur"), (weather, "weather"), (digital, "digital"))
    for name in GROUPS[group]
}


def corrupt(pixels: Tensor, name: str, severity: int, generator: Generator, constants: Set | None = None) -> Tensor:
    """Pictures (image, 3, y, x) of 0 … 1, corrupted; severity 0 leaves them as they are.

    The constants are those of the published set whose pictures are about as large, unless told.

    >>> import torch
    >>> pictures, generator = torch.rand(2, 3, 32, 32), torch.Generator().manual_seed(0)
    >>> bool(corrupt(pictures, "contrast", 3, generator).std() < pictures.std())
    True
    """
    if severity == 0:
        return pixels
    height, width = pixels.shape[-2:]
    strength = STRENGTHS[constants or set_for(height, width)][name][severity - 1]
    return METHODS[name](pixels.clamp(0, 1), strength, generator).clamp(0, 1)
