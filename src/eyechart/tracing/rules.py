"""One rule a kind of operation: which node its result gets in the graph, and which origins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any, Protocol

import torch
from torch import Tensor

from eyechart.tracing import operations as op
from eyechart.tracing.graph import Node, Record, Step
from eyechart.tracing.positions import (
    NOWHERE,
    blend,
    contract,
    has_position,
    position_varies,
    resample,
    without_position,
)


class Recorder(Protocol):
    """What a rule may do to the pass being recorded."""

    def node(self, step: Step, traits: Iterable[str], *, parents: Iterable[Node] = (), detail: Any = None) -> Node: ...

    def note(self, text: str) -> None: ...


Rule = Callable[[Recorder, Step], "list[Record] | None"]


def _single(
    step: Step, node: Node, origins: Tensor | None, keys: Tensor | None = None, soft: bool = False
) -> list[Record]:
    """Records of all results: the first as given, the others (indices, states) without origins."""
    first = Record(node, step.shape, origins, keys, soft and keys is not None)
    return [first] + [Record(node, tuple(tensor.shape)) for tensor in step.results[1:]]


def rearranged(run: Recorder, step: Step) -> list[Record]:
    main = step.main
    origins, keys = step.replayed("origins")[0], step.replayed("keys")[0]
    return _single(step, main.node, origins, keys, main.softmaxed)


def unchanged(run: Recorder, step: Step) -> list[Record] | None:
    main = step.main
    if main.shape != step.shape:
        return None
    return _single(step, main.node, main.origins, main.keys, main.softmaxed)


def part(run: Recorder, step: Step) -> list[Record]:
    main = step.main
    origins, keys = step.replayed("origins"), step.replayed("keys")
    if len(step.results) == 1 and step.results[0].numel() == torch.Size(main.shape).numel():
        return _single(step, main.node, origins[0], keys[0], main.softmaxed)
    trait, detail = "slice", None
    if main.origins is not None:
        axis, start = op.cut_axis(step.name, step.args, step.kwargs, main.origins)
        if axis is not None and position_varies(main.origins, axis):
            trait, detail = "select", start
    return [
        Record(
            run.node(step, {trait}, detail=detail), tuple(tensor.shape), origin, key, main.softmaxed and key is not None
        )
        for tensor, origin, key in zip(step.results, origins, keys, strict=True)
    ]


def joined(run: Recorder, step: Step) -> list[Record]:
    node = run.node(step, {"cat"}, parents=[record.node for _, record in step.before])
    keys = step.replayed("keys")[0]
    return _single(step, node, step.replayed("origins")[0], keys, any(record.softmaxed for record in step.active))


def neighbours(run: Recorder, step: Step) -> list[Record]:
    return _single(step, run.node(step, {"neighbours"}), step.replayed("origins")[0])


def mixes(origins: Tensor, axis: int) -> bool:
    """Is this axis one of positions, each there once? (Patches flattened into channels repeat each position.)"""
    line = origins.movedim(axis, -1)
    line = line.reshape(-1, line.shape[-1]) if line.numel() == 0 else line[tuple([0] * (line.dim() - 1))]
    return len(line) > 1 and position_varies(origins, axis) and len(torch.unique(line)) == len(line)


def linear(run: Recorder, step: Step) -> list[Record]:
    main, keys = step.main, step.main.keys
    origins, mixing = main.origins, False
    if origins is not None:
        mixing = mixes(origins, -1)
        if not (mixing and origins.shape == step.shape):
            origins = contract(origins, [-1], keep=True).expand(step.shape)
    if keys is not None:
        keys = None if position_varies(keys, -1) else contract(keys, [-1], keep=True).expand(step.shape)
    node = run.node(step, {"weighted", "mixing"} if mixing else {"weighted"})
    return _single(step, node, origins, keys, main.softmaxed)


def convolution(run: Recorder, step: Step) -> list[Record]:
    main = step.main
    weight = step.args[1] if len(step.args) > 1 else step.kwargs["weight"]
    traits, origins = {"weighted"}, main.origins
    if origins is not None:
        if max(weight.shape[2:]) > 1 and has_position(origins):
            traits.add("conv")
        if len(step.shape) == origins.dim() and mixes(origins, 1):
            traits.add("mixing")
        if max(weight.shape[2:]) == 1 and main.keys is not None and len(step.shape) == 4:
            # Talking heads: scores or weights of all heads are mixed, position by position.
            asked, looked = (contract(side, [1], keep=True).expand(step.shape) for side in (origins, main.keys))
            return _single(step, run.node(step, traits), asked, looked, main.softmaxed)
        same = origins.shape == step.shape
        origins = origins if same else resample(origins, step.shape) if origins.dim() == len(step.shape) else None
    return _single(step, run.node(step, traits), origins)


def _gathered(origins: Tensor, axes: Iterable[int], *, keep: bool) -> tuple[Tensor, str]:
    """Origins after a sum over axes, and whether some positions ("pool") or all of them ("pooled") became one."""
    axes = list(axes)
    kept = contract(origins, axes, keep=keep)
    if not has_position(origins):
        return kept, ""
    if any(position_varies(origins, axis) for axis in axes):
        return kept, "pool" if has_position(kept) else "pooled"
    alone = not any(position_varies(origins, axis) for axis in range(origins.dim()))
    # On a grid of one cell nothing varies; a mean over two axes or more is still the pooling of that grid.
    return (without_position(kept), "pooled") if alone and len(axes) > 1 else (kept, "")


def pooling(run: Recorder, step: Step) -> list[Record]:
    main = step.main
    traits, origins = {"nonlinear"} if "max" in step.name else set(), main.origins
    if origins is not None:
        whole = step.name.startswith("adaptive") or "avg" in step.name
        if whole and all(size == 1 for size in step.shape[2:]):
            kept, trait = _gathered(origins, range(2, origins.dim()), keep=True)
            origins = kept.expand(step.shape)
            traits.add(trait)
        else:
            traits.add("pool")
            origins = origins if origins.shape == step.shape else resample(origins, step.shape)
    return _single(step, run.node(step, traits), origins)


def resized(run: Recorder, step: Step) -> list[Record]:
    origins = step.main.origins
    return _single(step, run.node(step, {"resized"}), None if origins is None else resample(origins, step.shape))


def reduced(run: Recorder, step: Step) -> list[Record] | None:
    if len(step.args) > 1 and isinstance(step.args[1], Tensor):
        return None  # the larger of two tensors, element by element
    origins = step.main.origins
    traits = set() if step.name in ("mean", "sum") else {"nonlinear"}
    if origins is not None:
        axes = op.reduced_axes(step.name, step.args, step.kwargs, origins.dim())
        kept, trait = _gathered(origins, axes, keep=len(step.shape) == origins.dim())
        traits |= {trait} if trait else set()
        origins = kept if kept.shape == step.shape else None
    return _single(step, run.node(step, traits), origins)


def product(run: Recorder, step: Step) -> list[Record] | None:
    operands = op.operands_of_product(step.name, step.args)
    if operands is None:
        return _single(step, run.node(step, {"weighted", "attention"}), None)
    *_, first, second, result = operands
    letters = (first, second)
    sides = [record for _, record in step.before][:2]
    active = [side for side in sides if not side.constant]
    gone = [letter for letter in first if letter in second and letter not in result]
    along = [[text.index(letter) for letter in gone] for text in letters]
    mixed = [
        side.origins is not None and any(position_varies(side.origins, axis) for axis in axes)
        for side, axes in zip(sides, along, strict=True)
    ]
    read = [
        None if side.origins is None else op.project(side.origins, text, result, step.shape)
        for side, text in zip(sides, letters, strict=True)
    ]
    if len(active) == 1:
        at = sides.index(active[0])
        keys = active[0].keys
        keys = op.project(keys, letters[at], result, step.shape) if keys is not None else None
        mixing = active[0].origins is not None and any(mixes(active[0].origins, axis) for axis in along[at])
        node = run.node(step, {"weighted", "mixing"} if mixing else {"weighted"})
        return _single(step, node, read[at], keys, active[0].softmaxed)
    for at, side in enumerate(sides):
        over_keys = side.keys is not None and (
            any(position_varies(side.keys, axis) for axis in along[at]) or not has_position(side.keys)
        )
        if side.softmaxed and over_keys and side.keys is not None:
            node = run.node(step, {"weighted", "nonlinear", "attention", "attends"}, detail=at)
            looked = op.project(side.keys, letters[at], result, step.shape)
            return _single(step, node, _of_query(read[at], looked))
    if any(mixed):
        run.note("attention is not shown: it is linear or over channels, without a weight for each pair of positions")
        node = run.node(step, {"weighted", "attention"})
        return _single(step, node, blend(read, step.shape))
    if not all(_are_tokens(side, text, result) for side, text in zip(sides, letters, strict=True)):
        return _single(step, run.node(step, {"weighted"}), blend(read, step.shape))
    rows, columns = read
    if rows is not None and columns is not None and not has_position(rows):
        rows, columns = columns, rows
    return _single(step, run.node(step, {"weighted"}), rows, columns)


def _are_tokens(side: Record, letters: str, result: str) -> bool:
    """Can the axes a factor alone gives to the product be queries or keys, and not channels?"""
    if side.origins is None or bool((side.origins == NOWHERE).all()):
        return True
    own = [axis for axis, letter in enumerate(letters) if letter in result]
    return any(position_varies(side.origins, axis) or side.origins.shape[axis] == 1 for axis in own[-1:])


def _of_query(origins: Tensor | None, looked: Tensor | None) -> Tensor | None:
    """An attention's output sits where its query does; a query that was a mere parameter belongs to its keys' image."""
    if origins is None or looked is None:
        return origins
    return torch.where(origins == NOWHERE, without_position(looked), origins)


def softmax(run: Recorder, step: Step) -> list[Record]:
    main = step.main
    origins, keys = main.origins, main.keys
    axis = step.kwargs.get("dim", step.args[1] if len(step.args) > 1 else -1)
    if origins is not None and keys is not None and not position_varies(keys, axis) and position_varies(origins, axis):
        origins, keys = keys, origins
    # (A softmax over a single number would be idle: there the grid happens to be one cell.)
    if keys is None and origins is not None and (position_varies(origins, axis) or origins.shape[axis] == 1):
        run.note("attention is not shown: positions are weighted one by one, there is no weight for each pair of them")
        return _single(step, run.node(step, {"nonlinear", "attention"}), origins)
    return _single(step, run.node(step, {"nonlinear"}), origins, keys, keys is not None)


def normalised(run: Recorder, step: Step) -> list[Record] | None:
    """Vectors brought to length one; across positions that is additive attention's stand-in for a softmax."""
    origins = step.main.origins
    axis = step.kwargs.get("dim", step.args[2] if len(step.args) > 2 else 1)
    if origins is None or not isinstance(axis, int) or not position_varies(origins, axis):
        return None
    run.note("attention is not shown: positions are weighted one by one, there is no weight for each pair of them")
    return _single(step, run.node(step, {"nonlinear", "attention"}), origins)


