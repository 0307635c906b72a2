"""Augmentation on the device, over many batches at once.

A chunk is (batches, batch, 3, H, W): an epoch or a large part of it. Working on whole chunks keeps the number of kernel
launches independent of the batch size; image by image or batch by batch, launches cost as much as the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from eyechart.training.operations import operate
from eyechart.training.recipes import Recipe

RAND = (
    "autocontrast", "equalise", "invert", "rotate", "posterise", "solarise", "solarise-add", "colour",
    "contrast", "brightness", "sharpness", "shear-x", "shear-y", "translate-x", "translate-y",
)  # fmt: skip
TRIVIAL = (
    "identity", "shear-x", "shear-y", "translate-x", "translate-y", "rotate", "brightness", "colour",
    "contrast", "sharpness", "posterise", "solarise", "autocontrast", "equalise",
)  # fmt: skip
ERASING_TRIES = 10  # one in a hundred boxes is too long for its image
ENHANCEMENTS = ("colour", "contrast", "brightness", "sharpness")


def crop_and_flip(images: Tensor, padding: int, flip: bool, generator: Generator) -> Tensor:
    """Random crops of the zero-padded images, half of them mirrored, in one gather."""
    count, _, height, width = images.shape
    device = images.device
    down = torch.randint(0, 2 * padding + 1, (count, 1), generator=generator, device=device)
    right = torch.randint(0, 2 * padding + 1, (count, 1), generator=generator, device=device)
    rows = down + torch.arange(height, device=device)
    columns = right + torch.arange(width, device=device)
    if flip:
        mirrored = torch.rand(count, 1, generator=generator, device=device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    padded = F.pad(images, [padding] * 4)
    image = torch.arange(count, device=device).reshape(-1, 1, 1, 1)
    channel = torch.arange(images.shape[1], device=device).reshape(1, -1, 1, 1)
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def shuffled_patches(images: Tensor, side: int, generator: Generator) -> Tensor:
    """Every image cut into square patches, which are put together in a random order of its own.

    >>> image = torch.arange(16).reshape(1, 1, 4, 4)
    >>> shuffled_patches(image, 2, Generator().manual_seed(1))[0, 0].tolist()
    [[2, 3, 8, 9], [6, 7, 12, 13], [10, 11, 0, 1], [14, 15, 4, 5]]
    """
    count, channels, height, width = images.shape
    down, across = height // side, width // side
    cells = images.reshape(count, channels, down, side, across, side).transpose(3, 4).flatten(2, 3)
    order = torch.rand(count, down * across, generator=generator, device=images.device).argsort(dim=1)
    cells = cells.gather(2, order[:, None, :, None, None].expand_as(cells))
    return cells.reshape(count, channels, down, across, side, side).transpose(3, 4).reshape(images.shape)


def rand_argument(name: str, level: Tensor, sign: Tensor, side: int, increasing: bool) -> Tensor:
    """RandAugment's argument of an operation for levels in 0…1; ranges as in timm (SPEC 1.7)."""
    if name in ENHANCEMENTS:
        return (1 + sign * level * 0.9).clamp(min=0.1) if increasing else 0.1 + 1.8 * level
    if name == "posterise":
        bits = (4 * level).floor()
        return 4 - bits if increasing else bits
    if name == "solarise":
        threshold = (256 * level).floor()
        return 256 - threshold if increasing else threshold
    most = {"rotate": 30.0, "shear-x": 0.3, "shear-y": 0.3, "translate-x": 0.45 * side, "translate-y": 0.45 * side}
    return sign * level * most[name] if name in most else level * 110  # solarise-add; the rest take no argument


def trivial_argument(name: str, level: Tensor, sign: Tensor, side: int) -> Tensor:
    """TrivialAugment's (wide) argument of an operation for levels in 0…1."""
    if name in ENHANCEMENTS:
        return 1 + sign * level * 0.99
    if name == "posterise":
        return 8 - (6 * level).round()
    if name == "solarise":
        return 255 - 255 * level
    most = {"rotate": 135.0, "shear-x": 0.99, "shear-y": 0.99, "translate-x": 32.0, "translate-y": 32.0}
    return sign * level * most.get(name, 0.0)


