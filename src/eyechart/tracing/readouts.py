"""What of a block's output a linear probe reads: single tokens, the class token, the mean of all, the first patch.

Features wider than asked pass a fixed Gaussian random projection, so that rows of many images stay small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from eyechart.scene import Scene
from eyechart.site_choice import blocks_with_grid
from eyechart.sites import Anatomy, Site
from eyechart.tracing.area import area_means
from eyechart.tracing.views import Look

READOUTS = ("tokens", "cls", "gap", "gap with cls", "first")
WITHOUT_CLS = ("tokens", "gap", "first")


def has_cls(anatomy: Anatomy, site: Site) -> bool:
    return anatomy.cls is not None and site.layout.prefix > anatomy.cls


def flattening(site: Site, last: Site) -> int:
    """How many neighbours, r × r, become channels, so that there are about as many channels as after the last block."""
    assert site.grid is not None
    assert last.grid is not None
    (height, width), (rows, columns) = site.grid, last.grid
    fitting = [r for r in range(1, height // rows + 1) if height % (rows * r) == 0 and width % (columns * r) == 0]
    return min(fitting or [1], key=lambda r: abs(math.log(site.channels * r * r / last.channels)))


def cells(look: Look) -> Tensor:
    """(image, y, x, channel) on the grid of the last block, as Raghu et al. read ResNets.

    Neighbours r × r are flattened into channels, then positions averaged. A ViT's grid never changes, and stays.
    """
    last = blocks_with_grid(look.anatomy)[-1]
    assert last.grid is not None
    rows, columns = last.grid
    if look.site.grid == last.grid and look.site.layout.axes != "NCYX":
        tokens = look.tokens(look.output)[:, look.site.layout.prefix :]
        return tokens.reshape(len(tokens), rows, columns, -1).float()
    grid = look.map(look.output).float()
    n, channels, height, width = grid.shape
    if height % rows or width % columns:
        return area_means(grid, (rows, columns)).permute(0, 2, 3, 1)
    r = flattening(look.site, last)
    split = grid.reshape(n, channels, rows, height // rows // r, r, columns, width // columns // r, r)
    return split.mean((3, 6)).permute(0, 2, 4, 1, 3, 5).flatten(3)


def spread_out(size: int, most: int) -> np.ndarray:
    """At most `most` of `size` positions, evenly spaced.

    >>> spread_out(14, 4), spread_out(3, 4)
    (array([ 0,  4,  8, 12]), array([0, 1, 2]))
    """
    step = -(-size // most)
    chosen = np.arange(0, size, step)
    return np.asarray(chosen + (size - 1 - chosen[-1]) // 2)


@lru_cache
def projection(channels: int, width: int, device: torch.device) -> Tensor:
    """A fixed Gaussian matrix; numpy promises that this generator's numbers never change."""
    numbers = np.random.RandomState(0).standard_normal((channels, width)) / math.sqrt(width)
    return torch.from_numpy(numbers).float().to(device)


def narrow(features: Tensor, width: int) -> Tensor:
    channels = features.shape[-1]
    return features if channels <= width else features @ projection(channels, width, features.device)


@dataclass(frozen=True)
class Group:
    """Probes of one readout at one site: one, or one for each token."""

    site: int
    readout: str
    grid: tuple[int, int]
    width: int
    start: int
    """Where its features begin in a row of all features of an image."""
    channels: int = 0
    """Features before the projection to `width`."""

    @property
    def probes(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def stop(self) -> int:
        return self.start + self.probes * self.width

    def features(self, rows: Tensor) -> Tensor:
        """(image, probe, feature) of whole rows."""
        return rows[:, self.start : self.stop].reshape(len(rows), self.probes, self.width)


@dataclass(frozen=True)
class Widths:
    """How much of a site is read: features of one vector, features of a token, tokens along a side."""

    vector: int
    token: int
    positions: int


def read_out(look: Look, widths: Widths) -> Tensor:
    """All features of a site, (image, feature), in the order of `groups_of`."""
    grid = cells(look)
    y, x = look.constant(
        ("positions", widths.positions, grid.device),
        lambda: [torch.as_tensor(spread_out(size, widths.positions)).to(grid.device) for size in grid.shape[1:3]],
    )
    vectors = [grid.mean((1, 2)), grid[:, 0, 0]]
    if has_cls(look.anatomy, look.site):
        tokens = look.tokens(look.output)
        cls, patches = tokens[:, look.anatomy.cls].float(), tokens[:, look.site.layout.prefix :]
        with_cls = (cls + patches.float().sum(1)) / (1 + patches.shape[1])
        vectors = [cls, vectors[0], with_cls, vectors[1]]
    each = narrow(grid[:, y[:, None], x], widths.token).flatten(1)
    return torch.cat([each, *(narrow(features, widths.vector) for features in vectors)], dim=1)


def groups_of(scene: Scene, widths: Widths) -> list[Group]:
    """What a row of features holds: site by site, its tokens and then its vectors."""
    groups: list[Group] = []
    for row, (subject, site) in enumerate(scene.sites(blocks_with_grid)):
        anatomy = scene.anatomy(subject)
        last = blocks_with_grid(anatomy)[-1]
        assert last.grid is not None
        height, width = (len(spread_out(size, widths.positions)) for size in last.grid)
        for readout in READOUTS if has_cls(anatomy, site) else WITHOUT_CLS:
            grid, most = ((height, width), widths.token) if readout == "tokens" else ((1, 1), widths.vector)
            channels = site.channels * (1 if "cls" in readout else flattening(site, last) ** 2)
            groups.append(Group(row, readout, grid, min(channels, most), groups[-1].stop if groups else 0, channels))
    return groups
