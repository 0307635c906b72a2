"""Rows of attention: how spread out they are, where they lead through many blocks, and which are kept to be shown.

A row is one query's attention over its keys. Of a few example pictures rows are kept as they are, in eight bits of the
square root of each weight's share of the largest on any patch; fine grids are thinned, so that it stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eyechart.sites import Anatomy, AttentionGeometry, Site

LEVELS = 255
"""A kept weight is `(code / 255)²` of the largest weight on a patch of its row: near 0 in steps of 1/65,025, as fine
as 16 bits in half the room, and nowhere off by more than 0.4 % of the largest. Tokens without place (the class token,
which may hold three quarters of a row) are kept relative to the largest of *them*, or few shades were left for the map.
"""
MOST_KEYS = 576
"""Keys kept in a row, beside prefix tokens: 24×24. What attends to more is summed over square groups of keys."""
SIDES = range(16, 1, -1)
"""Rows and columns of queries that are kept, at most 16×16; very large subjects keep fewer."""
PREFIX, MEAN, NOTHING = -1, -2, -9
"""In place of a row of the grid: a token without place, the mean over all places, padding."""
AT_ONCE = 1 << 24  # attention weights whose logarithm is held at a time


def entropy(weights: Tensor) -> Tensor:
    """H = -Σ_j p_j ln p_j of every row, in nats, with p the row divided by its sum. NaN where weights are negative.

    >>> entropy(torch.full((1, 4), 0.25)), entropy(torch.tensor([[0.0, 1.0]]))
    (tensor([1.3863]), tensor([0.]))
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    mass = weights.sum(-1)
    spread = torch.special.entr(weights).sum(-1) / mass + mass.log()  # entr of a negative weight is -inf
    return torch.where(spread.isfinite(), spread, torch.nan)