def fused_attention(run: Recorder, step: Step) -> list[Record]:
    query, key = (record for _, record in step.before[:2])
    for record in (query, key):
        if record.origins is not None and position_varies(record.origins, -1):
            run.note("attention is not shown: channels attend to channels, so no position looks at another")
            return _single(step, run.node(step, {"weighted", "nonlinear", "attention"}), step.before[2][1].origins)
    node = run.node(step, {"weighted", "nonlinear", "attention", "attends"}, detail=0)
    asked = query.origins
    if asked is None:
        asked = torch.full((1,) * len(query.shape), NOWHERE, dtype=torch.float64, device=step.results[0].device)
        asked = asked.expand(query.shape)
    asked = asked[..., :1].expand(step.shape)
    looked = None if key.origins is None else contract(key.origins, [-2, -1], keep=True)
    fits = looked is not None and all(a in (1, b) for a, b in zip(looked.shape, step.shape, strict=True))
    return _single(step, node, _of_query(asked, looked.expand(step.shape) if looked is not None and fits else None))


def module_attention(run: Recorder, step: Step) -> list[Record]:
    query, key = (record for _, record in step.before[:2])
    node = run.node(step, {"weighted", "nonlinear", "attention", "attends"}, detail=0)
    asked, looked = query.origins, key.origins
    if looked is not None and asked is None:
        asked = torch.full_like(looked[:1], NOWHERE).expand(step.shape)
    looked = None if looked is None else contract(looked, [0, -1], keep=True).expand(step.shape)
    return _single(step, node, _of_query(asked, looked))


