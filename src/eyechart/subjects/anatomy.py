"""The anatomy of a subject: one dry run, and what it shows, as sites in execution order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from eyechart.errors import SubjectError
from eyechart.sites import Address, Anatomy, Architecture, Kind, Layout, Role, Site
from eyechart.tracing.blocks import find_blocks
from eyechart.tracing.dryrun import DryRun
from eyechart.tracing.flops import FlopCount
from eyechart.tracing.geometry import read_layout, resolution
from eyechart.tracing.graph import Call, Node, Record, Watched, tensors_in
from eyechart.tracing.junctions import Junction, find_junctions, kind_of
from eyechart.tracing.modules import bare, plain_attention
from eyechart.tracing.tables import placed
from eyechart.zoo.dropout import has_draws


def anatomy_of(
    subject: str,
    module: nn.Module,
    images: Tensor,
    call: Callable[[Tensor], Any] | None = None,
    *,
    extra: Mapping[str, str] | None = None,
    classifier: bool = True,
) -> Anatomy:
    """Run two images through `module` and say what is inside.

    `extra` names further places by hand, {"my site": "module.path"}; they become block sites at those modules' outputs.
    Without a `classifier` what comes out are features, even if some matrix made them.

    >>> import timm
    >>> model = timm.create_model("vit_tiny_patch16_224", depth=2).eval()
    >>> [site.name for site in anatomy_of("vit", model, torch.randn(2, 3, 224, 224)).sites][:5]
    ['stem', 'blocks.0 attention', 'blocks.0 attention junction', 'blocks.0 mlp junction', 'blocks.0']
    """
    module = bare(module)
    if len(images) != 2:
        raise SubjectError(f"{subject}: the dry run needs 2 images; got {len(images)}.")
    run = DryRun(module, images)
    with plain_attention(), torch.no_grad():
        # A first pass may fill caches (ConViT's relative positions); the second one goes the way all later ones go.
        passes = [(call or module)(images), run.run(call or module)]
        with FlopCount() as counted:
            (call or module)(images[:1])
    anatomy = _Reader(subject, run, dict(extra or {}), classifier).read()
    run.forget()
    return replace(anatomy, flops=float(counted.total), random=is_stochastic(module, *passes))


def is_stochastic(module: nn.Module, one: Any, other: Any) -> bool:
    """Do two outputs for the same pictures differ by more than rounding? Or could they: the zoo's masks stay with a
    picture until another draw is chosen.
    """
    pairs = zip(tensors_in(one), tensors_in(other), strict=False)
    comparable = [(a.float(), b.float()) for a, b in pairs if a.is_floating_point() and a.shape == b.shape]
    return has_draws(module) or any(
        bool((a - b).abs().max() > 0.01 * a.abs().max()) for a, b in comparable if a.numel()
    )


@dataclass(eq=False)
class _Draft:
    """A site before its depth, stage and address are known."""

    role: Role
    kind: Kind
    call: Call
    record: Record
    order: int
    operation: Watched | int
    """The watched operation, or which tensor of the module's input or output."""
    name: str = ""
    given: bool = False
    """The tensor is one of the module's input."""
    junction: Junction | None = None
    block: int = -1
    depth: float = 0.0
    stage: int = 0
    layout: Layout = field(default_factory=lambda: Layout(""))


