"""Looking changes nothing, sees what is there, keeps nothing, and stops when the way differs."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchlens
from torch import Tensor, nn

from eyechart.errors import TapError
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.dryrun import DryRun
from eyechart.tracing.finite import first_not_finite
from eyechart.tracing.graph import Call, Node, Record
from eyechart.tracing.needs import View
from eyechart.tracing.operations import SAME, SHAPE
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look
from tests import cases

BUILDS = [cases.vit, cases.resnet, cases.swin, cases.hybrid, cases.plain]
OUTPUT = View("output", lambda look: look.output.clone())
OPERANDS = View("operands", lambda look: torch.stack([look.skip, look.branch], 1), before=True)
GRAM = View("gram", lambda look: look.output.flatten(1), reduce=lambda rows: rows @ rows.T)


def views_everywhere(anatomy: Any) -> dict[str, list[View]]:
    return {site.name: [OUTPUT, GRAM, *([OPERANDS] if site.role == "junction" else [])] for site in anatomy.sites}


@pytest.mark.parametrize("build", BUILDS)
def test_output_is_bit_equal(build: Callable[[], nn.Module]) -> None:
    module, images = build(), cases.images(5)
    anatomy = anatomy_of("subject", module, images[:2])
    with torch.no_grad():
        plain = module(images)
    output, views = Tap(module, anatomy, views_everywhere(anatomy)).run(images)
    assert torch.equal(output, plain)
    assert views.keys() == {site.name for site in anatomy.sites}
    assert torch.equal(views["head"]["output"], plain)


@pytest.mark.parametrize("build", BUILDS)
def test_blocks_and_stem_are_what_hooks_see(build: Callable[[], nn.Module]) -> None:
    """Against plain forward hooks, which copy at module exit (after in-place activations)."""
    module, images = build(), cases.images(3)
    anatomy = anatomy_of("subject", module, images[:2])
    seen: dict[str, Tensor] = {}
    for site in anatomy.pick("block"):
        module.get_submodule(site.path).register_forward_hook(
            lambda _, inputs, output, name=site.name: seen.__setitem__(name, output.clone())
        )
    stem = anatomy.site("stem")
    module.get_submodule(stem.path).register_forward_pre_hook(
        lambda _, inputs: seen.__setitem__("stem", inputs[0].clone())
    )
    _, views = Tap(
        module, anatomy, {name: [OUTPUT] for name in ["stem", *(s.name for s in anatomy.pick("block"))]}
    ).run(images)
    for name, taken in views.items():
        assert torch.equal(taken["output"], seen[name])


@pytest.mark.parametrize("build", [cases.vit, cases.resnet, cases.swin, cases.hybrid])
def test_junction_is_skip_plus_branch(build: Callable[[], nn.Module]) -> None:
    """Operands are seen before an in-place addition destroys one, the sum before an in-place activation does."""
    module, images = build(), cases.images(3)
    anatomy = anatomy_of("subject", module, images[:2])
    _, views = Tap(module, anatomy, {site.name: [OUTPUT, OPERANDS] for site in anatomy.pick("junction")}).run(images)
    for taken in views.values():
        skip, branch = taken["operands"].unbind(1)
        assert torch.equal(skip + branch, taken["output"])
        assert not torch.equal(skip, taken["output"])


def test_skip_is_the_block_s_input() -> None:
    module, images = cases.vit(), cases.images(3)
    anatomy = anatomy_of("subject", module, images[:2])
    _, views = Tap(module, anatomy, {"stem": [OUTPUT], "blocks.0 attention junction": [OPERANDS]}).run(images)
    assert torch.equal(views["blocks.0 attention junction"]["operands"][:, 0], views["stem"]["output"])


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("micro", [1, 2, 5])
def test_pieces_give_the_whole(build: Callable[[], nn.Module], micro: int) -> None:
    """One image a piece too: there a bias of shape (1, …) has the same shape as what it is added to."""
    module, images = build(), cases.images(5)
    anatomy = anatomy_of("subject", module, images[:2])
    tap = Tap(module, anatomy, views_everywhere(anatomy))
    output, views = tap.run(images)
    pieced, pieces = tap.run_in_pieces(images, micro)
    torch.testing.assert_close(pieced, output)
    torch.testing.assert_close(pieces, views, rtol=1e-4, atol=1e-5)
    assert views["head"]["gram"].shape == (5, 5)


def test_tokens_and_map_agree_with_the_layout() -> None:
    module, images = cases.vit(reg_tokens=2), cases.images(2)
    anatomy = anatomy_of("subject", module, images)
    views = [View("tokens", lambda look: look.tokens(look.output)), View("map", lambda look: look.map(look.output))]
    _, taken = Tap(module, anatomy, {"blocks.0": views}).run(images)
    tokens, map_ = taken["blocks.0"]["tokens"], taken["blocks.0"]["map"]
    assert tokens.shape == (2, 19, 24)
    assert torch.equal(map_[:, :, 1, 3], tokens[:, 3 + 4 * 1 + 3])


def test_another_way_is_refused() -> None:
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = cases.inside(cases.cnn())
            self.calm = True

        def forward(self, x: Tensor) -> Tensor:
            units = self.inner.units if self.calm else self.inner.units[:2]
            x = self.inner.stem(x)
            for unit in units:
                x = unit(x)
            return self.inner.head(x.mean((2, 3)))

    module = Moody().eval()
    anatomy = anatomy_of("moody", module, cases.images())
    module.calm = False
    with pytest.raises(TapError, match="another path"):
        Tap(module, anatomy).run(cases.images())


def test_another_operation_at_an_address_is_refused() -> None:
    class Unit(cases.ConvUnit):
        twice = False

        def forward(self, x: Tensor) -> Tensor:
            if self.twice:
                x = x @ x
            return super().forward(x)

    module = cases.one(Unit(8))
    anatomy = anatomy_of("subject", module, cases.images())
    cases.inside(module).units[0].twice = True
    with pytest.raises(TapError, match="'add', but this pass does 'matmul'"):
        Tap(module, anatomy).run(cases.images())


def test_unknown_sites_are_named() -> None:
    module = cases.cnn()
    anatomy = anatomy_of("subject", module, cases.images())
    with pytest.raises(TapError, match=r"no site 'blocks\.9'"):
        Tap(module, anatomy, {"blocks.9": [OUTPUT]})


def test_no_tensor_outlives_its_batch() -> None:
    module, images = cases.vit(), cases.images(2)
    seen: list[weakref.ref[Tensor]] = []

    def remember(look: Look) -> Tensor:
        seen.append(weakref.ref(look.output))
        return look.output.mean().view(1)

    anatomy = anatomy_of("subject", module, images)
    tap = Tap(module, anatomy, {site.name: [View("mean", remember)] for site in anatomy.pick("block")})
    output, views = tap.run(images)
    gc.collect()
    assert len(seen) == 2
    assert all(reference() is None for reference in seen)
    del output, views
    assert all(not hooks for part in module.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks))


def test_hooks_are_gone_after_an_error() -> None:
    module, images = cases.vit(), cases.images(2)
    anatomy = anatomy_of("subject", module, images)

    def fail(look: Look) -> Tensor:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Tap(module, anatomy, {"blocks.1": [View("fail", fail)]}).run(images)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert Tap(module, anatomy).run(images)[0].shape == (2, 5)


def test_views_may_compute_what_the_model_computes() -> None:
    """Additions and products of a view do not count as the model's."""
    module, images = cases.vit(), cases.images(2)
    anatomy = anatomy_of("subject", module, images)
    busy = View("busy", lambda look: look.output @ look.output.transpose(-2, -1) + torch.ones(()))
    sites = {site.name: [busy] for site in anatomy.sites if site.role != "head"}
    assert torch.equal(Tap(module, anatomy, sites).run(images)[0], Tap(module, anatomy).run(images)[0])


