"""Webdataset shards: plain tar files in which `key.jpg`, `key.cls`, … belong together.

Opening reads the headers only and keeps where each picture lies, so that pictures can be read in any order and memory
holds the index alone. Labels come from `.cls`, else from `label`, `cls` or `class` of `.json`, else from `.txt` (unless
the texts are captions: more different ones than half the pictures). Class names may stand one a line in
`classnames.txt` or `classes.txt` beside the shards.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from eyechart.errors import ImagesError, UsageError
from eyechart.files import json_of, open_regular, read_bytes
from eyechart.images.folder import PICTURE_SUFFIXES
from eyechart.images.source import (
    LARGEST_FILE,
    LONGEST_NAME,
    MOST_CLASSES,
    Check,
    EncodedImages,
    Problem,
    Progress,
    number_classes,
    readable,
)

LABELS = (".cls", ".json", ".txt")
LARGEST_LABEL = 1_000_000
"""Bytes. A label file beyond this is not one."""
LARGEST_TAR = 1 << 44
LARGEST_HEADER = 1 << 20
"""Bytes of one header of a tar file, long names and their like included."""
MOST_SHARDS = 100_000
LARGEST_NAMES = 64 << 20
"""Bytes of a list of class names."""


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
        numbered = _labels([sample.notes for sample in samples if sample.picture is not None], name)
        labels, classes = numbered if numbered is not None else (None, None)
        if labels is not None and (names := _class_names(self.shards[0].parent)) and len(names) > max(labels):
            classes = names
        super().__init__(name, members, labels, classes, problems=problems, check=check, progress=progress)

    def stream(self, entry: Member) -> BinaryIO:
        if entry.size > LARGEST_FILE:
            raise ValueError(f"it has {entry.size:,} bytes, more than the {LARGEST_FILE:,} that are read")
        with open_regular(self.shards[entry.shard], LARGEST_TAR) as shard:
            shard.seek(entry.offset)
            return io.BytesIO(shard.read(entry.size))

    def path_of(self, entry: Member) -> str:
        return readable(f"{self.shards[entry.shard].name}/{entry.name}")


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
            if len(first) > 18 or len(last) > 18 or int(last) - int(first) >= MOST_SHARDS:
                raise UsageError(f"{pattern:.200} names more than {MOST_SHARDS:,} shards.")
            parts.append([str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)])
        elif piece.startswith("{"):
            parts.append(piece[1:-1].split(","))
        else:
            parts.append([piece])
    if math.prod(map(len, parts)) > MOST_SHARDS:
        raise UsageError(f"{pattern:.200} names more than {MOST_SHARDS:,} shards.")
    return ["".join(choice) for choice in itertools.product(*parts)]


class _Headers:
    """A tar file as tarfile may read it: headers only, each once, so that no claimed size takes memory or time."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.left = 4 * (file.seek(0, io.SEEK_END) + 2 * tarfile.BLOCKSIZE)
        file.seek(0)
        self.at = 0

    def read(self, count: int = -1) -> bytes:
        if not 0 <= count <= LARGEST_HEADER:
            raise tarfile.ReadError(f"a header claims {count:,} bytes")
        self.left -= max(count, 1)
        if self.left < 0:
            raise tarfile.ReadError("its headers lead in a circle")
        self.file.seek(self.at)  # labels are read in between
        data = self.file.read(count)
        self.at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = self.file.seek(offset, whence)
        return self.at

    def tell(self) -> int:
        return self.at


def _index(number: int, shard: Path, problems: list[Problem]) -> list[_Sample]:
    samples: dict[str, _Sample] = {}
    try:
        with (
            open_regular(shard, LARGEST_TAR) as raw,
            tarfile.open(mode="r:", fileobj=cast(BinaryIO, _Headers(raw))) as archive,
        ):
            size = raw.seek(0, io.SEEK_END)
            for count, member in enumerate(archive):
                if count > size // tarfile.BLOCKSIZE or member.size < 0:
                    raise tarfile.ReadError("its headers lead in a circle")
                # The key ends at the first dot of the file name, as webdataset has it.
                folder, _, base = member.name.rpartition("/")
                key, dot, rest = base.partition(".")
                suffix = (dot + rest).lower()
                if not member.isfile() or not key:
                    continue
                sample = samples.setdefault(f"{folder}/{key}", _Sample())
                if member.offset_data + member.size > size:
                    raise tarfile.ReadError(f"{member.name:.100} claims {member.size:,} bytes beyond its end")
                if suffix in LABELS and member.size <= LARGEST_LABEL:
                    raw.seek(member.offset_data)
                    sample.notes[suffix] = raw.read(member.size)
                elif suffix.endswith(PICTURE_SUFFIXES) and sample.picture is None:
                    sample.picture = Member(number, member.offset_data, member.size, member.name)
            raw.seek(archive.offset)  # where tarfile stopped: before zeros, or silently before what is no header
            if raw.read(tarfile.BLOCKSIZE).strip(b"\0"):
                raise tarfile.ReadError(f"there is no header at byte {archive.offset:,}, so the rest cannot be read")
    except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError, EOFError) as error:
        # What was read before the damage is kept; the shard itself is listed.
        packed = " (compressed tar files cannot be read in random order: unpack them)" if ".tar." in shard.name else ""
        problems.append(Problem(shard.name, f"not a complete tar file: {error}{packed}"))
    return list(samples.values())


def _labels(notes: Sequence[dict[str, bytes]], name: str) -> tuple[list[int], tuple[str, ...]] | None:
    for suffix in LABELS:
        read = [_label(suffix, note[suffix]) if suffix in note else None for note in notes]
        if suffix == ".txt" and len({text for text in read if isinstance(text, str)}) > len(notes) / 2:
            return None
        if (numbered := number_classes(read, name)) is not None:
            return numbered
    return None


def _label(suffix: str, data: bytes) -> int | str | None:
    text = data.decode("utf-8", "replace").strip()
    value: object = text
    if suffix == ".json":
        try:
            about = json_of(text)
        except ValueError:
            return None
        value = about
        if isinstance(about, dict):
            value = next((about[key] for key in ("label", "cls", "class") if key in about), None)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        return None
    if isinstance(value, str):
        return readable(value)[:LONGEST_NAME]
    return max(value, -1)


def _class_names(folder: Path) -> tuple[str, ...] | None:
    for name in ("classnames.txt", "classes.txt"):
        path = folder / name
        if path.is_file():
            try:
                names = read_bytes(path, LARGEST_NAMES).decode("utf-8").split("\n")[:-1]
            except (OSError, ValueError) as error:
                raise ImagesError(f"{path} is no list of class names ({error}).") from error
            return tuple(name[:LONGEST_NAME] for name in names[:MOST_CLASSES]) or None
    return None