def addition(run: Recorder, step: Step) -> list[Record]:
    numbers = [value for value in step.args[:2] if not isinstance(value, Tensor)]
    if numbers == [0]:  # Python's sum() starts with it
        return _single(step, step.main.node, step.main.origins, step.main.keys, step.main.softmaxed)
    parents = [record.node for record in step.active]
    traits = {"add"} if len(parents) > 1 else {"shift"}
    return _elementwise(run, step, traits)


def affine(run: Recorder, step: Step) -> list[Record]:
    several = len(step.active) > 1 and step.name not in ("sub", "sub_")
    return _elementwise(run, step, {"nonlinear", "gate"} if several else {"scale"})


def recurrent(run: Recorder, step: Step) -> list[Record]:
    origins = step.main.origins
    if origins is not None and origins.dim() == len(step.shape):
        origins = contract(origins, [-1], keep=True).expand(step.shape)
    return _single(step, run.node(step, {"weighted", "nonlinear", "recurrent"}), origins)


def written(run: Recorder, step: Step) -> list[Record]:
    """`x[index] = value`: x is another value from now on."""
    target, index = step.before[0][1], step.args[1]
    given = {id(tensor): record for tensor, record in step.before}.get(id(step.args[2]))

    def after(which: str) -> Tensor | None:
        old: Tensor | None = getattr(target, which)
        new: Tensor | None = getattr(given, which, None)
        if old is None and new is None:
            return None
        if old is None:
            old = torch.full((1,) * len(target.shape), NOWHERE, dtype=torch.float64, device=step.results[0].device)
        changed = old.expand(target.shape).clone()
        changed[index] = NOWHERE if new is None else new
        return changed

    node = run.node(step, {"cat"}, parents=[record.node for _, record in step.before])
    return _single(step, node, after("origins"), after("keys"), target.softmaxed)


