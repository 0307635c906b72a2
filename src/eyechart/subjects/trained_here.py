"""What `eyechart train` wrote down about weights it made, read from the card beside the file. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart import zoo
from eyechart.errors import SubjectError, WeightsMismatch
from eyechart.files import sha256_of
from eyechart.phrases import quoted
from eyechart.subjects.catalogue import LARGEST_INPUT, Spec, parse_spec

if TYPE_CHECKING:
    from eyechart.subjects.preprocessing import Preprocessing


MOST_CLASSES = 100_000
"""Of a card: its model gets a row of weights for each."""


@dataclass(frozen=True)
class TrainedHere:
    """A training's card, as far as loading its weights needs it."""

    card: Mapping[str, Any]
    classes: tuple[str, ...]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    switches: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def prepare(self, own: Preprocessing) -> Preprocessing:
        """The library's preprocessing, with the size and normalisation the weights were trained with."""
        return replace(own, size=(self.size, self.size), mean=self.mean, std=self.std, scale=1 / 255)


def trained_here(spec: Spec, path: str | Path) -> TrainedHere | None:
    """The card beside a file of weights; None if there is none. A card of another architecture is refused."""
    card = zoo.card_beside(path)
    if not card:
        return None
    refuse_other_architecture(spec, path, card)
    try:
        training = TrainedHere(
            card,
            _class_names(card["classes"]),
            _side(card["input_size"]),
            _three(card["mean"]),
            _three(card["std"]),
            dict(card.get("switches") or {}),
        )
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise SubjectError(f"The card beside {path} is damaged ({error}); move it away or restore it.") from None
    hashes = card.get("sha256")
    recorded = hashes.get(Path(path).name) if isinstance(hashes, Mapping) else None
    if recorded is not None and Path(path).is_file() and recorded != sha256_of(Path(path), 1 << 40):
        note = "the card beside the weights is that of another version of this file: its hash differs"
        return replace(training, notes=(note,))
    return training


def refuse_other_architecture(spec: Spec, path: str | Path, card: Mapping[str, Any]) -> None:
    """Weights are loaded only as what their card says they are."""
    made = architecture_of(card)
    if made != spec.model and not made.startswith("hf:"):  # a folder may have been moved
        raise WeightsMismatch(f"{path} is a trained {made}, as its card says; write {quoted(f'{made}@{path}')}.")


def architecture_of(card: Mapping[str, Any]) -> str:
    """What a training's weights fit, as `source:name`.

    >>> architecture_of({"name": "vit-fine", "model": "vit"})
    'zoo:vit'
    >>> architecture_of({"name": "mine", "from": "timm:test_vit@random"})
    'timm:test_vit'
    """
    if "from" in card:
        return parse_spec(str(card["from"])).model
    return f"zoo:{card.get('model', card['name'])}"


def _three(values: Any) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in values)
    if len(numbers) != 3:
        raise ValueError(f"expected three channels, got {len(numbers)}")
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"expected finite numbers, got {str(values)[:60]}")
    return numbers


def _side(size: Any) -> int:
    side = size[0] if isinstance(size, list) else size
    if not isinstance(side, int) or not 1 <= side <= LARGEST_INPUT:
        raise ValueError(f"an input size is a whole number up to {LARGEST_INPUT}, got {str(size)[:60]}")
    return side


def _class_names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) > MOST_CLASSES:
        raise ValueError(f"classes are a list of at most {MOST_CLASSES:,} names")
    return tuple(map(str, names))
