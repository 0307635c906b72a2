"""C19 and C20: views that are not wide, do not grow, jump at the wrong depth, or only have unlike cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from eyechart.subjects.subject import Subject
from tests.cases import ConvUnit, inside
from tests.claims.nulls.case import Case
from tests.measures.on_subjects import module_subject

BLOCKS = 8


def small_vit(name: str, mixing: Sequence[float]) -> Subject:
    """Uniform attention, as strong in each block as `mixing` says; 8×8 patches of 4 pixels."""
    torch.manual_seed(0)
    module = VisionTransformer(
        img_size=32, patch_size=4, embed_dim=24, depth=len(mixing), num_heads=2, mlp_ratio=1, num_classes=10
    )
    for block, strength in zip(module.blocks, mixing, strict=True):
        projection = inside(block).attn.proj
        projection.weight.data *= strength
        projection.bias.data *= 0
    return module_subject(module.eval(), name)


class SmallCnn(nn.Module):
    """Units of two 3×3 convolutions on the pixels, the second half of them on every other one."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.halve = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, stride=2, padding=1)
        self.first, self.second = (nn.ModuleList(ConvUnit(6) for _ in range(BLOCKS // 2)) for _ in range(2))
        self.head = nn.Linear(6, 10)
        for unit in (*self.first, *self.second):
            unit.conv2.weight.data *= strength

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for unit in self.first:
            x = unit(x)
        x = self.halve(x)
        for unit in self.second:
            x = unit(x)
        return self.head(x.mean((2, 3)))


def small_cnn(name: str = "cnn", strength: float = 1.5) -> Subject:
    return module_subject(SmallCnn(strength).eval(), name)


def not_midway() -> list[Subject]:
    """Uniform attention of strength 60 fills half of a view, of 400 all of it: the skip no longer counts."""
    return [
        small_vit("blind", [0] * BLOCKS),
        small_vit("early", [3, 65, 3, 3, 3, 3, 3, 3]),
        small_vit("late", [60, 3, 3, 3, 3, 3, 3, 100]),
        small_cnn(),
    ]


def midway() -> list[Subject]:
    return [small_vit("midway", [60, 0.3, 0.3, 400, 0.3, 0.3, 0.3, 0.3]), small_cnn()]


CASES = (
    Case(
        "C19",
        "ViTs that see their own patch alone, or jump in the second or the last of eight blocks",
        "holds",
        subjects=not_midway,
        limit=128,
    ),
    Case("C19", "a ViT that jumps in the fourth of eight blocks", "fails", subjects=midway, limit=128),
    Case("C20", "a view that attention fills evenly, of larger cells than the CNN's", "holds", midway, limit=128),
    Case("C20", "weak attention: late views are their own patch", "fails", subjects=not_midway, limit=128),
)
