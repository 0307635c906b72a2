"""C18: heads that do not differ in how far they look, and heads made alike to a CNN's low layers by how near."""

from __future__ import annotations

from torch import nn

from eyechart.subjects.subject import Subject
from tests.cases import inside
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import changed


def looking_everywhere(module: nn.Module) -> None:
    """Queries of zero in the first attention: every head is uniform."""
    qkv = inside(module).blocks[0].attn.qkv
    qkv.weight.data[: qkv.in_features] = 0
    qkv.bias.data[: qkv.in_features] = 0


def uniform_heads() -> list[Subject | str]:
    return ["zoo:vit@random", changed("zoo:vit", "uniform", looking_everywhere), "zoo:resnet"]


def trained() -> list[Subject | str]:
    return ["zoo:vit", "zoo:resnet"]


CASES = (
    Case("C18", "heads that all look everywhere", "holds", subjects=uniform_heads, limit=128),
    Case("C18", "the bundled ViT, whose likeness falls from .27 to .15", "fails", subjects=trained, limit=128),
)
