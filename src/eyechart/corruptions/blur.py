"""Corruptions that mix neighbours: defocus_blur, glass_blur, motion_blur, zoom_blur; and what others use of them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F


def defocus_blur(pixels: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    """The mean over a disc, whose edge is softened by a small Gaussian; the picture is mirrored at its borders."""
    kernel = disc(*strength).to(pixels)
    half = kernel.shape[0] // 2
    padded = F.pad(pixels, (half, half, half, half), mode="reflect")
    return F.conv2d(padded, kernel.expand(pixels.shape[1], 1, *kernel.shape), groups=pixels.shape[1])


def disc(radius: float, softness: float) -> Tensor:
    """Weights (y, x).

    They sum to 1, but for radii of 8 and more to about 1.01: the published scripts soften the edge in a square that the
    disc touches, and what is smeared over the border of that is mirrored back, so those pictures are a little brighter.

    >>> disc(1, 0.01).round(decimals=2)[7:-7, 7:-7]
    tensor([[0.0000, 0.2000, 0.0000],
            [0.2000, 0.2000, 0.2000],
            [0.0000, 0.2000, 0.0000]])
    """
    half, reach = (8, 1) if radius <= 8 else (int(radius), 2)  # of the square, of the Gaussian that softens the edge
    across = torch.arange(-half, half + 1).float()
    sharp = (across[:, None] ** 2 + across**2 <= radius**2).float()
    taps = torch.exp(-(torch.arange(-reach, reach + 1).float() ** 2) / (2 * softness**2))
    taps = taps / taps.sum()
    mirrored = F.pad((sharp / sharp.sum())[None, None], (reach, reach, reach, reach), mode="reflect")
    return F.conv2d(mirrored, (taps[:, None] * taps)[None, None])[0, 0]


def gaussian(maps: Tensor, sigma: float, *, border: str, truncate: float = 4.0) -> Tensor:
    """Maps (…, y, x) smoothed along both axes; at the border "nearest" values go on, or the map is mirrored there.

    As products with a matrix for each axis, since a Gaussian may be wider than the picture (0.7 of its width at
    ImageNet-C's first elastic_transform), where padding would have to mirror it several times.
    """
    rows, columns = (smoothing(size, sigma, border, truncate).to(maps) for size in maps.shape[-2:])
    return rows @ maps @ columns.T


def smoothing(size: int, sigma: float, border: str, truncate: float) -> Tensor:
    """(to, from): each row holds a Gaussian around its place, with what reaches over the border folded back."""
    if sigma == 0:
        return torch.eye(size)
    reach = int(truncate * sigma + 0.5)
    steps = np.arange(-reach, reach + 1)
    taps = np.exp(-0.5 * (steps / sigma) ** 2)
    sources = np.arange(size)[:, None] + steps
    if border == "nearest":
        sources = sources.clip(0, size - 1)
    else:  # "mirror": … 1 0 | 0 1 2 … n−1 | n−1 n−2 …
        sources = sources % (2 * size)
        sources = np.minimum(sources, 2 * size - 1 - sources)
    folded = np.zeros((size, size))
    np.add.at(folded, (np.repeat(np.arange(size), len(steps)), sources.ravel()), np.tile(taps / taps.sum(), size))
    return torch.from_numpy(folded).float()


def glass_blur(pixels: Tensor, strength: tuple[float, int, int], generator: Generator) -> Tensor:
    """Smoothed, then pixels are moved about within `reach`, then smoothed again."""
    sigma, reach, rounds = strength
    moved = gaussian(pixels, sigma, border="nearest")
    for _ in range(rounds):
        source = scattered(pixels, reach, generator).to(pixels.device)
        moved = moved.flatten(2).gather(2, source[:, None].expand(-1, pixels.shape[1], -1)).view(pixels.shape)
    return gaussian(moved, sigma, border="nearest")


def scattered(pixels: Tensor, reach: int, generator: Generator) -> Tensor:
    """Where each pixel of a round gets its value from, (image, place), counted row by row.

    From the lower right to the upper left, each pixel but those at the border takes over the value that a random one
    near it has *by then*, −reach … reach − 1 away. (The published scripts mean to swap the two; through NumPy's views
    they copy, so the published pictures show copies.) A place that was already passed hands on what it took over, so
    the sources are chains; they are followed by doubling the step until all have ended.
    """
    height, width = pixels.shape[-2:]
    indices = torch.arange(height * width).view(height, width)
    steps = torch.randint(-reach, reach, (2, len(pixels), height, width), generator=generator)
    inside = torch.zeros(height, width, dtype=torch.bool)
    inside[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = True
    taken = torch.where(inside, indices + steps[0] * width + steps[1], indices).flatten(1)
    passed = inside.flatten()[taken] & (taken > indices.flatten())  # it took over a value itself, before
    goes_on = torch.where(passed, taken, indices.flatten())
    while True:
        further = goes_on.gather(1, goes_on)
        if torch.equal(further, goes_on):
            return taken.gather(1, goes_on)
        goes_on = further


def motion_blur(pixels: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    """Half a Gaussian along a line of random direction within 45° of level."""
    return dragged(pixels, *strength, angles(len(pixels), -45, 45, generator))


def angles(count: int, low: float, high: float, generator: Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=generator)


def dragged(maps: Tensor, radius: float, sigma: float, degrees: Tensor) -> Tensor:
    """Maps (image, channel, y, x) averaged over 2·radius + 1 whole steps along a line, nearer ones weighing more."""
    taps = torch.exp(-(torch.arange(2 * int(radius) + 1).float() ** 2) / (2 * sigma**2))
    reach, (height, width) = len(taps), maps.shape[-2:]
    padded = F.pad(maps, (reach, reach, reach, reach), mode="replicate")
    result = torch.zeros_like(maps)
    for image, angle in enumerate(torch.deg2rad(degrees).tolist()):
        for step, tap in enumerate((taps / taps.sum()).tolist()):
            y = reach + math.ceil(step * math.sin(angle) - 0.5)
            x = reach + math.ceil(step * math.cos(angle) - 0.5)
            result[image] += tap * padded[image, :, y : y + height, x : x + width]
    return result


def zoom_blur(pixels: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    """The mean of the picture and of enlargements of its middle, from 1 up to the strength."""
    factors = np.arange(1, *strength)
    return (pixels + sum(enlarged(pixels, float(factor)) for factor in factors)) / (len(factors) + 1)


def enlarged(maps: Tensor, factor: float) -> Tensor:
    """The middle of maps, enlarged linearly to their own size."""
    size = maps.shape[-2:]
    cut = [math.ceil(side / factor) for side in size]
    top, left = ((side - part) // 2 for side, part in zip(size, cut, strict=True))
    middle = maps[..., top : top + cut[0], left : left + cut[1]]
    larger = F.interpolate(middle, [round(part * factor) for part in cut], mode="bilinear", align_corners=True)
    top, left = ((enlarged_side - side) // 2 for enlarged_side, side in zip(larger.shape[-2:], size, strict=True))
    return larger[..., top : top + size[0], left : left + size[1]]
