"""Webdataset shards: plain tar files in which `key.jpg`, `key.cls`, … belong together.

Opening reads the headers only and keeps where each picture lies, so that pictures can be read in any order and memory
holds the index alone. Labels come from `.cls`, else from `label`, `cls` or `class` of `.json`, else from `.txt` (unless
the texts are captions: more different ones than half the pictures). Class names may stand one a line in
`classnames.txt` or `classes.txt` beside the shards.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from eyechart.errors import ImagesError
from eyechart.images.folder import PICTURE_SUFFIXES
from eyechart.images.source import Check, EncodedImages, Problem, Progress, number_classes

LABELS = (".cls", ".json", ".txt")
LARGEST_LABEL = 1_000_000
"""Bytes. A label file beyond this is not one."""


@dataclass(frozen=True, slots=True)
class Member:
    """Where a picture lies."""

    shard: int
    offset: int
    size: int
    name: str


@dataclass
class _Sample:
    picture: Member | None = None
    notes: dict[str, bytes] = field(default_factory=dict)


class TarImages(EncodedImages[Member]):
    def __init__(
        self, name: str, shards: Sequence[Path], *, check: Check = "auto", progress: Progress | None = None
    ) -> None:
        self.shards = tuple(shards)
        problems: list[Problem] = []
        samples: list[_Sample] = []
        for number, shard in enumerate(self.shards):
            samples += _index(number, shard, problems)
        members = [sample.picture for sample in samples if sample.picture is not None]
        if not members:
            why = f" ({problems[0].path}: {problems[0].reason})" if problems else ""
            raise ImagesError(f"The {len(shards)} tar files of {name} hold no pictures{why}.")
        numbered = _labels([sample.notes for sample in samples if sample.picture is not None])
        labels, classes = numbered if numbered is not None else (None, None)
        if labels is not None and (names := _class_names(self.shards[0].parent)) and len(names) > max(labels):
            classes = names
        super().__init__(name, members, labels, classes, problems=problems, check=check, progress=progress)

    def stream(self, entry: Member) -> BinaryIO:
        with open(self.shards[entry.shard], "rb") as shard:
            shard.seek(entry.offset)
            return io.BytesIO(shard.read(entry.size))

    def path_of(self, entry: Member) -> str:
        return f"{self.shards[entry.shard].name}/{entry.name}"


def expand(pattern: str) -> list[str]:
    """Brace patterns of webdataset.

    >>> expand("a-{008..010}.tar")
    ['a-008.tar', 'a-009.tar', 'a-010.tar']
    >>> expand("{x,y}.tar")
    ['x.tar', 'y.tar']
    """
    parts: list[list[str]] = []
    for piece in re.split(r"(\{[^{}]*\})", pattern):
        if numbers := re.fullmatch(r"\{(\d+)\.\.(\d+)\}", piece):
            first, last = numbers.groups()
            parts.append([str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)])
        elif piece.startswith("{"):
            parts.append(piece[1:-1].split(","))
        else:
            parts.append([piece])
    return ["".join(choice) for choice in itertools.product(*parts)]


def _index(number: int, shard: Path, problems: list[Problem]) -> list[_Sample]:
    samples: dict[str, _Sample] = {}
    try:
        with tarfile.open(shard, "r:") as archive, open(shard, "rb") as raw:
            for member in archive:
                # The key ends at the first dot of the file name, as webdataset has it.
                folder, _, base = member.name.rpartition("/")
                key, dot, rest = base.partition(".")
                suffix = (dot + rest).lower()
                if not member.isfile() or not key:
                    continue
                sample = samples.setdefault(f"{folder}/{key}", _Sample())
                if suffix in LABELS and member.size <= LARGEST_LABEL:
                    raw.seek(member.offset_data)
                    sample.notes[suffix] = raw.read(member.size)
                elif suffix.endswith(PICTURE_SUFFIXES) and sample.picture is None:
                    sample.picture = Member(number, member.offset_data, member.size, member.name)
    except (tarfile.TarError, OSError) as error:
        # What was read before the damage is kept; the shard itself is listed.
        packed = " (compressed tar files cannot be read in random order: unpack them)" if ".tar." in shard.name else ""
        problems.append(Problem(shard.name, f"not a complete tar file: {error}{packed}"))
    return list(samples.values())


def _labels(notes: Sequence[dict[str, bytes]]) -> tuple[list[int], tuple[str, ...]] | None:
    for suffix in LABELS:
        read = [_label(suffix, note[suffix]) if suffix in note else None for note in notes]
        if suffix == ".txt" and len({text for text in read if isinstance(text, str)}) > len(notes) / 2:
            return None
        if (numbered := number_classes(read)) is not None:
            return numbered
    return None


def _label(suffix: str, data: bytes) -> int | str | None:
    text = data.decode("utf-8", "replace").strip()
    value: object = text
    if suffix == ".json":
        try:
            about = json.loads(text)
        except ValueError:
            return None
        value = about
        if isinstance(about, dict):
            value = next((about[key] for key in ("label", "cls", "class") if key in about), None)
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        return None
    return value


def _class_names(folder: Path) -> tuple[str, ...] | None:
    for name in ("classnames.txt", "classes.txt"):
        if (folder / name).is_file():
            return tuple((folder / name).read_text(encoding="utf-8").split("\n")[:-1]) or None
    return None
