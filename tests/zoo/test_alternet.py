"""AlterNet: where its attention sits, what it computes, and that without any it is the plain ResNet."""

from typing import Any

import pytest
import torch
from timm.layers import BatchNormAct2d, create_conv2d
from timm.models.resnetv2 import ResNetV2
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import UsageError
from eyechart.zoo.alternet import MsaBlock, WindowAttention, msa_positions
from tests.cases import inside


def drawing(model: nn.Module) -> str:
    """The poster's way to draw it: C for a convolution block, M for an attention block, stage by stage."""
    stages = [model.get_submodule(f"stages.{stage}.blocks").children() for stage in range(4)]
    return " ".join("".join("M" if isinstance(block, MsaBlock) else "C" for block in stage) for stage in stages)


@pytest.mark.parametrize(
    ("msas", "drawn"),
    [
        (0, "CCC CCCC CCCCCC CCCC"),
        (1, "CCC CCCC CCCCCC CCCM"),
        (2, "CCC CCCC CCCCCC CMCM"),
        (3, "CCC CCCC CCCCCM CMCM"),
        (4, "CCC CCCM CCCCCM CMCM"),
        (5, "CCM CCCM CCCCCM CMCM"),
        ((0, 0, 2, 2), "CCC CCCC CCCMCM CMCM"),  # the fourth one that did not help
        ((0, 1, 3, 2), "CCC CCCM CMCMCM CMCM"),  # the authors' ImageNet model
    ],
)
def test_attention_sits_where_the_build_up_puts_it(msas: int | tuple[int, ...], drawn: str) -> None:
    assert drawing(zoo.build("alternet", msas=msas)) == drawn


def test_the_default_is_the_poster_s_and_heads_rise_with_the_stage() -> None:
    model = zoo.build("alternet")
    assert drawing(model) == "CCC CCCM CCCCCM CMCM"
    assert [part.attn.heads for part in model.modules() if isinstance(part, MsaBlock)] == [4, 8, 16, 16]
    widths = [part.attn.heads * part.attn.head_width for part in model.modules() if isinstance(part, MsaBlock)]
    assert widths == sorted(widths)


def test_without_attention_it_is_timms_preactivation_resnet() -> None:
    torch.manual_seed(0)
    model = zoo.build("alternet", msas=0)
    theirs = ResNetV2(
        [3, 4, 6, 4],
        channels=(96, 192, 384, 512),
        num_classes=10,
        stem_chs=32,
        norm_layer=BatchNormAct2d,
        conv_layer=create_conv2d,
    ).eval()
    theirs.stem = nn.Sequential()
    theirs.stem.add_module("conv", nn.Conv2d(3, 32, 3, padding=1, bias=False))
    theirs.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(images), theirs(images))
    one = inside(theirs).stages[3].blocks[1]
    x = torch.randn(2, 512, 4, 4)
    with torch.no_grad():  # and such a block is x + conv(relu bn(conv(relu bn(conv(relu bn x)))))
        branch = x
        for norm, conv in ((one.norm1, one.conv1), (one.norm2, one.conv2), (one.norm3, one.conv3)):
            branch = conv(
                nn.functional.batch_norm(
                    branch, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
                ).relu()
            )
        torch.testing.assert_close(model.get_submodule("stages.3.blocks.1")(x), x + branch)


def test_all_steps_of_the_build_up_are_equally_large() -> None:
    sizes = [sum(p.numel() for p in zoo.build("alternet", msas=count).parameters()) for count in range(6)]
    assert max(sizes) / min(sizes) < 1.02


def brute_force(attention: WindowAttention, maps: Tensor) -> Tensor:
    """Cell by cell: only keys of the same window, with the bias of the step from query to key."""
    side, heads, channels = attention.window, attention.heads, attention.head_width
    qkv = attention.qkv(maps.permute(0, 2, 3, 1))
    q, k, v = (part.unflatten(-1, (heads, channels)) for part in qkv.chunk(3, dim=-1))
    images, height, width = q.shape[:3]
    mixed = torch.zeros(images, height, width, heads, channels, dtype=maps.dtype)
    for y in range(height):
        for x in range(width):
            top, left = y // side * side, x // side * side
            keys = [(top + dy, left + dx) for dy in range(side) for dx in range(side)]
            bias = torch.stack(
                [attention.position_bias[(ky - y + side - 1) * (2 * side - 1) + kx - x + side - 1] for ky, kx in keys]
            )
            scores = torch.stack([(q[:, y, x] * k[:, ky, kx]).sum(-1) for ky, kx in keys], -1) / channels**0.5 + bias
            values = torch.stack([v[:, ky, kx] for ky, kx in keys], -2)
            mixed[:, y, x] = (scores.softmax(-1)[..., None] * values).sum(-2)
    out: Tensor = attention.proj(mixed.flatten(-2)).permute(0, 3, 1, 2)
    return out


def test_window_attention_is_attention_inside_each_window() -> None:
    torch.manual_seed(0)
    attention = WindowAttention(6, 10, heads=2, head_width=4, window=3).double()
    assert attention.position_bias.shape == (25,)
    nn.init.normal_(attention.position_bias)  # its small beginning would hide a mistake
    maps = torch.randn(2, 6, 6, 9, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(attention(maps), brute_force(attention, maps))


def test_an_msa_block_is_its_skip_plus_attention_of_the_narrowed_map() -> None:
    torch.manual_seed(0)
    block = MsaBlock(16, heads=2, head_width=4, window=2, drop_path=0.5).eval()
    assert block.conv.weight.shape == (4, 16, 1, 1)
    maps = torch.randn(2, 16, 4, 4)
    with torch.no_grad():
        narrowed = block.norm2(block.conv(nn.functional.gelu(block.norm1(maps))))
        torch.testing.assert_close(block(maps), maps + block.attn(narrowed))
    assert block.drop_path.drop_prob == 0.5


def test_stochastic_depth_goes_on_through_attention_blocks() -> None:
    def rates(msas: int) -> list[float]:
        model = zoo.build("alternet", msas=msas, drop_path=0.2)
        blocks = [block for stage in range(4) for block in model.get_submodule(f"stages.{stage}.blocks").children()]
        return [getattr(block.drop_path, "drop_prob", 0.0) for block in blocks]

    assert rates(4) == pytest.approx(rates(0))
    assert rates(4)[-1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"msas": (0, 0, 0, 3)}, "cannot have 0, 0, 0, 3"),
        ({"msas": (1, 1)}, "cannot have 1, 1"),
        ({"window": 3}, "3 does not divide 16 in stage 2"),
        ({"heads": (2, 4)}, "for each of its 4 stages; got 2"),
        ({"msas": 6}, "from 0 to 5, or one for each stage"),
    ],
)
def test_switches_that_do_not_fit_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        zoo.build("alternet", **wrong)


def test_the_rule_is_for_four_stages() -> None:
    with pytest.raises(UsageError, match="in 4 stages; got 2 in 3"):
        msa_positions(2, (2, 2, 2))
