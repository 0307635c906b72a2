"""Tiny subjects for every test: a ViT, CNNs, a Swin, a hybrid, and modules that hold one trap each."""

from __future__ import annotations

from typing import Any

import timm
import torch
from timm.models.resnet import BasicBlock, ResNet
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F


def images(count: int = 2, size: int = 32, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def inside(module: nn.Module) -> Any:
    """The module, for a test that knows its parts by name: to torch's types each is a tensor or a module."""
    return module


def _settled(module: nn.Module) -> nn.Module:
    """In eval mode, with every parameter random (zeros would hide a branch) and attention far from uniform."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in module.named_parameters():
        if name.endswith("qkv.weight"):
            parameter.data *= 8
        if parameter.abs().max() == 0 or parameter.std() == 0:
            parameter.data += torch.randn(parameter.shape, generator=generator) * 0.1
    return module.eval()


def vit(**options: Any) -> nn.Module:
    """Class token, 4 × 4 patches of 8 pixels, 2 blocks of 3 heads."""
    torch.manual_seed(0)
    settings = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    return _settled(VisionTransformer(**{**settings, **options}))


def resnet() -> nn.Module:
    """timm's ResNet: in-place additions and activations, projected shortcuts; grids 8, 4, 2, 1."""
    torch.manual_seed(0)
    block: Any = BasicBlock  # timm's hint asks for an instance
    return _settled(ResNet(block, (1, 2, 1, 1), num_classes=5, channels=(64, 16, 24, 32)))


def swin() -> nn.Module:
    """8 × 8 tokens of 4 pixels in windows of 4, the second block shifted; then 4 × 4 in one window."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {"img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 12, "depths": (2, 2)}
    return _settled(SwinTransformer(**settings, num_heads=(2, 4), num_classes=5))


def bit() -> nn.Module:
    torch.manual_seed(0)
    return _settled(timm.create_model("resnetv2_50x1_bit", num_classes=5))


class ConvUnit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.conv1(x).relu())


class AttentionUnit(nn.Module):
    """Explicit attention over a map, and a pointwise mlp."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm1(tokens)).view(n, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
        tokens = tokens + self.proj((weights @ v).transpose(1, 2).flatten(2))
        tokens = tokens + self.mlp(self.norm2(tokens))
        return tokens.transpose(1, 2).view(n, c, h, w)


class Chain(nn.Module):
    """A stem, units one after the other, and a GAP head."""

    def __init__(self, units: list[nn.Module], width: int, patch: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, patch)
        self.units = nn.ModuleList(units)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((2, 3)))


def cnn(width: int = 6) -> nn.Module:
    torch.manual_seed(0)
    return Chain([ConvUnit(width) for _ in range(3)], width).eval()


def cube() -> nn.Module:
    """8 channels on an 8 × 8 grid: the shape alone says nothing."""
    return cnn(8)


def hybrid() -> nn.Module:
    torch.manual_seed(0)
    return Chain([ConvUnit(8), AttentionUnit(8, 2), ConvUnit(8), AttentionUnit(8, 2)], 8).eval()


def one(unit: nn.Module, width: int = 8) -> nn.Module:
    """A single unit between stem and head."""
    return Chain([unit], width).eval()


class Plain(nn.Module):
    """Convolutions without residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if at == 0 else 6, 6, 3, 2, 1) for at in range(3))
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = F.relu(conv(x), inplace=True)
        return self.head(x.mean((2, 3)))


def plain() -> nn.Module:
    torch.manual_seed(0)
    return Plain().eval()
