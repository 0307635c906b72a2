"""Reading layouts and attention geometry off the origins that a dry run carried along."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from eyechart.sites import AttentionGeometry, Layout
from eyechart.tracing.positions import axes_of_images, axes_of_positions, image_of, position_of, slim


@dataclass(frozen=True)
class Seen:
    """What the dry run saw of one attention call."""

    heads: int
    geometry: AttentionGeometry
    error: float
    """Largest difference between `weights @ values` and the attention's output, relative to the output."""


def read_layout(origins: Tensor) -> Layout | None:
    """Which axis is what. None if the axes cannot be told."""
    dims = origins.dim()
    images = axes_of_images(origins)
    if len(images) != 1:
        return None
    lead = images[0]
    varying = axes_of_positions(origins)
    spread = [axis for axis in varying if axis != lead]
    flat = [axis for axis in range(dims) if axis != lead and axis not in spread]
    if lead in varying:
        return _windows(origins, lead, spread, flat)
    letters = {lead: "N"}
    channel = _channel_axis(origins, spread, flat)
    if channel is None:
        return None
    letters[channel] = "C"
    heads = [
        axis for axis in flat if axis != channel and (origins.shape[axis] > 1 or _before_tokens(origins, axis, spread))
    ]
    if heads:
        letters[heads[0]] = "H"
    rest = [axis for axis in range(dims) if axis not in letters]
    if not rest:
        return Layout("NC") if dims == 2 else None
    origins = origins[tuple(slice(None) if axis in rest else 0 for axis in range(dims))]
    y, x = position_of(origins)
    if len(rest) == 2:
        rows, columns = y[:, :1].expand_as(y), x[:1].expand_as(x)
        upright = _same(rows, y) and _same(columns, x) and not y.isnan().any()
        letters |= {rest[0]: "Y", rest[1]: "X"} if upright else {rest[0]: "W", rest[1]: "T"}
        axes = "".join(letters[axis] for axis in range(dims))
        return Layout(axes, 0, (y.shape[0], y.shape[1])) if upright else Layout(axes, 0, None, y.shape[0])
    if len(rest) != 1:
        return None
    letters[rest[0]] = "T"
    axes = "".join(letters[axis] for axis in range(dims))
    prefix, grid = _token_grid(y, x)
    return Layout(axes, prefix, grid)


def _channel_axis(origins: Tensor, spread: list[int], flat: list[int]) -> int | None:
    """The axis along which nothing of the picture changes; of two beside a positional one, the first are heads.

    Axes of length one are only channels if no other is.
    """
    wide = [axis for axis in flat if origins.shape[axis] > 1]
    if len(wide) == 1 or (len(wide) == 2 and spread):
        return wide[-1]
    return flat[-1] if flat and not wide else None


def _before_tokens(origins: Tensor, axis: int, spread: list[int]) -> bool:
    """Is this axis of length one a single head, before an axis that runs through both rows and columns?"""
    if len(spread) != 1 or axis > spread[0] or origins.dim() != 4:
        return False
    y, x = position_of(origins.movedim(spread[0], 0).flatten(1)[:, 0])
    return bool((y[1:] != y[:-1]).any() and (x[1:] != x[:-1]).any())


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(torch.allclose(a, b, equal_nan=True))


def _token_grid(y: Tensor, x: Tensor) -> tuple[int, tuple[int, int] | None]:
    """How many tokens without position come first, and the grid if the others run through it row by row."""
    placed = ~y.isnan()
    prefix = int(placed.int().argmax()) if placed.any() else len(y)
    y, x = y[prefix:], x[prefix:]
    if not len(y) or y.isnan().any():
        return prefix, None
    rows = len(torch.unique(y))
    if len(y) % rows:
        return prefix, None
    y, x = y.view(rows, -1), x.view(rows, -1)
    regular = _same(y, y[:, :1].expand_as(y)) and _same(x, x[:1].expand_as(x)) and bool((x.diff(dim=1) > 0).all())
    return prefix, ((rows, y.shape[1]) if regular and bool((y.diff(dim=0) > 0).all()) else None)


def _windows(origins: Tensor, lead: int, spread: list[int], flat: list[int]) -> Layout | None:
    """Windows merged into the image axis, images outermost: (image × window, token, channel)."""
    if lead != 0 or origins.dim() != 3 or (len(spread) != 1 and origins.shape[1] != 1):
        return None
    image = image_of(origins[:, :, 0]).amax(1)
    per = len(image) // int(image.max() + 1)
    if not _same(
        image, torch.arange(len(image), device=image.device, dtype=image.dtype).div(per, rounding_mode="floor")
    ):
        return None
    return Layout("WCT" if spread == [2] else "WTC", 0, None, per)


def resolution(origins: Tensor) -> tuple[int, int]:
    """How many different rows and columns of the picture a tensor tells apart, in whatever order."""
    rows, columns = (len(torch.unique(value[~value.isnan()])) for value in position_of(slim(origins)))
    return rows, columns


