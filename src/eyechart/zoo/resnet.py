"""The CIFAR ResNet of the papers; timm builds it, only the stem is ours (SPEC 1.6)."""

from __future__ import annotations

from collections.abc import Sequence

from timm.models.resnet import BasicBlock, ResNet
from torch import nn


def resnet(
    *,
    classes: int = 10,
    image_size: int = 32,
    width: int = 32,
    depths: Sequence[int] = (2, 2, 2, 2),
    drop_path: float = 0.0,
) -> nn.Module:
    """A post-activation ResNet with batch normalisation, one 3×3 stride-1 stem convolution and no pooling.

    A 32-pixel image gives grids 32/16/8/4. It is fully convolutional, so `image_size` changes nothing in it.
    """
    # timm fixes a plain stem at 64 channels; a "deep" one is as wide as asked, and is then replaced by one convolution.
    model: nn.Module = ResNet(
        BasicBlock,  # type: ignore[arg-type]  # timm annotates the class as an instance
        tuple(depths),
        num_classes=classes,
        stem_type="deep",
        stem_width=width // 2,
        channels=tuple(width * 2**stage for stage in range(len(depths))),
        drop_path_rate=drop_path,
    )
    stem = nn.Conv2d(3, width, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    model.conv1 = stem
    model.maxpool = nn.Identity()
    for stage in model.feature_info:  # type: ignore[union-attr]  # timm's list of dicts, which nn.Module cannot know
        stage["reduction"] = max(1, stage["reduction"] // 4)
    return model
