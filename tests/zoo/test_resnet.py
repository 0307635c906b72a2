"""What makes each ResNet itself: stem and grids, removed skips, group normalisation with standardised weights."""

from typing import Any

import pytest
import torch
from torch import nn

from eyechart import zoo
from eyechart.errors import UsageError
from eyechart.zoo.smoothing import Smoothing
from tests.cases import inside


def noisy(module: nn.Module) -> nn.Module:
    """With every parameter moved: timm starts some norms at 0, which would hide a mistake in their branches."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


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


def test_a_removed_skip_leaves_the_branch_alone() -> None:
    plain = noisy(zoo.build("resnet"))
    model = zoo.build("resnet", no_skip_at=(2, 5))  # the first of the second stage, which projects, and one inside
    model.load_state_dict(plain.state_dict())
    block = inside(plain.get_submodule("layer3.1"))
    with torch.no_grad():
        x = torch.randn(2, 128, 8, 8)
        branch = block.bn2(block.conv2(block.act1(block.bn1(block.conv1(x)))))
        torch.testing.assert_close(model.get_submodule("layer3.1")(x), branch.relu())
        torch.testing.assert_close(block(x), (branch + x).relu())
        nn.init.zeros_(model.get_parameter("layer2.0.bn2.weight"))
        alike = model.get_submodule("layer2.0")(torch.randn(2, 32, 16, 16))
    assert alike.shape == (2, 64, 8, 8)
    assert torch.equal(alike[0], alike[1])


def test_a_block_without_skip_starts_alive() -> None:
    model = zoo.build("resnet", no_skip_at=(2, 5), drop_path=0.5).train()
    model(torch.randn(4, 3, 32, 32)).square().sum().backward()
    gradients = [model.get_parameter(f"layer{at}.conv1.weight").grad for at in ("2.0", "3.1")]
    assert all(gradient is not None and float(gradient.abs().sum()) > 0 for gradient in gradients)


def test_smoothing_stands_at_the_end_of_the_stages_asked_for() -> None:
    model = zoo.build("resnet-blur", smooth_stages=(2, 4))
    ends = [isinstance(list(model.get_submodule(f"layer{stage}").children())[-1], Smoothing) for stage in (1, 2, 3, 4)]
    assert ends == [False, True, False, True]
    four = [part for part in zoo.build("resnet-blur").modules() if isinstance(part, Smoothing)]
    assert [part.scale for part in four] == [10.0] * 4


def test_the_variants_take_the_plain_resnets_weights() -> None:
    plain = noisy(zoo.build("resnet"))
    images = torch.randn(2, 3, 32, 32)
    for name, off in (("resnet-blur", {"smooth_stages": ()}), ("resnet-mcdropout", {"dropout": 0.0})):
        zoo.build(name).load_state_dict(plain.state_dict())
        model = zoo.build(name, **off)
        model.load_state_dict(plain.state_dict())
        with torch.no_grad():
            assert torch.equal(model(images), plain(images))


def test_bits_convolutions_do_not_see_scale_and_mean_of_their_filters() -> None:
    model = noisy(zoo.build("resnet-bit"))
    images = torch.randn(2, 3, 32, 32)
    convolutions = [part for name, part in model.named_modules() if isinstance(part, nn.Conv2d) and "head" not in name]
    assert len(convolutions) == 1 + 16 * 3 + 4  # stem, three a block, four projections
    with torch.no_grad():
        before = model(images)
        for convolution in convolutions:
            filters = convolution.weight
            mean, scale = torch.randn(len(filters), 1, 1, 1), torch.rand(len(filters), 1, 1, 1) + 0.5
            filters.mul_(scale).add_(mean)
        torch.testing.assert_close(model(images), before, atol=1e-3, rtol=1e-3)


def test_bit_normalises_in_groups_of_two_channels_at_least() -> None:
    model = zoo.build("resnet-bit")
    norms = [part for part in model.modules() if isinstance(part, nn.GroupNorm)]
    assert len(norms) == 3 * 16 + 1
    assert not any(isinstance(part, nn.BatchNorm2d) for part in model.modules())
    assert min(norm.num_channels // norm.num_groups for norm in norms) >= 2
    assert all(norm.num_groups == 8 for norm in norms)
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():  # no image sees another, in training neither
        torch.testing.assert_close(model.train()(images)[:1], model(images[:1]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("resnet", {"no_skip_at": (8,)}, "no_skip_at takes numbers from 0 to 7; got 8"),
        ("resnet", {"smooth_stages": (5,)}, "smooth_stages takes numbers from 1 to 4; got 5"),
        ("resnet-bit", {"channels": (64, 128)}, "one number a stage each; got 2 and 4"),
    ],
)
def test_switches_that_do_not_fit_are_refused(name: str, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        zoo.build(name, **wrong)