def augment(images: Tensor, recipe: Recipe, fill: Tensor, generator: Generator) -> Tensor:
    """RandAugment or TrivialAugment: images draw operations and strengths, and are grouped by operation."""
    device, count, side = images.device, len(images), images.shape[-1]

    def uniform() -> Tensor:
        return torch.rand(count, generator=generator, device=device)

    trivial = recipe.augment == "trivial"
    names = TRIVIAL if trivial else RAND
    images = images.clone()
    for _ in range(1 if trivial else recipe.augment_layers):
        choice = torch.randint(0, len(names), (count,), generator=generator, device=device)
        sign = torch.where(uniform() < 0.5, -1.0, 1.0)
        if trivial:
            level = (uniform() * 31).floor() / 30
        else:
            noise = torch.randn(count, generator=generator, device=device)
            level = ((recipe.augment_magnitude + recipe.augment_spread * noise) / 10).clamp(0, 1)
            choice = torch.where(uniform() < recipe.augment_probability, choice, -1)
        for index, name in enumerate(names):
            chosen = (choice == index).nonzero().squeeze(1)
            if len(chosen):
                strength, direction = level[chosen], sign[chosen]
                argument = (
                    trivial_argument(name, strength, direction, side)
                    if trivial
                    else rand_argument(name, strength, direction, side, recipe.augment_increasing)
                )
                images[chosen] = operate(name, images[chosen], argument, fill)
    return images


def erase(images: Tensor, probability: float, generator: Generator) -> Tensor:
    """Replace a box (2 to 33 % of the area, aspect 0.3 to 3.3) of some normalised images by Gaussian noise.

    The box lies wholly inside the image: one that is too long for it is drawn again, as in timm.
    """
    count, _, height, width = images.shape

    def uniform(low: float, high: float, tries: int = 1) -> Tensor:
        return low + (high - low) * torch.rand(tries, count, generator=generator, device=images.device)

    area = uniform(0.02, 1 / 3, ERASING_TRIES) * height * width
    aspect = uniform(math.log(0.3), -math.log(0.3), ERASING_TRIES).exp()
    tall, wide = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (tall < height) & (wide < width)
    first = fits.int().argmax(dim=0, keepdim=True)

    def span(lengths: Tensor, size: int) -> Tensor:
        length = lengths.gather(0, first)
        start = (uniform(0, 1) * (size - length + 1)).floor()
        pixel = torch.arange(size, device=images.device)
        return (pixel >= start.T) & (pixel < (start + length).T)

    box = span(tall, height)[:, :, None] & span(wide, width)[:, None, :]
    erased = fits.any(dim=0) & (uniform(0, 1)[0] < probability)
    noise = torch.randn(images.shape, generator=generator, device=images.device)
    return torch.where((box & erased.reshape(-1, 1, 1))[:, None], noise, images)


def boxes(centre_y: Tensor, centre_x: Tensor, tall: Tensor, wide: Tensor, height: int, width: int) -> Tensor:
    """Boolean masks (N, H, W) of boxes given in parts of the image's size, cut off at its border."""

    def span(centre: Tensor, length: Tensor, size: int) -> Tensor:
        middle, half = (centre * size).floor(), (length * size / 2).floor()
        pixel = torch.arange(size, device=centre.device)
        return (pixel >= (middle - half)[:, None]) & (pixel < (middle + half)[:, None])

    return span(centre_y, tall, height)[:, :, None] & span(centre_x, wide, width)[:, None, :]


