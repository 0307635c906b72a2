"""What a person may type to name a subject, and what there is to name. No torch here: listing the zoo is quick."""

from __future__ import annotations

import difflib
import fnmatch
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from eyechart import zoo
from eyechart.errors import UnknownSubject, UsageError
from eyechart.phrases import quoted

Source = Literal["zoo", "timm", "torchvision", "hf"]
SOURCES: tuple[Source, ...] = ("zoo", "timm", "torchvision", "hf")
CHECKPOINT_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".tar")


LARGEST_INPUT = 4096
"""Pixels on a side of the pictures that a subject is fed."""
LONGEST_SPEC = 5_000
"""Characters: a path has at most 4,096."""
_SIZE = re.compile(r":(\d+)px$")


@dataclass(frozen=True)
class Spec:
    """`source:name:SIZEpx@weights`, taken apart; `weights` is None (the trained ones), "random", a path or a snapshot.

    `size` is the side of the pictures it is fed, in pixels; None: its own.

    >>> parse_spec("timm:resnet18:160px@random")
    Spec(source='timm', name='resnet18', weights='random', size=160)
    >>> str(parse_spec("torchvision:resnet50@my/weights.pth"))
    'torchvision:resnet50@my/weights.pth'
    """

    source: Source
    name: str
    weights: str | None
    size: int | None = None

    def __str__(self) -> str:
        return self.model + (f":{self.size}px" if self.size else "") + (f"@{self.weights}" if self.weights else "")

    @property
    def model(self) -> str:
        """The architecture alone, `source:name`."""
        return f"{self.source}:{self.name}"


def parse_spec(text: str) -> Spec:
    """The parts of a spec; a bare name is looked for in the zoo, then in timm (only there must it exist already)."""
    try:
        return _parse(text)
    except (OSError, ValueError, RuntimeError) as error:  # too long a name, a zero byte, ~NOBODY
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{text!r:.200} does not name a subject ({reason}).") from error


def _parse(text: str) -> Spec:
    if len(text) > LONGEST_SPEC:
        raise UsageError(
            f"A subject is named in at most {LONGEST_SPEC:,} characters; got {len(text):,}: {text!r:.50} …"
        )
    source, colon, rest = text.partition(":")
    if colon and source in SOURCES:
        return _split_weights(source, rest, text)
    if Path(text).suffix in CHECKPOINT_SUFFIXES and "@" not in text:
        raise UsageError(f"{text} names weights but no architecture: {_architecture_of_file(text)}.")
    name = _SIZE.sub("", text.partition("@")[0])
    if ":" in name and source not in zoo.names():
        near = difflib.get_close_matches(source, SOURCES, n=1) or ["timm"]
        raise UnknownSubject(
            f"No source of models is called {source!r} in {text!r}; there are {', '.join(SOURCES)}. "
            f"Did you mean {near[0]}:{rest}?"
        )
    if name.partition(":")[0] in zoo.names():
        return _split_weights("zoo", text, text)
    if name.partition(".")[0] in names("timm"):
        return _split_weights("timm", text, text)
    raise unknown(name)


def _architecture_of_file(path: str) -> str:
    """What to write for a file of weights: its own card knows, where `eyechart train` made it."""
    from eyechart.subjects.trained_here import architecture_of

    card = zoo.card_beside(path) if Path(path).is_file() else {}
    if card:
        return f"write {quoted(f'{architecture_of(card)}@{path}')}"
    return f"write {quoted(f'timm:NAME@{path}')}, or zoo:NAME@… where it is one of eyechart's own models"


def _split_weights(source: Source, rest: str, text: str) -> Spec:
    if source == "hf" and Path(rest).expanduser().is_dir():
        return Spec(source, rest, None)  # a local folder may have an @ in its name
    name, at, weights = rest.partition("@")
    if not name:
        raise UsageError(f"{text!r} names no model: write {source}:NAME.")
    if at and not weights:
        raise UsageError(f"Nothing follows the @ of {text!r}: write {source}:{name}@random or {source}:{name}@PATH.")
    sized = _SIZE.search(name)
    name = _SIZE.sub("", name)
    misplaced = (":" in name and source != "hf") or (_SIZE.search(weights) and not Path(weights).exists())
    if sized and (len(sized[1]) > 9 or int(sized[1]) > LARGEST_INPUT):
        raise UsageError(f"An input size has at most {LARGEST_INPUT} pixels; got {text!r:.200}.")
    if misplaced or (sized and not int(sized[1])):
        raise UsageError(f"An input size is written in pixels, before any @, as in {source}:NAME:48px; got {text!r}.")
    return Spec(source, name, weights or None, int(sized[1]) if sized else None)


