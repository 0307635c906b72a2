"""What rides the skip at a residual addition, token by token."""

from __future__ import annotations

from functools import partial

import torch

from eyechart.sites import Site
from eyechart.tracing.area import area_means
from eyechart.tracing.in_cache import by_images
from eyechart.tracing.needs import View
from eyechart.tracing.views import Look

FINEST = 16  # cells a side: a ResNet's 112×112 locations are averaged into cells, or the tally would grow to gigabytes


def ratio_and_cosines(look: Look) -> torch.Tensor:
    """(image, token, 4): ratio, cos(z, z + f), cos(z, f), and 1 where the branch is not zero.

    A zero branch has an infinite ratio: it is counted, and left out of the mean.
    """
    products = partial(squares_and_product, axis=look.site.layout.axes.index("C"))
    z2, f2, zf = by_images(products, look.skip, look.branch).unbind(1)
    # Not "above zero", which NaN is not either: it would pass for a branch that writes nothing, and no one would know.
    writes, skips = f2 != 0, z2 != 0
    ratio = torch.where(writes, (z2 / f2).sqrt(), 0)
    total = (z2 + 2 * zf + f2).clamp_min(0)
    # cos(z, z + f) from norms and the product; a zero skip passes nothing, so its cosine is 0.
    passed = torch.where(skips & (total != 0), (z2 + zf) / (z2 * total).sqrt(), 0)
    between = torch.where(skips & writes, zf / (z2 * f2).sqrt(), 0)
    values = torch.stack([ratio, passed, between, writes.float()], dim=1)
    return in_cells(values, look.site).transpose(1, 2)


def squares_and_product(skip: torch.Tensor, branch: torch.Tensor, axis: int) -> torch.Tensor:
    """Σ z², Σ f² and Σ z·f along an axis, (image, 3, …)."""
    skip, branch = skip.float(), branch.float()
    return torch.stack([squares(skip, axis), squares(branch, axis), (skip * branch).sum(axis)], dim=1)


def squares(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Σ x² along an axis. The norm reads the values once; a CPU is slow at it where they do not lie side by side."""
    if values.is_cuda or axis == values.ndim - 1:
        length: torch.Tensor = torch.linalg.vector_norm(values, dim=axis)
        return length.square()
    return values.square().sum(axis)


def in_cells(values: torch.Tensor, site: Site) -> torch.Tensor:
    """(image, value, token): prefix tokens, then grid cells, at most 16×16 of them, each a mean over its area."""
    layout = site.layout
    if layout.grid is None:
        return values.flatten(2)
    prefix = values[:, :, : layout.prefix] if "T" in layout.axes else values[:, :, :0].flatten(2)
    spatial = values[:, :, layout.prefix :] if "T" in layout.axes else values
    spatial = spatial.reshape(*values.shape[:2], *layout.grid)
    if cell_grid(layout.grid) != layout.grid:
        spatial = area_means(spatial, cell_grid(layout.grid))
    return torch.cat([prefix, spatial.flatten(2)], dim=2)


def cell_grid(grid: tuple[int, int]) -> tuple[int, int]:
    return min(grid[0], FINEST), min(grid[1], FINEST)


def tokens_of(site: Site) -> int:
    if site.layout.grid is None:
        return 1
    height, width = cell_grid(site.layout.grid)
    return site.layout.prefix + height * width


SKIP_AND_BRANCH = View("skip and branch", ratio_and_cosines, before=True)
