"""Effective receptive fields: which pixels does one place of a feature map depend on, and how far do they lie?

For a feature vector f (channel c) at one place of the map, and the input picture x,

    exact         map(y, x) = mean over channels and colours of |∂f_c / ∂x(y, x)|
    projection    map(y, x) = sqrt(mean over colours and sign vectors s of (∂ Σ_c s_c f_c / ∂x(y, x))² / channels)

The second estimates the root mean square over channels from a few backward passes: for random signs the cross terms of
the square are 0 on average. Channels are never added up as they are, because those of a LayerNorm's output add up to a
constant, whose gradient is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE = 32
"""Cells a side of the map that is shown; radius and shares are taken from the pixels themselves."""
RINGS = 512
"""Rings of equal width around a place, as far as the picture's diagonal."""
FINE = 128
"""Pixels a side below which pixels are split, so that a ring cuts through them instead of taking whole ones."""


@contextmanager
def fixed_weights(module: nn.Module) -> Iterator[None]:
    """Gradients are of the input alone, not of the weights, so a backward pass costs as much as a forward pass."""
    asking = [weight for weight in module.parameters() if weight.requires_grad]
    for weight in asking:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in asking:
            weight.requires_grad_(True)


def exact_map(features: Tensor, images: Tensor) -> Tensor:
    """(image, y, x): mean |∂f_c/∂x| over all channels, a backward pass each, of features (image, channel)."""
    total = torch.zeros_like(images, dtype=torch.float32)
    for channel in range(features.shape[1]):
        total += gradient(features[:, channel].sum(), images).float().abs()
    return (total / features.shape[1]).mean(1)


def projected_map(features: Tensor, images: Tensor, signs: Tensor) -> Tensor:
    """(image, y, x): root mean square of ∂f_c/∂x over channels and colours, by `signs` (projection, image, channel)."""
    total = torch.zeros_like(images, dtype=torch.float32)
    for sign in signs:
        total += gradient((features * sign.to(features)).sum(), images).float().square()
    return (total / (len(signs) * features.shape[1])).mean(1).sqrt()


def gradient(number: Tensor, images: Tensor) -> Tensor:
    """∂number/∂images; 0 where it does not depend on them. Images of a batch do not see each other."""
    if not number.requires_grad:
        return torch.zeros_like(images)
    (result,) = torch.autograd.grad(number, images, retain_graph=True, allow_unused=True, materialize_grads=True)
    return result


def middle(grid: tuple[int, int]) -> tuple[int, int]:
    """The cell that is looked at: of an even grid, which has no centre, the one below and right of it.

    >>> middle((7, 8))
    (3, 4)
    """
    return grid[0] // 2, grid[1] // 2


def centre_of(grid: tuple[int, int], size: tuple[int, int]) -> tuple[float, float]:
    """The centre of that cell in pixels, counted from the upper left corner of the picture.

    >>> centre_of((8, 8), (32, 32))
    (18.0, 18.0)
    """
    row, column = middle(grid)
    return (row + 0.5) * size[0] / grid[0], (column + 0.5) * size[1] / grid[1]


def window_shares(maps: Tensor, centres: Tensor, window: tuple[float, float]) -> Tensor:
    """(image,): mass of maps (image, y, x) in a window (height, width) around each one's centre (image, 2)."""

    def overlap(count: int, middles: Tensor, width: float) -> Tensor:
        edges = torch.arange(count, device=maps.device)[None]
        low, high = (middles - width / 2)[:, None], (middles + width / 2)[:, None]
        return (torch.minimum(edges + 1, high) - torch.maximum(edges, low)).clamp(0, 1)

    rows = overlap(maps.shape[1], centres[:, 0], window[0]).to(maps)
    columns = overlap(maps.shape[2], centres[:, 1], window[1]).to(maps)
    return torch.einsum("nyx,ny,nx->n", maps, rows, columns)


def centres_of_mass(maps: Tensor) -> Tensor:
    """(image, 2): where each map (image, y, x) has its centre, in pixels; the picture's centre for a map of zeros."""
    positions = [torch.arange(side, device=maps.device).to(maps) + 0.5 for side in maps.shape[1:]]
    mass = maps.sum((1, 2))
    rows, columns = maps.sum(2) @ positions[0] / mass, maps.sum(1) @ positions[1] / mass
    middles = torch.tensor([side / 2 for side in maps.shape[1:]]).to(maps)
    return torch.where((mass > 0)[:, None], torch.stack([rows, columns], 1), middles)


