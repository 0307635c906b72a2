"""AlterNet: a pre-activation ResNet in which some blocks are attention (SPEC 1.9; Park & Kim, section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from timm.layers.create_conv2d import create_conv2d
from timm.layers.drop import DropPath
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from eyechart.errors import UsageError
from eyechart.zoo.resnet import resnet_v2

BUILD_UP = (4, 4, 3, 2, 1)
"""The stage that gets the first, second, … attention block: two alternate in the last stage; a second one in the third
did not help (83.5 against 84.0 % on CIFAR-100), so each further one ends the stage before."""


def alternet(
    *,
    classes: int = 10,
    image_size: int = 32,
    drop_path: float = 0.0,
    stem: int = 32,
    channels: Sequence[int] = (96, 192, 384, 512),
    depths: Sequence[int] = (3, 4, 6, 4),
    msas: int | Sequence[int] = 4,
    heads: Sequence[int] = (2, 4, 8, 16),
    head_width: int = 16,
    window: int = 4,
) -> nn.Module:
    """A ResNet-v2 with batch normalisation; `msas` of its blocks are window attention, 0 leaves it the plain ResNet.

    A number is placed by the build-up rule, one number a stage goes where it says; within a stage every second block
    from the last is replaced. Heads rise with the stage. These widths make an attention block as large as the
    convolution block in its place, so that all steps of the build-up have 2.5 M parameters.
    """
    model = resnet_v2(
        classes=classes,
        drop_path=drop_path,
        stem=stem,
        channels=channels,
        depths=depths,
        norm=BatchNormAct2d,
        conv=create_conv2d,
    )
    if len(heads) != len(depths):
        raise UsageError(f"AlterNet needs a number of heads for each of its {len(depths)} stages; got {len(heads)}.")
    for stage, at in msa_positions(msas, depths):
        grid = image_size // 2**stage
        if image_size % 2**stage or grid % window:
            raise UsageError(f"The window must divide the grid; {window} does not divide {grid} in stage {stage + 1}.")
        blocks = model.get_submodule(f"stages.{stage}.blocks")
        assert isinstance(blocks, nn.Sequential)
        dropped = blocks[at].drop_path
        rate = dropped.drop_prob if isinstance(dropped, DropPath) else 0.0
        blocks[at] = MsaBlock(channels[stage], heads[stage], head_width, window, rate)
    return model


def msa_positions(msas: int | Sequence[int], depths: Sequence[int]) -> list[tuple[int, int]]:
    """(stage, block) of every attention block, both from 0, in the order of the network.

    >>> msa_positions(4, (3, 4, 6, 4))
    [(1, 3), (2, 5), (3, 1), (3, 3)]
    >>> msa_positions((0, 0, 2, 2), (3, 4, 6, 4))
    [(2, 3), (2, 5), (3, 1), (3, 3)]
    """
    if isinstance(msas, int):
        if len(depths) != max(BUILD_UP) or not 0 <= msas <= len(BUILD_UP):
            raise UsageError(
                f"The build-up rule places 0 to {len(BUILD_UP)} attention blocks in {max(BUILD_UP)} stages; got "
                f"{msas} in {len(depths)}."
            )
        counts: Sequence[int] = [BUILD_UP[:msas].count(stage + 1) for stage in range(len(depths))]
    else:
        counts = msas
    if len(counts) != len(depths) or any(2 * count > depth for count, depth in zip(counts, depths, strict=False)):
        raise UsageError(
            f"Every second block of a stage may be attention, so stages of {', '.join(map(str, depths))} blocks cannot "
            f"have {', '.join(map(str, counts))}."
        )
    return [
        (stage, depth - 1 - 2 * number)
        for stage, (count, depth) in enumerate(zip(counts, depths, strict=True))
        for number in reversed(range(count))
    ]


class WindowAttention(nn.Module):
    """Attention within windows that tile the map, with a learned bias for every offset inside a window.

    softmax(q kᵀ / √d + b[offset]) v; the table b has (2w − 1)² numbers and is shared by the heads.
    """

    offsets: Tensor

    def __init__(self, width: int, width_out: int, heads: int, head_width: int, window: int) -> None:
        super().__init__()
        self.heads, self.head_width, self.window = heads, head_width, window
        self.qkv = nn.Linear(width, 3 * heads * head_width, bias=False)
        self.proj = nn.Linear(heads * head_width, width_out)
        self.position_bias = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2))
        self.register_buffer("offsets", window_offsets(window), persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        images, channels, height, width = maps.shape
        side, cells = self.window, self.window**2
        down, across = height // side, width // side
        # (image, row of windows, row inside, column of windows, column inside, channel) → windows side by side
        tiles = maps.permute(0, 2, 3, 1).reshape(images, down, side, across, side, channels)
        tokens = tiles.transpose(2, 3).reshape(-1, cells, channels)
        q, k, v = self.qkv(tokens).reshape(-1, cells, 3, self.heads, self.head_width).permute(2, 0, 3, 1, 4)
        # Written out, not fused: with 16 keys the table of weights is no larger than q, and its bias needs a gradient.
        scores = (q * self.head_width**-0.5) @ k.transpose(-2, -1) + self.position_bias[self.offsets]
        mixed = scores.softmax(dim=-1) @ v
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(-1, cells, self.heads * self.head_width))
        tiles = out.reshape(images, down, across, side, side, -1).transpose(2, 3)
        return tiles.reshape(images, height, width, -1).permute(0, 3, 1, 2)


def window_offsets(window: int) -> Tensor:
    """Which entry of the bias table a query (row) uses for a key (column): one for each step down and across.

    >>> window_offsets(2).tolist()
    [[4, 5, 7, 8], [3, 4, 6, 7], [1, 2, 4, 5], [0, 1, 3, 4]]
    """
    y, x = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
    down, across = (coordinate.flatten()[None] - coordinate.flatten()[:, None] + window - 1 for coordinate in (y, x))
    return down * (2 * window - 1) + across


class MsaBlock(nn.Module):
    """x + MSA(BN(conv 1×1(GELU(BN x)))), narrowed to a quarter of the width before the attention."""

    def __init__(self, width: int, heads: int, head_width: int, window: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, width // 4, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width // 4)
        self.attn = WindowAttention(width // 4, width, heads, head_width, window)
        self.drop_path = DropPath(drop_path)

    def forward(self, maps: Tensor) -> Tensor:
        branch = self.attn(self.norm2(self.conv(F.gelu(self.norm1(maps)))))
        out: Tensor = maps + self.drop_path(branch)
        return out
