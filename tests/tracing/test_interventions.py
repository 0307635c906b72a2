"""Interventions against forwards edited by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from eyechart.errors import TapError
from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.interventions import Intervention, Lesion, RemoveSkip, ReplaceAttention, ReplaceOperation, Scale
from eyechart.tracing.needs import View
from eyechart.tracing.taps import Tap
from tests import cases

IMAGES = cases.images(3)


def tapped(module: nn.Module, *changes: Intervention, images: Tensor = IMAGES) -> Tensor:
    output: Tensor = Tap(module, anatomy_of("subject", module, images[:2]), interventions=changes).run(images)[0]
    return output


def edited(module: nn.Module, path: str, forward: Callable[..., Tensor | tuple[Tensor, None]]) -> Tensor:
    """The output with another forward written into one module."""
    part = module.get_submodule(path)
    part.forward = MethodType(forward, part)
    with torch.no_grad():
        output: Tensor = module(IMAGES)
    del part.forward
    return output


Combine = Callable[[Tensor, Tensor], Tensor]
CHANGES: list[tuple[Callable[[str], Scale], Combine]] = [
    (RemoveSkip, lambda skip, branch: branch),
    (Lesion, lambda skip, branch: skip),
    (lambda site: Scale(site, skip=0.25, branch=3.0), lambda skip, branch: 0.25 * skip + 3.0 * branch),
]


@pytest.mark.parametrize(("change", "combine"), CHANGES)
def test_vit(change: Callable[[str], Scale], combine: Combine) -> None:
    module = cases.vit()

    def forward(self: Any, x: Tensor, **_: Any) -> Tensor:
        x = combine(x, self.attn(self.norm1(x)))
        return x + self.mlp(self.norm2(x))

    expected = edited(module, "blocks.0", forward)
    output = tapped(module, change("blocks.0 attention junction"))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    with torch.no_grad():
        assert (output - module(IMAGES)).abs().max() > 1e-3


@pytest.mark.parametrize(("change", "combine"), CHANGES)
@pytest.mark.parametrize("path", ["layer2.0", "layer2.1"])
def test_resnet_adds_in_place(change: Callable[[str], Scale], combine: Combine, path: str) -> None:
    """With a projected and with an identity shortcut; the sum goes on in the very tensor that held the branch."""
    module = cases.resnet()

    def forward(self: Any, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.act1(self.bn1(self.conv1(x)))
        return combine(shortcut, self.bn2(self.conv2(x))).relu()

    expected = edited(module, path, forward)
    output = tapped(module, change(f"{path} conv junction"))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    with torch.no_grad():
        assert (output - module(IMAGES)).abs().max() > 1e-4


@pytest.mark.parametrize(("change", "combine"), CHANGES)
@pytest.mark.parametrize("kind", ["attention", "mlp"])
def test_swin_shifted_block(change: Callable[[str], Scale], combine: Combine, kind: str) -> None:
    module = cases.swin()

    def forward(self: Any, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        branch = self._attn(self.norm1(x))
        x = combine(x, branch) if kind == "attention" else x + branch
        x = x.reshape(batch, -1, channels)
        branch = self.mlp(self.norm2(x))
        x = combine(x, branch) if kind == "mlp" else x + branch
        return x.reshape(batch, height, width, channels)

    expected = edited(module, "layers.0.blocks.1", forward)
    output = tapped(module, change(f"layers.0.blocks.1 {kind} junction"))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    with torch.no_grad():
        assert (output - module(IMAGES)).abs().max() > 1e-4


def test_all_skips_at_once() -> None:
    module = cases.vit()

    def forward(self: Any, x: Tensor, **_: Any) -> Tensor:
        return self.mlp(self.norm2(self.attn(self.norm1(x))))

    for block in cases.inside(module).blocks:
        block.forward = MethodType(forward, block)
    with torch.no_grad():
        expected = module(IMAGES)
    for block in cases.inside(module).blocks:
        del block.forward
    sites = [site.name for site in anatomy_of("vit", module, IMAGES[:2]).pick("junction")]
    torch.testing.assert_close(tapped(module, *map(RemoveSkip, sites)), expected, rtol=0, atol=1e-6)


def test_scale_by_one_changes_nothing() -> None:
    module = cases.resnet()
    with torch.no_grad():
        plain = module(IMAGES)
    torch.testing.assert_close(tapped(module, Scale("layer2.0 conv junction")), plain)


def test_an_addition_whose_result_is_not_taken() -> None:
    """`x.add_(y)` as a statement: the model goes on with x, so x itself must hold the changed sum."""

    class Statement(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 3, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            branch = self.conv(x).relu()
            branch.add_(x)
            return branch

    torch.manual_seed(0)
    module = cases.one(Statement())
    expected = edited(module, "units.0", lambda self, x: 2 * x + self.conv(x).relu())
    torch.testing.assert_close(tapped(module, Scale("units.0 conv junction", skip=2.0)), expected)


def test_a_lesioned_skip_is_not_overwritten_later() -> None:
    """The skip is returned as a copy: an in-place activation of the sum must not reach the skip itself."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.act(x + self.conv(x).relu()) * 0.5 + x.abs().mean((1, 2, 3), keepdim=True) + x[:, :, :1, :1]

    torch.manual_seed(0)
    module = cases.one(Twice())

    def forward(self: Any, x: Tensor) -> Tensor:
        return x.relu() * 0.5 + x.abs().mean((1, 2, 3), keepdim=True) + x[:, :, :1, :1]

    expected = edited(module, "units.0", forward)
    torch.testing.assert_close(tapped(module, Lesion("units.0 conv junction")), expected)


