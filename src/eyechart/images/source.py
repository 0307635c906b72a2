"""What every source of pictures offers, and what the ones that hold files share: checking, skipping, fingerprints."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Generic, Literal, TypeVar

import numpy as np
from PIL import Image

from eyechart.errors import ImagesError
from eyechart.images.checking import MANY, checked
from eyechart.images.picture import Unreadable, decode, open_header

THREADS = min(12, os.cpu_count() or 1)
"""Pillow decodes and resizes outside Python's lock, so threads are enough. A JPEG of 500 × 375 pixels takes a core 3 ms
until it is fed, and a GPU looks at a thousand a second."""

DECODED_AT_OPENING = 50_000
"""Sets up to this size are decoded once when opened (0.15 ms for a JPEG of 224 pixels, 30 ms for 12 million)."""

PIECE = 1024
"""Files handed to the threads at a time: a million waiting futures would fill the memory."""

HEAD = 65_536
"""Bytes of each file that enter the fingerprint where only headers are read."""

LARGEST_FILE = 1 << 30
"""Bytes of one picture file. 89 million pixels, the most that are read, are 0.5 GB in 16 bits without compression."""

MOST_CLASSES = 1_000_000
"""A label counts the classes: one of a billion would be a billion names."""

LONGEST_NAME = 1_000
"""Characters of the name of a class."""

Check = Literal["auto", "full", "header"]
Progress = Callable[[int, int], None]
"""Called with (files done, files in all)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that was skipped, and why."""

    path: str
    reason: str


class Images(ABC):
    """Pictures with or without labels, numbered from 0. Nothing in it is torch, and all sources can be pickled."""

    name: str
    classes: tuple[str, ...] | None
    """Class names by label; None: no labels. A source that numbers its classes without naming them gets "0", "1", …"""
    labels: np.ndarray | None
    """Class of each picture (int64), -1 where unknown; None: no labels at all."""
    problems: list[Problem]
    """What was skipped. These pictures have no number."""
    fingerprint: str
    """SHA-256 over content, labels and class names in source order: the same on every machine and under any path."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def picture(self, index: int) -> Image.Image:
        """One picture in RGB, in its own size."""

    @abstractmethod
    def origin(self, index: int) -> str:
        """Where a picture came from, for people: "cats/12.jpg"."""

    def pictures(self, indices: Iterable[int]) -> list[Image.Image]:
        """Several pictures, read by a few threads."""
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(self.picture, map(int, indices)))

    def array(self, indices: Sequence[int] | np.ndarray) -> np.ndarray | None:
        """The common crops of pictures of one size as (image, y, x, channel) in uint8; None where they are files."""
        return None


Entry = TypeVar("Entry")


