"""Pictures that move by some pixels, and what their feature maps keep of it.

    shifted(y, x) = picture(y, x + d)      an equivariant f has      f(shifted)(i, j) = f(picture)(i, j + d / cell)

Two ways to shift. `crop`: both pictures are windows of one picture, enlarged by a quarter, so that every pixel is real;
what enters on one side is new, so only places are compared that lie in the inner half of both windows, away from new
pixels and padding. `wrap`: what leaves on one side enters on the other; nothing is new, but a seam runs through the
picture. All places are compared.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Border = Literal["crop", "wrap"]
ROOM = 4
"""Pictures can move by up to 1/ROOM of their side."""


def room(size: tuple[int, int]) -> int:
    """How many pixels a picture can move."""
    return min(size) // ROOM


def positions(images: Tensor, shifts: list[int], axis: int, border: Border) -> list[Tensor]:
    """The pictures (image, colour, y, x) as they are and shifted by each number of pixels along an axis (2: y, 3: x).

    >>> [moved[0, 0, 0].tolist() for moved in positions(torch.arange(4.0).view(1, 1, 1, 4), [1], 3, "wrap")]
    [[0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 0.0]]
    """
    if border == "wrap":
        return [images.roll(-shift, axis) for shift in (0, *shifts)]
    height, width = images.shape[2:]
    spare = room((height, width))
    large = F.interpolate(images, (height + spare, width + spare), mode="bilinear", align_corners=False)
    other, side = 5 - axis, images.shape[5 - axis]
    strip = large.narrow(other, spare // 2, side)
    return [strip.narrow(axis, shift, images.shape[axis]) for shift in (0, *shifts)]


def shifts_of(size: tuple[int, int], patch: int) -> list[int]:
    """One pixel, two, four … as far as there is room, and one patch.

    >>> shifts_of((32, 32), 8), shifts_of((224, 224), 14)
    ([1, 2, 4, 8], [1, 2, 4, 8, 14, 16, 32])
    """
    powers = [2**power for power in range(room(size).bit_length()) if 2**power <= room(size)]
    return sorted({*powers, patch} if patch <= room(size) else powers)


def cells_moved(shift: int, side: int, cells: int) -> tuple[int, bool]:
    """By how many whole cells a map of so many cells a side moves, and whether that is the shift exactly.

    >>> cells_moved(4, 32, 8), cells_moved(1, 32, 8)
    ((1, True), (0, False))
    """
    ideal = shift * cells / side
    return round(ideal), abs(ideal - round(ideal)) < 1e-6 and round(ideal) > 0


def compare(still: Tensor, moved: Tensor, steps: int, axis: int, border: Border) -> tuple[Tensor, Tensor]:
    """Sums over the places that maps (image, channel, y, x) of both pictures have in common, in float64.

    First (image, 4): squared difference to the map moved along, squared difference to the map left where it was, sum of
    squares, number of places; then (image, channel): the sum of both maps.
    """
    if border == "wrap":
        along, stayed, new = still.roll(-steps, axis), still, moved
    else:
        still, moved = (inner(tensor, 5 - axis) for tensor in (still, moved))
        margin, count = still.shape[axis] // 4, still.shape[axis] - 2 * (still.shape[axis] // 4) - steps
        along = still.narrow(axis, margin + steps, count)
        stayed, new = still.narrow(axis, margin, count), moved.narrow(axis, margin, count)

    def total(values: Tensor) -> Tensor:
        return values.sum((1, 2, 3), dtype=torch.float64)

    cells = torch.full((len(new),), new.shape[2] * new.shape[3], dtype=torch.float64, device=new.device)
    squares = total(new.square()) + total(along.square())
    sums = torch.stack([total((new - along).square()), total((new - stayed).square()), squares, cells], 1)
    return sums, (new + along).sum((2, 3), dtype=torch.float64)


def inner(maps: Tensor, axis: int) -> Tensor:
    """The inner half of the cells along an axis."""
    margin = maps.shape[axis] // 4
    return maps.narrow(axis, margin, maps.shape[axis] - 2 * margin)


def similarity(difference: Tensor, squares: Tensor, both: Tensor, cells: Tensor) -> Tensor:
    """1 - Σ|a - b|² / (Σ|a - m|² + Σ|b - m|²) with m the mean of all: 1 if equal, 0 if unrelated; NaN if constant.

    `both` is Σ(a + b) with its channels last; `cells` counts the vectors of each map.
    """
    spread = squares - both.square().sum(-1) / (2 * cells)
    return (1 - difference / spread).where(spread > 1e-9 * squares, torch.nan)


def variation(one: Tensor, other: Tensor) -> Tensor:
    """(image,): total variation between the answers of logits (image, class): the probability that changes class.

    >>> variation(torch.tensor([[0.0, 99.0]]), torch.tensor([[99.0, 0.0]]))
    tensor([1.])
    """
    return (one.float().softmax(1) - other.float().softmax(1)).abs().sum(1) / 2
