"""Which logit stands for which class of the images: by name, by ImageNet wordnet id, or by a given mapping."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.errors import UsageError
from eyechart.files import LARGEST_TEXT, json_of, read_bytes

if TYPE_CHECKING:
    from eyechart.subjects.subject import Subject

_WORDNET_ID = re.compile(r"n\d{8}(?![0-9A-Za-z])")


@dataclass(frozen=True)
class ClassMatch:
    """`indices[c]` is the logit of image class c; None if they do not all match, and then `reason` says why."""

    indices: tuple[int, ...] | None
    reason: str

    def __bool__(self) -> bool:
        return self.indices is not None


def match_classes(
    image_classes: Sequence[str] | None,
    subject: Subject | Sequence[str] | None,
    mapping: Mapping[str, str | int] | str | Path | None = None,
) -> ClassMatch:
    """Find every image class among the subject's classes, or say why it cannot be done.

    Names are compared without case, underscores and hyphens; a class with several names ("tench, Tinca tinca") matches
    by any of them, first by the whole, then by the first name, then by the others. A folder named by wordnet id
    (n01440764) matches classes known to be ImageNet's. `mapping` (a dictionary or a JSON file) goes before all that:
    image class → name, wordnet id or index of the subject's class.

    >>> match_classes(["goldfish", "Tinca tinca"], ["tench, Tinca tinca", "goldfish, Carassius auratus"]).indices
    (1, 0)
    >>> match_classes(["cat"], ["tench", "goldfish"]).reason
    "1 of 1 image classes is not among the subject's 2 classes: cat."
    """
    name, classes = _names_of(subject)
    given = read_mapping(mapping)
    if not image_classes:
        return ClassMatch(None, "The images have no classes.")
    if not getattr(subject, "classifier", True):
        return ClassMatch(None, f"{name} has no classifier.")
    if classes is None and not all(isinstance(given.get(label), int) for label in image_classes):
        return ClassMatch(None, f"The classes of {name} are not known.")
    index = _Index(classes or ())
    matches = [_wanted(given[label], index) if label in given else index.find(label) for label in image_classes]
    for label, indices in zip(image_classes, matches, strict=True):
        if label in given and not indices:
            return ClassMatch(
                None,
                f"The class {label!r} of the images is mapped to {given[label]!r}, but {name} has no such class"
                f"{_near(given[label], index.classes)}.",
            )
    missing = [label for label, indices in zip(image_classes, matches, strict=True) if not indices]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return ClassMatch(
            None,
            f"{len(missing)} of {len(image_classes)} image classes {verb} not among {name}'s {len(index.classes)} "
            f"classes: {_few(missing)}.",
        )
    for label, indices in zip(image_classes, matches, strict=True):
        if len(indices) > 1:
            several = " or ".join(f"{index.classes[i]!r} ({i})" for i in sorted(indices)[:3])
            return ClassMatch(None, f"The image class {label!r} may be {several} of {name}; a mapping can say which.")
    chosen = [min(indices) for indices in matches]
    for position, logit in enumerate(chosen):
        if logit in chosen[:position]:
            twin = image_classes[chosen.index(logit)]
            return ClassMatch(
                None, f"The image classes {twin!r} and {image_classes[position]!r} both match class {logit} of {name}."
            )
    return ClassMatch(tuple(chosen), f"All {len(chosen)} image classes match.")


def _names_of(subject: Subject | Sequence[str] | None) -> tuple[str, tuple[str, ...] | None]:
    if subject is None:
        return "the subject", None
    if isinstance(subject, Sequence):
        return "the subject", tuple(subject)
    return subject.name, subject.classes


def check_mapping(mapping: Mapping[str, str | int] | None, image_classes: Sequence[str] | None) -> None:
    """Refuses a mapping of classes that the images do not have: it was meant for others, or has a slip of the pen."""
    unknown = [label for label in mapping or () if label not in (image_classes or ())]
    if unknown and image_classes:
        near = _near(unknown[0], image_classes) or f"; theirs are {_few(image_classes)}"
        raise UsageError(f"--classes maps {unknown[0]!r}, which is no class of the images{near}.")


def _near(target: str | int, classes: Sequence[str]) -> str:
    """
    >>> _near("kat", ["cat", "dog"]), _near(12, ["cat", "dog"])
    ("; did you mean 'cat'?", ', which has 2 (0 to 1)')
    """
    if isinstance(target, int):
        return f", which has {len(classes)} (0 to {len(classes) - 1})" if classes else ""
    near = difflib.get_close_matches(target, classes, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _few(labels: Sequence[str]) -> str:
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def read_mapping(mapping: Mapping[str, str | int] | str | Path | None) -> dict[str, str | int]:
    """A mapping as given, or read from a JSON file: {image class: class name, wordnet id or index}."""
    if mapping is None:
        return {}
    if isinstance(mapping, (str, Path)):
        try:
            data: Any = json_of(read_bytes(Path(mapping).expanduser(), LARGEST_TEXT))
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~NOBODY has no home
            raise UsageError(f"The class mapping {mapping} cannot be read as JSON ({error}).") from None
    else:
        data = mapping
    if not isinstance(data, Mapping) or not all(
        isinstance(value, (str, int)) and not isinstance(value, bool) for value in data.values()
    ):
        given = f", not {mapping}, which holds {_kind(data)}" if isinstance(mapping, (str, Path)) else ""
        raise UsageError(
            f"A class mapping is an object {{image class: class name, wordnet id or index of the subject}}{given}."
        )
    return {str(label): value for label, value in data.items()}


def _kind(data: Any) -> str:
    if isinstance(data, Mapping):
        return "an object with other values"
    return "a list" if isinstance(data, list) else f"a {type(data).__name__}"


def _wanted(target: str | int, index: _Index) -> set[int]:
    if isinstance(target, str):
        return index.find(target)
    inside = not index.classes or target < len(index.classes)
    return {target} if target >= 0 and inside else set()


def normal(name: str) -> str:
    """A name as it is compared.

    >>> normal("Great_White-Shark ")
    'great white shark'
    """
    text = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.sub(r"[_\-\s]+", " ", text).split())


def synonyms(label: str) -> list[str]:
    """The names in a label such as "tench, Tinca tinca", normalised."""
    return [normal(part) for part in label.split(",") if normal(part)]


class _Index:
    """The subject's classes by whole label, first name, any name, and wordnet id."""

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self.stages: tuple[dict[str, set[int]], ...] = ({}, {}, {})
        for position, label in enumerate(classes):
            names = synonyms(label)
            self.stages[0].setdefault(normal(label), set()).add(position)
            self.stages[1].setdefault(names[0] if names else "", set()).add(position)
            for name in names:
                self.stages[2].setdefault(name, set()).add(position)
        ids = wordnet_ids(self.classes) or ()
        self.by_id = {identifier: position for position, identifier in enumerate(ids)}

    def find(self, label: str) -> set[int]:
        identifier = _WORDNET_ID.match(label)
        if identifier is not None:
            position = self.by_id.get(identifier.group())
            return set() if position is None else {position}
        names = synonyms(label)
        for stage, wanted in zip(self.stages, ([normal(label)], names[:1], names), strict=True):
            indices = set().union(*(stage.get(name, set()) for name in wanted))
            if indices:
                return indices
        return set()


