"""Filters and position tables are found by what they do, whoever wrote the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eyechart import zoo
from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of


def of(module: nn.Module, size: int = 32, call: Callable[[Tensor], Any] | None = None) -> Anatomy:
    torch.manual_seed(0)
    return anatomy_of("it", module.eval(), torch.randn(2, 3, size, size), call=call)


def timm_model(name: str, **options: Any) -> nn.Module:
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, **options).eval()


@pytest.mark.parametrize(
    ("name", "path", "shape", "kind"),
    [
        ("vit", "patch_embed.proj.weight", (160, 3, 4, 4), "patches"),
        ("resnet", "conv1.weight", (32, 3, 3, 3), "convolution"),
        ("swin", "patch_embed.proj.weight", (64, 3, 2, 2), "patches"),
        ("pit", "patch_embed.conv.weight", (64, 3, 4, 4), "convolution"),
        ("mixer", "stem.proj.weight", (160, 3, 4, 4), "patches"),
    ],
)
def test_filters_of_the_zoo(name: str, path: str, shape: tuple[int, ...], kind: str) -> None:
    module = zoo.build(name)
    filters = of(module).filters
    assert filters is not None
    assert (filters.path, filters.shape, filters.kind) == (path, shape, kind)
    assert filters.values is not None
    np.testing.assert_allclose(filters.values, module.get_parameter(path).detach().numpy(), atol=1e-7)


def test_standardised_kernels_are_kept_as_they_are_applied() -> None:
    filters = of(zoo.build("resnet-bit")).filters
    assert filters is not None
    assert filters.values is not None
    np.testing.assert_allclose(filters.values.mean((1, 2, 3)), 0, atol=1e-6)


class LinearPatches(nn.Module):
    """Patches cut by hand, colours innermost or outermost, and a linear map: no convolution anywhere."""

    def __init__(self, innermost: bool, table: Tensor | None = None, upwards: bool = False) -> None:
        super().__init__()
        self.innermost, self.upwards = innermost, upwards
        self.embed, self.mix, self.head = nn.Linear(48, 24), nn.Linear(24, 24), nn.Linear(24, 10)
        self.norm = nn.LayerNorm(24)
        self.table: Tensor | None
        self.register_buffer("table", table)

    def forward(self, images: Tensor) -> Tensor:
        count = len(images)
        cut = images.reshape(count, 3, 8, 4, 8, 4).permute(0, 2, 4, 3, 5, 1)
        cut = cut if self.innermost else cut.permute(0, 1, 2, 5, 3, 4)
        tokens = self.embed(cut.reshape(count, 64, 48))
        tokens = tokens.flip(1) if self.upwards else tokens
        tokens = tokens if self.table is None else tokens + self.table
        tokens = tokens + self.mix(self.norm(tokens))
        logits: Tensor = self.head(tokens.mean(1))
        return logits


@pytest.mark.parametrize("innermost", [True, False])
def test_a_linear_patch_embedding_gives_tiles_in_the_right_order(innermost: bool) -> None:
    module = LinearPatches(innermost)
    filters = of(module).filters
    assert filters is not None
    assert filters.values is not None
    assert (filters.shape, filters.kind) == ((24, 3, 4, 4), "patches")
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        tokens = module.embed(module_patches(images, innermost)) - module.embed.bias
        convolved = nn.functional.conv2d(images.double(), torch.from_numpy(filters.values), stride=4)
    torch.testing.assert_close(tokens.double(), convolved.flatten(2).transpose(1, 2), atol=1e-5, rtol=0)


def module_patches(images: Tensor, innermost: bool) -> Tensor:
    cut = images.reshape(len(images), 3, 8, 4, 8, 4).permute(0, 2, 4, 3, 5, 1)
    return (cut if innermost else cut.permute(0, 1, 2, 5, 3, 4)).reshape(len(images), 64, 48)


def test_a_buffer_is_a_table_that_was_not_learned() -> None:
    table = torch.randn(1, 64, 24)
    (found,) = of(LinearPatches(True, table)).positions
    assert (found.kind, found.learned, found.block, found.shape) == ("absolute", False, -1, (24, 8, 8))
    assert found.values is not None
    np.testing.assert_allclose(found.values, table[0].T.reshape(24, 8, 8))


def test_a_table_is_read_in_the_order_of_the_tokens() -> None:
    """Tokens that run from the last place to the first: the table's first row belongs to the lower right corner."""
    table = torch.randn(1, 64, 24)
    (found,) = of(LinearPatches(True, table, upwards=True)).positions
    assert found.values is not None
    np.testing.assert_allclose(found.values, table[0].flip(0).T.reshape(24, 8, 8))


@pytest.mark.parametrize("name", ["vit", "vit-gap"])
def test_the_table_of_a_vit_has_no_row_of_the_class_token(name: str) -> None:
    module = zoo.build(name)
    (found,) = of(module).positions
    rows = module.get_parameter("pos_embed")[0, 1 if name == "vit" else 0 :].detach()
    assert (found.path, found.kind, found.learned, found.block) == ("pos_embed", "absolute", True, -1)
    assert found.values is not None
    np.testing.assert_allclose(found.values, rows.T.reshape(160, 8, 8), atol=1e-7)


