"""The loss on a plane through a subject's weights: θ + a·d₁ + b·d₂, and the subject as it was afterwards.

Directions are Gaussian and normalised so that a step of 1 is as long as the weights themselves: per output filter as Li
et al. do, or over the output axis as in Park & Kim's code (SPEC T8), which for a linear map scales every *input* alike.
Biases, norms and tables (positions, class tokens) are not moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

Normalisation = Literal["filter", "paper"]
ANGLES = 64


def moved(module: nn.Module) -> dict[str, nn.Parameter]:
    """The matrices and kernels that act on features; what is only added (tables, biases) and scales stay.

    >>> sorted(moved(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))))
    ['0.weight', '3.weight']
    """
    acting = (nn.Linear, _ConvNd, nn.MultiheadAttention)
    owners = [(path, part) for path, part in module.named_modules() if isinstance(part, acting)]
    return {
        f"{path}.{name}" if path else name: weight
        for path, part in owners
        for name, weight in part.named_parameters(recurse=False)
        if weight.ndim >= 2
    }


def direction(weights: Mapping[str, Tensor], number: int, normalisation: Normalisation) -> dict[str, Tensor]:
    """Direction `number` for these weights: seeded by the name of each, so that it is the same in every shard."""
    result = {}
    for name, weight in weights.items():
        digest = hashlib.sha256(f"eyechart landscape 1, direction {number}, {name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        drawn = torch.randn(weight.shape, generator=generator).to(weight)
        result[name] = drawn * (norms(weight, normalisation) / norms(drawn, normalisation).clamp_min(1e-12))
    return result


def norms(weight: Tensor, normalisation: Normalisation) -> Tensor:
    """Of every output filter, or along the output axis."""
    axes = tuple(range(1, weight.ndim)) if normalisation == "filter" else (0,)
    return weight.detach().square().sum(axes, keepdim=True).sqrt()


@contextmanager
def at(weights: Mapping[str, Tensor], steps: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, every weight is its own value plus its step."""
    before = {name: weights[name].detach().clone() for name in steps}
    try:
        with torch.no_grad():
            for name, step in steps.items():
                weights[name].add_(step)
        yield
    finally:
        with torch.no_grad():
            for name, value in before.items():
                weights[name].copy_(value)


@contextmanager
def batch_statistics(module: nn.Module) -> Iterator[None]:
    """Inside, batch normalisations use the statistics of the images they see, and keep their stored ones."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and part.running_mean is not None]
    settings = [(part.training, part.track_running_stats) for part in norms]
    try:
        for part in norms:  # not a momentum of 0: that times an infinite statistic would be NaN, for good
            part.training, part.track_running_stats = True, False
        yield
    finally:
        for part, (training, track) in zip(norms, settings, strict=True):
            part.training, part.track_running_stats = training, track


def on_ring(surface: np.ndarray, radius: float) -> float:
    """Mean of a surface over [−1, 1]² on the circle at a radius; NaN next to a NaN.

    Between points by parabolas through three of them along each axis: lines would lie above a bowl, which 11 points a
    side would then show 5.7 % too high at radius 0.5.

    >>> side = np.linspace(-1, 1, 11)
    >>> round(on_ring(side[:, None] ** 2 + side**2, 0.5), 12)
    0.25
    """
    angles = np.arange(ANGLES) * 2 * np.pi / ANGLES
    last = len(surface) - 1
    row, column = ((1 + radius * turn(angles)) * last / 2 for turn in (np.sin, np.cos))
    middles = [np.clip(np.round(place).astype(int), 1, last - 1) for place in (row, column)]
    down, right = (parabola(place - middle) for place, middle in zip((row, column), middles, strict=True))
    around = np.arange(-1, 2)
    near = surface[(middles[0] + around[:, None])[:, None], (middles[1] + around[:, None])[None]]
    return float((down[:, None] * right[None] * near).sum((0, 1)).mean())


def parabola(beyond: np.ndarray) -> np.ndarray:
    """(3, …): what three neighbouring points weigh at a place `beyond` the middle one, in steps."""
    return np.stack([beyond * (beyond - 1) / 2, 1 - beyond**2, beyond * (beyond + 1) / 2])