@pytest.mark.parametrize("build", [cases.vit, cases.swin, cases.hybrid])
def test_replaced_attention_keeps_the_layout(build: Callable[[], nn.Module]) -> None:
    """The same weights put back give the same output; others do not."""
    module = build()
    with torch.no_grad():
        plain = module(IMAGES)
    sites = [site.name for site in anatomy_of("subject", module, IMAGES[:2]).pick("attention")]
    same = tapped(module, *(ReplaceAttention(site, lambda weights: weights.clone()) for site in sites))
    torch.testing.assert_close(same, plain, rtol=1e-5, atol=1e-6)
    turned = tapped(module, ReplaceAttention(sites[0], lambda weights: weights.roll(1, -1)))
    assert (turned - plain).abs().max() > 1e-5


def uniform(weights: Tensor) -> Tensor:
    return torch.full_like(weights, 1 / weights.shape[-1])


def test_uniform_attention_in_a_vit() -> None:
    module = cases.vit()

    def forward(self: Any, x: Tensor, **_: Any) -> Tensor:
        *_, v = self.qkv(x).chunk(3, -1)
        return self.proj(v.mean(1, keepdim=True).expand_as(v))

    expected = edited(module, "blocks.1.attn", forward)
    output = tapped(module, ReplaceAttention("blocks.1 attention", uniform))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)


def test_uniform_attention_in_swin_s_windows() -> None:
    module = cases.swin()

    def forward(self: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
        *_, v = self.qkv(x).chunk(3, -1)
        return self.proj(v.mean(1, keepdim=True).expand_as(v))

    expected = edited(module, "layers.0.blocks.0.attn", forward)
    output = tapped(module, ReplaceAttention("layers.0.blocks.0 attention", uniform))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)


def test_another_image_s_attention_in_module_attention() -> None:
    """nn.MultiheadAttention returns after its projection; the replaced weights have to pass it too."""
    torch.manual_seed(0)
    import torchvision

    module = torchvision.models.VisionTransformer(32, 8, 1, 3, 24, 48, num_classes=5).eval()
    nn.init.normal_(module.heads.head.weight)
    other = tapped(
        module, ReplaceAttention("encoder.layers.encoder_layer_0 attention", lambda weights: weights.flip(0))
    )

    def forward(self: Any, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> tuple[Tensor, None]:
        q, k, v = (query @ self.in_proj_weight.T + self.in_proj_bias).view(3, 17, 3, 3, 8).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return self.out_proj((weights.flip(0) @ v).transpose(1, 2).flatten(2)), None

    expected = edited(module, "encoder.layers.encoder_layer_0.self_attention", forward)
    torch.testing.assert_close(other, expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        assert (other - module(IMAGES)).abs().max() > 1e-4


def test_replaced_operation_of_a_module() -> None:
    """A 3 × 3 convolution is passed by; what is put in may add and multiply without being counted."""
    module = cases.cnn()
    expected = edited(module, "units.1.conv1", lambda self, x: x + x @ torch.eye(8))
    output = tapped(module, ReplaceOperation("units.1.conv1", lambda x: x + x @ torch.eye(8)))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)


def test_replaced_operation_at_an_address() -> None:
    module = cases.resnet()
    anatomy = anatomy_of("resnet", module, IMAGES[:2])
    address = anatomy.site("layer1.0 conv junction").address
    at_address = tapped(module, ReplaceOperation(address, lambda branch, skip: branch - skip))
    assert torch.allclose(at_address, tapped(module, Scale("layer1.0 conv junction", skip=-1.0)), atol=1e-6)


def test_views_see_the_changed_pass() -> None:
    module = cases.vit()
    anatomy: Anatomy = anatomy_of("vit", module, IMAGES[:2])
    weights = View("weights", lambda look: look.weights)
    tap = Tap(module, anatomy, {"blocks.0 attention": [weights]}, [ReplaceAttention("blocks.0 attention", uniform)])
    assert (tap.run(IMAGES)[1]["blocks.0 attention"]["weights"] == 1 / 17).all()


def test_what_cannot_be_done_is_said() -> None:
    module = cases.vit()
    with pytest.raises(TapError, match=r"role junction, but 'blocks\.0 attention' is an attention"):
        tapped(module, RemoveSkip("blocks.0 attention"))
    with pytest.raises(TapError, match="no site 'nowhere'"):
        tapped(module, RemoveSkip("nowhere"))
    with pytest.raises(TapError, match="no module 'nowhere'"):
        tapped(module, ReplaceOperation("nowhere", lambda x: x))
    with pytest.raises(TapError, match="one change"):
        tapped(module, RemoveSkip("blocks.0 mlp junction"), Lesion("blocks.0 mlp junction"))
