"""C80: attention that goes by place alone, even attention, and heads that read colour where place is loud."""

from __future__ import annotations

import torch
from torch import nn

from eyechart.subjects.subject import Subject
from tests.cases import inside
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import changed

FREE = "for attention without parameters"
LEARNED = "for what learned queries and keys add"


def place_alone(module: nn.Module) -> None:
    """Tokens hardly show what is in the picture: a thousandth of what the position table adds."""
    inside(module).patch_embed.proj.weight.data *= 1e-3
    inside(module).pos_embed.data += torch.randn(
        inside(module).pos_embed.shape, generator=torch.Generator().manual_seed(0)
    )


def even_attention(module: nn.Module) -> None:
    for block in inside(module).blocks:
        block.attn.qkv.weight.data[:160] = 0
        block.attn.qkv.bias.data[:160] = 0


def reading_colour(module: nn.Module) -> None:
    """The mean colour of a patch stands in three channels, noise of its place in the others; heads read the colour."""
    model, noise = inside(module), torch.Generator().manual_seed(0)
    model.patch_embed.proj.weight.data.zero_()
    for colour in range(3):
        model.patch_embed.proj.weight.data[colour, colour] = 1 / 16
    model.pos_embed.data = 3 * torch.randn(model.pos_embed.shape, generator=noise)
    model.pos_embed.data[..., :3] = 0
    for block in model.blocks:
        block.attn.qkv.weight.data[:320] = 0
        block.attn.qkv.bias.data[:320] = 0
        for head in range(8):
            for colour in range(3):
                for part in (0, 160):
                    block.attn.qkv.weight.data[part + 20 * head + colour, colour] = 4
        block.norm1.weight.data.fill_(1)
        block.norm1.bias.data.zero_()
        for branch in (block.attn.proj, block.mlp.fc2):  # nothing is added to the stream: every block sees the same
            branch.weight.data.zero_()
            branch.bias.data.zero_()


def of_place() -> list[Subject]:
    return [changed("zoo:vit", "place alone", place_alone)]


def even() -> list[Subject]:
    return [changed("zoo:vit", "even", even_attention)]


def of_colour() -> list[Subject]:
    return [changed("zoo:vit", "reads colour", reading_colour)]


CASES = (
    Case("C80", "tokens that show little but their place", "holds", subjects=of_place, reading=FREE, limit=128),
    Case("C80", "even attention adds nothing to similarity", "holds", subjects=even, reading=LEARNED, limit=128),
    Case("C80", "similar patches of real pictures", "fails", subjects=even, reading=FREE, limit=128),
    Case("C80", "heads that read colour among noise of place", "fails", subjects=of_colour, reading=LEARNED, limit=128),
)
