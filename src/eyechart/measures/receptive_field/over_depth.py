"""How the view of a place changes over depth, and how that differs between a ViT and a CNN, from the finding of M4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray

from eyechart.methods.receptive import cell_radius, largest_step, place_of_largest_step
from eyechart.quantity import Bounds, of_pairs, subjects_in
from eyechart.reading_estimates import Ends, ends_of, site_indices, states


def of_blocks(estimate: xarray.Dataset, subject: str, variable: str) -> np.ndarray:
    return np.asarray(estimate.variables[variable].values[site_indices(estimate, subject, "block")])


def early(estimate: xarray.Dataset, subject: str) -> float:
    """Mean radius over the first quarter of the depth, in widths of the picture."""
    first = of_blocks(estimate, subject, "middle") < 0.25
    reach = of_blocks(estimate, subject, "reach")[first]
    return float(reach.mean()) if len(reach) else float("nan")


def own_cell(estimate: xarray.Dataset, subject: str, block: int = 0) -> float:
    """The radius of a bare cell; by default of the first block: what a place sees before anything is mixed."""
    rows, columns = (int(of_blocks(estimate, subject, name)[block]) for name in ("rows", "columns"))
    return cell_radius((rows, columns))


def early_beyond_cell(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """How much more a ViT's first blocks see around their own cell than a CNN's do around theirs.

    Of the CNN no more is taken off than of the ViT, so that larger cells of a CNN cannot make its view small.
    """
    cells = own_cell(estimate, vit), own_cell(estimate, cnn)
    return (early(estimate, vit) - cells[0]) - (early(estimate, cnn) - min(cells))


def growth_curve(estimate: xarray.Dataset, subject: str) -> np.ndarray:
    """The radius from the bare cell, before any block, to the last block."""
    return np.concatenate([[own_cell(estimate, subject)], of_blocks(estimate, subject, "reach")])


def least_growth(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """How much the radius grows over the depth, of the one that grows less: without growth no step is a jump."""
    return float(min(curve[-1] - curve[0] for curve in (growth_curve(estimate, subject) for subject in (vit, cnn))))


def steps_above(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    """Both are read at as many depths as the one with fewer blocks has: of more steps each is a smaller share."""
    curves = [growth_curve(estimate, subject) for subject in (vit, cnn)]
    points = min(map(len, curves))
    if points < 4 or not np.isfinite(np.concatenate(curves)).all():
        return float("nan")
    return largest_step(curves[0], points) - largest_step(curves[1], points)


def jump_place(estimate: xarray.Dataset, subject: str) -> float:
    """The depth of the block (of many: of the blocks between two that are looked at) which widens the view most."""
    curve, middles = growth_curve(estimate, subject), of_blocks(estimate, subject, "middle")
    if len(curve) < 4 or not np.isfinite(curve).all():
        return float("nan")
    # A block ends half a block behind its middle, and the first one begins at 0.
    return place_of_largest_step(curve, np.concatenate([[0], middles + middles[0]]))


def jump_from_middle(estimate: xarray.Dataset, vit: str, cnn: str) -> float:
    return jump_place(estimate, vit) - 0.5


def jump_ends(finding: xarray.Dataset, vit: str) -> Ends | None:
    """The depth of the largest step of a ViT that stands beside a CNN; of others it has no interval."""
    for cnn in subjects_in(finding, "cnn"):
        if states(finding, "jump_from_middle", vit, cnn):
            value, low, high = (0.5 + each for each in ends_of(finding, "jump_from_middle", vit, cnn))
            return (value, low, high) if np.isfinite(value) else None
    return None


def within_a_block(estimate: xarray.Dataset) -> Bounds:
    """Bounds where resampling the images did not move the largest step: it lies anywhere in its block."""
    half = {vit: float(of_blocks(estimate, vit, "middle")[0]) for vit in subjects_in(estimate, "vit")}
    depths = of_pairs(jump_from_middle)(estimate)
    return {pair: (depth - half[pair[0]], depth + half[pair[0]]) for pair, depth in depths.items()}


def is_late(estimate: xarray.Dataset) -> np.ndarray:
    """Sites of the last third of the depth."""
    return np.asarray(estimate.middle.values > 2 / 3)


def skip_effect(estimate: xarray.Dataset, subject: str) -> float:
    """Own-patch share of a late block's output minus that of the branches in it; mean over the last third."""
    after, before = site_indices(estimate, subject, "block"), site_indices(estimate, subject, "junction")
    after = after[is_late(estimate)[after]]
    share, block = estimate.own_share.values, estimate.block.values
    gaps = [share[at] - share[before[block[before] == block[at]]].mean() for at in after if block[at] in block[before]]
    return float(np.mean(gaps)) if gaps else float("nan")


def late(variable: str) -> Callable[[xarray.Dataset, str], float]:
    """Mean over the last third of the blocks."""

    def compute(estimate: xarray.Dataset, subject: str) -> float:
        blocks = site_indices(estimate, subject, "block")
        values = estimate[variable].values[blocks[is_late(estimate)[blocks]]]
        return float(values.mean()) if len(values) else float("nan")

    return compute


def mean_of(variable: str) -> Callable[[xarray.Dataset, str], float]:
    def compute(estimate: xarray.Dataset, subject: str) -> float:
        values = of_blocks(estimate, subject, variable)
        finite = values[np.isfinite(values)]
        return float(finite.mean()) if len(finite) else float("nan")

    return compute


def gap_of(compute: Callable[[xarray.Dataset, str], float]) -> Callable[[xarray.Dataset, str, str], float]:
    return lambda estimate, vit, cnn: compute(estimate, vit) - compute(estimate, cnn)


def growth(estimate: xarray.Dataset, subject: str) -> float:
    reach = of_blocks(estimate, subject, "reach")
    return float(reach[-1] - reach[0])