def split_leading(query: Tensor, key: Tensor, images: int) -> list[tuple[str, int]] | None:
    """How a flat leading axis decomposes into images, windows and heads; origins are (leading, query or key)."""
    total = query.shape[0]
    asked, looked = image_of(query).amax(1).long(), image_of(key).amax(1).long()
    image = torch.where(looked >= 0, looked, asked)  # what keys bring belongs to their image
    index = torch.arange(total, device=query.device)
    strides = [
        s for s in range(1, total + 1) if total % (s * images) == 0 and bool((index // s % images == image).all())
    ]
    if not strides:
        return None
    inner = strides[-1]
    first = index[image == 0]
    signature = torch.cat([*position_of(query[first]), *position_of(key[first])], 1).nan_to_num(-1)
    window = torch.unique(signature, dim=0, return_inverse=True)[1]
    windows, left = int(window.max()) + 1, len(first)
    index_in_image = torch.arange(left, device=query.device)
    for stride in (s for s in range(1, left + 1) if left % (s * windows) == 0):
        digit = index_in_image // stride % windows
        if len(torch.unique(torch.stack([digit, window]), dim=1)[0]) == windows:
            break
    else:
        return None
    return _insert([("H", left // windows // stride), ("W", windows), ("H", stride)], inner)


def _insert(digits: list[tuple[str, int]], inner: int) -> list[tuple[str, int]] | None:
    """Put the image digit where `inner` indices run inside it, splitting another digit if it must."""
    result: list[tuple[str, int]] = []
    for letter, size in reversed(digits):
        if inner >= size and inner % size == 0:
            result.append((letter, size))
            inner //= size
            continue
        if inner and size % inner == 0:
            result += [(letter, inner), ("N", -1), (letter, size // inner)]
            inner = 0
        elif inner:
            return None
        else:
            result.append((letter, size))
    if not any(letter == "N" for letter, _ in result):
        result.append(("N", -1))
    kept = [(letter, size) for letter, size in reversed(result) if size != 1]
    for needed in "WH":
        if not any(letter == needed for letter, _ in kept):
            kept.append((needed, 1))
    return kept


def uniform_distance(y: np.ndarray, x: np.ndarray) -> float:
    """Mean distance of all ordered pairs of grid points, each with itself included.

    >>> centres = np.arange(14) * 16 + 8.0
    >>> round(uniform_distance(centres, centres), 2)
    116.49
    """
    rows, many = np.unique(np.abs(y[:, None] - y[None]).round(3), return_counts=True)
    columns, much = np.unique(np.abs(x[:, None] - x[None]).round(3), return_counts=True)
    distances = np.hypot(rows[:, None], columns[None])
    return float((distances * np.outer(many, much)).sum() / (many.sum() * much.sum()))


def read_attention(
    query: Tensor, key: Tensor, leading: list[tuple[str, int]], size: tuple[int, int], operand: int
) -> AttentionGeometry:
    """Geometry from origins in canonical axes, (window, query) and (window, key), of one image."""
    (qy, qx), (ky, kx) = position_of(query), position_of(key)
    queries, keys = (torch.stack(pair, -1).cpu().numpy() for pair in ((qy, qx), (ky, kx)))
    windows = len(queries)
    grid = queries if not np.isnan(queries).all() else keys
    ys, xs = (np.unique(grid[..., at][~np.isnan(grid[..., at])]) for at in (0, 1))
    counts = [len(set(queries[0, :, at][~np.isnan(queries[0, :, at])])) for at in (0, 1)]
    placed = int((~np.isnan(queries[0, :, 0])).sum())
    window = (counts[0], counts[1]) if windows > 1 and counts[0] * counts[1] == placed and placed else None
    return AttentionGeometry(
        kind=_kind(queries, keys),
        window=window,
        windows=windows,
        query_prefix=_prefix(queries),
        key_prefix=_prefix(keys),
        cell=(size[0] / max(len(ys), 1), size[1] / max(len(xs), 1)),
        uniform_distance=uniform_distance(ys, xs) if len(ys) else math.nan,
        grid_queries=placed,
        query_yx=queries,
        key_yx=keys,
        leading=tuple(leading),
        operand=operand,
        keys=keys.shape[1],
    )


def _prefix(positions: np.ndarray) -> int:
    placed = ~np.isnan(positions[..., 0]).all(0)
    return int(placed.argmax()) if placed.any() else len(placed)


def _kind(queries: np.ndarray, keys: np.ndarray) -> Literal["global", "windowed", "pooled", "other"]:
    if np.isnan(keys).all():
        return "other"
    if len(queries) > 1:
        return "windowed"
    asking, answering = (
        {tuple(point) for point in positions[0][~np.isnan(positions[0, :, 0])].tolist()}
        for positions in (queries, keys)
    )
    return "global" if not asking or asking == answering else "pooled"