def beta(alpha: float, count: int, generator: Generator) -> Tensor:
    """Draws of Beta(α, α); NumPy's, because torch's take no generator, seeded by the one given."""
    seed = int(torch.randint(0, 2**31, (1,), generator=generator, device=generator.device).item())
    draws = np.random.default_rng(seed).beta(alpha, alpha, count).astype(np.float32)
    return torch.from_numpy(draws).to(generator.device)


def mix(images: Tensor, targets: Tensor, recipe: Recipe, generator: Generator) -> tuple[Tensor, Tensor]:
    """Mixup or cutmix, drawn for each batch: images (batches, batch, 3, H, W), targets (batches, batch, classes).

    The partner of an image is its neighbour in the batch (batches are shuffled anyway). Cutmix's share is that of the
    box inside the image, so that the targets are exact.
    """
    batches, height, width, device = len(images), *images.shape[-2:], images.device

    def uniform() -> Tensor:
        return torch.rand(batches, generator=generator, device=device)

    mixed = uniform() < recipe.mix_probability
    with_box = uniform() < (0.5 if recipe.mixup and recipe.cutmix else float(recipe.cutmix > 0))
    share = torch.ones(batches, device=device)
    if recipe.mixup:
        share = beta(recipe.mixup, batches, generator)
    if recipe.cutmix:
        side = (1 - beta(recipe.cutmix, batches, generator)).sqrt()
        box = boxes(uniform(), uniform(), side, side, height, width)
        share = torch.where(with_box, 1 - box.float().mean(dim=(1, 2)), share)
    share = torch.where(mixed, share, 1.0)
    keep = share.reshape(-1, 1, 1).expand(-1, height, width)
    if recipe.cutmix:
        keep = torch.where((with_box & mixed).reshape(-1, 1, 1), (~box).float(), keep)
    keep = keep[:, None, None]
    soft = share.reshape(-1, 1, 1)
    images = keep * images + (1 - keep) * images.roll(1, dims=1)
    return images, soft * targets + (1 - soft) * targets.roll(1, dims=1)


def soft_targets(labels: Tensor, classes: int, smoothing: float) -> Tensor:
    """One-hot targets with `smoothing` spread evenly over all classes; rows sum to one."""
    return F.one_hot(labels, classes).float() * (1 - smoothing) + smoothing / classes


@dataclass(frozen=True)
class Normalisation:
    """Channel means and standard deviations of images in 0…1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def apply(self, images: Tensor) -> Tensor:
        """uint8 (…, 3, H, W) → normalised float32."""
        mean = torch.tensor(self.mean, device=images.device).reshape(3, 1, 1) * 255
        std = torch.tensor(self.std, device=images.device).reshape(3, 1, 1) * 255
        return (images.float() - mean) / std

    def as_json(self) -> Mapping[str, list[float]]:
        return {"mean": list(self.mean), "std": list(self.std)}


def prepare_chunk(
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    normalisation: Normalisation,
    classes: int,
    batch: int,
    generator: Generator,
    shuffle_patches: int = 0,
) -> tuple[Tensor, Tensor]:
    """uint8 (n · batch, 3, H, W) → normalised inputs (n, batch, 3, H, W) and soft targets (n, batch, classes)."""
    if recipe.crop_padding or recipe.flip:
        images = crop_and_flip(images, recipe.crop_padding, recipe.flip, generator)
    if recipe.augment != "none":
        fill = (torch.tensor(normalisation.mean, device=images.device) * 255).round()
        images = augment(images, recipe, fill, generator)
    if shuffle_patches:
        images = shuffled_patches(images, shuffle_patches, generator)
    inputs = normalisation.apply(images)
    if recipe.erasing:
        inputs = erase(inputs, recipe.erasing, generator)
    inputs = inputs.reshape(-1, batch, *inputs.shape[1:])
    targets = soft_targets(labels, classes, recipe.label_smoothing).reshape(-1, batch, classes)
    if recipe.mixup or recipe.cutmix:
        inputs, targets = mix(inputs, targets, recipe, generator)
    return inputs, targets
