"""Position embeddings: which table lies where, and resizing as the ViT authors do it."""

from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from torch import Tensor, nn

from eyechart import zoo
from eyechart.errors import UsageError
from eyechart.zoo.positions import Position2d, resize_pos_embed
from eyechart.zoo.vit import ViT

TINY: dict[str, Any] = {"width": 32, "depth": 3, "heads": 4, "patch": 4, "image_size": 16, "classes": 5}
DEPTH, GRID, WIDTH = 3, 4, 32


def make(**switches: Any) -> ViT:
    torch.manual_seed(0)
    return ViT(**{**TINY, **switches}).eval()


def count(**switches: Any) -> int:
    return sum(parameter.numel() for parameter in make(**switches).parameters())


def test_a_2d_table_is_a_column_half_and_a_row_half() -> None:
    table = Position2d(GRID, WIDTH, has_cls=True)
    cells = table()
    assert cells.shape == (1, 1 + GRID**2, WIDTH)
    assert table.cls is not None
    assert torch.equal(cells[:, 0], table.cls()[:, 0])
    for y in range(GRID):
        for x in range(GRID):
            expected = torch.cat([table.columns()[0, x], table.rows()[0, y]])
            assert torch.equal(cells[0, 1 + y * GRID + x], expected)


@pytest.mark.parametrize(
    ("switches", "numbers"),
    [
        ({"position": "1d"}, (1 + GRID**2) * WIDTH),
        ({"position": "1d", "position_at": "layers"}, DEPTH * (1 + GRID**2) * WIDTH),
        ({"position": "1d", "position_at": "shared"}, (1 + GRID**2) * WIDTH),
        ({"position": "2d"}, (1 + GRID) * WIDTH),
        ({"position": "2d", "position_at": "layers"}, DEPTH * (1 + GRID) * WIDTH),
        ({"position": "2d", "position_at": "shared"}, (1 + GRID) * WIDTH),
        ({"position": "2d", "pool": "gap"}, GRID * WIDTH - WIDTH),  # and no CLS token either
        ({"position": "relative"}, DEPTH * (2 * (1 + GRID**2) - 1) * WIDTH // 4),
    ],
)
def test_tables_have_their_size(switches: dict[str, object], numbers: int) -> None:
    assert count(**switches) - count(position="none") == numbers


@pytest.mark.parametrize("kind", ["1d", "2d"])
@pytest.mark.parametrize(("place", "times"), [("stem", 1), ("layers", 3), ("shared", 3)])
def test_tables_are_added_where_they_are_said_to_be(kind: str, place: str, times: int) -> None:
    model = make(position=kind, position_at=place, pool="gap")
    for name, parameter in model.named_parameters():
        if name.endswith("pos_embed"):
            nn.init.normal_(parameter)
        elif "proj" in name or "fc2" in name:  # branches that do nothing, and no bias in the stem
            nn.init.zeros_(parameter)
    model.norm = nn.Identity()
    tables = [model.position_table(layer) for layer in range(DEPTH)]
    assert [table is not None for table in tables] == [layer < times for layer in range(DEPTH)]
    added = torch.stack([table for table in tables if table is not None]).sum(0)
    torch.testing.assert_close(model.tokens(torch.randn(2, 3, 16, 16)), added.expand(2, -1, -1))
    if place == "layers":
        assert not torch.equal(*(table for table in tables[:2] if table is not None))


def shuffled(images: Tensor) -> Tensor:
    patches = images.reshape(2, 3, GRID, 4, GRID, 4).permute(0, 2, 4, 1, 3, 5).reshape(2, GRID**2, 3, 4, 4)
    patches = patches[:, torch.randperm(GRID**2, generator=torch.Generator().manual_seed(1))]
    return patches.reshape(2, GRID, GRID, 3, 4, 4).permute(0, 3, 1, 4, 2, 5).reshape(2, 3, 16, 16)


@pytest.mark.parametrize(
    ("switches", "cares"),
    [
        ({"position": "none"}, False),
        ({"position": "1d"}, True),
        ({"position": "2d"}, True),
        ({"position": "relative"}, True),
        ({"position": "1d", "position_at": "shared"}, True),
    ],
)
def test_only_without_position_is_an_image_a_bag_of_patches(switches: dict[str, object], cares: bool) -> None:
    model = make(**switches).double()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=1.0 if "pos_embed" in name else 0.2)
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    change = (model(images) - model(shuffled(images))).abs().max()
    assert bool(change > 1e-3) == cares
    assert bool(change < 1e-9) != cares


@pytest.mark.parametrize("kind", ["none", "relative"])
@pytest.mark.parametrize("place", ["layers", "shared"])
def test_what_adds_no_table_has_no_place(kind: str, place: str) -> None:
    with pytest.raises(UsageError, match=f"position={kind} adds no table"):
        zoo.build("vit", position=kind, position_at=place)


def test_resizing_equals_the_authors_zoom_and_leaves_cls_alone() -> None:
    table = torch.randn(1, 1 + 7 * 7, 3)
    resized = resize_pos_embed(table, 7, 12, has_cls=True)
    assert torch.equal(resized[:, 0], table[:, 0])
    expected = zoom(table[0, 1:].reshape(7, 7, 3).numpy(), (12 / 7, 12 / 7, 1), order=1)
    np.testing.assert_allclose(resized[0, 1:].reshape(12, 12, 3).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_keeps_a_ramp_a_ramp(mode: Literal["bilinear", "bicubic"]) -> None:
    ramp = torch.arange(8.0).repeat_interleave(8).reshape(1, 64, 1)
    rows = resize_pos_embed(ramp, 8, 14, has_cls=False, mode=mode)[0, :, 0].reshape(14, 14)
    assert bool((rows.diff(dim=0) > 0).all())
    assert float(rows.diff(dim=1).abs().max()) < 1e-5
    assert torch.equal(resize_pos_embed(ramp, 8, 8, has_cls=False), ramp)


def test_a_table_of_another_grid_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\(1, 65, width\); this one has \(1, 64, 3\)"):
        resize_pos_embed(torch.zeros(1, 64, 3), 8, 16, has_cls=True)
