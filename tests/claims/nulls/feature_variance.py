"""Spatial variance: attention that adds nothing or stretches the stream, and attention that truly averages it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import xarray
from torch import Tensor, nn

from eyechart.measures.feature_variance.measure import FeatureVariance
from eyechart.sites import Site
from eyechart.subjects.subject import Subject
from eyechart.tracing.views import Look
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import changed
from tests.measures.staging import anatomy, full_grid, measure_tensors, scene, site

IMAGES = 128
Layer = Callable[[Tensor], Tensor]


def without_attention(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if name.endswith("attn.proj"):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)


def constant_attention(module: nn.Module) -> None:
    """Attention that adds one and the same vector to every place: the mean grows, and nothing is smoothed."""
    without_attention(module)
    for name, part in module.named_modules():
        if name.endswith("attn.proj"):
            nn.init.constant_(part.bias, 0.5)


def blind() -> list[Subject | str]:
    """Also the null of `fourier`."""
    return [
        changed("zoo:vit", "blind vit", without_attention),
        changed("zoo:vit", "vit of constants", constant_attention),
        changed("zoo:pit", "blind pit", without_attention),
        "zoo:resnet",
    ]


def smooth(maps: Tensor) -> Tensor:
    """Half of the way to the mean over all places: what averaging does, on both scales."""
    return maps + 0.5 * (maps.mean(1, keepdim=True) - maps)


def sharpen(maps: Tensor) -> Tensor:
    return maps - 0.2 * (maps.mean(1, keepdim=True) - maps)


def stretch(maps: Tensor) -> Tensor:
    """All features grow: the variance rises, the variance over the mean square stays."""
    return 1.2 * maps


def stream(layers: list[tuple[Site, Layer]], maps: Tensor) -> dict[str, Look]:
    looks = {}
    for place, layer in layers:
        result = layer(maps)
        looks[place.name] = Look(place, output=result, skip=maps, branch=result - maps)
        maps = result
    return looks


def keep(maps: Tensor) -> Tensor:
    return maps


def transformer(attention: list[Layer], mlp: Layer, stages: int = 1) -> list[tuple[Site, Layer]]:
    """Blocks with these attentions, in stages of equal length, on a 4×4 grid."""
    layers: list[tuple[Site, Layer]] = [(site("stem", "stem", grid=(4, 4), block=-1), keep)]
    for block, layer in enumerate(attention):
        where: dict[str, Any] = {"grid": (4, 4), "block": block, "stage": block * stages // len(attention)}
        geometry = full_grid(4, 8)
        layers += [
            (site(f"{block} weights", "attention", "attention", attention=geometry, **where), keep),
            (site(f"{block} attention", "junction", "attention", **where), layer),
            (site(f"{block} mlp", "junction", "mlp", **where), mlp),
            (site(f"{block}", "block", "attention", **where), keep),
        ]
    return layers


def cnn(layer: Layer) -> list[tuple[Site, Layer]]:
    layers: list[tuple[Site, Layer]] = [(site("stem", "stem", grid=(4, 4), block=-1), keep)]
    for block in range(6):
        where: dict[str, Any] = {"grid": (4, 4), "block": block, "stage": block // 3}
        layers.append((site(f"{block} add", "junction", "conv", **where), layer))
        layers.append((site(f"{block}", "block", "conv", **where), keep))
    return layers


def found(seed: int, **made: list[tuple[Site, Layer]]) -> Mapping[str, xarray.Dataset]:
    """The finding of hand-made streams; a subject called cnn is one. A block's own look is that of its junction."""
    maps = 1 + torch.randn(IMAGES, 16, 8, generator=torch.Generator().manual_seed(seed))
    looks: dict[tuple[str, str], Look] = {}
    for name, layers in made.items():
        for place, look in stream(layers, maps).items():
            before = looks.get((name, f"{place} add"))
            looks[name, place] = look if before is None else Look(look.site, output=before.output, skip=before.skip)
    people = [
        anatomy(name, [place for place, _ in layers], "cnn" if name == "cnn" else "transformer")
        for name, layers in made.items()
    ]
    return {"feature_variance": measure_tensors(FeatureVariance(), scene(*people, images=IMAGES), looks, 8)}


def all_stretch(seed: int) -> Mapping[str, xarray.Dataset]:
    return found(seed, vit=transformer([stretch] * 10, stretch), cnn=cnn(stretch))


def as_the_paper(seed: int) -> Mapping[str, xarray.Dataset]:
    """Attention averages in the first half of the ViT and sharpens in the second."""
    attention: list[Layer] = [*[smooth] * 5, *[sharpen] * 5]
    return found(seed, vit=transformer(attention, sharpen), cnn=cnn(sharpen))


def stages_by_mlp(seed: int) -> Mapping[str, xarray.Dataset]:
    """Attention averages everywhere; only the MLPs could tell the ends of a stage apart."""
    return found(seed, swin=transformer([smooth] * 4, stretch, stages=2))


def stages_as_the_paper(seed: int) -> Mapping[str, xarray.Dataset]:
    return found(seed, swin=transformer([smooth, sharpen] * 2, sharpen, stages=2))


CASES: tuple[Case, ...] = (
    Case("C58", "ViTs whose attention adds nothing, or a constant", "holds", subjects=blind, limit=128),
    Case("C58", "every sub-layer only makes the features larger", "holds", findings=all_stretch),
    Case("C58", "attention averages in the first half, MLPs and convolutions sharpen", "fails", findings=as_the_paper),
    Case("C59", "a PiT whose attention adds nothing: only its MLPs move", "holds", subjects=blind, limit=128),
    Case("C59", "attention averages at the end of a stage as at its start", "holds", findings=stages_by_mlp),
    Case("C59", "attention averages where a stage starts, sharpens at its end", "fails", findings=stages_as_the_paper),
)
