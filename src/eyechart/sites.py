"""Places inside a subject, in words that fit any architecture. Pure data: no torch, and all of it fits into JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

_NUMBERED = re.compile(r"(?:^|\.)\d+$")
"""The members of a list; those of a bare `nn.Sequential` are called "0", "1", …"""

Role = Literal["input", "stem", "layer", "junction", "attention", "block", "features", "head"]
Kind = Literal["attention", "mlp", "conv", "pool", "mixer", "other"]
Architecture = Literal["transformer", "cnn", "hybrid", "mixer", "other"]


@dataclass(frozen=True, slots=True)
class Address:
    """One operation of a forward pass: the `operation`-th watched one in the `call`-th call of module `path`.

    `name` is what must be found there ("add", "attention", "softmax", "output", …): a later pass that finds something
    else stops with a TapError instead of measuring the wrong tensor.
    """

    path: str
    call: int
    operation: int
    name: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How the axes of a tensor read, one letter an axis: N image, C channel, H head, Y row, X column, T token.

    A token axis holds `prefix` tokens (class, distillation, register) and then the rows of `grid`; there is no grid
    where tokens are in another order. W is an axis of `windows`; where there is no N, images and inside each its
    windows (TNT's pixels within a patch, MobileViT's unfolded patches).
    """

    axes: str
    prefix: int = 0
    grid: tuple[int, int] | None = None
    windows: int = 1


@dataclass(frozen=True)
class AttentionGeometry:
    """Where queries and keys sit in the input picture, in pixels.

    `query_yx` is (window, query, 2), `key_yx` (window, key, 2); prefix tokens are NaN. They are known only after a dry
    run and are not written to files; `uniform_distance` is (the mean distance of all query-key pairs of the *whole
    grid*, each query with every grid position, itself included: what attention spread evenly over the picture scores).
    """

    kind: Literal["global", "windowed", "pooled", "other"]
    window: tuple[int, int] | None
    windows: int
    query_prefix: int
    key_prefix: int
    cell: tuple[float, float]
    uniform_distance: float
    grid_queries: int = 0
    """Queries a window that have a place in the picture; 0 for class attention and attention pooling."""
    query_yx: np.ndarray | None = field(default=None, compare=False, repr=False)
    key_yx: np.ndarray | None = field(default=None, compare=False, repr=False)
    leading: tuple[tuple[str, int], ...] = ()
    """How the model's own leading axes read, slowest first: ("N", -1) images, ("W", 64) windows, ("H", 3) heads."""
    operand: int = 0
    """Which factor of an explicit `weights @ values` holds the weights."""
    keys: int = 0
    """Keys a window, prefix tokens included."""


@dataclass(frozen=True)
class Site:
    """A place where the taps look. `name` is unique within its subject and says what it is: "blocks.3 attention"."""

    name: str
    role: Role
    kind: Kind
    path: str
    address: Address
    depth: float
    """0 at the stem, 1 after the last block: place in execution order, so that unlike subjects can share an axis."""
    stage: int
    """Counts up each time the grid changes."""
    block: int
    """Which block it belongs to, from 0; -1 before the first (stem), the number of blocks after the last (head)."""
    layout: Layout
    channels: int
    heads: int | None = None
    attention: AttentionGeometry | None = None
    skip_operand: int | None = None
    """Junctions: which operand of the addition is the skip (0 or 1)."""
    projected: bool = False
    """Junctions: the skip itself passes a projection or pooling on its way."""

    @property
    def grid(self) -> tuple[int, int] | None:
        return self.layout.grid

    def as_json(self) -> dict[str, Any]:
        data = asdict(replace(self, attention=None))
        data["grid"] = self.grid
        if self.attention is not None:
            data["attention"] = asdict(replace(self.attention, query_yx=None, key_yx=None))
            del data["attention"]["query_yx"], data["attention"]["key_yx"]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Site:
        data = {key: value for key, value in data.items() if key != "grid"}
        layout = dict(data["layout"])
        layout["grid"] = tuple(layout["grid"]) if layout["grid"] else None
        geometry = data.get("attention")
        if geometry is not None:
            window = tuple(geometry["window"]) if geometry["window"] else None
            leading = tuple((letter, size) for letter, size in geometry["leading"])
            fields = {**geometry, "window": window, "cell": tuple(geometry["cell"]), "leading": leading}
            geometry = AttentionGeometry(**fields)
        return cls(**{**data, "address": Address(**data["address"]), "layout": Layout(**layout), "attention": geometry})


@dataclass(frozen=True)
class Filters:
    """The weights a picture meets first. `values` (filter, colour, y, x) are known after a dry run and stay in memory.

    "patches": each pixel is in one patch; "convolution": neighbouring filters overlap.
    """

    path: str
    """Parameter they come from; empty where that got lost."""
    shape: tuple[int, int, int, int]
    kind: Literal["patches", "convolution"]
    values: np.ndarray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class PositionTable:
    """What tells a subject where a token sits. `values` are known after a dry run and stay in memory.

    "absolute": a vector for each place, (channel, y, x), added to tokens; "relative bias": a number for each head and
    step from query to key, (head, down, across), added to attention scores; "relative vectors": a vector for each step,
    (channel, down, across), multiplied with queries. NaN where no two places are a step apart.
    """

    path: str
    """Parameter it comes from; empty for a buffer or something computed."""
    kind: Literal["absolute", "relative bias", "relative vectors"]
    learned: bool
    block: int
    """Block it is used in, or after which it is added; -1 before the first."""
    shape: tuple[int, int, int]
    values: np.ndarray | None = field(default=None, compare=False, repr=False)


