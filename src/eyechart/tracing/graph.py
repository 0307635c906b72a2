"""The graph of a dry run: what came from what, in which call of which module. Nothing of it outlives the dry run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from eyechart.tracing import operations as op
from eyechart.tracing.positions import NOWHERE

if TYPE_CHECKING:
    from eyechart.tracing.geometry import Seen


@dataclass(eq=False)
class Call:
    """One call of one module: where an operation ran."""

    path: str
    ordinal: int
    module: nn.Module
    parent: Call | None
    first: int
    """Index of the first node made in it; `last` is one past its last."""
    last: int = -1
    inputs: list[Record] = field(default_factory=list)
    outputs: list[Record] = field(default_factory=list)

    def within(self, other: Call) -> bool:
        call: Call | None = self
        while call is not None and call is not other:
            call = call.parent
        return call is not None


@dataclass(eq=False)
class Node:
    """A value of the pass. `ancestors` is a bit set over node indices.

    Traits say what made it: weighted (a matrix or kernel was applied), nonlinear, conv (spatial), pool, pooled (all
    positions became one), mixing (a matrix across positions), attention, attends (its weights can be shown), slice
    (part of the channels), select (part of the positions), cat, scale (times a constant), add, constant.
    """

    index: int
    name: str
    parents: tuple[Node, ...]
    call: Call
    traits: frozenset[str]
    detail: Any = None
    ancestors: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        for parent in self.parents:
            self.ancestors |= parent.ancestors | (1 << parent.index)

    def descends_from(self, other: Node) -> bool:
        return bool(self.ancestors >> other.index & 1)


@dataclass(eq=False)
class Record:
    """What is known of a tensor: its node and origins; attention scores also have the origins of their keys."""

    node: Node
    shape: tuple[int, ...]
    origins: Tensor | None = None
    keys: Tensor | None = None
    softmaxed: bool = False

    @property
    def constant(self) -> bool:
        return "constant" in self.node.traits


@dataclass(eq=False)
class Watched:
    """One operation that later passes count, with what it joined and, for attention, what was seen of it."""

    name: str
    call: Call
    operands: tuple[Record, ...]
    out: Record
    seen: Seen | None = None


@dataclass(eq=False)
class Step:
    """One operation on at least one activation, while it is being recorded."""

    name: str
    func: Any
    args: Any
    kwargs: Any
    before: list[tuple[Tensor, Record]]
    results: list[Tensor]

    @property
    def active(self) -> list[Record]:
        return [record for _, record in self.before if not record.constant]

    @property
    def main(self) -> Record:
        return self.active[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.results[0].shape)

    def replayed(self, which: str) -> list[Tensor | None]:
        """Origins (or key origins) of the results, by doing the same operation to the operands' origins."""
        if all(getattr(record, which) is None for record in self.active):
            return [None] * len(self.results)
        companions = {id(tensor): getattr(record, which) for tensor, record in self.before}

        def swap(tensor: Tensor) -> Tensor:
            origins: Tensor | None = companions.get(id(tensor))
            if origins is not None:
                return origins
            return torch.full((), NOWHERE, dtype=torch.float64, device=tensor.device).expand(tensor.shape)

        return list(tensors_in(op.replay(self.name, self.func, self.args, self.kwargs, swap)))


def tensors_in(thing: Any) -> list[Tensor]:
    """All tensors of a nested structure, in order.

    >>> [tensor.item() for tensor in tensors_in({"a": torch.tensor(1), "b": (torch.tensor(2), None, "x")})]
    [1, 2]
    """
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, dict):
        return [tensor for value in thing.values() for tensor in tensors_in(value)]
    if isinstance(thing, (list, tuple)):
        return [tensor for value in thing for tensor in tensors_in(value)]
    return []
