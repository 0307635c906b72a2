"""Pictures with patches missing or in another place, and which picture goes with which.

Patches are the cells of an even grid, whatever the subject.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def cells(height: int, width: int, side: int) -> Tensor:
    """(y, x): which cell of a side × side grid a pixel lies in, counted row by row.

    >>> cells(2, 4, 2)
    tensor([[0, 0, 1, 1],
            [2, 2, 3, 3]])
    """
    rows, columns = (torch.arange(size) * side // size for size in (height, width))
    return rows[:, None] * side + columns


def orders(images: int, side: int, generator: Generator) -> Tensor:
    """A random order of the cells for each picture, (image, cell)."""
    return torch.rand(images, side * side, generator=generator).argsort(1)


def dropped(pixels: Tensor, order: Tensor, share: float) -> Tensor:
    """The first `share` of the cells in each picture's `order` replaced by the mean colour of that picture."""
    (height, width), count = pixels.shape[-2:], order.shape[1]
    gone = torch.zeros(order.shape, dtype=torch.bool).scatter_(1, order[:, : round(share * count)], True)
    mask = gone[:, cells(height, width, round(count**0.5))].unsqueeze(1).to(pixels.device)
    return torch.where(mask, pixels.mean((2, 3), keepdim=True), pixels)


def shuffled(pixels: Tensor, order: Tensor) -> Tensor:
    """The cells of each picture in another order; a remainder at the right and the bottom stays in place."""
    side = round(order.shape[1] ** 0.5)
    (height, width), (images, channels) = pixels.shape[-2:], pixels.shape[:2]
    tall, wide = height // side, width // side
    even = pixels[..., : tall * side, : wide * side].reshape(images, channels, side, tall, side, wide)
    tiles = even.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    tiles = tiles[torch.arange(images, device=pixels.device)[:, None], order.to(pixels.device)]
    back = tiles.view(images, side, side, channels, tall, wide).permute(0, 3, 1, 4, 2, 5)
    result = pixels.clone()
    result[..., : tall * side, : wide * side] = back.reshape(images, channels, tall * side, wide * side)
    return result


def partners(folds: Tensor) -> Tensor:
    """For each image another one of its fold, so that folds stay independent; the next one where it is alone in it.

    >>> partners(torch.tensor([0, 1, 2, 0, 1])).tolist()
    [3, 4, 3, 0, 1]
    """
    partner = torch.arange(len(folds)).roll(-1)
    for fold in set(folds.tolist()):
        of_fold = torch.nonzero(folds == fold).flatten()
        if len(of_fold) > 1:
            partner[of_fold] = of_fold.roll(-1)
    return partner
