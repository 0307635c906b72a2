"""The image operations of RandAugment and TrivialAugment, each on a whole batch with its own argument for every image.

Images are uint8 (N, 3, H, W) and stay so between operations, as they do in Pillow and torchvision; arguments are (N,).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def _per_image(values: Tensor) -> Tensor:
    return values.reshape(-1, 1, 1, 1)


def _bytes(values: Tensor) -> Tensor:
    # Truncation, not rounding: what Pillow and torchvision do.
    return values.clamp(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    weights = torch.tensor([0.2989, 0.587, 0.114], device=images.device).reshape(1, 3, 1, 1)
    return (images.float() * weights).sum(dim=1, keepdim=True).floor()


def _blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    f = _per_image(factor)
    return _bytes(images.float() * f + degenerate * (1 - f))


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(torch.zeros((), device=images.device), images, factor)


def colour(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(_grey(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(_grey(images).mean(dim=(1, 2, 3), keepdim=True), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with a 3×3 smoothing (centre 5, others 1, over 13); the border pixels stay as they are."""
    if min(images.shape[2:]) < 3:  # all of it is border
        return images
    kernel = torch.ones(3, 1, 3, 3, device=images.device)
    kernel[:, :, 1, 1] = 5
    smooth = images.float()
    smooth[..., 1:-1, 1:-1] = F.conv2d(smooth, kernel / 13, groups=3).round()
    return _blend(smooth, images, factor)


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the `bits` highest bits."""
    mask = 256 - 2 ** (8 - bits.floor().clamp(0, 8))
    return images & _per_image(mask).to(torch.uint8)


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert what is at or above the threshold."""
    return torch.where(images >= _per_image(threshold), 255 - images, images)


def solarise_add(images: Tensor, amount: Tensor) -> Tensor:
    """Brighten what is below 128."""
    return torch.where(images < 128, _bytes(images + _per_image(amount.floor())), images)


def invert(images: Tensor, _: Tensor) -> Tensor:
    return 255 - images


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to 0…255; a constant channel stays."""
    low = images.amin(dim=(2, 3), keepdim=True).float()
    high = images.amax(dim=(2, 3), keepdim=True).float()
    stretched = _bytes((images - low) * (255 / (high - low).clamp(min=1)))
    return torch.where(high > low, stretched, images)


def equalise(images: Tensor, _: Tensor) -> Tensor:
    """Equalise each channel's histogram, with Pillow's integer arithmetic."""
    n, channels, height, width = images.shape
    levels = images.reshape(n * channels, height * width).long()
    histogram = torch.zeros(n * channels, 256, dtype=torch.long, device=images.device)
    histogram.scatter_add_(1, levels, torch.ones_like(levels))
    last = histogram.gather(1, levels.amax(dim=1, keepdim=True))
    step = (height * width - last) // 255
    before = histogram.cumsum(dim=1) - histogram
    table = ((before + step // 2) // step.clamp(min=1)).clamp(0, 255)
    equalised = torch.where(step > 0, table.gather(1, levels), levels)
    return equalised.to(torch.uint8).reshape(images.shape)


def identity(images: Tensor, _: Tensor) -> Tensor:
    return images


COLOUR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "identity": identity,
    "brightness": brightness,
    "colour": colour,
    "contrast": contrast,
    "sharpness": sharpness,
    "posterise": posterise,
    "solarise": solarise,
    "solarise-add": solarise_add,
    "invert": invert,
    "autocontrast": autocontrast,
    "equalise": equalise,
}


GEOMETRY = ("shear-x", "shear-y", "translate-x", "translate-y", "rotate")


def source_map(name: str, argument: Tensor, height: int, width: int) -> Tensor:
    """(N, 2, 3): where an output pixel comes from, in pixels from the image's centre.

    Shears (by a fraction) fix the upper left corner, rotations (degrees, counter-clockwise) the centre; translations
    (pixels) move the picture to the right or down.
    """
    one, zero = torch.ones_like(argument), torch.zeros_like(argument)
    if name == "shear-x":
        rows = (one, argument, argument * height / 2), (zero, one, zero)
    elif name == "shear-y":
        rows = (one, zero, zero), (argument, one, argument * width / 2)
    elif name == "translate-x":
        rows = (one, zero, -argument), (zero, one, zero)
    elif name == "translate-y":
        rows = (one, zero, zero), (zero, one, -argument)
    else:
        angle = argument * (math.pi / 180)
        rows = (angle.cos(), -angle.sin(), zero), (angle.sin(), angle.cos(), zero)
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def warp(images: Tensor, source: Tensor, fill: Tensor) -> Tensor:
    """Draw each image through its source map, bilinearly; what comes from outside has the colour `fill` (3,)."""
    height, width = images.shape[2:]
    half = torch.tensor([width / 2, height / 2], device=images.device)
    scale = torch.cat([half, half.new_ones(1)]).reshape(1, 1, 3) / half.reshape(1, 2, 1)
    grid = F.affine_grid(source * scale, list(images.shape), align_corners=False)
    background = fill.reshape(1, 3, 1, 1)
    moved = F.grid_sample(images.float() - background, grid, align_corners=False)
    return _bytes((moved + background).round())


def operate(name: str, images: Tensor, argument: Tensor, fill: Tensor) -> Tensor:
    """One operation on every image, each with its own argument."""
    if name in GEOMETRY:
        return warp(images, source_map(name, argument, *images.shape[2:]), fill)
    return COLOUR[name](images, argument)
