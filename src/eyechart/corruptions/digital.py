"""Corruptions of processing: contrast, elastic_transform, pixelate, jpeg_compression."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor
from torch.nn import functional as F

from eyechart.corruptions.blur import gaussian


def contrast(pixels: Tensor, left: float, generator: Generator) -> Tensor:
    """Each colour drawn towards its mean over the picture."""
    mean = pixels.mean((2, 3), keepdim=True)
    return (pixels - mean) * left + mean


def elastic_transform(pixels: Tensor, strength: tuple[float, float, float], generator: Generator) -> Tensor:
    """Three points of the picture are shifted, and all follow linearly; then it is stretched here and there."""
    height, width = pixels.shape[-2:]
    stretch, smoothness, shift = (part * width for part in strength)
    shifted = sampled(pixels, affine(len(pixels), height, width, shift, generator), border="centre")
    steps = 2 * torch.rand(len(pixels), 2, height, width, generator=generator) - 1
    steps = stretch * gaussian(steps, smoothness, border="mirror", truncate=3.0)
    return sampled(shifted, grid(height, width) + steps.movedim(1, -1), border="edge")


def grid(height: int, width: int) -> Tensor:
    """(y, x, 2): the row and the column of each pixel."""
    coordinates = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack(coordinates, dim=-1).float()


def affine(images: int, height: int, width: int, shift: float, generator: Generator) -> Tensor:
    """Where each pixel comes from, (image, y, x, 2), under the linear map that shifts three corners of a square."""
    centre, half = torch.tensor([float(height // 2), float(width // 2)]), min(height, width) // 3
    corners = centre + half * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])
    moved = corners + shift * (2 * torch.rand(images, 3, 2, generator=generator) - 1)
    back = torch.linalg.solve(with_one(moved), corners.expand(images, 3, 2))
    return with_one(grid(height, width)).flatten(0, 1).matmul(back).view(images, height, width, 2)


def with_one(points: Tensor) -> Tensor:
    return torch.cat([points, torch.ones(*points.shape[:-1], 1)], dim=-1)


def sampled(pixels: Tensor, positions: Tensor, *, border: str) -> Tensor:
    """Pixels read at places (image, y, x, 2) between them; mirrored at the "centre" or the "edge" of border pixels."""
    size, centre = torch.tensor([float(side) for side in pixels.shape[-2:]]), border == "centre"
    scaled = 2 * positions / (size - 1) - 1 if centre else (2 * positions + 1) / size - 1
    wanted = scaled.flip(-1).to(pixels)
    return F.grid_sample(pixels, wanted, mode="bilinear", padding_mode="reflection", align_corners=centre)


def pixelate(pixels: Tensor, share: float, generator: Generator) -> Tensor:
    """Made smaller and larger again, both by Pillow's box filter."""

    def change(picture: Image.Image) -> Image.Image:
        box = Image.Resampling.BOX
        return picture.resize((int(picture.width * share), int(picture.height * share)), box).resize(picture.size, box)

    return through_pillow(pixels, change)


def jpeg_compression(pixels: Tensor, quality: int, generator: Generator) -> Tensor:
    def change(picture: Image.Image) -> Image.Image:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return through_pillow(pixels, change)


def through_pillow(pixels: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Pictures of 8 bits, each changed by Pillow."""
    pictures = (pixels * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    changed = np.stack([np.asarray(change(Image.fromarray(picture))) for picture in pictures])
    return torch.from_numpy(changed).permute(0, 3, 1, 2).to(pixels) / 255
