"""Weights that a dry run shows by what they do: the filters a picture meets first, and the tables that say where.

No name decides. The first kernel or matrix applied to pixels holds the filters; a constant added to tokens that differs
from position to position is a position table; one added to attention scores, or multiplied with queries for every pair
of positions, is a relative one. What is kept is what was applied, after whatever the model does to its parameters
(standardised kernels, resized or joined tables).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from eyechart.sites import Filters, PositionTable
from eyechart.tracing import operations as op
from eyechart.tracing.graph import Call, Record, Step
from eyechart.tracing.positions import axes_of_images, axes_of_positions, position_of, position_varies

COLOURS = 3


@dataclass(frozen=True)
class UsedTable:
    """A table, and when it was used."""

    table: PositionTable
    call: Call
    order: int


class Tables:
    """Looks at every step of a dry run; `filters` and `positions` then hold what was found."""

    def __init__(self, module: nn.Module) -> None:
        parameters = dict(module.named_parameters())
        some_learn = any(weight.requires_grad for weight in parameters.values())
        # A sinusoid kept as a parameter does not learn; where all are frozen nothing can be told by that.
        self._learned = {name for name, weight in parameters.items() if weight.requires_grad or not some_learn}
        self.filters: Filters | None = None
        self.positions: list[UsedTable] = []
        self._weighted = 0  # bit set over nodes, as `Node.ancestors`

    def see(self, step: Step, made: Record, call: Call) -> None:
        if self.filters is None and step.name in ("conv2d", "linear"):
            self._look_for_filters(step)
        if "weighted" in made.node.traits:
            self._weighted |= 1 << made.node.index
        table = None
        if step.name in op.ADD and len(step.active) == 1 and len(step.before) == 2:
            table = self._absolute(step) if step.main.keys is None else self._bias_of_scores(step)
        elif step.name == op.FUSED_ATTENTION:
            table = self._mask(step)
        elif step.name in op.PRODUCT and len(step.active) == 1:
            table = self._vectors(step)
        if table is not None and not any(_same(table, other.table) for other in self.positions):
            self.positions.append(UsedTable(table, call, made.node.index))

    # --- filters ------------------------------------------------------------------------------------------------

    def _look_for_filters(self, step: Step) -> None:
        node, origins = step.main.node, step.main.origins
        if (node.ancestors | 1 << node.index) & self._weighted or origins is None or len(step.before) < 2:
            return
        weight, record = step.before[1]
        if not record.constant:
            return
        path = str(record.node.detail or "")
        if step.name == "linear":
            kernels = _patches_of(weight, origins)
            kind: Literal["patches", "convolution"] = "patches"
        else:
            stride = step.kwargs.get("stride", step.args[3] if len(step.args) > 3 else 1)
            strides = (stride, stride) if isinstance(stride, int) else tuple(stride)
            kind = "patches" if tuple(weight.shape[2:]) == strides else "convolution"
            kernels = None if position_varies(origins, 1) else weight
        if kernels is None or kernels.shape[1] != COLOURS or max(kernels.shape[2:]) == 1:
            return
        filters, colours, height, width = kernels.shape
        self.filters = Filters(path, (filters, colours, height, width), kind, _kept(kernels))

    # --- tables -------------------------------------------------------------------------------------------------

    def _absolute(self, step: Step) -> PositionTable | None:
        """A constant added to tokens or to a map, different at every position."""
        (table, record), origins, shape = _constant(step), step.main.origins, step.shape
        if origins is None or tuple(origins.shape) != shape or not table.is_floating_point():
            return None
        moving, images, flat = _axes(origins)
        sizes = (1,) * (len(shape) - table.dim()) + tuple(table.shape)
        if not moving or len(images) != 1 or images[0] in moving or any(sizes[at] != shape[at] for at in moving):
            return None
        if all(sizes[at] == 1 for at in flat):
            return None
        order = [*moving, *flat]
        rows = table.reshape(sizes).select(images[0], 0)
        rows = rows.permute([at - (at > images[0]) for at in order]).reshape(math.prod(shape[at] for at in moving), -1)
        where = origins.movedim((*images, *flat), tuple(range(len(images) + len(flat))))[(0,) * (1 + len(flat))]
        grid = _on_grid(rows, where.reshape(-1))
        return None if grid is None else self._table(record, "absolute", grid)

    def _bias_of_scores(self, step: Step) -> PositionTable | None:
        (bias, record), main = _constant(step), step.main
        if main.origins is None or main.keys is None or main.origins.shape != main.keys.shape:
            return None
        if not (position_varies(main.origins, -2) and position_varies(main.keys, -1)):
            return None
        first = (0,) * (len(main.shape) - 2)
        return self._bias(bias, record, main.origins, main.origins[first][:, 0], main.keys[first][0])

    def _mask(self, step: Step) -> PositionTable | None:
        """What is added to the scores of fused attention."""
        mask = step.kwargs.get("attn_mask", step.args[3] if len(step.args) > 3 else None)
        records = {id(tensor): record for tensor, record in step.before}
        if mask is None or not records[id(mask)].constant:
            return None
        asked, looked = (record.origins for _, record in step.before[:2])
        if asked is None or looked is None:
            return None
        first = (0,) * (asked.dim() - 2)
        return self._bias(mask, records[id(mask)], asked, asked[first][:, 0], looked[first][:, 0])

    def _bias(
        self, bias: Tensor, record: Record, origins: Tensor, asked: Tensor, looked: Tensor
    ) -> PositionTable | None:
        """One number for each head and pair of positions; `origins` (leading axes, query, …) tell those axes apart."""
        if bias.dim() < 2 or tuple(bias.shape[-2:]) != (len(asked), len(looked)) or not bias.is_floating_point():
            return None
        leading = origins.dim() - 2
        sizes = (1,) * (origins.dim() - bias.dim()) + tuple(bias.shape)
        bias = bias.reshape(sizes)
        taken = {*axes_of_images(origins), *axes_of_positions(origins)}
        heads = [at for at in range(leading) if at not in taken]
        # The first image and window: there no mask of a shifted window is added.
        bias = bias[tuple(slice(None) if at in heads else 0 for at in range(leading))]
        kept = _kept(bias.reshape(-1, *bias.shape[-2:]))
        if not record.node.detail and (not np.isfinite(kept).all() or len(np.unique(kept)) < 3):
            return None  # a mask; a bias kept from an earlier pass (LeViT) has lost its parameter too
        steps = _by_step(kept, asked, looked)
        return None if steps is None else self._table(record, "relative bias", steps)

    def _vectors(self, step: Step) -> PositionTable | None:
        """A vector for each pair of positions that queries are multiplied with: q · r[i − j]."""
        product = op.operands_of_product(step.name, step.args)
        table, record = _constant(step)
        if product is None or table.dim() < 3 or not record.node.detail or step.main.origins is None:
            return None
        own, constant = (product[2], product[3]) if product[1] is table else (product[3], product[2])
        origins, result = step.main.origins, product[4]
        gone = [letter for letter in own if letter in constant and letter not in result]
        asking = [a for a in own if a in constant and a in result and position_varies(origins, own.index(a))]
        asked_of = [letter for letter in constant if letter in result and letter not in own]
        if len(gone) != 1 or len(asking) != 1 or len(asked_of) != 1 or position_varies(origins, own.index(gone[0])):
            return None
        order = [constant.index(letter) for letter in (gone[0], asking[0], asked_of[0])]
        rest = [at for at in range(table.dim()) if at not in order]
        vectors = table.permute(*rest, *order)[(0,) * len(rest)]
        if vectors.shape[1] != vectors.shape[2]:
            return None
        where = origins.movedim(own.index(asking[0]), -1)[(0,) * (origins.dim() - 1)]
        steps = _by_step(_kept(vectors), where, where)
        return None if steps is None else self._table(record, "relative vectors", steps)

    def _table(
        self, record: Record, kind: Literal["absolute", "relative bias", "relative vectors"], values: np.ndarray
    ) -> PositionTable:
        path = str(record.node.detail or "")
        channels, height, width = values.shape
        return PositionTable(path, kind, path in self._learned, -1, (channels, height, width), values)


def placed(used: UsedTable, blocks: Sequence[Call]) -> PositionTable:
    """The table with the block it is used in, or after; −1 before the first."""
    inside = [index for index, block in enumerate(blocks) if used.call.within(block)]
    before = sum(block.last <= used.order for block in blocks) - 1
    return replace(used.table, block=inside[0] if inside else before)


def _constant(step: Step) -> tuple[Tensor, Record]:
    return next((tensor, record) for tensor, record in step.before if record.constant)


def _axes(origins: Tensor) -> tuple[list[int], list[int], list[int]]:
    """Axes along which positions differ, along which images do, and the others: channels, heads."""
    moving, images = axes_of_positions(origins), axes_of_images(origins)
    return moving, images, [axis for axis in range(origins.dim()) if axis not in moving and axis not in images]


def _patches_of(weight: Tensor, origins: Tensor) -> Tensor | None:
    """A matrix over flattened patches as kernels (filter, colour, y, x): its columns' origins tell the pixels.

    Colours of one pixel come in one order, whether they are the outermost or the innermost axis of a flat patch.
    """
    y, x = position_of(origins[(0,) * (origins.dim() - 1)])
    rows, columns = (torch.unique(values, return_inverse=True) for values in (y, x))
    cells = rows[1] * len(columns[0]) + columns[1]
    if y.isnan().any() or len(cells) != len(rows[0]) * len(columns[0]) * COLOURS:
        return None
    order = torch.argsort(cells, stable=True)
    if not torch.equal(cells[order], torch.arange(len(cells), device=cells.device) // COLOURS):
        return None
    kernels = weight[:, order].reshape(len(weight), len(rows[0]), len(columns[0]), COLOURS)
    return kernels.permute(0, 3, 1, 2)


def _on_grid(rows: Tensor, origins: Tensor) -> np.ndarray | None:
    """Rows (position, channel) laid out as (channel, y, x); those without a position (class token) are dropped."""
    y, x = position_of(origins)
    placed_rows = ~y.isnan()
    rows, y, x = rows[placed_rows.to(rows.device)], y[placed_rows], x[placed_rows]
    (ys, down), (xs, across) = (torch.unique(values, return_inverse=True) for values in (y, x))
    cells = down * len(xs) + across
    if min(len(ys), len(xs)) < 2 or not torch.equal(cells.sort().values, torch.arange(len(ys) * len(xs)).to(cells)):
        return None
    values = _kept(rows[cells.argsort()])
    return values.T.reshape(-1, len(ys), len(xs))


def _by_step(values: np.ndarray, asked: Tensor, looked: Tensor) -> np.ndarray | None:
    """Values (…, query, key) as a function of the step from query to key, (…, down, across): means over all pairs.

    NaN where no pair is that far apart. Steps are counted in cells.
    """
    queries, keys = (torch.stack(position_of(origins), -1).cpu().numpy() for origins in (asked, looked))
    pairs = values[:, ~np.isnan(queries[:, 0])][:, :, ~np.isnan(keys[:, 0])]
    queries, keys = queries[~np.isnan(queries[:, 0])], keys[~np.isnan(keys[:, 0])]
    if min(len(queries), len(keys)) < 2:
        return None
    steps, reach = [], []
    for axis in (0, 1):
        sides = np.unique(np.concatenate([queries[:, axis], keys[:, axis]]).round(3))
        if len(sides) < 2:
            return None
        far = np.rint((keys[None, :, axis] - queries[:, None, axis]) / np.diff(sides).min()).astype(int)
        reach.append(int(np.abs(far).max()))
        steps.append(far + reach[-1])
    shape = (2 * reach[0] + 1, 2 * reach[1] + 1)
    flat = (steps[0] * shape[1] + steps[1]).ravel()
    many = np.bincount(flat, minlength=shape[0] * shape[1]).astype(float)
    sums = [np.bincount(flat, weights=head.ravel(), minlength=len(many)) for head in pairs]
    with np.errstate(invalid="ignore"):
        return np.stack(sums).reshape(-1, *shape) / np.where(many > 0, many, np.nan).reshape(shape)


def _kept(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy().copy()


def _same(one: PositionTable, two: PositionTable) -> bool:
    if one != two or one.values is None or two.values is None:
        return False
    return np.array_equal(one.values, two.values, equal_nan=True)
