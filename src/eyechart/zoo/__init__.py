"""The zoo: small models of the papers, built by name; some are bundled with weights trained by `eyechart train`.

This file imports no torch, so that names and cards can be listed at once.

>>> from eyechart import zoo
>>> "vit" in zoo.names()
True
>>> sum(p.numel() for p in zoo.build("vit").parameters()) <= 3_000_000
True
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from eyechart.errors import UnknownSubject
from eyechart.files import LARGEST_TEXT, json_of, read_bytes
from eyechart.phrases import did_you_mean
from eyechart.zoo.switches import SWITCHES, Switch, check_switches, read_switches

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "MODELS",
    "ZooModel",
    "build",
    "card",
    "card_beside",
    "find",
    "names",
    "switches",
    "switches_from",
    "weights",
]

WEIGHTS = Path(__file__).parent / "weights"
SNAPSHOTS = (".init", ".warmup", ".quarter", ".last-good")
CARD_KEYS = {"name", "classes", "input_size", "mean", "std", "recipe"}


@dataclass(frozen=True)
class ZooModel:
    """One line of the zoo: what it is, who builds it and with which switches."""

    name: str
    sentence: str
    builder: str
    """`module:callable` in this folder, imported only when the model is built."""
    switches: Mapping[str, Any]


def _model(name: str, sentence: str, builder: str, **switches: Any) -> ZooModel:
    return ZooModel(name, sentence, builder, MappingProxyType(switches))


# Width 160, depth 9 and MLP×4 make 2.8 M parameters; 8 heads, so that head statistics exist; patch 4: an 8×8 grid.
_VIT = {"width": 160, "depth": 9, "heads": 8, "patch": 4}
_RESNET = {"width": 32, "depths": (2, 2, 2, 2)}
_CHANNELS = {"channels": (96, 192, 384, 512)}

MODELS: Mapping[str, ZooModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            _model("vit", "ViT with a CLS head", "vit:ViT", **_VIT, pool="cls"),
            _model(
                "vit-gap", "ViT without CLS; the mean of the last tokens feeds the head", "vit:ViT", **_VIT, pool="gap"
            ),
            _model(
                "vit-no-skip",
                "the ViT without the skips of its middle block",
                "vit:ViT",
                **_VIT,
                pool="cls",
                no_skip_at=(4,),
            ),
            _model(
                "vit-small",
                "a ViT with a CLS head and a quarter of the parameters",
                "vit:ViT",
                **{**_VIT, "width": 96, "depth": 6},
                pool="cls",
            ),
            _model(
                "vit-hybrid",
                "ViT whose tokens are the cells of a small ResNet's map",
                "vit:ViT",
                **{**_VIT, "depth": 8},
                pool="cls",
                stem="cnn",
            ),
            _model(
                "resnet",
                "ResNet with batch normalisation and a 3×3 stem, grids 32/16/8/4",
                "resnet:resnet",
                **_RESNET,
            ),
            _model(
                "resnet-bit",
                "ResNet-v2 with group normalisation and weight standardisation (BiT)",
                "resnet:resnet_bit",
                **_CHANNELS,
                depths=(3, 4, 6, 3),
            ),
            _model(
                "resnet-blur",
                "the ResNet with spatial smoothing at the end of every stage",
                "resnet:resnet",
                **_RESNET,
                smooth_stages=(1, 2, 3, 4),
            ),
            _model(
                "resnet-mcdropout",
                "the ResNet with dropout in every block, kept on at test",
                "resnet:resnet",
                **_RESNET,
                dropout=0.3,
            ),
            _model(
                "swin",
                "Swin: attention in shifted windows, grids 16/8/4",
                "from_timm:swin",
                patch=2,
                width=64,
                depths=(2, 4, 2),
                heads=(4, 8, 16),
                window=4,
            ),
            _model(
                "pit",
                "PiT: a ViT that pools its tokens twice, grids 15/8/4",
                "from_timm:pit",
                patch=4,
                stride=2,
                head_width=16,
                depths=(2, 6, 2),
                heads=(4, 8, 16),
            ),
            _model("mixer", "MLP-Mixer", "from_timm:mixer", patch=4, width=160, depth=12),
            _model(
                "poolformer",
                "PoolFormer: average pooling mixes the tokens, grids 16/8/4",
                "from_timm:poolformer",
                widths=(64, 128, 256),
                depths=(2, 6, 2),
            ),
            _model(
                "alternet",
                "AlterNet: a pre-activation ResNet with window attention at the end of its stages",
                "alternet:alternet",
                **_CHANNELS,
                depths=(3, 4, 6, 4),
                msas=4,
                heads=(2, 4, 8, 16),
                head_width=16,
                window=4,
            ),
        )
    }
)


def names() -> list[str]:
    """Every model that can be built, in the order of the table."""
    return list(MODELS)


def find(name: str) -> ZooModel:
    """The table's line for a name; an unknown one is refused with the nearest names."""
    if name not in MODELS:
        near = did_you_mean(name, MODELS, f"the zoo has {', '.join(MODELS)}.")
        raise UnknownSubject(f"The zoo has no model called {name!r}; {near}")
    return MODELS[name]


