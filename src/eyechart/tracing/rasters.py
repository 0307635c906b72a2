"""Tokens of an attention, which a model may keep in windows and in any order, laid out as the map they stand for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def raster(positions: np.ndarray | None, grid: tuple[int, int]) -> Tensor | None:
    """Which of all (window, token) stands at each cell of the grid; None unless each cell has exactly one."""
    if positions is None:
        return None
    flat = positions.reshape(-1, 2)
    finite = np.flatnonzero(np.isfinite(flat).all(1))
    (rows, row), (columns, column) = (np.unique(flat[finite, axis].round(3), return_inverse=True) for axis in (0, 1))
    cells = row * grid[1] + column
    if (len(rows), len(columns)) != grid or not np.array_equal(np.sort(cells), np.arange(grid[0] * grid[1])):
        return None
    return torch.from_numpy(finite[np.argsort(cells)])


def on_grid(tokens: Tensor, positions: np.ndarray | None, grid: tuple[int, int]) -> Tensor | None:
    """(image, head · channel, y, x) from (image, window, head, token, channel)."""
    order = raster(positions, grid)
    if order is None:
        return None
    flat = tokens.transpose(2, 3).flatten(3).flatten(1, 2)
    cells = flat[:, order.to(flat.device)].transpose(1, 2)
    return cells.reshape(*cells.shape[:2], *grid)
