"""The dry run: one small forward pass in which every operation is seen.

All tensors are kept alive until it ends, so that `id()` names one of them; afterwards nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from eyechart.tracing import operations as op
from eyechart.tracing.attention import attention_in, canonical
from eyechart.tracing.geometry import Seen, read_attention, split_leading
from eyechart.tracing.graph import Call, Node, Record, Step, Watched, tensors_in
from eyechart.tracing.positions import NOWHERE, image_of, pixels
from eyechart.tracing.rules import RULES, elementwise
from eyechart.tracing.tables import Tables


class DryRun(TorchFunctionMode):
    """Record one pass of `images` through `module`: `nodes`, `calls`, `watched` and `output` then tell the story."""

    def __init__(self, module: nn.Module, images: Tensor) -> None:
        super().__init__()
        self.module, self.images = module, images
        self.nodes: list[Node] = []
        self.calls: list[Call] = []
        self.watched: list[Watched] = []
        self.output: list[Record] = []
        self.notes: dict[str, None] = {}
        self.tables = Tables(module)
        self._records: dict[int, Record] = {}
        self._alive: list[Any] = []
        self._outside = Call("", -1, module, None, 0)
        self._stack = [self._outside]
        self._ordinals: dict[str, int] = {}
        self._names = {id(tensor): name for name, tensor in module.named_parameters()}

    def run(self, call: Callable[[Tensor], Any]) -> Any:
        start = self._new("input", (), frozenset())
        self._remember(self.images, Record(start, tuple(self.images.shape), pixels(self.images)))
        with self._module_hooks(), torch.no_grad(), self:
            result = call(self.images)
        self.output = [self._record(tensor) for tensor in tensors_in(result)]
        return result

    def forget(self) -> None:
        """When it has been read: calls and records refer to each other, and so would stay in memory until Python looks
        for such circles (57 MiB of a ViT-S/16, and those of several subjects at once)."""
        for call in self.calls:
            call.inputs, call.outputs = [], []

    @contextmanager
    def _module_hooks(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for path, module in self.module.named_modules():
                hooks.enter_context(module.register_forward_pre_hook(self._enter(path), with_kwargs=True))
                hooks.enter_context(module.register_forward_hook(self._leave, with_kwargs=True))
            yield

    def _enter(self, path: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            ordinal = self._ordinals.get(path, 0)
            self._ordinals[path] = ordinal + 1
            call = Call(path, ordinal, module, self._stack[-1], len(self.nodes))
            call.inputs = [self._record(tensor) for tensor in tensors_in((args, kwargs))]
            self._stack.append(call)
            self.calls.append(call)

        return enter

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = self._stack.pop()
        call.outputs = [self._record(tensor) for tensor in tensors_in(output)]
        call.last = len(self.nodes)

    def node(self, step: Step, traits: Iterable[str], *, parents: Iterable[Node] = (), detail: Any = None) -> Node:
        chosen = tuple(parents) or tuple(record.node for record in step.active)
        return self._new(step.name, chosen, frozenset(traits), detail)

    def note(self, text: str) -> None:
        self.notes[f"{self._stack[-1].path or 'the model'}: {text}."] = None

    def _new(self, name: str, parents: Sequence[Node], traits: frozenset[str], detail: Any = None) -> Node:
        node = Node(len(self.nodes), name, tuple(dict.fromkeys(parents)), self._stack[-1], traits, detail)
        self.nodes.append(node)
        return node

    def _remember(self, tensor: Tensor, record: Record) -> None:
        self._alive.append(tensor)
        self._records[id(tensor)] = record

    def _record(self, tensor: Tensor) -> Record:
        """A tensor never seen before is a constant: a parameter, a buffer, something made from a shape."""
        if id(tensor) not in self._records:
            node = self._new("constant", (), frozenset({"constant"}), self._names.get(id(tensor)))
            self._remember(tensor, Record(node, tuple(tensor.shape)))
        return self._records[id(tensor)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = op.name_of(func)
        if name in op.QUESTIONS:
            return func(*args, **kwargs)
        before = [(tensor, self._record(tensor)) for tensor in tensors_in((args, kwargs))]
        self._alive.append((args, kwargs))
        watched = op.is_watched(name, args)
        result = func(*args, **kwargs)
        results = [args[0]] if name == "__setitem__" else tensors_in(result)
        if not before or not results:
            return result
        if all(record.constant for _, record in before):
            made = self._constants(name, [record for _, record in before], results)
        else:
            step = Step(name, func, args, kwargs, before, results)
            made = self._activations(step)
            self.tables.see(step, made[0], self._stack[-1])
        for tensor, record in zip(results, made, strict=True):
            self._remember(tensor, record)
        if watched:
            operands = tuple(record for _, record in before)
            seen = None
            if "attends" in made[0].node.traits:
                seen = self._look(name, args, kwargs, operands, made[0], results[0])
            self.watched.append(Watched(name, self._stack[-1], operands, made[0], seen))
        return result

    def _constants(self, name: str, records: list[Record], results: list[Tensor]) -> list[Record]:
        if name in op.SHAPE | op.SAME and len(results) == 1:
            return [Record(records[0].node, tuple(results[0].shape))]
        label = next((record.node.detail for record in records if record.node.detail), None)
        parents = [record.node for record in records]
        return [
            Record(self._new(name, parents, frozenset({"constant"}), label), tuple(tensor.shape)) for tensor in results
        ]

    def _activations(self, step: Step) -> list[Record]:
        for names, rule in RULES:
            if step.name in names:
                made = rule(self, step)
                if made is not None:
                    return made
        return elementwise(self, step)

    def _look(
        self, name: str, args: Any, kwargs: Any, operands: tuple[Record, ...], out: Record, output: Tensor
    ) -> Seen | None:
        """Read an attention's geometry, and prove its weights: with the values they must give the output."""
        operand = out.node.detail
        try:
            attention = attention_in(name, args, kwargs, operand)
        except NotImplementedError as reason:
            self.note(f"attention is not read ({reason})")
            return None
        weights = attention.weights()
        asked, looked = self._origins(name, args, operands, operand, weights)
        images = len(self.images)
        lead = weights.shape[:-2].numel()
        if asked is None or looked is None:
            self.note("attention is not read: the positions of its queries and keys were lost on the way")
            return None
        asked, looked = asked.reshape(lead, -1), looked.reshape(lead, -1)
        leading = split_leading(asked, looked, images)
        if leading is None:
            self.note("attention is not read: images, windows and heads are mixed in its leading axes")
            return None
        asking, asked_of = image_of(asked).amax(1), image_of(looked).amax(1)
        if bool(((asking >= 0) & (asked_of >= 0) & (asking != asked_of)).any()):
            self.note(
                "queries of one image meet keys of another, so its attention depends on what else is in the batch"
            )
        rebuilt = tensors_in(attention.rebuild(weights))[0]
        error = float((rebuilt - output).abs().max() / output.abs().max().clamp(min=1e-30))
        rounding = 4 * torch.finfo(output.dtype).eps  # bfloat16 and float16 round by more than the limit itself
        if not error <= max(1e-5, rounding):
            self.note(f"recomputed attention weights miss its output by {error:.1e}")
        asked, looked = (
            canonical(origins.reshape(*weights.shape[:-2], -1, 1), leading)[0, :, 0, :, 0]
            for origins in (asked, looked)
        )
        size = (self.images.shape[-2], self.images.shape[-1])
        geometry = read_attention(asked, looked, leading, size, operand)
        return Seen(canonical(weights, leading).shape[2], geometry, error)

    def _origins(
        self, name: str, args: Any, operands: tuple[Record, ...], operand: int, weights: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Origins of queries (…, query) and keys (…, key) in the leading axes of `weights`."""
        shape = weights.shape
        if name in op.PRODUCT:
            side = operands[operand]
            tensors: list[Tensor | None] = []
            for origins, axis in ((side.origins, -1), (side.keys, -2)):
                if origins is None:
                    return None, None
                exchanged = list(op.operands_of_product(name, args) or ())[:2]
                exchanged[operand] = origins
                swapped = (args[0], *exchanged) if name == "einsum" else exchanged
                tensors.append(attention_in(name, swapped, {}, operand).weights().select(axis, 0))
            return tensors[0], tensors[1]
        sides: list[Tensor | None] = []
        for record in operands[:2]:
            origins = record.origins
            if origins is None:
                origins = torch.full((), NOWHERE, dtype=torch.float64, device=weights.device).expand(record.shape)
            if name == op.MODULE_ATTENTION:
                origins = origins[..., 0].t() if origins.dim() == 3 else origins[None, :, 0]
                origins = origins.unsqueeze(1)
            else:
                origins = origins[..., 0]
                if origins.dim() > 2 and origins.shape[-2] != shape[-3]:
                    origins = origins.repeat_interleave(shape[-3] // origins.shape[-2], -2)
            sides.append(origins.expand(*shape[:-2], origins.shape[-1]))
        return sides[0], sides[1]