def switches(name: str) -> tuple[Switch, ...]:
    """Everything that can be changed in a model, with the values it takes.

    >>> from eyechart import zoo
    >>> [switch.name for switch in zoo.switches("mixer")]
    ['patch', 'width', 'depth']
    """
    return SWITCHES[find(name).builder]


def switches_from(name: str, pairs: Iterable[str]) -> dict[str, Any]:
    """A model's switches from text, as they are typed on a command line.

    >>> from eyechart import zoo
    >>> zoo.switches_from("vit", ["depth=3", "position=2d", "no_skip_at=1,2"])
    {'depth': 3, 'position': '2d', 'no_skip_at': (1, 2)}
    """
    return read_switches(name, switches(name), pairs)


def builder_of(name: str) -> Callable[..., nn.Module]:
    """What makes a model of the table. Imports torch."""
    module_name, callable_name = find(name).builder.split(":")
    builder: Callable[..., nn.Module] = getattr(import_module(f"eyechart.zoo.{module_name}"), callable_name)
    return builder


def build(name: str, *, classes: int = 10, image_size: int = 32, drop_path: float = 0.0, **switches: Any) -> nn.Module:
    """An untrained model in eval mode; `switches` replace the table's (`build("vit", depth=3)`)."""
    model = find(name)
    check_switches(name, SWITCHES[model.builder], switches)
    module: nn.Module = builder_of(name)(
        classes=classes, image_size=image_size, drop_path=drop_path, **{**model.switches, **switches}
    )
    return module.eval()


def weights(name: str, snapshot: str | None = None) -> Path | None:
    """The bundled weights (float16 safetensors) of a model or of one of its snapshots; None if they are not bundled.

    >>> from eyechart import zoo
    >>> zoo.weights("vit", "a snapshot nobody took") is None
    True
    """
    find(name)
    path = WEIGHTS / f"{name}.{snapshot}.safetensors" if snapshot else WEIGHTS / f"{name}.safetensors"
    return path if path.is_file() else None


def card(name: str) -> dict[str, Any]:
    """What is known about a model: always its name, sentence and switches; and how its bundled weights were made."""
    model = find(name)
    facts: dict[str, Any] = {"name": name, "sentence": model.sentence, "switches": dict(model.switches)}
    path = WEIGHTS / f"{name}.json"
    if path.is_file():
        facts.update(json.loads(path.read_text(encoding="utf-8")))
    return facts


def card_beside(weights: str | Path) -> dict[str, Any]:
    """The card of the training that made a file of weights; empty if none lies beside it.

    What is called FOLDER/vit.safetensors, or FOLDER/vit.warmup.safetensors if it is a snapshot, has its card in
    FOLDER/vit.json.
    """
    try:
        path = Path(weights).expanduser()
    except RuntimeError:  # ~NOBODY has no home
        return {}
    names = [path.stem]
    if path.stem.endswith(SNAPSHOTS):
        names.append(path.stem.rpartition(".")[0])
    for name in names:
        try:
            card = json_of(read_bytes(path.with_name(f"{name}.json"), LARGEST_TEXT))
        except (OSError, ValueError):
            continue
        if isinstance(card, dict) and card.keys() >= CARD_KEYS:  # any other JSON is somebody else's
            return card
    return {}
