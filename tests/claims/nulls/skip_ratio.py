"""Cases of skip ratios: tensors whose skip and branch have the lengths asked for, and the bundled models changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
import xarray
from torch import nn
from torch.nn.functional import normalize

from eyechart.measures.skip_ratio.measure import SkipRatio
from eyechart.measures.skip_ratio.phases import KINDS
from eyechart.subjects.subject import Subject
from eyechart.tracing.views import Look
from tests.cases import inside
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import changed, noisy_finding
from tests.measures.staging import anatomy, measure_tensors, scene, site

IMAGES = 128
EARLY, LATE = 4, 4  # blocks
Profile = tuple[float, ...]
FLAT: Profile = (3.0,) * (EARLY + LATE)
FALLS: Profile = (6.0,) * EARLY + (2.0,) * LATE
RISES: Profile = (2.0,) * EARLY + (6.0,) * LATE


@dataclass(frozen=True)
class Ratios:
    """Skip ratios of a ViT block by block, at attention and at MLPs."""

    cls: tuple[Profile, Profile]
    grid: tuple[Profile, Profile] = (FLAT, FLAT)
    along: tuple[float, float] = (0.0, 0.0)
    """Cosine of the class token's branch with its skip, in the first and in the second half."""


def finding(seed: int, **vits: Ratios) -> Mapping[str, xarray.Dataset]:
    """ViTs of eight blocks with these ratios; noise of a third in every token of every picture."""
    dice = torch.Generator().manual_seed(seed)
    people, looks = [], {}
    for name, asked in vits.items():
        sites = []
        for block, kind in product(range(EARLY + LATE), KINDS):
            place = site(f"{block} {kind}", "junction", kind, prefix=1, block=block, depth=block / 8)
            at = list(KINDS).index(kind)
            skip, across = normalize(torch.randn(2, IMAGES, 5, 8, generator=dice), dim=-1)
            across = normalize(across - (across * skip).sum(-1, keepdim=True) * skip, dim=-1)
            cosine = torch.zeros(5, 1)
            cosine[0] = asked.along[block >= EARLY]
            length = 1 / torch.tensor([asked.cls[at][block], *[asked.grid[at][block]] * 4])[:, None]
            noise = torch.exp(0.3 * torch.randn(IMAGES, 5, 1, generator=dice))
            branch = noise * length * (cosine * skip + (1 - cosine.square()).sqrt() * across)
            looks[name, place.name] = Look(place, skip=skip, branch=branch)
            sites += [place, site(f"{block}", prefix=1, block=block, depth=(block + 1) / 8)] if at else [place]
        people.append(anatomy(name, sites, cls=0))
    return {"skip_ratio": measure_tensors(SkipRatio(), scene(*people, images=IMAGES, block=8), looks, 8)}


@cache
def as_published(seed: int) -> Mapping[str, xarray.Dataset]:
    """Both phases at both junctions, late MLPs write more than attention, and branches turn as the ratio does."""
    lower = (6.0,) * EARLY + (1.5,) * LATE
    return finding(seed, vit=Ratios((FALLS, lower), (RISES, RISES), along=(0.6, 0.1)))


def at_the_mlps_alone(seed: int) -> Mapping[str, xarray.Dataset]:
    """MLPs change phase by +2.2; attention by −.4 (in the mean over both +.9), and by +.05, as weights by chance do."""
    other_way, hardly = (2.0,) * EARLY + (3.0,) * LATE, (3.15,) * EARLY + FLAT[:LATE]
    return finding(
        seed, other_way=Ratios((other_way, FALLS), (FLAT, RISES)), hardly=Ratios((hardly, FALLS), (FLAT, RISES))
    )


@cache
def late_attention(seed: int) -> Mapping[str, xarray.Dataset]:
    """Attention writes more in most late blocks: in three of four (one MLP makes the mean +.35), or in all.

    By their cosines the first changes phase at attention, where its ratio does not; the second against its ratio.
    """
    one_late_mlp = (*FLAT[:EARLY], 3.6, 3.6, 3.6, 0.4)
    return finding(
        seed,
        one_late_mlp=Ratios((FLAT, one_late_mlp), along=(0.6, 0.1)),
        late_attention=Ratios((FALLS, FLAT), along=(-0.5, 0.9)),
    )


def silent_attention() -> list[Subject | str]:
    """Attention writes a thousandth of what it did, each MLP ten times what is there: the mean of their log ratios is
    still far above a ResNet's.
    """

    def change(module: nn.Module) -> None:
        with torch.no_grad():
            for at, block in enumerate(inside(module).blocks):
                for layer, factor in ((block.attn.proj, 1e-3), (block.mlp.fc2, 30.0 * 10**at)):
                    layer.weight.mul_(factor)
                    layer.bias.mul_(factor)

    return [changed("zoo:vit", "a ViT with silent attention", change), "zoo:resnet"]


def untrained() -> list[Subject | str]:
    """Each branch of the ViT adds a tenth or less of what was there, one of the ResNet as much."""
    return ["zoo:vit@random", "zoo:resnet"]


def skip_at_four_fifths(seed: int) -> Mapping[str, xarray.Dataset]:
    """Exactly at the margin of C24: "holds" comes only by chance, and how often is counted."""
    return {"skip_ratio": noisy_finding({"skip_higher_share": 0.8}, ["vit", "cnn"], 0.02, seed)}


CASES = (
    Case("C21", "the phase change is at the MLPs alone", "holds", findings=at_the_mlps_alone),
    Case("C21", "an untrained ViT", "holds", subjects=untrained, limit=128),
    Case("C21", "both phases, at attention and at MLPs", "fails", findings=as_published),
    Case("C22", "most late attention layers write more than their MLPs", "holds", findings=late_attention),
    Case("C22", "late MLPs write more", "fails", findings=as_published),
    Case("C23", "branches turn where the ratio has no phase, or the other one", "holds", findings=late_attention),
    Case("C23", "branches turn with the ratio's phase", "fails", findings=as_published),
    Case("C24", "attention writes nothing, MLPs overwrite the stream", "holds", subjects=silent_attention, limit=128),
    Case("C24", "a share of places exactly at the margin", "holds", findings=skip_at_four_fifths, draws=200),
    Case("C24", "an untrained ViT, whose branches write little", "fails", subjects=untrained, limit=128),
)
