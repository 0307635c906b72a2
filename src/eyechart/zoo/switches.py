"""What can be changed in each model of the zoo, and to which values: all of it in this one file. No torch here.

`eyechart train NAME` and the studies pass switches on as they are; what is not listed here cannot be passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from eyechart.errors import UsageError
from eyechart.phrases import did_you_mean

__all__ = ["SWITCHES", "Switch", "check_switches", "read_switches"]


@dataclass(frozen=True)
class Switch:
    """One thing that can be changed: its name, what it means, which values it takes."""

    name: str
    meaning: str
    allowed: str
    """The values in words, as they are said when another one comes."""
    fits: Callable[[Any], bool]
    read: Callable[[str], Any]
    """A value from text; ValueError if it is not one."""


def _choice(name: str, values: Sequence[str], meaning: str) -> Switch:
    return Switch(name, meaning, f"one of {', '.join(values)}", lambda value: value in values, str)


MOST, MOST_BLOCKS, MOST_STAGES = 65_536, 1_000, 100
"""Limits of whole numbers: a card is a file, and a model is built as it says."""


def _whole(name: str, meaning: str, least: int = 1, most: int = MOST) -> Switch:
    return Switch(name, meaning, f"a whole number from {least}", lambda value: _is_whole(value, least, most), int)


def _wholes(name: str, meaning: str, least: int = 1) -> Switch:
    return Switch(
        name,
        meaning,
        f"whole numbers from {least}, separated by commas",
        lambda value: _are_whole(value, least),
        _read_wholes,
    )


def _stages(name: str, meaning: str, most: int = MOST) -> Switch:
    return Switch(
        name,
        meaning,
        "a whole number from 1 for each stage, separated by commas",
        lambda value: _are_whole(value, 1, most) and 0 < len(value) <= MOST_STAGES,
        _read_wholes,
    )


def _number(name: str, meaning: str, low: float, high: float) -> Switch:
    return Switch(
        name,
        meaning,
        f"a number from {low:g} to {high:g}",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high,
        float,
    )


def _flag(name: str, meaning: str) -> Switch:
    return Switch(name, meaning, "on or off", lambda value: isinstance(value, bool), _read_flag)


def _is_whole(value: Any, least: int, most: int = MOST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _are_whole(value: Any, least: int, most: int = MOST) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MOST_BLOCKS:
        return False
    return all(_is_whole(one, least, most) for one in value)


def _read_wholes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _read_flag(text: str) -> bool:
    words = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


_DEPTH = _whole("depth", "blocks", most=MOST_BLOCKS)
_PATCH = _whole("patch", "pixels on a side of a patch")
_STAGE_DEPTHS = _stages("depths", "blocks of each stage", most=MOST_BLOCKS)
_STAGE_HEADS = _stages("heads", "attention heads of each stage")
_WINDOW = _whole("window", "tokens on a side of a window of attention")

#: For each builder of the zoo, everything it takes beside classes, image_size and drop_path.
SWITCHES: Mapping[str, tuple[Switch, ...]] = MappingProxyType(
    {
        "vit:ViT": (
            _choice("stem", ("patch", "cnn"), "tokens are patches, or the cells of a small ResNet's map (hybrid)"),
            _whole("patch", "pixels on a side of a token; of a hybrid, what its ResNet shrinks the image by"),
            _whole("width", "channels of a token"),
            _DEPTH,
            _whole("heads", "attention heads"),
            _whole("head_width", "channels of a head; 0: width / heads", least=0),
            _number("mlp_ratio", "hidden channels of an MLP by those of a token", 0.1, 16),
            _flag("qkv_bias", "queries, keys and values have a bias"),
            _choice(
                "pool",
                ("cls", "gap", "gap-unused-cls"),
                "what the head reads: the CLS token; the mean token, without any CLS; the mean patch token "
                "beside a CLS token that is not read",
            ),
            _flag("pooled_norm", "the last norm acts on the mean token instead of on the tokens"),
            _choice(
                "cls_init",
                ("zero", "normal", "mean"),
                "how the CLS token begins; mean: as the mean of the tokens it joins, to which a learned part is added",
            ),
            _whole("cls_at", "the block before which the CLS token joins, the first is 0", least=0, most=MOST_BLOCKS),
            _whole(
                "cls_frozen_until",
                "before this block the CLS token only rides the skip: no branch adds to it",
                least=0,
                most=MOST_BLOCKS,
            ),
            _whole(
                "cls_unseen_until",
                "before this block no patch token attends to the CLS token",
                least=0,
                most=MOST_BLOCKS,
            ),
            _choice("position", ("none", "1d", "2d", "relative"), "the kind of position embedding"),
            _choice(
                "position_at",
                ("stem", "layers", "shared"),
                "where it is added: once, in every layer its own, in every layer the same",
            ),
            _choice("mixer", ("attention", "kernel", "pool", "mlp"), "what mixes the tokens"),
            _whole("kernel", "side of the neighbourhood a token of the kernel mixer sees: odd, or the whole grid"),
            _flag("mask_border", "in the kernel mixer, cells beyond the edge get no attention"),
            _wholes("no_skip_at", "blocks without skip, the first is 0", least=0),
            _choice("no_skip_part", ("attention", "mlp", "both"), "which of their skips are removed"),
            _number("skip_scale", "what every skip is multiplied by", 0.01, 1),
        ),
        "resnet:resnet": (
            _whole("width", "channels of the first stage, an even number; each next has twice as many"),
            _STAGE_DEPTHS,
            _wholes("smooth_stages", "stages that end in spatial smoothing, the first is 1"),
            _number("smooth_scale", "t in t · tanh(x / t) before the blur", 0.1, 1000),
            _number("dropout", "probability of the dropout that stays on at test", 0, 0.95),
            _wholes("no_skip_at", "blocks without skip, the first is 0", least=0),
            _flag("dilated", "the last stage keeps the grid of the one before, with dilated convolutions"),
        ),
        "resnet:resnet_bit": (
            _whole("stem", "channels of the stem; a multiple of 8"),
            _stages("channels", "channels of each stage; multiples of 8"),
            _STAGE_DEPTHS,
        ),
        "from_timm:swin": (
            _PATCH,
            _whole("width", "channels of the first stage; each next has twice as many"),
            _STAGE_DEPTHS,
            _STAGE_HEADS,
            _WINDOW,
        ),
        "from_timm:pit": (
            _PATCH,
            _whole("stride", "pixels from patch to patch"),
            _whole("head_width", "channels of a head"),
            _STAGE_DEPTHS,
            _STAGE_HEADS,
        ),
        "from_timm:mixer": (_PATCH, _whole("width", "channels of a token"), _DEPTH),
        "from_timm:poolformer": (_stages("widths", "channels of each stage"), _STAGE_DEPTHS),
        "alternet:alternet": (
            _whole("stem", "channels of the stem; a multiple of 8"),
            _stages("channels", "channels of each stage; multiples of 8"),
            _STAGE_DEPTHS,
            Switch(
                "msas",
                "attention blocks, placed by the build-up rule or given for each stage",
                "a whole number from 0 to 5, or one for each stage, separated by commas",
                lambda value: (_is_whole(value, 0) and value <= 5) or (_are_whole(value, 0) and len(value) > 0),
                lambda text: _read_wholes(text) if "," in text else int(text),
            ),
            _STAGE_HEADS,
            _whole("head_width", "channels of a head"),
            _WINDOW,
        ),
    }
)


def check_switches(model: str, switches: Iterable[Switch], values: Mapping[str, Any]) -> None:
    """One sentence if a switch is not the model's, or takes other values."""
    by_name = {switch.name: switch for switch in switches}
    for name, value in values.items():
        switch = _find(model, by_name, name)
        if not switch.fits(value):
            raise UsageError(f"{model}'s switch {name} takes {switch.allowed}; got {value!r}.")


def read_switches(model: str, switches: Iterable[Switch], pairs: Iterable[str]) -> dict[str, Any]:
    """Switches as a person types them, `depth=3`, as values."""
    by_name = {switch.name: switch for switch in switches}
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"A switch is given as NAME=VALUE, such as depth=3; got {pair!r}.")
        switch = _find(model, by_name, name)
        try:
            values[name] = switch.read(text)
        except ValueError:
            raise UsageError(f"{model}'s switch {name} takes {switch.allowed}; got {text!r}.") from None
    check_switches(model, by_name.values(), values)
    return values


def _find(model: str, by_name: Mapping[str, Switch], name: str) -> Switch:
    if name not in by_name:
        near = did_you_mean(name, by_name, f"it has {', '.join(by_name)}.")
        raise UsageError(f"{model} has no switch called {name!r}; {near}")
    return by_name[name]
