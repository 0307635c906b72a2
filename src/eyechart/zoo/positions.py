"""Position embeddings of a ViT: learned tables, and their resizing for another grid (SPEC 1.2, 1.3).

Every kind of table is resized as a picture of positions: bilinearly, corners staying corners, and untouched where the
size is the same.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eyechart.errors import UsageError

Position = Literal["none", "1d", "2d", "relative"]
Place = Literal["stem", "layers", "shared"]


class Position1d(nn.Module):
    """A learned row for every token."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, tokens, width))

    def forward(self) -> Tensor:
        return self.pos_embed


class Position2d(nn.Module):
    """Half of the channels from a table of columns, half from a table of rows; a CLS token has a row of its own.

    >>> Position2d(8, 32, has_cls=True)().shape
    torch.Size([1, 65, 32])
    """

    def __init__(self, grid: int, width: int, has_cls: bool) -> None:
        super().__init__()
        if width % 2:
            raise UsageError(f"2-D position embeddings halve the channels, so the width must be even; got {width}.")
        self.columns = Position1d(grid, width // 2)
        self.rows = Position1d(grid, width // 2)
        self.cls = Position1d(1, width) if has_cls else None

    def forward(self) -> Tensor:
        columns, rows = self.columns(), self.rows()
        grid = columns.shape[1]
        across = columns[:, None].expand(-1, grid, -1, -1)
        down = rows[:, :, None].expand(-1, -1, grid, -1)
        cells = torch.cat([across, down], dim=-1).flatten(1, 2)
        return cells if self.cls is None else torch.cat([self.cls(), cells], dim=1)


def position_tables(kind: Position, where: Place, grid: int, width: int, depth: int, has_cls: bool) -> nn.ModuleList:
    """The tables beside the plain one: none, one, or one for each layer."""
    if kind in ("none", "relative"):
        if where != "stem":
            raise UsageError(f"position={kind} adds no table, so position_at={where} has no effect; leave it at stem.")
        return nn.ModuleList()
    if kind == "1d":
        # Elsewhere the plain table is the model's own `pos_embed`, as in timm.
        return nn.ModuleList(Position1d(grid**2 + has_cls, width) for _ in range(depth if where == "layers" else 0))
    return nn.ModuleList(Position2d(grid, width, has_cls) for _ in range(depth if where == "layers" else 1))


def resize_pos_embed(
    table: Tensor, g_old: int, g_new: int, has_cls: bool, mode: Literal["bilinear", "bicubic"] = "bilinear"
) -> Tensor:
    """A position table (1, [CLS +] g_old², width) for a grid of g_new × g_new; the CLS row is untouched (SPEC 1.2).

    Corners stay corners (`align_corners`), as with the order-1 zoom of the ViT authors' code.

    >>> import torch
    >>> table = torch.randn(1, 1 + 8 * 8, 16)
    >>> resize_pos_embed(table, 8, 12, has_cls=True).shape
    torch.Size([1, 145, 16])
    >>> torch.equal(resize_pos_embed(table, 8, 8, has_cls=True), table)
    True
    """
    rows = g_old**2 + has_cls
    if table.ndim != 3 or table.shape[1] != rows:
        raise UsageError(
            f"A position table for a {g_old}×{g_old} grid {'with' if has_cls else 'without'} CLS has shape "
            f"(1, {rows}, width); this one has {tuple(table.shape)}."
        )
    if g_old == g_new:
        return table
    cls, cells = table[:, : int(has_cls)], table[:, int(has_cls) :]
    picture = cells.reshape(1, g_old, g_old, -1).permute(0, 3, 1, 2).float()
    resized = F.interpolate(picture, size=(g_new, g_new), mode=mode, align_corners=True)
    cells = resized.permute(0, 2, 3, 1).reshape(1, g_new**2, -1).to(table.dtype)
    return torch.cat([cls, cells], dim=1)


def resize_line(table: Tensor, new: int) -> Tensor:
    """A table of columns or of rows (1, positions, width), each half of 2-D position embeddings, for `new` of them.

    >>> resize_line(torch.tensor([[[0.0], [3.0]]]), 4).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    if table.shape[1] == new:
        return table
    line = F.interpolate(table.float().transpose(1, 2), size=new, mode="linear", align_corners=True)
    return line.transpose(1, 2).to(table.dtype)


def resize_offsets(table: Tensor, new: int) -> Tensor:
    """A table of every step down and across within a window, ((2w − 1)², …), for windows of `new` cells a side.

    >>> resize_offsets(torch.arange(9.0), 2).tolist() == list(range(9))
    True
    """
    old = math.isqrt(len(table)) // 2 + 1
    if old == new:
        return table
    flat = table.reshape(1, len(table), -1)
    return resize_pos_embed(flat, 2 * old - 1, 2 * new - 1, has_cls=False).reshape(-1, *table.shape[1:])


def resize_distances(table: Tensor, g_old: int, g_new: int, has_cls: bool) -> Tensor:
    """A table of the distances i − j along the sequence, (2 · tokens − 1, width), for a grid of g_new × g_new.

    The sequence runs row by row, so a distance of one row is another number on another grid: the table is laid out as
    steps down and across, resized, and read off again. Where two steps share a distance (to the far right, and
    down to the left) the new row is their mean, weighted by how many pairs of cells take each. A CLS token is first in
    the sequence and uses the same distances; the two that only it reaches are untouched.
    """
    if g_old == g_new:
        return table
    middle = g_old**2 - 1 + has_cls
    down, across, _ = _steps(g_old)
    steps = table[middle + down * g_old + across].reshape(-1, table.shape[1])
    resized = resize_offsets(steps, g_new).float()
    down, across, pairs = _steps(g_new)
    at = (down * g_new + across).flatten() + g_new**2 - 1
    weight = pairs.flatten().to(resized)
    total = torch.zeros(2 * g_new**2 - 1).index_add_(0, at, weight)
    rows = torch.zeros(len(total), table.shape[1])
    rows = (rows.index_add_(0, at, weight[:, None] * resized) / total[:, None]).to(table.dtype)
    return torch.cat([table[:1], rows, table[-1:]]) if has_cls else rows


def _steps(grid: int) -> tuple[Tensor, Tensor, Tensor]:
    """Every step down and across between two cells of a grid, (2g − 1, 2g − 1) each, and how many pairs take it."""
    step = torch.arange(1 - grid, grid)
    down, across = torch.meshgrid(step, step, indexing="ij")
    return down, across, (grid - down.abs()) * (grid - across.abs())
