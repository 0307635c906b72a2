"""Hand-made sites, scenes and batches, so that a measure can be tested on tensors whose answer is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import xarray

from eyechart.intervals import with_intervals
from eyechart.measure import Measure, Views
from eyechart.scene import Batch, Scene
from eyechart.sites import Address, Anatomy, Architecture, AttentionGeometry, Kind, Layout, Role, Site
from eyechart.tally import Tally
from eyechart.tracing.views import Look


def site(
    name: str,
    role: Role = "block",
    kind: Kind = "other",
    *,
    axes: str = "NTC",
    prefix: int = 0,
    grid: tuple[int, int] | None = (2, 2),
    depth: float = 0.0,
    stage: int = 0,
    block: int = 0,
    heads: int | None = None,
    attention: AttentionGeometry | None = None,
    projected: bool = False,
) -> Site:
    address = Address(name, 0, 0, "output")
    return Site(
        name=name,
        role=role,
        kind=kind,
        path=name,
        address=address,
        depth=depth,
        stage=stage,
        block=block,
        layout=Layout(axes, prefix, grid),
        channels=3,
        heads=heads,
        attention=attention,
        projected=projected,
    )


def anatomy(
    subject: str, sites: Sequence[Site], architecture: Architecture = "transformer", cls: int | None = None
) -> Anatomy:
    return Anatomy(subject, tuple(sites), (), (32, 32), architecture, cls, None if cls is None else "cls")


def scene(*anatomies: Anatomy, images: int = 64, block: int = 4, folds: int = 16) -> Scene:
    return Scene(
        anatomies=anatomies, images=images, whole_blocks=images // block, block=block, folds=folds, classes=None
    )


def batches(images: int, block: int, folds: int = 16, labels: np.ndarray | None = None) -> list[Batch]:
    starts = range(0, images, block)
    return [
        Batch(
            index=number,
            start=start,
            images=np.arange(start, min(start + block, images)),
            labels=None if labels is None else labels[start : start + block],
            fold=number % folds,
            image_folds=np.arange(start, min(start + block, images)) % folds,
            whole=start + block <= images,
        )
        for number, start in enumerate(starts)
    ]


def measure_tensors(
    measure: Measure,
    where: Scene,
    tensors: Mapping[tuple[str, str], Look],
    block: int,
    labels: np.ndarray | None = None,
) -> xarray.Dataset:
    """Run a measure over looks that hold *all* images: each batch sees its slice, as a tap would show it."""
    return with_intervals(measure, tally_of(measure, where, tensors, block, labels), where)


def tally_of(
    measure: Measure,
    where: Scene,
    tensors: Mapping[tuple[str, str], Look],
    block: int,
    labels: np.ndarray | None = None,
) -> Tally:
    tally = measure.tally(where)
    for batch in batches(where.images, block, where.folds, labels):
        seen: dict[str, dict[str, dict[str, torch.Tensor]]] = {}
        for need in measure.needs():
            for who in where.anatomies:
                for place in need.sites(who):
                    look = part_of(tensors[who.subject, place.name], slice(batch.images[0], batch.images[-1] + 1))
                    look.anatomy = who
                    value = need.view.take(look)
                    value = need.view.reduce(value) if need.view.reduce else value
                    seen.setdefault(who.subject, {}).setdefault(place.name, {})[need.view.name] = value
        measure.update(tally, batch, Views(seen), where)
    return tally


def part_of(look: Look, images: slice) -> Look:
    def cut(value: torch.Tensor | Callable[[], torch.Tensor] | None) -> torch.Tensor | None:
        assert not callable(value), "no look here is computed when it is asked for"
        return None if value is None else value[images]

    weights = look._weights
    return Look(
        look.site,
        output=cut(look._output),
        skip=cut(look._skip),
        branch=cut(look._branch),
        weights=None if weights is None else lambda: weights()[images],
    )


def full_grid(side: int, cell: float, prefix: int = 0) -> AttentionGeometry:
    """Global attention on a side×side grid of cells, after `prefix` tokens without a place."""
    centres = (np.arange(side) + 0.5) * cell
    places = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)
    uniform = float(np.linalg.norm(places[:, None] - places[None], axis=-1).mean())
    places = np.concatenate([np.full((prefix, 2), np.nan), places])[None]
    return AttentionGeometry("global", None, 1, prefix, prefix, (cell, cell), uniform, side * side, places, places)