def test_first_not_finite_names_the_site() -> None:
    module, images = cases.vit(), cases.images(2)
    anatomy = anatomy_of("subject", module, images)
    assert first_not_finite(module, anatomy, images) is None
    module.get_parameter("blocks.1.mlp.fc2.weight").data[0, 0] = float("nan")
    site = first_not_finite(module, anatomy, images)
    assert site is not None
    assert site.name == "blocks.1 mlp junction"


def test_gradients_are_possible_afterwards() -> None:
    """no_grad, not inference_mode: what a tap leaves cached must not break a backward pass."""
    module, images = cases.swin(), cases.images(2)
    anatomy = anatomy_of("subject", module, images)
    Tap(module, anatomy).run(images)
    module(images).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("build", [cases.vit, cases.resnet, cases.hybrid])
def test_ancestors_are_torchlens_s(build: Callable[[], nn.Module]) -> None:
    """For every addition of two activations: who descends from whom, in our graph and in TorchLens's."""
    module, images = build(), cases.images()
    run = DryRun(module, images)
    run.run(module)
    ours = [
        (b.node.descends_from(a.node), a.node.descends_from(b.node), a.node is b.node)
        for a, b in (watched.operands[:2] for watched in run.watched if watched.name in ("add", "add_"))
        if not a.constant and not b.constant
    ]
    trace = torchlens.trace(module, images)
    # A layer that runs several times (the same operation in each block) has one label and several passes, "add_2:1".
    parents = {layer.label: [trace[str(parent)].label for parent in layer.parents] for layer in trace.layer_list}
    names = {layer.label: layer.func_name for layer in trace.layer_list}

    def same_value(label: str) -> str:
        while names[label] in SHAPE | SAME and len(parents[label]) == 1:
            label = parents[label][0]
        return label

    def ancestors(label: str) -> set[str]:
        found: set[str] = set()
        front = [label]
        while front:
            for parent in map(same_value, parents[front.pop()]):
                if parent not in found:
                    found.add(parent)
                    front.append(parent)
        return found

    theirs = []
    for layer in trace.layer_list:
        from_input = [parent for parent in parents[layer.label] if "input_1:1" in ancestors(parent) | {parent}]
        positions = layer.parent_arg_positions["args"]
        if layer.func_name in ("__add__", "add", "__iadd__", "add_") and len(from_input) == 2:
            a, b = (same_value(trace[str(positions[at])].label) for at in (0, 1))
            theirs.append((a in ancestors(b), b in ancestors(a), a == b))
    assert len(ours) >= 4
    assert ours == theirs


