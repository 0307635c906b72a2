"""Corruptions of single values: gaussian_noise, shot_noise, impulse_noise."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def gaussian_noise(pixels: Tensor, spread: float, generator: Generator) -> Tensor:
    """p + spread · N(0, 1)."""
    return pixels + spread * torch.randn(pixels.shape, generator=generator).to(pixels)


def shot_noise(pixels: Tensor, photons: float, generator: Generator) -> Tensor:
    """Poisson(p · photons) / photons: what a sensor counts that a white pixel sends so many photons."""
    return torch.poisson(pixels.cpu() * photons, generator=generator).to(pixels) / photons


def impulse_noise(pixels: Tensor, share: float, generator: Generator) -> Tensor:
    """Salt and pepper: this share of the values becomes 0 or 1, each half of the time."""
    struck = torch.rand(pixels.shape, generator=generator).to(pixels.device) < share
    salt = torch.rand(pixels.shape, generator=generator).to(pixels.device) < 0.5
    return torch.where(struck, salt.to(pixels), pixels)
