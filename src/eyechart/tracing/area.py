"""Means over the cells of a coarser grid, each location counted by the area it fills."""

from __future__ import annotations

import functools

import torch


def area_means(maps: torch.Tensor, cells: tuple[int, int]) -> torch.Tensor:
    """(…, y, x) → (…, row, column). The mean over all cells is the mean over all locations, whatever the sides.

    Adaptive pooling takes whole locations into cells that overlap where one side does not divide the other, and so
    counts some of them twice.
    """
    rows, columns = (kept_shares(*sides, maps.device, maps.dtype) for sides in zip(cells, maps.shape[-2:], strict=True))
    return rows @ maps @ columns.T


@functools.lru_cache(maxsize=256)
def kept_shares(cells: int, size: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Made once: a table that is brought to a device inside a pass keeps that pass from being captured."""
    return shares(cells, size).to(device, dtype)


def shares(cells: int, size: int) -> torch.Tensor:
    """(cell, location): how much of each cell a location fills; a location on the border of two has a part in both.

    >>> shares(2, 3) * 3
    tensor([[2., 1., 0.],
            [0., 1., 2.]])
    """
    begin, location = torch.arange(cells)[:, None] * (size / cells), torch.arange(size)
    overlap = torch.minimum(begin + size / cells, location + 1) - torch.maximum(begin, location)
    return overlap.clamp_min(0) * (cells / size)