class EncodedImages(Images, Generic[Entry]):
    """Pictures that are files somewhere (a folder, a tar, a table): `stream` opens one, `path_of` names it.

    Each is checked before anything is planned. Up to DECODED_AT_OPENING pictures, "auto" means "full": every one is
    decoded once, and nothing can go wrong later. Above that it means "header": format and size are read, the
    fingerprint covers length and first 64 KiB of each file, and a picture that turns out damaged stops the run with
    its name. The entries that pass are numbered in source order.
    """

    def __init__(
        self,
        name: str,
        entries: Sequence[Entry],
        labels: Sequence[int] | None,
        classes: Sequence[str] | None,
        *,
        problems: Sequence[Problem] = (),
        check: Check = "auto",
        progress: Progress | None = None,
    ) -> None:
        full = len(entries) <= DECODED_AT_OPENING if check == "auto" else check == "full"
        self.name = name
        self.classes = tuple(classes) if classes is not None else None
        self.problems = list(problems)
        self._entries: list[Entry] = []
        kept: list[int] = []
        digests: list[bytes] = []
        for index, (entry, outcome) in enumerate(zip(entries, self._outcomes(entries, full, progress), strict=True)):
            if isinstance(outcome, Unreadable):
                self.problems.append(Problem(self.path_of(entry), str(outcome)))
            else:
                self._entries.append(entry)
                kept.append(index)
                digests.append(outcome)
        if not self._entries:
            raise ImagesError(_nothing_readable(name, len(entries), self.problems))
        self.labels = None if labels is None else np.asarray(labels, np.int64)[kept]
        self.fingerprint = fingerprint("files" if full else "file heads", digests, self.labels, self.classes)

    @abstractmethod
    def stream(self, entry: Entry) -> BinaryIO: ...

    @abstractmethod
    def path_of(self, entry: Entry) -> str: ...

    def __len__(self) -> int:
        return len(self._entries)

    def origin(self, index: int) -> str:
        return self.path_of(self._entries[index])

    def picture(self, index: int) -> Image.Image:
        entry = self._entries[index]
        try:
            with self.stream(entry) as stream:
                return decode(stream)
        except (Unreadable, OSError, ValueError) as error:
            raise ImagesError(
                f"{self.path_of(entry)} in {self.name} passed the first check but cannot be read now ({error}); "
                "repair or remove it and start again."
            ) from error

    def _outcomes(
        self, entries: Sequence[Entry], full: bool, progress: Progress | None
    ) -> Iterator[bytes | Unreadable]:
        if len(entries) >= MANY and (outcomes := checked(self, entries, full, progress)) is not None:
            yield from outcomes
            return
        with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as pool:
            # The size is checked here; Pillow's warning would only repeat it.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            for start in range(0, len(entries), PIECE):
                piece = entries[start : start + PIECE]
                yield from pool.map(lambda entry: self.outcome(entry, full), piece)
                if progress is not None:
                    progress(start + len(piece), len(entries))

    def outcome(self, entry: Entry, full: bool) -> bytes | Unreadable:
        """The digest of a sound picture, or the reason to skip it."""
        try:
            with self.stream(entry) as stream:
                if stream.seek(0, os.SEEK_END) > LARGEST_FILE:
                    return Unreadable(f"more than {LARGEST_FILE:,} bytes")
                stream.seek(0)
                digest = hashlib.sha256(stream.read(LARGEST_FILE if full else HEAD))
                if not full:
                    digest.update(stream.seek(0, os.SEEK_END).to_bytes(8, "little"))
                stream.seek(0)
                if full:
                    decode(stream, quick=True)
                else:
                    open_header(stream)
        except Unreadable as reason:
            return reason
        except OSError as error:
            return Unreadable(f"cannot be opened: {error.strerror or error}")
        except ValueError as error:  # no plain file, or too long a one
            return Unreadable(f"cannot be opened: {error}")
        return digest.digest()


def fingerprint(what: str, digests: Iterable[bytes], labels: np.ndarray | None, classes: tuple[str, ...] | None) -> str:
    """One hash of a set, from one hash a picture. `what` was hashed is part of it, so that unlike ones never agree."""
    whole = hashlib.sha256(json.dumps(["eyechart images 1", what, classes]).encode())
    for digest in digests:
        whole.update(digest)
    if labels is not None:
        whole.update(labels.astype("<i8").tobytes())
    return whole.hexdigest()


def number_classes(labels: Sequence[int | str | None], name: str) -> tuple[list[int], tuple[str, ...]] | None:
    """Labels as numbers, and the class names. Numbers name themselves, names are numbered alphabetically.

    >>> number_classes(["cat", None, "ape"], "pets")
    ([1, -1, 0], ('ape', 'cat'))
    >>> number_classes([2, 0], "pets")
    ([2, 0], ('0', '1', '2'))
    """
    known_labels = [label for label in labels if label is not None and label != -1]
    if not known_labels:
        return None
    if all(isinstance(label, int) for label in known_labels):
        numbers = [max(label, -1) if isinstance(label, int) else -1 for label in labels]
        if max(numbers) >= MOST_CLASSES:
            raise ImagesError(
                f"The labels of {name} must number its classes, from 0 to {MOST_CLASSES - 1:,}; got {max(numbers)}."
            )
        return numbers, tuple(str(number) for number in range(max(numbers) + 1))
    names = tuple(sorted({str(label) for label in known_labels}))
    label_of = {name: number for number, name in enumerate(names)}
    return [-1 if label is None else label_of.get(str(label), -1) for label in labels], names


def readable(name: str) -> str:
    r"""The name of a file as text: bytes that are no UTF-8, which Linux allows, are written out.

    >>> readable(b"caf\xe9".decode("utf-8", "surrogateescape"))
    'caf\\xe9'
    """
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # halves of characters, which JSON can say and UTF-8 cannot
        return name.encode("utf-8", "backslashreplace").decode()


def _nothing_readable(name: str, count: int, problems: Sequence[Problem]) -> str:
    example = f", for example {problems[0].path}: {problems[0].reason}" if problems else ""
    return f"None of the {count} files in {name} is a picture that can be used{example}."
