"""What a dry run finds, against what is known of each subject from its source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eyechart.errors import SubjectError
from eyechart.sites import Anatomy, Layout
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from tests import cases

IMAGES = cases.images()


def examine(module: nn.Module, size: int = 32) -> Anatomy:
    return anatomy_of("subject", module, cases.images(size=size))


def test_vit_site_by_site() -> None:
    anatomy = examine(cases.vit())
    found = [(site.name, site.role, site.kind, round(site.depth, 4), site.block) for site in anatomy.sites]
    assert found == [
        ("stem", "stem", "other", 0.0, -1),
        ("blocks.0 attention", "attention", "attention", 0.1667, 0),
        ("blocks.0 attention junction", "junction", "attention", 0.3333, 0),
        ("blocks.0 mlp junction", "junction", "mlp", 0.5, 0),
        ("blocks.0", "block", "attention", 0.5, 0),
        ("blocks.1 attention", "attention", "attention", 0.6667, 1),
        ("blocks.1 attention junction", "junction", "attention", 0.8333, 1),
        ("blocks.1 mlp junction", "junction", "mlp", 1.0, 1),
        ("blocks.1", "block", "attention", 1.0, 1),
        ("features", "features", "other", 1.0, 2),
        ("head", "head", "other", 1.0, 2),
    ]
    assert (anatomy.architecture, anatomy.pooling, anatomy.cls, anatomy.notes) == ("transformer", "cls", 0, ())
    assert {site.layout for site in anatomy.pick("block")} == {Layout("NTC", 1, (4, 4))}
    assert anatomy.site("stem").layout == Layout("NTC", 1, (4, 4))
    assert {site.channels for site in anatomy.pick("block")} == {24}
    assert {site.heads for site in anatomy.pick("attention")} == {3}


def test_layers_inside_the_blocks_of_a_vit() -> None:
    anatomy = examine(cases.vit())
    inner = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.act", "mlp.fc2"]
    assert [layer.name for layer in anatomy.layers] == [f"blocks.{i}.{name}" for i in (0, 1) for name in inner]
    assert {(layer.role, layer.layout) for layer in anatomy.layers} == {("layer", Layout("NTC", 1, (4, 4)))}
    depth = {site.name: site.depth for site in (*anatomy.layers, *anatomy.sites)}
    assert 0 < depth["blocks.0.norm1"] < depth["blocks.0 attention"] < depth["blocks.0.attn.proj"]
    assert depth["blocks.0.attn.proj"] < depth["blocks.0 attention junction"] < depth["blocks.0.norm2"]
    assert depth["blocks.0.mlp.fc2"] < depth["blocks.0"] < depth["blocks.1.norm1"] < depth["blocks.1"]


@pytest.mark.parametrize("number", [torch.bfloat16, torch.float16, torch.float64])
def test_rounding_of_a_smaller_number_is_no_mistake(number: torch.dtype) -> None:
    module = cases.vit().to(number)
    assert anatomy_of("subject", module, IMAGES.to(number)).notes == ()


class Adding(nn.Module):
    """An innermost module that adds two tensors, as a table of positions is added."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.table.expand_as(x))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.adding = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), Adding()
        self.nothing, self.act, self.twice = nn.Identity(), nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm(self.conv(x)))
        y = self.act(self.nothing(self.adding(y)) - 0.5)
        return self.twice(x + y)  # this one's output is the block's