class _Reader:
    def __init__(self, subject: str, run: DryRun, extra: Mapping[str, str], classifier: bool) -> None:
        self.subject, self.run, self.extra, self.classifier = subject, run, extra, classifier
        self.notes = dict(run.notes)
        self.junctions = find_junctions(run.nodes, run.watched)
        self.blocks, note = find_blocks(run.calls, run.nodes, self.junctions)
        if note:
            self.notes[f"{note[0].upper()}{note[1:]}."] = None

    def read(self) -> Anatomy:
        drafts = self._drafts()
        self._place(drafts)
        owners = {draft.call.path for draft in drafts}
        ordinals = self._ordinals(owners)
        names: Counter[str] = Counter()
        sites = []
        for draft in drafts:
            names[draft.name] += 1
            name = draft.name if names[draft.name] == 1 else f"{draft.name} {names[draft.name]}"
            sites.append(self._site(draft, name, ordinals))
        layers = [self._site(draft, draft.name, ordinals) for draft in self._layers(drafts, names)]
        pooling, cls = self._pooling()
        height, width = self.run.images.shape[-2:]
        return Anatomy(
            subject=self.subject,
            sites=tuple(sites),
            layers=tuple(layers),
            notes=tuple(self.notes),
            input_size=(height, width),
            architecture=self._architecture(drafts),
            cls=cls,
            pooling=pooling,
            filters=self.run.tables.filters,
            positions=tuple(placed(table, self.blocks) for table in self.run.tables.positions),
        )

    def _drafts(self) -> list[_Draft]:
        drafts: list[_Draft] = []
        if self.blocks:
            drafts += self._stem(self.blocks[0])
        for watched in self.run.watched:
            if watched.seen is not None:
                drafts.append(
                    _Draft("attention", "attention", watched.call, watched.out, watched.out.node.index, watched)
                )
        for junction in self.junctions:
            watched = junction.watched
            draft = _Draft("junction", junction.kind, watched.call, watched.out, watched.out.node.index, watched)
            draft.junction = junction
            drafts.append(draft)
            if not self.blocks and not junction.linear:
                drafts.append(replace(draft, role="block", junction=None))
        for call in self.blocks:
            drafts += self._block(call, self._kind(call))
        for name, path in self.extra.items():
            chosen = [call for call in self.run.calls if call.path == path]
            if not chosen:
                raise SubjectError(
                    f"{self.subject}: no module {path!r} ran, so the site {name!r} cannot be placed there."
                )
            for call in chosen:
                drafts += [replace(draft, name=name) for draft in self._block(call, self._kind(call))]
        drafts.sort(key=lambda draft: (draft.order, draft.role == "block"))
        return drafts + self._features() + self._head()

    def _stem(self, first: Call) -> list[_Draft]:
        at = _main(first.inputs)
        if at is None:
            return []
        return [_Draft("stem", "other", first, first.inputs[at], first.first - 1, at, "stem", given=True)]

    def _block(self, call: Call, kind: Kind) -> list[_Draft]:
        at = _main(call.outputs)
        if at is None:
            return []
        return [_Draft("block", kind, call, call.outputs[at], call.last - 1, at)]

    def _layers(self, drafts: Sequence[_Draft], names: Counter[str]) -> list[_Draft]:
        """The outputs of the blocks' innermost modules that are no site already, placed between the sites.

        A module that adds or multiplies tensors is left out: hooking it would change how later passes count those.
        """
        nodes = {draft.record.node for draft in drafts}
        outer = {call.parent for call in self.run.calls} | {watched.call for watched in self.run.watched}
        orders, depths = [draft.order for draft in drafts], [draft.depth for draft in drafts]
        stages = {draft.block: draft.stage for draft in drafts if draft.role == "block"}
        layers = []
        inner = [call for call in self.run.calls if call not in outer and len(call.outputs) == 1]
        inner = [call for call in inner if call.first <= call.outputs[0].node.index < call.last]  # no Identity
        for number, block in enumerate(self.blocks):
            for call in inner:
                if not call.within(block) or call.outputs[0].node in nodes:
                    continue
                draft = _Draft("layer", self._kind(call), call, call.outputs[0], call.last - 1, 0, block=number)
                draft.layout = self._layout(draft)
                whole = draft.layout.axes.startswith("N") and draft.record.shape[0] == len(self.run.images)
                if not whole:  # windows laid out along the image axis are no images
                    continue
                nodes.add(draft.record.node)
                names[call.path] += 1
                draft.name = call.path if names[call.path] == 1 else f"{call.path} {names[call.path]}"
                draft.depth = float(np.interp(draft.order, orders, depths))
                draft.stage = stages.get(number, 0)
                layers.append(draft)
        return layers

    def _kind(self, call: Call) -> Kind:
        return kind_of(self.run.nodes[call.first : call.last])

    def _features(self) -> list[_Draft]:
        """What the classifier reads: the vector given to the last module with weights before the logits.

        The last block's output is not it: a ViT normalises it first, a pre-activation CNN also cuts negatives off. Of a
        subject without a classifier it is what comes out, as one would be put there.
        """
        head = self._head()
        if not self.classifier:
            return [replace(draft, role="features", name="features") for draft in head]
        node = head[0].record.node if head else None
        while node is not None and "weighted" not in node.traits:
            active = [parent for parent in node.parents if "constant" not in parent.traits]
            node = active[0] if len(active) == 1 else None
        if node is None or not node.call.path:
            return []
        for at, record in enumerate(node.call.inputs):
            if record.node in node.parents and math.prod(record.shape[1:]) == record.shape[1]:
                return [_Draft("features", "other", node.call, record, node.index, at, "features", given=True)]
        return []

    def _head(self) -> list[_Draft]:
        for at, record in enumerate(self.run.output):
            if len(record.shape) == 2 and not record.constant:
                root = self.run.calls[0]
                return [_Draft("head", "other", root, record, len(self.run.nodes), at, "head")]
        self.notes["The output has no logits of shape (image, class): there is no head."] = None
        return []

    def _place(self, drafts: list[_Draft]) -> None:
        """Block, depth, stage, layout and name of each draft, in execution order."""
        ends = [draft.order for draft in drafts if draft.role == "block" and not draft.name]
        total = max(len(ends), 1)
        done, stage, grid = 0, 0, None
        for draft in drafts:
            draft.layout = self._layout(draft)
            if draft.role != "attention" and draft.record.origins is not None:
                resolved = resolution(draft.record.origins)
                if grid is not None and 0 not in resolved and resolved != grid:
                    stage += 1
                grid = resolved if 0 not in resolved else grid
            draft.stage = stage
            if draft.role == "block" and not draft.name:
                draft.block, done = done, done + 1
                draft.depth = done / total
            elif draft.role == "stem":
                draft.block, draft.depth = -1, 0.0
            elif draft.role in ("features", "head"):
                draft.block, draft.depth = len(ends), 1.0
            else:
                draft.block = self._owner(draft, done)
        inner: dict[int, list[_Draft]] = {}
        for draft in drafts:
            if draft.role not in ("stem", "features", "head") and not (draft.role == "block" and not draft.name):
                inner.setdefault(draft.block, []).append(draft)
        for block, members in inner.items():
            for at, draft in enumerate(members, 1):
                draft.depth = min(max((block + at / len(members)) / total, 0.0), 1.0)
        for draft in drafts:
            draft.name = draft.name or self._name(draft)

    def _owner(self, draft: _Draft, done: int) -> int:
        """The block a site lies in; between blocks, the one before."""
        for number, call in enumerate(self.blocks):
            if draft.call.within(call):
                return number
        return done - 1 if self.blocks else done

    def _layout(self, draft: _Draft) -> Layout:
        if isinstance(draft.operation, Watched) and draft.operation.seen is not None:
            geometry = draft.operation.seen.geometry
            sides = [round(self.run.images.shape[at - 2] / geometry.cell[at]) for at in (0, 1)]
            grid = None if math.isnan(geometry.uniform_distance) else (sides[0], sides[1])
            return Layout("", geometry.query_prefix, grid)
        origins = draft.record.origins
        layout = None if origins is None else read_layout(origins)
        return layout or Layout("")

    def _name(self, draft: _Draft) -> str:
        inside = 0 <= draft.block < len(self.blocks) and draft.call.within(self.blocks[draft.block])
        path = self.blocks[draft.block].path if inside else draft.call.path
        what = {"attention": "attention", "junction": f"{draft.kind} junction", "block": ""}[draft.role]
        return " ".join(part for part in (path, what) if part) or "block"

    def _ordinals(self, owners: Iterable[str]) -> dict[Watched, tuple[Call, int]]:
        """For each watched operation: the nearest module later passes will hook, and its number there."""
        hooked = {*owners, ""}
        counts: Counter[Call] = Counter()
        ordinals: dict[Watched, tuple[Call, int]] = {}
        for watched in self.run.watched:
            call = watched.call
            while call.path not in hooked and call.parent is not None:
                call = call.parent
            ordinals[watched] = (call, counts[call])
            counts[call] += 1
        return ordinals

    def _site(self, draft: _Draft, name: str, ordinals: Mapping[Watched, tuple[Call, int]]) -> Site:
        if isinstance(draft.operation, Watched):
            call, number = ordinals[draft.operation]
            address = Address(call.path, max(call.ordinal, 0), number, draft.operation.name)
        else:
            kind = "input" if draft.given else "output"
            address = Address(draft.call.path, max(draft.call.ordinal, 0), draft.operation, kind)
        seen = draft.operation.seen if isinstance(draft.operation, Watched) else None
        axes = draft.layout.axes
        if not axes and draft.role not in ("attention", "features"):
            self.notes[f"{name}: the meaning of its axes {list(draft.record.shape)} was not recognised."] = None
        shape = draft.record.shape
        return Site(
            name=name,
            role=draft.role,
            kind=draft.kind,
            path=draft.call.path,
            address=address,
            depth=draft.depth,
            stage=draft.stage,
            block=draft.block,
            layout=draft.layout,
            channels=shape[axes.index("C")] if "C" in axes else shape[1 if draft.role == "features" else -1],
            heads=seen.heads if seen else None,
            attention=seen.geometry if seen else None,
            skip_operand=draft.junction.skip_operand if draft.junction else None,
            projected=draft.junction.projected if draft.junction else False,
        )

    def _architecture(self, drafts: list[_Draft]) -> Architecture:
        kinds = [draft.kind for draft in drafts if draft.role == "block"]
        mixing = any("attention" in node.traits for node in self.run.nodes)  # linear and channel attention are "other"
        attention = kinds.count("attention") + (kinds.count("other") if mixing else 0)
        conv = kinds.count("conv") + (kinds.count("pool") if attention else 0)
        if attention and conv:
            return "hybrid"
        if attention:
            return "transformer" if 2 * attention >= len(kinds) else "other"
        if conv:
            return "cnn"
        return "mixer" if "mixer" in kinds else "other"

    def _pooling(self) -> tuple[Literal["cls", "gap", "other"] | None, int | None]:
        """What the classifier reads, found by walking back from the logits, and which token is the class token."""
        head = self._head()
        if not head:
            return None, self._named_cls()
        seen: set[Node] = set()
        front, ways, classifier = [head[0].record.node], set(), False
        token: int | None = None
        while front:
            node = front.pop()
            if node in seen:
                continue
            seen.add(node)
            classifier = classifier or "weighted" in node.traits
            if "pooled" in node.traits:
                ways.add("gap" if "nonlinear" not in node.traits else "other")
            elif "select" in node.traits:
                ways.add("cls")
                token = min(token, node.detail) if token is not None and node.detail is not None else node.detail
            elif "attention" in node.traits or not node.parents:
                ways.add("other")
            else:
                front += node.parents
        if not classifier:
            return None, self._named_cls()
        pooling: Literal["cls", "gap", "other"] = "other"
        if ways == {"cls"}:
            pooling = "cls"
        elif ways == {"gap"}:
            pooling = "gap"
        return pooling, token if pooling == "cls" else self._named_cls()

    def _named_cls(self) -> int | None:
        """A class token the classifier does not read is known by its parameter's name, in the order of joining."""
        for node in self.run.nodes:
            if "cat" in node.traits and node.name == "cat":
                labels = [str(parent.detail or "") for parent in node.parents if "constant" in parent.traits]
                for at, label in enumerate(labels):
                    if "cls" in label or "class" in label:
                        return at
        return None


def _main(records: list[Record]) -> int | None:
    """Of several tensors given or returned, the one to look at: the first that reads as a grid, else the first."""
    active = [at for at, record in enumerate(records) if not record.constant and len(record.shape) > 1]
    for at in active if len(active) > 1 else ():
        origins = records[at].origins
        layout = None if origins is None else read_layout(origins)
        if layout is not None and layout.grid is not None:
            return at
    return active[0] if active else None
