"""Which additions of a pass are residual: `skip + branch`.

An addition is a junction if one operand is an **ancestor** of the other (identity skip), or if both come from one value
inside the module that adds them, one on a short way (a projection, a pooling, a choice of tokens, a scale: the skip),
the other on a longer one that is not linear. A branch must apply weights or pool; rotary embeddings, GRN and position
embeddings do not. Parallel branches that are all linear (RepVGG, MobileOne) are one convolution in disguise: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eyechart.sites import Kind
from eyechart.tracing.graph import Call, Node, Record, Watched
from eyechart.tracing.operations import ADD


@dataclass(frozen=True, eq=False)
class Junction:
    watched: Watched
    skip_operand: int
    kind: Kind
    projected: bool
    linear: bool
    """The branch is linear, as in a convolution that gives tokens their position: no block of its own."""


class Kinship:
    """Ways through the graph of a dry run."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._active = sum(1 << node.index for node in nodes if "constant" not in node.traits)

    def between(self, start: Node, end: Node) -> list[Node]:
        """All values on a way from `start` to `end`, without `start`."""
        bits = end.ancestors >> (start.index + 1)
        nodes = []
        while bits:
            low = bits & -bits
            node = self.nodes[start.index + low.bit_length()]
            if node.descends_from(start):
                nodes.append(node)
            bits ^= low
        return [*nodes, end] if end is not start else nodes

    def last_common(self, one: Node, other: Node) -> Node | None:
        """The latest activation both come from."""
        bits = one.ancestors & other.ancestors & self._active
        return self.nodes[bits.bit_length() - 1] if bits else None


def find_junctions(nodes: Sequence[Node], watched: Sequence[Watched]) -> list[Junction]:
    kinship = Kinship(nodes)
    junctions = (_judge(kinship, addition) for addition in watched if addition.name in ADD)
    return [junction for junction in junctions if junction is not None]


def kind_of(nodes: Sequence[Node]) -> Kind:
    """What a way through the network is, from what ran on it."""
    traits = {trait for node in nodes for trait in node.traits}
    for trait, kind in _KINDS:
        if trait in traits:
            return kind
    return "mlp" if "weighted" in traits else "other"


_KINDS: tuple[tuple[str, Kind], ...] = (
    ("attends", "attention"),
    ("attention", "other"),
    ("recurrent", "other"),
    ("conv", "conv"),
    ("pool", "pool"),
    ("mixing", "mixer"),
)


def _judge(kinship: Kinship, addition: Watched) -> Junction | None:
    if addition.out.constant or addition.out.keys is not None:  # attention scores and their biases
        return None
    a, b = addition.operands[:2]
    if a.node is b.node or a.shape != b.shape:
        return None
    for skip in (0, 1):
        if addition.operands[1 - skip].node.descends_from(addition.operands[skip].node):
            return _identity(kinship, addition, skip)
    return _projected(kinship, addition)


def _identity(kinship: Kinship, addition: Watched, skip: int) -> Junction | None:
    start, end = addition.operands[skip].node, addition.operands[1 - skip].node
    way = kinship.between(start, end)
    # A table of position embeddings added twice is its own ancestor too; a class token is joined to the others.
    if "constant" in start.traits and not any("cat" in node.traits and start in node.parents for node in way):
        return None
    if not _works(way):
        return None
    linear = not _has(way, "nonlinear")
    if linear and any("add" in node.traits and node.call is addition.call for node in way):
        return None
    return Junction(addition, skip, kind_of(way), False, linear)


def _projected(kinship: Kinship, addition: Watched) -> Junction | None:
    a, b = addition.operands[:2]
    if a.constant or b.constant:
        return None
    start = kinship.last_common(a.node, b.node)
    if start is None:
        return None
    ways = [kinship.between(start, record.node) for record in (a, b)]
    skip = 0 if (_weights(ways[0]), len(ways[0])) < (_weights(ways[1]), len(ways[1])) else 1
    short, long = ways[skip], ways[1 - skip]
    if not _is_shortcut(short) or not _works(long) or not _has(long, "nonlinear"):
        return None
    if _weights(short) >= _weights(long) and (_weights(short) or _has(short, "pool")):
        return None
    if not _at_home(addition.call, start, addition.operands[skip], short):
        return None
    return Junction(addition, skip, kind_of(long), True, False)


def _at_home(call: Call, start: Node, skip: Record, way: Sequence[Node]) -> bool:
    """The shortcut runs inside the module that adds, or was handed to it together with what both come from (DLA)."""
    if all(node.call.within(call) for node in way):
        return True
    given = {record.node for record in call.inputs}
    return skip.node in given and start in given


def _is_shortcut(way: Sequence[Node]) -> bool:
    if _has(way, "attention") or _weights(way) > 2:
        return False
    if not any(node.traits & {"weighted", "pool", "select", "scale"} for node in way):
        return False
    # Part of the channels, taken before any projection, is an inner sum (Res2Net), not a shortcut.
    for node in way:
        if "weighted" in node.traits:
            return True
        if "slice" in node.traits:
            return False
    return True


def _works(way: Sequence[Node]) -> bool:
    return any(node.traits & {"weighted", "pool", "attention"} for node in way)


def _has(way: Sequence[Node], trait: str) -> bool:
    return any(trait in node.traits for node in way)


def _weights(way: Sequence[Node]) -> int:
    return sum("weighted" in node.traits for node in way)