def ring_masses(maps: Tensor, centres: Tensor) -> Tensor:
    """(image, ring): mass of maps (image, y, x) by distance from centres (image, 2).

    Ring k ends at (k + 1) · `ring_width`; pixels are split where there are few of them.
    """
    height, width = maps.shape[1:]
    split = max(1, -(-FINE // max(height, width)))
    rows, columns = (
        (torch.arange(side * split, device=maps.device) + 0.5) / split - centres[:, axis : axis + 1]
        for axis, side in enumerate((height, width))
    )
    distance = torch.hypot(rows[:, :, None], columns[:, None]).flatten(1)
    ring = (distance / ring_width((height, width))).long().clamp(max=RINGS - 1)
    fine = maps.repeat_interleave(split, 1).repeat_interleave(split, 2).flatten(1) / split**2
    return torch.zeros(len(maps), RINGS, device=maps.device).to(maps).scatter_add_(1, ring, fine)


def ring_width(size: tuple[int, int]) -> float:
    return math.hypot(*size) / RINGS


def radius_of_share(rings: Tensor, width: Tensor, share: float = 0.5) -> Tensor:
    """The radius that holds this share of the mass of each row of (…, ring), linear within a ring; NaN without mass.

    >>> radius_of_share(torch.tensor([[1.0, 1.0, 2.0, 0.0]]), torch.tensor([2.0]), 0.75)
    tensor([5.])
    """
    total = rings.sum(-1, keepdim=True)
    inside = rings.cumsum(-1) / total
    ring = (inside < share).sum(-1, keepdim=True).clamp(max=rings.shape[-1] - 1)
    before = F.pad(inside, (1, 0)).gather(-1, ring)
    part = (share - before) / (rings / total).gather(-1, ring)
    return ((ring + part).squeeze(-1) * width).where(total.squeeze(-1) > 0, torch.nan)


def summary(maps: Tensor, grid: tuple[int, int]) -> dict[str, Tensor]:
    """What is kept of the maps (image, y, x) of one site, each with the image first, on the CPU.

    Masses by ring and in a window as large as the cell are taken about two centres: the cell's and the map's own centre
    of mass. A ViT's patch lies at the first; a CNN with padded strides looks up to half a cell beside it (16 pixels of
    224 after the last stage of a ResNet), which would pass for a wide view.
    """
    size = (maps.shape[1], maps.shape[2])
    cell = (size[0] / grid[0], size[1] / grid[1])
    centres = [torch.tensor(centre_of(grid, size)).to(maps).expand(len(maps), 2), centres_of_mass(maps)]
    kept = {
        "map": F.adaptive_avg_pool2d(maps[:, None], SIDE)[:, 0],
        "ring": torch.stack([ring_masses(maps, centre) for centre in centres], 1),
        "own": torch.stack([window_shares(maps, centre, cell) for centre in centres], 1),
    }
    return {name: value.cpu() for name, value in kept.items()}


def cell_radius(grid: tuple[int, int]) -> float:
    """The radius of half the mass where one cell is seen evenly and nothing around it, in widths of the picture.

    A bare patch of 4 of 32 pixels has .050, more than a whole 3×3 convolution (.037): a radius says how far a place
    looks only once this is taken off.

    >>> round(cell_radius((8, 8)), 4)
    0.0499
    """
    return math.sqrt(1 / (2 * math.pi * grid[0] * grid[1]))


def largest_step(reach: np.ndarray, points: int) -> float:
    """Largest rise between neighbours as a share of all rises, read at so many equally spaced depths.

    >>> largest_step(np.array([1.0, 2.0, 5.0, 4.0, 5.0]), 5)
    0.6
    """
    depths = np.arange(len(reach)) / (len(reach) - 1)
    rises = np.diff(np.interp(np.arange(points) / (points - 1), depths, reach)).clip(min=0)
    return float(rises.max() / rises.sum()) if rises.sum() > 0 else float("nan")


def place_of_largest_step(reach: np.ndarray, ends: np.ndarray) -> float:
    """The depth half way up the largest rise of `reach`, whose values lie at the depths `ends`.

    >>> place_of_largest_step(np.array([0.1, 0.1, 0.3, 0.3]), np.array([0, 0.25, 0.5, 1]))
    0.375
    """
    step = int(np.diff(reach).argmax())
    return float(ends[step] + ends[step + 1]) / 2


def persistence(maps: np.ndarray, groups: Sequence[tuple[str, str]]) -> np.ndarray:
    """Correlation of each map (site, y, x) with the one before it in its group; NaN for the first of a group."""
    correlations = np.full(len(maps), np.nan)
    latest: dict[tuple[str, str], int] = {}
    centred = maps.reshape(len(maps), -1) - maps.mean((1, 2))[:, None]
    norms = np.linalg.norm(centred, axis=1)
    for at, group in enumerate(groups):
        before = latest.get(group)
        if before is not None and norms[at] * norms[before] > 0:
            correlations[at] = centred[at] @ centred[before] / (norms[at] * norms[before])
        latest[group] = at
    return correlations