def elementwise(run: Recorder, step: Step) -> list[Record]:
    return _elementwise(run, step, {"nonlinear"})


def _elementwise(run: Recorder, step: Step, traits: Set[str]) -> list[Record]:
    """Anything else: a result of an operand's shape keeps its origins; one of another shape has none."""

    def fitting(which: str) -> list[Tensor]:
        candidates = [getattr(record, which) for record in step.active]
        return [
            origins
            for origins in candidates
            if origins is not None
            and origins.dim() <= len(step.shape)
            and all(a in (1, b) for a, b in zip(reversed(origins.shape), reversed(step.shape), strict=False))
        ]

    node = run.node(step, traits)
    keys = blend(fitting("keys")[:1], step.shape)
    soft = any(record.softmaxed for record in step.active)
    return _single(step, node, blend(fitting("origins"), step.shape), keys, soft)


RULES: tuple[tuple[Set[str], Rule], ...] = (
    (op.SHAPE, rearranged),
    (op.SAME, unchanged),
    (op.PART, part),
    (op.JOIN, joined),
    (op.NEIGHBOURS, neighbours),
    (op.LINEAR, linear),
    (op.CONVOLUTION, convolution),
    (op.POOL, pooling),
    (op.INTERPOLATE, resized),
    (op.REDUCE, reduced),
    (op.PRODUCT, product),
    (op.SOFTMAX, softmax),
    ({"normalize"}, normalised),
    ({op.FUSED_ATTENTION}, fused_attention),
    ({op.MODULE_ATTENTION}, module_attention),
    (op.ADD, addition),
    (op.AFFINE, affine),
    (op.RECURRENT, recurrent),
    ({"__setitem__"}, written),
)