def test_layers_are_seen_as_hooks_see_them_and_change_no_address() -> None:
    """With activations in place, an innermost module that adds, and a module called twice."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Residual(), Residual(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module = nn.Sequential(*module, nn.Linear(8, 5)).eval()
    anatomy = examine(module)
    names = [layer.name for layer in anatomy.layers]
    assert names == [f"{i}.{name}" for i in (1, 2) for name in ("conv", "norm", "act", "act 2")]
    seen: dict[str, Tensor] = {}

    def keep(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: object, output: Tensor) -> None:
            seen[path if path not in seen else f"{path} 2"] = output.clone()

        return hook

    handles = [child.register_forward_hook(keep(path)) for path, child in module.named_modules()]
    plain = module(IMAGES)
    for handle in handles:
        handle.remove()
    whole = View("whole", lambda look: look.output)
    asked = {name: [whole] for name in (*names, "1", "2", "1 conv junction")}
    output, views = Tap(module, Anatomy.from_json(anatomy.as_json()), asked).run(IMAGES)
    assert torch.equal(output, plain)
    for name in (*names, "1", "2"):
        assert torch.equal(views[name]["whole"], seen[name]), name
    assert torch.equal(views["1 conv junction"]["whole"].relu(), seen["1"])


def test_class_token_is_the_one_read_or_the_one_so_named() -> None:
    registers = examine(cases.vit(reg_tokens=4))
    assert (registers.cls, registers.pooling) == (0, "cls")
    assert registers.pick("block")[0].layout == Layout("NTC", 5, (4, 4))
    unused = examine(cases.vit(global_pool="avg", reg_tokens=2))
    assert (unused.cls, unused.pooling) == (0, "gap")
    gap = examine(cases.vit(class_token=False, global_pool="avg", fc_norm=False))
    assert (gap.cls, gap.pooling) == (None, "gap")
    assert gap.pick("block")[0].layout == Layout("NTC", 0, (4, 4))
    assert examine(cases.vit(num_classes=0)).pooling is None


def test_resnet_stages_projections_and_operands() -> None:
    anatomy = examine(cases.resnet())
    junctions = anatomy.pick("junction")
    assert [site.kind for site in junctions] == ["conv"] * 5
    # `x += shortcut`: the skip is the second operand. The first unit of a stage that changes the width projects it.
    assert [site.skip_operand for site in junctions] == [1] * 5
    assert [site.projected for site in junctions] == [False, True, False, True, True]
    assert [site.grid for site in junctions] == [(8, 8), (4, 4), (4, 4), (2, 2), (1, 1)]
    assert [site.stage for site in junctions] == [0, 1, 1, 2, 3]
    assert [site.depth for site in anatomy.pick("block")] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert (anatomy.architecture, anatomy.pooling) == ("cnn", "gap")


def test_bit_is_exact() -> None:
    """3 + 4 + 6 + 3 units; the first of each stage projects its pre-activated input."""
    junctions = examine(cases.bit(), 64).pick("junction")
    assert len(junctions) == 16
    assert [at for at, site in enumerate(junctions) if site.projected] == [0, 3, 7, 13]


@pytest.mark.parametrize("build", [cases.cnn, cases.cube, cases.hybrid])
def test_axes_are_told_even_where_all_have_one_length(build: Callable[[], nn.Module]) -> None:
    anatomy = examine(build())
    assert {site.layout.axes for site in anatomy.pick("block")} == {"NCYX"}
    assert {site.grid for site in anatomy.pick("block")} == {(8, 8)}


def test_axes_follow_a_permutation_of_a_cube() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            x = x.permute(0, 2, 3, 1)
            return (x + self.mlp(x)).permute(0, 3, 1, 2)

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.mlp(x)  # along the columns: a mixer

    (site,) = examine(cases.one(Last())).pick("junction")
    assert (site.layout.axes, site.kind) == ("NYXC", "mlp")
    (site,) = examine(cases.one(Turned())).pick("junction")
    assert (site.layout.axes, site.kind) == ("NCYX", "mixer")


def test_hybrid_has_both() -> None:
    anatomy = examine(cases.hybrid())
    assert anatomy.architecture == "hybrid"
    assert [site.kind for site in anatomy.pick("block")] == ["conv", "attention", "conv", "attention"]


def test_plain_cnn_falls_back_to_convolutions_and_says_so() -> None:
    anatomy = examine(cases.plain())
    assert [site.path for site in anatomy.pick("block")] == ["convs.0", "convs.1", "convs.2"]
    assert any("no residual additions" in note.lower() for note in anatomy.notes)
    assert anatomy.architecture == "cnn"


def test_blocks_of_a_bare_sequential_are_counted_too() -> None:
    """Its modules are called "0", "2" and "10", which stood on every axis."""
    rest = [layer for _ in range(5) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]
    anatomy = examine(nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), *rest, nn.Flatten(), nn.Linear(256, 3)))
    blocks = anatomy.pick("block")
    assert [block.name for block in blocks] == ["0", "2", "4", "6", "8", "10"]
    assert [anatomy.words(block) for block in blocks] == [f"block {number}" for number in range(1, 7)]


def windows_by_hand(size: int, window: int, shift: int, pixel: int) -> np.ndarray:
    """(window, token, 2): roll the map of positions by -shift, cut it into windows, each read row by row."""
    centres = (np.arange(size) + 0.5) * pixel
    positions = np.stack(np.meshgrid(centres, centres, indexing="ij"), -1)
    positions = np.roll(positions, (-shift, -shift), (0, 1))
    cut = positions.reshape(size // window, window, size // window, window, 2).transpose(0, 2, 1, 3, 4)
    return cut.reshape(-1, window * window, 2)


def test_swin_windows_are_where_they_are() -> None:
    anatomy = examine(cases.swin())
    plain, shifted, *last = [site.attention for site in anatomy.pick("attention")]
    for geometry, shift in ((plain, 0), (shifted, 2)):
        assert geometry is not None
        assert (geometry.kind, geometry.windows, geometry.window) == ("windowed", 4, (4, 4))
        assert geometry.query_yx is not None
        assert geometry.key_yx is not None
        np.testing.assert_allclose(geometry.query_yx, windows_by_hand(8, 4, shift, 4))
        np.testing.assert_allclose(geometry.key_yx, geometry.query_yx)
    assert [geometry.kind for geometry in last if geometry] == ["global", "global"]
    assert [site.stage for site in anatomy.pick("block")] == [0, 0, 1, 1]


def test_global_geometry_and_uniform_distance_by_brute_force() -> None:
    geometry = examine(cases.vit()).pick("attention")[0].attention
    assert geometry is not None
    assert geometry.query_yx is not None
    assert (geometry.kind, geometry.windows, geometry.query_prefix, geometry.key_prefix) == ("global", 1, 1, 1)
    assert np.isnan(geometry.query_yx[0, 0]).all()
    centres = [(y * 8 + 4, x * 8 + 4) for y in range(4) for x in range(4)]
    np.testing.assert_allclose(geometry.query_yx[0, 1:], centres)
    pairs = [np.hypot(a[0] - b[0], a[1] - b[1]) for a in centres for b in centres]
    assert geometry.uniform_distance == pytest.approx(np.mean(pairs))
    assert geometry.cell == (8.0, 8.0)


class Trap(nn.Module):
    """Additions that are none of our business, beside one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(2, 8, 8, 8))
        self.conv, self.inner, self.out = (nn.Conv2d(8 // k, 8 // k, 3, padding=1) for k in (1, 2, 1))
        self.narrow, self.norm = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        skip = x
        x = x + self.position
        x = F.relu(self.conv(x))
        first, second = x.chunk(2, 1)
        second = second + F.relu(self.inner(first))  # Res2Net's inner sum
        x = torch.cat([first, second], 1)
        x = x * torch.cos(x.detach() * 0 + 1) + torch.cat([-x[:, 4:], x[:, :4]], 1) * 0.5  # rotary
        x = self.norm(self.conv(x)) + self.narrow(x) + x  # parallel linear branches, one convolution in truth
        x = x + x * x.norm(dim=1, keepdim=True)  # GRN
        x = x + self.position
        return skip + self.out(F.relu(x))


def test_additions_that_are_no_junctions() -> None:
    (junction,) = examine(cases.one(Trap())).pick("junction")
    assert (junction.kind, junction.skip_operand, junction.projected) == ("conv", 0, False)


def test_parallel_branches_of_one_projection_are_one_junction() -> None:
    class Parallel(nn.Module):
        """As in ViT-22B: one projection, cut into what two branches need; their sum is the branch."""

        def __init__(self) -> None:
            super().__init__()
            self.into, self.conv = nn.Conv2d(8, 16, 1), nn.Conv2d(8, 8, 3, 1, 1)
            self.one, self.two = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.into(x).chunk(2, 1)
            return x + (self.one(self.conv(F.gelu(first))) + self.two(F.gelu(second)))

    (junction,) = examine(cases.one(Parallel())).pick("junction")
    assert (junction.skip_operand, junction.projected) == (0, False)


def test_kinds_of_branches() -> None:
    class Residual(nn.Module):
        def __init__(self, branch: nn.Module) -> None:
            super().__init__()
            self.branch = branch

        def forward(self, x: Tensor) -> Tensor:
            return self.branch(x) + x

    pool = nn.Sequential(nn.GroupNorm(1, 8), nn.AvgPool2d(3, 1, 1))
    mlp = nn.Sequential(nn.Conv2d(8, 8, 1), nn.GELU(), nn.Conv2d(8, 8, 1))
    gated = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid(), nn.Upsample(8))
    found = [examine(cases.one(Residual(branch))).pick("junction")[0] for branch in (pool, mlp, gated)]
    assert [site.kind for site in found] == ["pool", "mlp", "mlp"]
    assert [site.skip_operand for site in found] == [1, 1, 1]


def test_skip_projected_pooled_and_scaled() -> None:
    class Skip(nn.Module):
        def __init__(self, skip: Callable[[Tensor], Tensor], stride: int) -> None:
            super().__init__()
            self.skip, self.norm = skip, nn.GroupNorm(1, 8)
            self.first, self.second = nn.Conv2d(8, 8, 3, stride, 1), nn.Conv2d(8, 8, 3, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.norm(x))  # a pre-activation that both ways share
            return self.skip(x) + self.second(F.relu(self.first(x)))

    scale = nn.Parameter(torch.rand(8, 1, 1))
    skips: list[tuple[Callable[[Tensor], Tensor], int]] = [
        (nn.Conv2d(8, 8, 1, 2), 2),
        (nn.AvgPool2d(2), 2),
        (lambda x: x[:, :, ::2, ::2], 2),
        (lambda x: x * scale, 1),
    ]
    for skip, stride in skips:
        (junction,) = examine(cases.one(Skip(skip, stride))).pick("junction")
        assert (junction.kind, junction.skip_operand, junction.projected) == ("conv", 0, True)


def test_softmax_that_is_no_attention() -> None:
    class Radix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.gate = nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(8, 8, 5, 1, 2), nn.Linear(8, 16)

        def forward(self, x: Tensor) -> Tensor:
            ways = torch.stack([self.one(x), self.two(x)], 1)
            gates = self.gate(ways.sum(1).mean((2, 3))).view(-1, 2, 8, 1, 1).softmax(1)
            return x + F.relu((ways * gates).sum(1))

    anatomy = examine(cases.one(Radix()))
    assert not anatomy.pick("attention")
    assert anatomy.architecture == "cnn"
    assert not anatomy.notes


@pytest.mark.parametrize("over", ["channels", "linear"])
def test_attention_without_weights_for_pairs_is_said(over: str) -> None:
    class Unserved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).chunk(3, -1)
            if over == "channels":
                mixed = v @ (q.transpose(1, 2) @ k).softmax(-1).transpose(1, 2)
            else:
                mixed = q.relu() @ (k.relu().transpose(1, 2) @ v)
            return x + mixed.transpose(1, 2).view_as(x)

    anatomy = examine(cases.one(Unserved()))
    assert not anatomy.pick("attention")
    assert [site.kind for site in anatomy.pick("junction")] == ["other"]
    assert any("attention is not shown" in note for note in anatomy.notes)


