"""Weights made for one input size, brought to another: position tables are resized, all else must fit as it is."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from eyechart.subjects.weights import State
from eyechart.zoo.positions import resize_distances, resize_line, resize_offsets, resize_pos_embed

WINDOW_TABLES = ("relative_position_bias_table",)
HALF_TABLES = ("columns.pos_embed", "rows.pos_embed")


def resize_positions(state: State, module: nn.Module) -> State:
    """The state with each position table as large as the module's; what is no such table stays as it is.

    >>> from eyechart import zoo
    >>> small, large = (zoo.build("vit", image_size=size, depth=1) for size in (16, 32))
    >>> resize_positions(small.state_dict(), large)["pos_embed"].shape
    torch.Size([1, 65, 160])
    """
    wanted = module.state_dict()
    return {
        name: stored
        if name not in wanted or stored.shape == wanted[name].shape
        else resized(name, stored.float(), wanted[name])
        for name, stored in state.items()
    }


def resized(name: str, stored: Tensor, wanted: Tensor) -> Tensor:
    """A position table for another grid, in the shape of `wanted`; anything else as it is."""
    if stored.ndim != wanted.ndim or (stored.ndim < 4 and stored.shape[-1] != wanted.shape[-1]):
        return stored
    if name.endswith(WINDOW_TABLES):
        old, new = (math.isqrt(len(table)) for table in (stored, wanted))
        odd_squares = old**2 == len(stored) and new**2 == len(wanted) and old % 2 == new % 2 == 1
        return resize_offsets(stored, new // 2 + 1) if odd_squares else stored
    if "pos_embed" not in name:
        return stored
    if stored.ndim == 4:  # a map (1, width, y, x), as PiT has
        same = stored.shape[:2] == wanted.shape[:2]
        return F.interpolate(stored, wanted.shape[-2:], mode="bilinear", align_corners=True) if same else stored
    if name.endswith(HALF_TABLES):
        return resize_line(stored, wanted.shape[1])
    if stored.ndim == 2 and len(stored) % 2 == len(wanted) % 2 == 1:
        tokens = [(len(table) + 1) // 2 for table in (stored, wanted)]
        grids = _grids(*tokens)
        return resize_distances(stored, *grids[:2], has_cls=grids[2]) if grids else stored
    if stored.ndim == 3:
        grids = _grids(stored.shape[1], wanted.shape[1])
        return resize_pos_embed(stored, *grids[:2], has_cls=grids[2]) if grids else stored
    return stored


def _grids(old: int, new: int) -> tuple[int, int, bool] | None:
    """Sides of the square grids that so many tokens make, and whether a CLS token is among them; None: no such grids.

    >>> _grids(65, 145), _grids(64, 144), _grids(65, 144)
    ((8, 12, True), (8, 12, False), None)
    """
    for has_cls in (False, True):
        sides = math.isqrt(old - has_cls), math.isqrt(new - has_cls)
        if sides[0] ** 2 + has_cls == old and sides[1] ** 2 + has_cls == new:
            return sides[0], sides[1], has_cls
    return None
