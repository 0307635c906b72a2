"""The CNNs of the papers for small images (SPEC 1.6, 1.10); timm builds them, the stems and the variants are ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from timm.layers.norm_act import GroupNormAct
from timm.layers.std_conv import StdConv2d
from timm.models.resnet import BasicBlock, ResNet
from timm.models.resnetv2 import ResNetV2
from torch import Tensor, nn

from eyechart.errors import UsageError
from eyechart.zoo.dropout import McDropout, follow_pictures
from eyechart.zoo.smoothing import Smoothing

# Eight groups: two channels a group at the narrowest place, as the 32 groups of BiT-R50x1 have.
GROUP_NORM: Callable[..., nn.Module] = partial(GroupNormAct, num_groups=8)
STANDARDISED_CONV: Callable[..., nn.Module] = partial(StdConv2d, eps=1e-10)


class Block(BasicBlock):
    """timm's block, whose skip can be removed: then the branch alone goes on, and is never dropped."""

    skip = True

    def remove_skip(self) -> None:
        self.skip = False
        self.downsample = None  # a projection of the skip would be weights that nothing uses
        # timm starts the last norm at 0, so that at first only the skip counts; now nothing would ever get through.
        nn.init.ones_(self.get_parameter("bn2.weight"))

    def forward(self, x: Tensor) -> Tensor:
        if self.skip:
            return super().forward(x)
        for name in ("conv1", "bn1", "act1", "aa", "conv2", "bn2", "act2"):
            x = self.get_submodule(name)(x)
        return x


def resnet(
    *,
    classes: int = 10,
    image_size: int = 32,
    drop_path: float = 0.0,
    width: int = 32,
    depths: Sequence[int] = (2, 2, 2, 2),
    smooth_stages: Sequence[int] = (),
    smooth_scale: float = 10.0,
    dropout: float = 0.0,
    no_skip_at: Sequence[int] = (),
    dilated: bool = False,
) -> nn.Module:
    """A post-activation ResNet with batch normalisation, one 3×3 stride-1 stem convolution and no pooling.

    A 32-pixel image gives grids 32/16/8/4, or, `dilated`, 32/16/8/8, as fine as the zoo's ViT. It is fully
    convolutional, so `image_size` changes nothing in it. Stages are counted from 1, as in their names; blocks through
    all stages from 0, as in those of a ViT.
    """
    if len(depths) != 4:
        raise UsageError(f"This ResNet has four stages, so depths are four numbers; got {_listed(depths)}.")
    if width % 2:
        raise UsageError(f"The width of this ResNet's first stage must be even; got {width}.")
    # timm fixes a plain stem at 64 channels; a "deep" one is as wide as asked, and is then replaced by one convolution.
    model: Any = ResNet(
        Block,  # type: ignore[arg-type]  # timm annotates the class as an instance
        tuple(depths),
        num_classes=classes,
        stem_type="deep",
        stem_width=width // 2,
        channels=tuple(width * 2**stage for stage in range(len(depths))),
        drop_path_rate=drop_path,
        output_stride=16 if dilated else 32,  # timm counts its own stem, which shrinks the image by four
    )
    stem = nn.Conv2d(3, width, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    model.conv1 = stem
    model.maxpool = nn.Identity()
    _undo_stem_reduction(model)
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    for at in _within(no_skip_at, "no_skip_at", 0, len(blocks) - 1):
        blocks[at].remove_skip()
    if dropout:
        for index, block in enumerate(blocks):
            block.aa = McDropout(dropout, index)  # timm's for anti-aliasing: after the first convolution, norm and ReLU
        follow_pictures(model)
    for stage in _within(smooth_stages, "smooth_stages", 1, len(depths)):
        model.get_submodule(f"layer{stage}").append(Smoothing(smooth_scale))
    built: nn.Module = model
    return built


def resnet_bit(
    *,
    classes: int = 10,
    image_size: int = 32,
    drop_path: float = 0.0,
    stem: int = 32,
    channels: Sequence[int] = (96, 192, 384, 512),
    depths: Sequence[int] = (3, 4, 6, 3),
) -> nn.Module:
    """BiT's ResNet-v2: pre-activation bottlenecks, group normalisation, every convolution with standardised weights."""
    return resnet_v2(
        classes=classes,
        drop_path=drop_path,
        stem=stem,
        channels=channels,
        depths=depths,
        norm=GROUP_NORM,
        conv=STANDARDISED_CONV,
    )


def resnet_v2(
    *,
    classes: int,
    drop_path: float,
    stem: int,
    channels: Sequence[int],
    depths: Sequence[int],
    norm: Callable[..., nn.Module],
    conv: Callable[..., nn.Module],
    preactivation: bool = True,
) -> ResNetV2:
    """timm's ResNet-v2 of bottlenecks behind one 3×3 stride-1 convolution; `classes=0` leaves the classifier out."""
    if len(channels) != len(depths):
        raise UsageError(f"channels and depths have one number a stage each; got {len(channels)} and {len(depths)}.")
    if len(depths) > 4:
        raise UsageError(f"A ResNet-v2 has at most four stages, each half as fine as the last; got {len(depths)}.")
    if any(number % 8 for number in (stem, *channels)):
        raise UsageError(
            f"Channels of a ResNet-v2's stem and stages must be multiples of 8; got {stem} and {_listed(channels)}."
        )
    model = ResNetV2(
        list(depths),
        channels=tuple(channels),
        num_classes=classes,
        stem_chs=stem,
        preact=preactivation,
        norm_layer=norm,
        conv_layer=conv,
        drop_path_rate=drop_path,
        zero_init_last=not preactivation,
    )
    first = conv(3, stem, kernel_size=3, stride=1)
    assert isinstance(first.weight, Tensor)
    nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
    model.stem.conv = first
    model.stem.pool = nn.Identity()
    _undo_stem_reduction(model)
    return model


def _undo_stem_reduction(model: Any) -> None:
    """timm notes how much each stage shrinks the image; our stems do not shrink it by four."""
    for stage in model.feature_info:
        stage["reduction"] = max(1, stage["reduction"] // 4)


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _within(numbers: Sequence[int], name: str, low: int, high: int) -> Sequence[int]:
    wrong = [number for number in numbers if not low <= number <= high]
    if wrong:
        raise UsageError(f"{name} takes numbers from {low} to {high}; got {wrong[0]}.")
    return sorted(set(numbers))