def test_compiled_is_unwrapped_and_scripted_refused() -> None:
    module = cases.cnn()
    compiled = cast(nn.Module, torch.compile(module))
    assert anatomy_of("subject", compiled, IMAGES) == anatomy_of("subject", module, IMAGES)
    with pytest.raises(SubjectError, match=r"plain nn\.Module"):
        anatomy_of("subject", torch.jit.trace(module, IMAGES), IMAGES)


def test_sites_by_hand() -> None:
    anatomy = anatomy_of("subject", cases.vit(), IMAGES, extra={"hidden": "blocks.0.mlp.act"})
    site = anatomy.site("hidden")
    assert (site.role, site.channels, site.block, site.layout) == ("block", 96, 0, Layout("NTC", 1, (4, 4)))
    assert len(anatomy.pick("block")) == 3
    assert [at.depth for at in anatomy.pick("block") if at.name != "hidden"] == [0.5, 1.0]
    with pytest.raises(SubjectError, match=r"blocks\.7"):
        anatomy_of("subject", cases.vit(), IMAGES, extra={"hidden": "blocks.7"})


def test_a_cache_filled_by_the_first_pass_does_not_shift_addresses() -> None:
    class Caching(cases.ConvUnit):
        cache: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.cache is None:
                self.cache = torch.ones(1) + torch.ones(1)
            return super().forward(x * self.cache)

    module = cases.one(Caching(8))
    anatomy = examine(module)
    assert anatomy.pick("junction")[0].address.operation == 0
    Tap(module, anatomy).run(IMAGES)


def test_dry_run_needs_two_images() -> None:
    with pytest.raises(SubjectError, match="2 images"):
        anatomy_of("subject", cases.cnn(), cases.images(3))


@pytest.mark.parametrize("build", [cases.vit, cases.resnet, cases.swin, cases.hybrid])
def test_json_round_trip(build: Callable[[], nn.Module]) -> None:
    anatomy = examine(build())
    assert Anatomy.from_json(json.loads(json.dumps(anatomy.as_json()))) == anatomy


def test_shared_module_is_told_apart_by_call() -> None:
    unit = cases.ConvUnit(6)
    anatomy = examine(cases.Chain([unit, unit, unit], 6).eval())
    assert [site.address.call for site in anatomy.pick("block")] == [0, 1, 2]
    assert Counter(site.role for site in anatomy.sites)["junction"] == 3
    assert len({site.name for site in anatomy.sites}) == len(anatomy.sites)
