"""What makes the CIFAR ResNet itself: its stem and its grids."""

import torch
from torch import nn

from eyechart import zoo


def test_grids_are_32_16_8_4() -> None:
    module = zoo.build("resnet")
    grids: list[int] = []
    for stage in ("layer1", "layer2", "layer3", "layer4"):
        module.get_submodule(stage).register_forward_hook(lambda _m, _i, out: grids.append(out.shape[-1]))
    with torch.no_grad():
        module(torch.randn(1, 3, 32, 32))
    assert grids == [32, 16, 8, 4]


def test_the_stem_is_one_3x3_convolution_without_pooling() -> None:
    module = zoo.build("resnet")
    stem = module.get_submodule("conv1")
    assert isinstance(stem, nn.Conv2d)
    assert (stem.kernel_size, stem.stride) == ((3, 3), (1, 1))
    assert isinstance(module.get_submodule("maxpool"), nn.Identity)
    assert any(isinstance(part, nn.BatchNorm2d) for part in module.modules())
    assert isinstance(module.get_submodule("layer1.0"), nn.Module)
    assert module.get_submodule("layer1.0").downsample is None  # a stem of 64 channels would need a projection here
