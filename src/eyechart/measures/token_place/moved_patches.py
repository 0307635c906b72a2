"""Pictures whose patches do not stand where they belong: all shuffled, or one exchanged with another picture's."""

from __future__ import annotations

import torch
from torch import Tensor

from eyechart.methods.places import Cells, cut


def put_together(patches: Tensor, cells: Cells) -> Tensor:
    """The pictures of (image, patch, channel, y, x): what `cut` took apart.

    >>> pictures = torch.randn(2, 3, 8, 12)
    >>> torch.equal(put_together(cut(pictures, (2, 3)), (2, 3)), pictures)
    True
    """
    n, _, channels, y, x = patches.shape
    rows, columns = cells
    grid = patches.reshape(n, rows, columns, channels, y, x).permute(0, 3, 1, 4, 2, 5)
    return grid.reshape(n, channels, rows * y, columns * x)


def shuffled(images: Tensor, cells: Cells, generator: torch.Generator) -> Tensor:
    """Every picture with its patches in an order of its own: now no patch has a neighbour it belongs to."""
    patches = cut(images, cells)
    order = torch.rand(patches.shape[:2], generator=generator).argsort(1).to(images.device)
    return put_together(torch.take_along_dim(patches, order[:, :, None, None, None], dim=1), cells)


def exchanged(images: Tensor, cells: Cells, cells_changed: Tensor) -> Tensor:
    """Every picture with one patch, at `cells_changed` (image,), from the next picture of the batch."""
    patches = cut(images, cells)
    rows = torch.arange(len(images), device=images.device)
    patches[rows, cells_changed] = patches.roll(1, 0)[rows, cells_changed]
    return put_together(patches, cells)
