"""C28–C31: tokens that hold their own patch or the whole picture, and edges that are alike in the pictures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from eyechart.subjects.subject import Subject
from eyechart.zoo.vit import Block
from tests.cases import inside
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import changed

SIDE = 8  # tokens a side of the bundled ViT
BLOCKS = 3  # of nine: only the last is looked at, and what is built here needs no others
FEW = {"localisation.depths": 1, "localisation.units": 4}  # blocks and units that are looked at

BEYOND_PICTURES = "beyond what the edges of the pictures share"


def short_vit(name: str, *changes: Callable[[nn.Module], None]) -> Subject:
    """The first blocks of the bundled ViT, changed by hand."""

    def change(module: nn.Module) -> None:
        inside(module).blocks = inside(module).blocks[:BLOCKS]
        for each in changes:
            each(module)

    return changed("zoo:vit", name, change)


def without_attention(module: nn.Module) -> None:
    """Every token holds its own patch alone."""
    for block in inside(module).blocks:
        nn.init.zeros_(block.attn.proj.weight)
        nn.init.zeros_(block.attn.proj.bias)


def in_last_block(change: Callable[[Tensor], Tensor]) -> Callable[[nn.Module], None]:
    """The last block's patch tokens, (image, row, column, channel), changed before they leave it."""

    def edit(module: nn.Module) -> None:
        block = inside(module).blocks[-1]

        class Changed(Block):
            def forward(self, x: Tensor) -> Tensor:
                x = super().forward(x)
                grid = change(x[:, 1:].unflatten(1, (SIDE, SIDE))).flatten(1, 2)
                return torch.cat([x[:, :1], grid], dim=1)

        block.__class__ = Changed

    return edit


def diffuse(grid: Tensor) -> Tensor:
    """Every token is nearly the mean of them all."""
    return 0.03 * grid + grid.mean((1, 2), keepdim=True)


def edges_share(grid: Tensor) -> Tensor:
    """Every token at the edge holds little but the mean of them."""
    edge = torch.ones(SIDE, SIDE, 1)
    edge[1:-1, 1:-1] = 0
    mean = (grid * edge).sum((1, 2), keepdim=True) / edge.sum()
    return grid * (1 - 0.95 * edge) + edge * mean


def edges_hold_the_inside(grid: Tensor) -> Tensor:
    """Every token at the edge holds little but the mean of those that are not."""
    edge = torch.ones(SIDE, SIDE, 1)
    edge[1:-1, 1:-1] = 0
    return grid * (1 - 0.95 * edge) + edge * grid[:, 1:-1, 1:-1].mean((1, 2), keepdim=True)


def diffuse_tokens() -> list[Subject | str]:
    return [short_vit("diffuse", in_last_block(diffuse)), "zoo:resnet"]


def own_patches() -> list[Subject | str]:
    return [short_vit("own patches", without_attention), "zoo:resnet"]


def shared_edges() -> list[Subject | str]:
    return [short_vit("shared edges", without_attention, in_last_block(edges_share))]


def edges_look_in() -> list[Subject | str]:
    return [short_vit("edges look in", without_attention, in_last_block(edges_hold_the_inside))]


def gap_with_own_patches() -> list[Subject | str]:
    return ["zoo:vit", changed("zoo:vit-gap", "own patches, GAP", without_attention)]


def gap() -> list[Subject | str]:
    return ["zoo:vit", "zoo:vit-gap"]


case = partial(Case, limit=128, options=FEW)
CASES = (
    case("C28", "a ViT whose last tokens are nearly the mean of them all", "holds", subjects=diffuse_tokens),
    case("C28", "a ViT whose tokens hold their own patch alone", "fails", subjects=own_patches),
    case("C29", "tokens at the edge that hold the inside of the picture", "holds", subjects=edges_look_in),
    case(
        "C29",
        "tokens that hold their own patch alone",
        "holds",
        subjects=own_patches,
        limit=256,
        reading=BEYOND_PICTURES,
    ),
    case("C29", "tokens at the edge that share what they hold", "fails", subjects=shared_edges),
    case("C30", "a ViT whose last tokens are nearly the mean of them all", "holds", subjects=diffuse_tokens),
    case("C30", "a ViT whose tokens hold their own patch alone", "fails", subjects=own_patches),
    case("C31", "a GAP twin whose tokens hold their own patch alone", "holds", subjects=gap_with_own_patches),
    case("C31", "the bundled ViT and its GAP twin", "fails", subjects=gap),
)