@pytest.mark.parametrize(
    ("position", "at", "kinds", "blocks"),
    [
        ("none", "stem", [], []),
        ("1d", "layers", ["absolute"] * 3, [-1, 0, 1]),
        ("1d", "shared", ["absolute"], [-1]),
        ("2d", "stem", ["absolute"], [-1]),
        ("2d", "layers", ["absolute"] * 3, [-1, 0, 1]),
        ("relative", "stem", ["relative vectors"] * 3, [0, 1, 2]),
    ],
)
def test_variants_of_position_embeddings(position: str, at: str, kinds: list[str], blocks: list[int]) -> None:
    found = of(zoo.build("vit", depth=3, position=position, position_at=at)).positions
    assert [table.kind for table in found] == kinds
    assert [table.block for table in found] == blocks
    assert all(table.learned for table in found)


def test_a_2d_table_is_the_join_of_rows_and_columns() -> None:
    module = zoo.build("vit", depth=1, position="2d")
    (found,) = of(module).positions
    assert found.values is not None
    columns = module.get_parameter("positions.0.columns.pos_embed")[0].detach().numpy()
    for y in range(8):
        np.testing.assert_allclose(found.values[:80, y], columns.T, atol=1e-7)


def test_relative_vectors_follow_the_sequence() -> None:
    module = zoo.build("vit", depth=1, position="relative", pool="gap")
    (found,) = of(module).positions
    table = module.get_parameter("blocks.0.attn.pos_embed").detach().numpy()  # row i − j + 63
    assert found.values is not None
    # One step down is j = i + 8; one step to the right j = i + 1, so i − j = −1.
    np.testing.assert_allclose(found.values[:, 8, 7], table[63 - 8], atol=1e-7)
    np.testing.assert_allclose(found.values[:, 7, 8], table[63 - 1], atol=1e-7)


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (lambda: zoo.build("swin"), 32),
        (lambda: timm_model("swin_tiny_patch4_window7_224", depths=(2, 2, 2, 2), embed_dim=12), 224),
    ],
)
def test_relative_bias_is_the_table_over_steps(model: Callable[[], nn.Module], size: int) -> None:
    module = model()
    found = of(module, size).positions
    assert len(found) == 8
    for table in found[:2]:  # without and with a shift
        learned = module.get_parameter(table.path).detach().numpy().T
        side = math.isqrt(learned.shape[1])
        own = learned.reshape(len(learned), side, side)[:, ::-1, ::-1]  # its rows are steps from key to query
        assert table.values is not None
        np.testing.assert_allclose(table.values, own, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "size", "kind", "shape"),
    [
        ("vit_tiny_patch16_224", {"depth": 1}, 224, "absolute", (192, 14, 14)),
        ("deit_tiny_distilled_patch16_224", {"depth": 1}, 224, "absolute", (192, 14, 14)),
        ("beit_base_patch16_224", {"depth": 1, "embed_dim": 48, "num_heads": 4}, 224, "relative bias", (4, 27, 27)),
        ("eva02_tiny_patch14_224", {"depth": 1}, 224, "absolute", (192, 16, 16)),
        ("swinv2_tiny_window8_256", {"depths": (1, 1), "embed_dim": 12}, 256, "relative bias", (3, 15, 15)),
        ("cait_xxs24_224", {"depth": 1}, 224, "absolute", (192, 14, 14)),
        ("convnext_atto", {"depths": (1, 1, 1, 1)}, 64, None, None),
        ("resnet18", {}, 64, None, None),
    ],
)
def test_timm(name: str, options: dict[str, Any], size: int, kind: str | None, shape: Any) -> None:
    anatomy = of(timm_model(name, **options), size)
    assert anatomy.filters is not None
    assert anatomy.filters.values is not None
    assert [(table.kind, table.shape) for table in anatomy.positions[:1]] == ([(kind, shape)] if kind else [])
    assert json.loads(json.dumps(anatomy.as_json()))["filters"]["kind"] == anatomy.filters.kind
    again = Anatomy.from_json(json.loads(json.dumps(anatomy.as_json())))
    assert (again.filters, again.positions) == (anatomy.filters, anatomy.positions)


def test_torchvision_and_hugging_face() -> None:
    from torchvision.models import vision_transformer
    from transformers import ViTConfig, ViTForImageClassification

    own = vision_transformer.VisionTransformer(64, 8, 1, 4, 32, 64)
    assert [(table.path, table.shape) for table in of(own, 64).positions] == [("encoder.pos_embedding", (32, 8, 8))]
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, image_size=64, patch_size=8
    )
    theirs = ViTForImageClassification(config).eval()
    anatomy = of(theirs, 64, call=lambda images: theirs(pixel_values=images))
    assert [table.shape for table in anatomy.positions] == [(32, 8, 8)]
    assert anatomy.filters is not None
    assert anatomy.filters.shape == (32, 3, 8, 8)


def test_whose_tokens_come_from_a_cnn() -> None:
    assert of(zoo.build("vit-hybrid", depth=1)).cnn_stem
    assert not of(zoo.build("vit", depth=1)).cnn_stem
    assert not of(zoo.build("resnet")).cnn_stem


def test_a_class_token_handed_on_in_a_tuple_does_not_stop_the_flop_counter() -> None:
    module = zoo.build("pit")
    assert of(module).flops > 1e8
    assert all(parameter.requires_grad for parameter in module.parameters())
