"""Models that timm has whole; only their sizes for small images are ours (SPEC 1.7, 1.10)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from timm.layers.drop import DropPath
from timm.layers.norm import GroupNorm1
from timm.models.metaformer import MetaFormer
from timm.models.mlp_mixer import MlpMixer
from timm.models.pit import PoolingVisionTransformer
from timm.models.swin_transformer import SwinTransformer
from torch import nn

from eyechart.errors import UsageError
from eyechart.zoo.vit import rising


def swin(
    *,
    classes: int = 10,
    image_size: int = 32,
    drop_path: float = 0.0,
    patch: int = 2,
    width: int = 64,
    depths: Sequence[int] = (2, 4, 2),
    heads: Sequence[int] = (4, 8, 16),
    window: int = 4,
) -> nn.Module:
    """Swin: windows of attention, shifted in every second block; the width doubles from stage to stage."""
    _check(image_size, patch, depths, heads)
    _check_heads([width * 2**stage for stage in range(len(heads))], heads)
    if image_size // patch < 2 ** (len(depths) - 1):
        raise UsageError(
            f"Swin halves its grid from stage to stage; a grid of {image_size // patch} is too small for {len(depths)}."
        )
    return SwinTransformer(
        img_size=image_size,
        patch_size=patch,
        num_classes=classes,
        embed_dim=width,
        depths=tuple(depths),
        num_heads=tuple(heads),
        window_size=window,
        drop_path_rate=drop_path,
    )


def pit(
    *,
    classes: int = 10,
    image_size: int = 32,
    drop_path: float = 0.0,
    patch: int = 4,
    stride: int = 2,
    head_width: int = 16,
    depths: Sequence[int] = (2, 6, 2),
    heads: Sequence[int] = (4, 8, 16),
) -> nn.Module:
    """PiT: a ViT whose tokens are pooled between stages; patches overlap by half, as in the original."""
    if patch > image_size:
        raise UsageError(f"The patch must fit into the image; {patch} is larger than {image_size}.")
    _check(image_size, 1, depths, heads)
    if any(later % earlier for earlier, later in pairwise(heads)):
        raise UsageError(
            f"Pooling multiplies channels, so each of PiT's heads must divide the next; got {tuple(heads)}."
        )
    return PoolingVisionTransformer(
        img_size=image_size,
        patch_size=patch,
        stride=stride,
        base_dims=(head_width,) * len(heads),
        depth=tuple(depths),
        heads=tuple(heads),
        num_classes=classes,
        drop_path_rate=drop_path,
    )


def mixer(
    *,
    classes: int = 10,
    image_size: int = 32,
    drop_path: float = 0.0,
    patch: int = 4,
    width: int = 160,
    depth: int = 12,
) -> nn.Module:
    """MLP-Mixer: one MLP over the tokens, half as wide as the channels, then one over the channels, four times."""
    _check(image_size, patch)
    if width < 2:
        raise UsageError(f"A Mixer's MLP over tokens has half as many channels as a token, so 2 or more; got {width}.")
    model = MlpMixer(
        img_size=image_size,
        patch_size=patch,
        num_classes=classes,
        embed_dim=width,
        num_blocks=depth,
    )
    for block, rate in zip(model.blocks, rising(drop_path, depth), strict=True):
        block.drop_path = DropPath(rate) if rate else nn.Identity()  # timm would drop all blocks at one rate
    return model


def poolformer(
    *,
    classes: int = 10,
    image_size: int = 32,
    drop_path: float = 0.0,
    widths: Sequence[int] = (64, 128, 256),
    depths: Sequence[int] = (2, 6, 2),
) -> nn.Module:
    """PoolFormer: the token mixer is 3×3 average pooling minus the identity. Grids 16/8/4; `image_size` is free."""
    _check(image_size, 1, depths, widths)
    model = MetaFormer(
        num_classes=classes,
        depths=tuple(depths),
        dims=tuple(widths),
        downsample_norm=None,
        mlp_act=nn.GELU,
        mlp_bias=True,
        norm_layers=GroupNorm1,
        layer_scale_init_values=1e-5,
        res_scale_init_values=None,  # type: ignore[arg-type]  # timm's own PoolFormers give None
        use_mlp_head=False,
        drop_path_rate=drop_path,
    )
    # timm's 7×7 stem with stride 4 would leave a grid of 2 in the third stage.
    stem = nn.Conv2d(3, widths[0], kernel_size=3, stride=2, padding=1)
    nn.init.trunc_normal_(stem.weight, std=0.02)
    assert stem.bias is not None
    nn.init.zeros_(stem.bias)
    model.stem.conv = stem
    for stage in model.feature_info:
        stage["reduction"] //= 2
    return model


def _check(image_size: int, patch: int, depths: Sequence[int] = (), per_stage: Sequence[int] = ()) -> None:
    if image_size % patch:
        raise UsageError(f"The patch size must divide the image size; {patch} does not divide {image_size}.")
    if len(depths) != len(per_stage):
        raise UsageError(
            f"Each stage has a depth and a width or heads; got {len(depths)} depths for {len(per_stage)} stages."
        )


def _check_heads(widths: Sequence[int], heads: Sequence[int]) -> None:
    for width, number in zip(widths, heads, strict=True):
        if width % number:
            raise UsageError(f"The number of heads must divide the width; {number} does not divide {width}.")
