"""C09–C11: heads that all look everywhere, blocks in reverse order, and a hybrid that is the ViT itself."""

from __future__ import annotations

from torch import nn

from eyechart.subjects.subject import Subject
from tests.cases import inside
from tests.claims.nulls.case import Case
from tests.claims.nulls.head_subsets import trained  # with a ResNet, which has no heads: their exams are these cases'
from tests.claims.nulls.made_up import changed
from tests.claims.nulls.skip_ratio import untrained


def reversed_blocks() -> list[Subject]:
    """Its distances fall with depth, and its last two blocks have near heads."""
    return [changed("zoo:vit", "reversed", lambda module: setattr(module, "blocks", inside(module).blocks[::-1]))]


def with_cnn_stem(module: nn.Module) -> None:
    """A 3×3 convolution that changes nothing before the patches: tokens that come from convolutions."""
    identity = nn.Conv2d(3, 3, 3, padding=1, bias=False)
    nn.init.dirac_(identity.weight)
    stem = inside(module).patch_embed
    stem.proj = nn.Sequential(identity, stem.proj)


def looking_everywhere(module: nn.Module) -> None:
    """The same, with queries of zero in the first two attentions: every head is uniform."""
    with_cnn_stem(module)
    for block in inside(module).blocks[:2]:
        qkv = block.attn.qkv
        qkv.weight.data[: qkv.in_features] = 0
        qkv.bias.data[: qkv.in_features] = 0


def the_vit_itself() -> list[Subject | str]:
    return ["zoo:vit", changed("zoo:vit", "itself, hybrid", with_cnn_stem)]


def uniform_hybrid() -> list[Subject | str]:
    return ["zoo:vit", changed("zoo:vit", "uniform, hybrid", looking_everywhere)]


CASES = (
    Case("C09", "the heads of an untrained ViT look everywhere alike", "holds", subjects=untrained, limit=128),
    Case("C09", "the bundled ViT has near and far heads early", "fails", subjects=trained, limit=128),
    Case("C10", "the heads of an untrained ViT look as far at every depth", "holds", subjects=untrained, limit=128),
    Case("C10", "the bundled ViT in reverse order", "holds", subjects=reversed_blocks, limit=128),
    Case("C10", "the bundled ViT looks farther with depth", "fails", subjects=trained, limit=128),
    Case("C11", "a ViT beside itself with a stem that changes nothing", "holds", subjects=the_vit_itself, limit=128),
    Case("C11", "a hybrid whose early heads all look everywhere", "fails", subjects=uniform_hybrid, limit=128),
)