def names(source: Source) -> list[str]:
    """Every name a source knows (image classifiers only, of torchvision's models); a hub cannot be listed."""
    if source == "zoo":
        return list(zoo.names())
    if source == "timm":
        import timm

        return timm.list_models()
    if source == "torchvision":
        import torchvision

        return cast(list[str], torchvision.models.list_models(module=torchvision.models))
    return []


def near_names(name: str, sources: Sequence[Source] = ("zoo", "timm", "torchvision")) -> list[str]:
    """Known names that read like this one, nearest first, as specs.

    >>> near_names("resnet18s", ["torchvision"])[0]
    'torchvision:resnet18'
    """
    wanted = name.lower().replace("-", "_").partition(".")[0]
    scored = [
        (difflib.SequenceMatcher(None, wanted, candidate).ratio(), f"{source}:{candidate}")
        for source in sources
        for candidate in difflib.get_close_matches(wanted, names(source), n=3, cutoff=0.6)
    ]
    return [spec for _, spec in sorted(scored, key=lambda row: -row[0])[:4]]


def unknown(name: str, source: Source | None = None) -> UnknownSubject:
    """The error for a name nobody knows, with near ones; those of other sources only if its own has none."""
    near = (near_names(name, [source]) if source else []) or near_names(name)
    where = f"{source} has no model" if source else "Neither the zoo nor timm has a model"
    advice = f"did you mean {' or '.join(near)}?" if near else "`eyechart subjects` lists what there is."
    return UnknownSubject(f"{where} called {name!r}; {advice}")


def available(pattern: str | None = None) -> list[dict[str, Any]]:
    """One row a model: `spec`, `source`, and the `card` of zoo models. timm and torchvision are searched by a pattern.

    Without a pattern only the zoo is listed, for which torch is not needed; with one (a part of the name or a shell
    pattern, of one source if its name stands before it) the rows whose name matches.

    >>> [row["spec"] for row in available("torchvision:resnext101_64")]
    ['torchvision:resnext101_64x4d']
    """
    before, colon, rest = (pattern or "").partition(":")
    one = [source for source in SOURCES if colon and source == before]
    wanted = rest if one else pattern
    shell = wanted if wanted is None or any(sign in wanted for sign in "*?[") else f"*{wanted}*"
    rows: list[dict[str, Any]] = []
    for source in one or (SOURCES if shell else ("zoo",)):
        for name in names(source):
            if shell is None or fnmatch.fnmatch(name, shell):
                card = {"card": dict(zoo.card(name))} if source == "zoo" else {}
                rows.append({"spec": f"{source}:{name}", "source": source} | card)
                rows += snapshots(name) if source == "zoo" else []
    return rows


def snapshots(name: str) -> list[dict[str, Any]]:
    """Rows of the weights that a training of the zoo left on its way, as far as they are bundled.

    >>> [row["spec"] for row in snapshots("vit")]
    ['zoo:vit@warmup']
    """
    moments = {"init": "before training", "warmup": "at the end of its warm-up", "quarter": "after a quarter of it"}
    kept = [moment for moment in moments if zoo.weights(name, moment) is not None]
    of_the_end = ("accuracy", "nll", "ece", "measured", "epochs", "steps", "seconds", "sha256")
    card = {key: value for key, value in zoo.card(name).items() if key not in of_the_end}
    return [
        {
            "spec": f"zoo:{name}@{moment}",
            "source": "zoo",
            "card": card | {"sentence": f"the same training, {moments[moment]}"},
        }
        for moment in kept
    ]


def own_values(name: str) -> dict[str, Any]:
    """What each switch of a zoo model is set to: by its line of the table, or else by its builder. Imports torch."""
    own, parameters = zoo.find(name).switches, inspect.signature(zoo.builder_of(name)).parameters
    return {key: own.get(key, parameter.default) for key, parameter in parameters.items()}


def counts() -> dict[str, int]:
    """How many models each listable source has. Imports timm and torchvision (some seconds)."""
    return {source: len(names(source)) for source in SOURCES if source != "hf"}
