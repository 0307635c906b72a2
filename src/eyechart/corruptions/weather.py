"""Corruptions from outdoors: snow, frost, fog, brightness."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from eyechart.corruptions.blur import angles, dragged, enlarged

GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the luma of a picture."""
FROST_COLOUR = (0.57, 0.66, 0.70)
"""Mean colour of the five photographs of frost that ImageNet-C draws from."""
FROST_SPREAD, FROST_CONTRAST = 0.15, 0.10
"""How far the mean of a photograph of frost lies from theirs at most, and the deviation within one, on average."""


def snow(pixels: Tensor, strength: tuple[float, ...], generator: Generator) -> Tensor:
    """The picture paled, and flakes that fell: bright spots of noise, dragged downwards, and once more upside down."""
    mean, spread, size, threshold, radius, sigma, kept = strength
    flakes = mean + spread * torch.randn(len(pixels), 1, *pixels.shape[-2:], generator=generator)
    flakes = enlarged(flakes, size)
    flakes = torch.where(flakes < threshold, 0, flakes).clamp(0, 1)
    fallen = dragged(flakes, radius, sigma, angles(len(pixels), -135, -45, generator)).to(pixels)
    grey = (pixels * torch.tensor(GREY).view(1, -1, 1, 1).to(pixels)).sum(1, keepdim=True)
    paled = kept * pixels + (1 - kept) * torch.maximum(pixels, 1.5 * grey + 0.5)
    return paled + fallen + fallen.rot90(2, (-2, -1))


def frost(pixels: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    """The picture and a texture of frost, added."""
    picture, ice = strength
    return picture * pixels + ice * crystals(pixels, generator).to(pixels)


def crystals(pixels: Tensor, generator: Generator) -> Tensor:
    """Frost (image, colour, y, x) made by rule, since the photographs of the published sets are not ours to ship.

    Noise whose power falls with frequency as k⁻², of which the zero crossings are bright ridges; their power falls as
    k^−1.5 (the photographs': −1.1 to −1.8). Mean colour and contrast as in the photographs.
    """
    images, (height, width) = len(pixels), pixels.shape[-2:]
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)
    frequency = (rows**2 + columns**2).sqrt().clamp(min=1 / max(height, width))
    waves = torch.fft.rfft2(torch.randn(images, 1, height, width, generator=generator)) / frequency
    ridges = -torch.fft.irfft2(waves, s=(height, width)).abs()
    ridges = ridges - ridges.mean((2, 3), keepdim=True)
    ridges = ridges / ridges.square().mean((2, 3), keepdim=True).sqrt()
    brighter = FROST_SPREAD * (2 * torch.rand(images, 1, 1, 1, generator=generator) - 1)
    colour = torch.tensor(FROST_COLOUR).view(1, 3, 1, 1)
    texture: Tensor = colour + brighter + FROST_CONTRAST * ridges
    return texture.clamp(0, 1)


def fog(pixels: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    """Clouds added, and the whole scaled back so that the brightest value stays the brightest."""
    amount, decay = strength
    brightest = pixels.amax((1, 2, 3), keepdim=True)
    thick = clouds(len(pixels), max(pixels.shape[-2:]), decay, generator)[..., : pixels.shape[-2], : pixels.shape[-1]]
    return (pixels + amount * thick.to(pixels)) * brightest / (brightest + amount)


def clouds(images: int, side: int, decay: float, generator: Generator) -> Tensor:
    """Random heights of 0 … 1 by the diamond-square method, (image, 1, y, x), periodic, a power of two ≥ `side` wide.

    Each round halves the grid; new heights are means of their four neighbours plus noise that is decay² times weaker
    than a round before.
    """
    size = 2 ** math.ceil(math.log2(side))
    heights = torch.zeros(images, 1, 1)
    noise = 1.0

    def between(sums: Tensor) -> Tensor:
        return sums / 4 + noise * (2 * torch.rand(sums.shape, generator=generator) - 1)

    while heights.shape[-1] < size:
        below, right = heights.roll(-1, 1), heights.roll(-1, 2)
        centres = between(heights + below + right + below.roll(-1, 2))
        tops = between(heights + right + centres + centres.roll(1, 1))
        sides = between(heights + below + centres + centres.roll(1, 2))
        upper = torch.stack([heights, tops], dim=3).flatten(2)
        lower = torch.stack([sides, centres], dim=3).flatten(2)
        heights = torch.stack([upper, lower], dim=2).flatten(1, 2)
        noise /= decay**2
    heights = heights - heights.amin((1, 2), keepdim=True)
    return (heights / heights.amax((1, 2), keepdim=True)).unsqueeze(1)


def brightness(pixels: Tensor, more: float, generator: Generator) -> Tensor:
    """The value (the largest of red, green and blue) raised; hue and saturation stay."""
    value = pixels.amax(1, keepdim=True)
    raised = (value + more).clamp(max=1)
    return torch.where(value > 0, pixels * raised / value.clamp(min=1e-12), raised)
