"""What makes Swin, PiT, Mixer and PoolFormer themselves, at the sizes of the zoo."""

from typing import Any

import pytest
import torch
from timm.models.metaformer import Pooling
from timm.models.swin_transformer import SwinTransformerBlock
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import UsageError


def shapes(model: nn.Module, paths: list[str], size: int = 32) -> list[tuple[int, ...]]:
    seen: list[tuple[int, ...]] = []

    def look(_module: nn.Module, _inputs: object, out: Tensor | tuple[Tensor, ...]) -> None:
        seen.append(tuple((out if isinstance(out, Tensor) else out[0]).shape[1:]))

    for path in paths:
        model.get_submodule(path).register_forward_hook(look)
    with torch.no_grad():
        model(torch.randn(1, 3, size, size))
    return seen


def test_swin_shifts_every_second_window_where_there_are_several() -> None:
    model = zoo.build("swin")
    blocks = [part for part in model.modules() if isinstance(part, SwinTransformerBlock)]
    assert [block.shift_size[0] for block in blocks] == [0, 2, 0, 2, 0, 2, 0, 0]
    assert all(tuple(block.window_size) == (4, 4) for block in blocks)
    assert shapes(model, ["layers.0", "layers.1", "layers.2"]) == [(16, 16, 64), (8, 8, 128), (4, 4, 256)]
    assert [block.attn.num_heads for block in blocks] == [4, 4, 8, 8, 8, 8, 16, 16]


def test_pit_pools_its_tokens_and_its_patches_overlap_by_half() -> None:
    model = zoo.build("pit")
    stages = [f"transformers.{stage}" for stage in range(3)]
    assert shapes(model, stages) == [(64, 15, 15), (128, 8, 8), (256, 4, 4)]
    stem, pooling = map(model.get_submodule, ("patch_embed.conv", "transformers.1.pool.conv"))
    assert isinstance(stem, nn.Conv2d)
    assert isinstance(pooling, nn.Conv2d)
    assert (stem.kernel_size, stem.stride) == ((4, 4), (2, 2))
    assert (pooling.kernel_size, pooling.stride, pooling.groups) == ((3, 3), (2, 2), 64)
    assert model.get_parameter("cls_token").shape == (1, 1, 64)


def test_mixer_mixes_64_tokens_through_half_its_width() -> None:
    model = zoo.build("mixer")
    assert shapes(model, ["blocks.0", "blocks.11"]) == [(64, 160), (64, 160)]
    assert model.get_parameter("blocks.0.mlp_tokens.fc1.weight").shape == (80, 64)
    assert model.get_parameter("blocks.0.mlp_channels.fc1.weight").shape == (640, 160)


def test_poolformer_pools_and_scales_its_branches() -> None:
    model = zoo.build("poolformer")
    assert shapes(model, ["stages.0", "stages.1", "stages.2"]) == [(64, 16, 16), (128, 8, 8), (256, 4, 4)]
    assert shapes(zoo.build("poolformer", image_size=64), ["stages.2"], size=64) == [(256, 8, 8)]
    mixers = [part for part in model.modules() if isinstance(part, Pooling)]
    assert len(mixers) == 10
    assert not any(True for mixer in mixers for _ in mixer.parameters())
    scale = model.get_parameter("stages.1.blocks.3.layer_scale1.scale")
    torch.testing.assert_close(scale, torch.full_like(scale, 1e-5))
    norm = model.get_submodule("stages.0.blocks.0.norm1")
    assert isinstance(norm, nn.GroupNorm)
    assert norm.num_groups == 1


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("swin", {"patch": 3}, "3 does not divide 32"),
        ("swin", {"heads": (3, 6, 12)}, "3 does not divide 64"),
        ("swin", {"depths": (2, 2)}, "got 2 depths for 3 stages"),
        ("pit", {"heads": (2, 3, 4)}, "must divide the next"),
        ("pit", {"patch": 64}, "64 is larger than 32"),
        ("mixer", {"patch": 5}, "5 does not divide 32"),
        ("poolformer", {"widths": (64, 128)}, "got 3 depths for 2 stages"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name: str, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        zoo.build(name, **wrong)
