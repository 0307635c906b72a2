"""Which modules are a network's blocks.

A block is a module that executes junctions; where such a module lies inside another one (Hugging Face's `ViTOutput` in
`ViTLayer`) the outer one is the block, unless it holds several blocks. Modules of the same class, or siblings from
the same file, are blocks even without a junction (EfficientNet's first block). Networks without junctions fall back to
modules that run several convolutions (Inception, DenseNet), and else to their convolutions (VGG).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn

from eyechart.tracing.graph import Call, Node
from eyechart.tracing.junctions import Junction
from eyechart.tracing.operations import CONVOLUTION
from eyechart.tracing.positions import has_position

_PLAIN = (nn.Sequential, nn.ModuleList)


def find_blocks(
    calls: Sequence[Call], nodes: Sequence[Node], junctions: Sequence[Junction]
) -> tuple[list[Call], str | None]:
    """The block calls in order, and a note where they are not residual blocks."""
    adding = list(dict.fromkeys(junction.watched.call for junction in junctions if not junction.linear))
    chosen: list[Call] = []
    for call in adding:
        if not any(call is not other and call.within(other) for other in adding):
            chosen += _resolve(call, adding)
    if chosen and _pools(chosen[-1]):
        chosen.pop()
    if chosen:
        return _with_siblings(calls, nodes, chosen), None
    if junctions:
        return [], "junctions are added in the model's own forward: each of them counts as a block"
    return _without_junctions(calls, nodes)


def _pools(call: Call) -> bool:
    """A last module that makes one vector of many positions belongs to the head (SigLIP's attention pooling)."""
    ends = [
        next((record for record in records if record.origins is not None), None)
        for records in (call.inputs, call.outputs)
    ]
    given, made = (
        record is not None and record.origins is not None and has_position(record.origins) for record in ends
    )
    return given and not made


def _resolve(call: Call, adding: Sequence[Call]) -> list[Call]:
    inner = [other for other in adding if other is not call and other.within(call)]
    outermost = [other for other in inner if not any(other is not third and other.within(third) for third in inner)]
    blocks = [block for other in outermost for block in _resolve(other, adding)]
    if call.path == "" or len(blocks) > 1:
        return blocks
    return [call]


def _with_siblings(calls: Sequence[Call], nodes: Sequence[Node], blocks: list[Call]) -> list[Call]:
    classes = {type(block.module) for block in blocks} - set(_PLAIN)
    shapes = {(_shape(block.path), type(block.module).__module__) for block in blocks}
    blocks_and_siblings = list(blocks)
    for call in calls:
        alike = type(call.module) in classes or (_shape(call.path), type(call.module).__module__) in shapes
        if not alike or call in blocks or not any("weighted" in node.traits for node in nodes[call.first : call.last]):
            continue
        if not any(call.within(block) or block.within(call) for block in blocks_and_siblings):
            blocks_and_siblings.append(call)
    return sorted(blocks_and_siblings, key=lambda call: call.last)


def _shape(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def _without_junctions(calls: Sequence[Call], nodes: Sequence[Node]) -> tuple[list[Call], str | None]:
    convolving = [node.call for node in nodes if node.name in CONVOLUTION]
    several = [
        call
        for call in calls
        if call.path and not isinstance(call.module, _PLAIN) and sum(conv.within(call) for conv in convolving) > 1
    ]
    units = [call for call in several if not any(other is not call and other.within(call) for other in several)]
    if len(units) > 1:
        return sorted(
            units, key=lambda call: call.last
        ), "no residual additions: modules of several convolutions count as blocks"
    unique = list(dict.fromkeys(call for call in convolving if call.path))
    if unique:
        return unique, "no residual additions: convolution outputs count as blocks"
    return [], "no residual additions and no convolutions: nothing was recognised as a block"