@pytest.mark.parametrize("build", BUILDS)
def test_the_input_is_a_site_where_it_is_asked_for(build: Callable[[], nn.Module]) -> None:
    module, images = build(), cases.images(5)
    anatomy = anatomy_of("subject", module, images[:2])
    assert anatomy.input not in anatomy.sites
    tap = Tap(module, anatomy, {anatomy.input.name: [OUTPUT, GRAM]})
    _, views = tap.run(images)
    assert torch.equal(views[anatomy.input.name]["output"], images)
    _, pieces = tap.run_in_pieces(images, 2)
    torch.testing.assert_close(pieces[anatomy.input.name]["gram"], views[anatomy.input.name]["gram"])


@pytest.mark.parametrize("build", BUILDS)
def test_nothing_of_a_dry_run_waits_for_the_garbage_collector(build: Callable[[], nn.Module]) -> None:
    """Circles of references would: 57 MiB of a ViT-S/16, until Python looks for them."""
    subject, images = build(), cases.images()
    anatomy_of("subject", subject, images)  # what is kept once, such as a table of positions
    gc.collect()
    gc.disable()
    try:
        before = Counter(map(type, gc.get_objects()))
        assert anatomy_of("subject", subject, images).sites
        after = Counter(map(type, gc.get_objects()))
    finally:
        gc.enable()
    assert [after[kind] - before[kind] for kind in (Tensor, Record, Node, Call)] == [0, 0, 0, 0]