def mean_entropy(weights: Tensor, placed: Tensor) -> Tensor:
    """(image, head): mean over the queries that have a place, (window, query), of (image, window, head, query, key)."""
    share = placed.to(weights.device, torch.promote_types(weights.dtype, torch.float32))
    share = share / share.sum()
    pieces = torch.split(weights, max(1, AT_ONCE // max(1, weights[0].numel())))
    return torch.cat([torch.einsum("nwhq,wq->nh", entropy(piece), share) for piece in pieces])


def rollout(weights: Tensor, before: Tensor | None = None) -> Tensor:
    """Abnar and Zuidema's attention rollout, one block further: R_l = Ã_l R_{l-1}, from (image, head, token, token).

        Ã = (mean over heads of A + I) / 2, its rows divided by their sums

    The identity stands for the skip around the attention; R_0 is the identity.

    >>> rollout(torch.full((1, 3, 2, 2), 0.5))
    tensor([[[0.7500, 0.2500],
             [0.2500, 0.7500]]])
    """
    mean = weights.to(torch.promote_types(weights.dtype, torch.float32)).mean(1)
    mixed = mean + torch.eye(mean.shape[-1], device=mean.device)
    mixed = mixed / mixed.sum(-1, keepdim=True)
    return mixed if before is None else mixed @ before


def why_no_rollout(anatomy: Anatomy, sites: Sequence[Site]) -> str:
    """What keeps the product of attention matrices from meaning anything; empty where nothing does."""
    shapes = [site.attention for site in sites if site.attention is not None]
    if any(shape.windows > 1 for shape in shapes):
        return "it attends within windows"
    if len({shape.keys for shape in shapes}) > 1 or any(shape.kind == "pooled" for shape in shapes):
        return "its tokens change on the way"
    if anatomy.family != "vit" or any(shape.query_prefix + shape.grid_queries != shape.keys for shape in shapes):
        return "its tokens also mix in ways that attention does not show"
    if len({site.block for site in sites}) < len(sites):
        return "some blocks have several attentions side by side"
    return ""


def coded(rows: Tensor, placed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (…, query, key) as (codes, largest weight on a patch, largest on a token without place).

    `placed` (query, key) says which keys are patches. `decoded` takes the weights back. The largest weights are rounded
    to half precision first, so that the page's numbers are exactly the finding's.
    """
    rows, placed = rows.float().clamp_min(0), placed.to(rows.device)
    peak, beside = (rows.where(keys, 0).amax(-1).half().float() for keys in (placed, ~placed))
    largest = torch.where(placed, peak.unsqueeze(-1), beside.unsqueeze(-1)).clamp_min(torch.finfo(torch.float32).tiny)
    return ((rows / largest).clamp_max(1).sqrt() * LEVELS).round().to(torch.uint8), peak, beside


def decoded(codes: np.ndarray, peak: np.ndarray, beside: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """
    >>> placed = torch.tensor([[False, True, True]])
    >>> decoded(*(part.numpy() for part in (*coded(torch.tensor([[0.75, 0.25, 0.0]]), placed), placed)))
    array([[0.75, 0.25, 0.  ]])
    """
    largest = np.where(placed, np.asarray(peak, np.float64)[..., None], np.asarray(beside, np.float64)[..., None])
    values: np.ndarray = (codes.astype(np.float64) / LEVELS) ** 2 * largest
    return values


# --- which rows are kept ----------------------------------------------------------------------------------------------


def query_grid(geometry: AttentionGeometry, size: tuple[int, int]) -> tuple[int, int]:
    return round(size[0] / geometry.cell[0]), round(size[1] / geometry.cell[1])


def count_queries(geometry: AttentionGeometry, size: tuple[int, int], side: int) -> int:
    """Kept rows of an attention: its prefix tokens, the mean (both only where there is one window), places."""
    rows, columns = query_grid(geometry, size)
    without_place = geometry.query_prefix + 1 if geometry.windows == 1 else 0
    return without_place + min(rows, side) * min(columns, side)


def count_keys(geometry: AttentionGeometry) -> int:
    return geometry.key_prefix + min(geometry.keys - geometry.key_prefix, MOST_KEYS)


@dataclass(frozen=True)
class Kept:
    """The rows of one attention that are kept, read off where its queries and keys lie."""

    queries: np.ndarray
    """(query, 3): row and column of the grid, and which of the kept windows; (PREFIX, number) or (MEAN, 0)."""
    keys: np.ndarray
    """(window, key, 2): row and column among groups of keys; (PREFIX, number); (NOTHING, 0) where there is none."""
    grids: tuple[int, int, int, int, int]
    """Rows and columns of the queries, then of the keys, and how many rows and columns of keys make a group."""
    window: np.ndarray
    """(query,): the attention's own number of each kept query's window."""
    token: np.ndarray
    """(query,): its place in that window; -1 for the mean."""
    target: np.ndarray
    """(query, key as the model has them): where each key's weight is added."""

    @property
    def placed(self) -> np.ndarray:
        """(query, key): which keys have a place in the picture."""
        has_place: np.ndarray = self.keys[self.queries[:, 2], :, 0] >= 0
        return has_place

    def rows(self, weights: Tensor) -> Tensor:
        """(image, head, query, key) out of (image, window, head, query, key)."""
        prefix = self.queries[:, 0].tolist().count(PREFIX)
        chosen = weights[:, torch.as_tensor(self.window), :, torch.as_tensor(self.token)].permute(1, 2, 0, 3)
        if MEAN in self.queries[:, 0]:
            chosen = chosen.clone()
            chosen[:, :, prefix] = weights[:, 0, :, prefix:].mean(2)
        target = torch.as_tensor(self.target, device=weights.device).expand(chosen.shape)
        return chosen.new_zeros(*chosen.shape[:3], self.keys.shape[1]).scatter_add(-1, target, chosen)


def kept_rows(geometry: AttentionGeometry, side: int) -> Kept:
    """Queries on at most `side` rows and columns of the grid, both edges among them, and all their keys."""
    assert geometry.query_yx is not None
    assert geometry.key_yx is not None
    at, grid = _cells(geometry.query_yx)
    asked = [np.linspace(0, length - 1, min(length, side)).round().astype(int) for length in grid]
    place = {(row, column): (window, token) for window, token, row, column in reversed(_placed(at))}
    chosen = [(row, column) for row in asked[0].tolist() for column in asked[1].tolist() if (row, column) in place]
    listed = [(row, column, *place[row, column]) for row, column in chosen]
    if geometry.windows == 1:
        listed = [*((PREFIX, k, 0, k) for k in range(geometry.query_prefix)), (MEAN, 0, 0, -1), *listed]
    window, token = (np.array([each[part] for each in listed]) for part in (2, 3))
    windows, kept_window = np.unique(window, return_inverse=True)
    keys, target, key_grids = _grouped(geometry.key_yx[windows], geometry.key_yx, geometry.key_prefix)
    queries = np.array(
        [[row, column, number] for (row, column, *_), number in zip(listed, kept_window.tolist(), strict=True)]
    )
    return Kept(queries, keys, (*grid, *key_grids), window, token, target[kept_window])


def _cells(positions: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """(window, token, 2) in pixels → rows and columns counted from 0, PREFIX where there is no place; and the grid."""
    cells = np.full(positions.shape, PREFIX)
    sizes = []
    for axis in (0, 1):
        placed = ~np.isnan(positions[..., axis])
        steps = np.unique(positions[..., axis][placed].round(2))
        cells[..., axis][placed] = np.searchsorted(steps, positions[..., axis][placed].round(2))
        sizes.append(len(steps))
    return cells, (sizes[0], sizes[1])


def _placed(cells: np.ndarray) -> list[tuple[int, int, int, int]]:
    """(window, token, row, column) of every token that has a place."""
    where = np.argwhere(cells[..., 0] >= 0)
    return [(window, token, *cells[window, token].tolist()) for window, token in where.tolist()]


def _grouped(chosen: np.ndarray, every: np.ndarray, prefix: int) -> tuple[np.ndarray, np.ndarray, tuple[int, int, int]]:
    """Keys of the chosen windows as (kept keys, where each goes, grids); more than 196 in a row are put into groups."""
    cells, grid = _cells(np.concatenate([chosen, every]))
    cells = cells[: len(chosen)]
    group = 1
    while max(len(np.unique(one[prefix:] // group, axis=0)) for one in cells) > MOST_KEYS:
        group += 1
    cells = np.where(cells >= 0, cells // group, cells)
    cells[:, :prefix, 1] = np.arange(prefix)
    by_window = [np.unique(one, axis=0, return_inverse=True) for one in cells]
    keys = np.full((len(cells), max(len(groups) for groups, _ in by_window), 2), (NOTHING, 0))
    target = np.empty(cells.shape[:2], dtype=np.int64)
    for window, (groups, where) in enumerate(by_window):
        keys[window, : len(groups)], target[window] = groups, where.reshape(-1)
    return keys, target, (*grid, group)