@cache
def _imagenet(outputs: int) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """(wordnet ids, labels) by logit index of the ImageNet subset with this many classes, from timm's own lists."""
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset({"num_classes": outputs})
    if subset is None:
        return None
    info: Any = ImageNetInfo(subset)
    return tuple(info.label_names()), tuple(info.label_descriptions())


def imagenet_classes(outputs: int) -> tuple[str, ...] | None:
    """Class names of an ImageNet classifier told by its number of outputs (1,000, 11,821, 21,841, …).

    >>> imagenet_classes(1000)[0]
    'tench, Tinca tinca'
    """
    imagenet = _imagenet(outputs)
    return None if imagenet is None else imagenet[1]


def wordnet_ids(classes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Wordnet ids by logit index, if these classes are ImageNet's in ImageNet's order, or are such ids themselves.

    Lists differ in details (torchvision says "drake's" names otherwise than timm), so 9 of 10 labels must share a name.
    """
    matches = [_WORDNET_ID.match(label) for label in classes]
    if classes and all(matches):
        return tuple(match.group() for match in matches if match)
    imagenet = _imagenet(len(classes)) if len(classes) >= 1000 else None
    if imagenet is None:
        return None
    agreeing = sum(
        not set(synonyms(ours)).isdisjoint(synonyms(theirs)) for ours, theirs in zip(classes, imagenet[1], strict=True)
    )
    return imagenet[0] if agreeing >= 0.9 * len(classes) else None


def readable_class(name: str) -> str:
    """What people call a class that is named by a wordnet id, as far as timm's lists know it; else the name itself.

    >>> readable_class("n01440764"), readable_class("n01440764_tench"), readable_class("cat")
    ('tench', 'tench', 'cat')
    """
    identifier = _WORDNET_ID.match(name)
    if identifier is None:
        return name
    words = name[identifier.end() :].strip("_- ").replace("_", " ")
    return words or _imagenet_words().get(identifier.group(), name)


@cache
def _imagenet_words() -> dict[str, str]:
    """The first name of every wordnet id of ImageNet's 21,841."""
    ids, labels = _imagenet(21841) or ((), ())
    return {identifier: label.partition(",")[0] for identifier, label in zip(ids, labels, strict=True)}


def meaningful(classes: tuple[str, ...]) -> tuple[str, ...] | None:
    """None for the placeholders LABEL_0, LABEL_1, … or bare numbers."""
    placeholder = re.compile(r"(LABEL_)?\d+")
    return None if all(placeholder.fullmatch(label) for label in classes) else classes