def _weights_json(weights: Filters | PositionTable) -> dict[str, Any]:
    data = asdict(replace(weights, values=None))
    del data["values"]
    return data


def _between_positions(site: Site) -> bool:
    return site.attention is not None and site.attention.grid_queries > 1


@dataclass(frozen=True)
class Anatomy:
    """What a dry run found in a subject: its sites in execution order, and what could not be recognised, in words."""

    subject: str
    sites: tuple[Site, ...]
    notes: tuple[str, ...]
    input_size: tuple[int, int]
    architecture: Architecture
    cls: int | None
    """Which prefix token is the class token, if there is one."""
    pooling: Literal["cls", "gap", "other"] | None
    """What the classifier reads: the class token, the mean over positions, something else; None: no classifier."""
    flops: float = 0.0
    """Multiplications and additions of one image's forward pass: sizes experiments to their budgets."""
    filters: Filters | None = None
    """None: the first weights do not read patches of RGB pixels."""
    positions: tuple[PositionTable, ...] = ()
    """In order of use; a table used again is listed once."""
    layers: tuple[Site, ...] = ()
    """What the innermost modules of its blocks put out, as far as images can be told apart there: norms, kernels,
    activations. Not among its `sites`, for they are many; a tap looks there where it is asked to."""
    random: bool = False
    """It is stochastic at test time (MC-dropout): two passes over the same pictures need not agree."""

    @cached_property
    def family(self) -> str:
        """The role a subject can play in a published claim.

        "vit": a transformer of one stage with global attention, of which papers V and R speak; "staged transformer"
        (Swin, PiT): two or more stages of at least two blocks, of which P says the opposite; "cnn": convolutions in
        two or more stages. Everything else plays no part and keeps the name of its architecture.
        """
        blocks = self.pick("block")
        stages = [block.stage for block in blocks]
        full = [stage for stage in set(stages) if stages.count(stage) >= 2]
        cells = [block.grid[0] * block.grid[1] for block in blocks if block.grid]
        if any(later > earlier for earlier, later in pairwise(cells)):
            return f"branched {self.architecture}"  # a grid that grows again: parallel branches, not stages
        if self.architecture == "transformer":
            shown = {site.block: site.attention for site in self.pick("attention") if _between_positions(site)}
            complete = all(block.block in shown for block in blocks if block.kind == "attention")
            if len(set(stages)) == 1 and complete and all(g is not None and g.kind == "global" for g in shown.values()):
                return "vit"
            return "staged transformer" if len(full) >= 2 else "transformer"
        if self.architecture == "cnn" and len(set(stages)) < 2:
            return "plain cnn"
        return self.architecture

    @property
    def cnn_stem(self) -> bool:
        """Do its tokens come from a CNN, so that the first filters are smaller than the cell of a token?"""
        cells = [site.attention.cell for site in self.pick("attention") if site.attention is not None]
        return self.filters is not None and bool(cells) and max(self.filters.shape[2:]) < min(cells[0])

    @property
    def input(self) -> Site:
        """The pictures as the subject is given them. Not one of its `sites`, but a tap can look there as well.

        >>> Anatomy("a", (), (), (32, 32), "cnn", None, None).input.layout
        Layout(axes='NCYX', prefix=0, grid=(32, 32), windows=1)
        """
        return Site(
            name="input pictures",  # no module path has a blank, so it is no block's name
            role="input",
            kind="other",
            path="",
            address=Address("", 0, 0, "input"),
            depth=0.0,
            stage=0,
            block=-1,
            layout=Layout("NCYX", grid=self.input_size),
            channels=3,
        )

    def pick(self, role: Role, kind: Kind | None = None) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.role == role and kind in (None, site.kind))

    def words(self, site: Site) -> str:
        """What people read in place of a site's name: its block counted from 1, where the module's path counts from 0.

        "blocks.0 attention" is "block 1 attention"; a site outside the blocks keeps its name, and so does one of a
        block that is not a member of a list.
        """
        for number, block in enumerate(self.pick("block"), start=1):
            inside = site.name[len(block.name) :]
            if site.name.startswith(block.name) and inside[:1] in ("", " ", ".") and _NUMBERED.search(block.name):
                return f"block {number}{inside.replace('.', ' ', 1) if inside[:1] == '.' else inside}"
        return site.name

    def site(self, name: str) -> Site:
        return next(site for site in self.sites if site.name == name)

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "architecture": self.architecture,
            "input_size": list(self.input_size),
            "cls": self.cls,
            "pooling": self.pooling,
            "flops": self.flops,
            "sites": [site.as_json() for site in self.sites],
            "layers": [layer.as_json() for layer in self.layers],
            "notes": list(self.notes),
            "filters": None if self.filters is None else _weights_json(self.filters),
            "positions": [_weights_json(table) for table in self.positions],
            "random": self.random,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Anatomy:
        sites: Sequence[dict[str, Any]] = data["sites"]
        height, width = data["input_size"]
        filters, tables = data.get("filters"), data.get("positions", ())
        return cls(
            subject=data["subject"],
            sites=tuple(Site.from_json(site) for site in sites),
            layers=tuple(Site.from_json(layer) for layer in data["layers"]),
            notes=tuple(data["notes"]),
            input_size=(height, width),
            architecture=data["architecture"],
            cls=data["cls"],
            pooling=data["pooling"],
            flops=data["flops"],
            filters=Filters(**{**filters, "shape": tuple(filters["shape"])}) if filters else None,
            positions=tuple(PositionTable(**{**table, "shape": tuple(table["shape"])}) for table in tables),
            random=data.get("random", False),
        )
