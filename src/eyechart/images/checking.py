"""Many files are checked by several processes: `python -m eyechart.images.checking FOLDER` is one of them.

A part of each check is Python's own work, which threads can only do one after the other: twelve threads on sixteen
cores took 23 s for 50,000 JPEGs of 500 × 375 pixels, each of which takes a core a millisecond or less. What a process
does not deliver is checked here.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from eyechart.helper_processes import help_with, helped, pickled, taken

if TYPE_CHECKING:
    from eyechart.images.picture import Unreadable
    from eyechart.images.source import EncodedImages, Progress

Entry = TypeVar("Entry")

MANY = 5_000
"""Files; fewer take threads a second or two, and processes half of one to begin."""
MOST = 8
"""Processes, with this one."""
PIECE = 256
"""Files that are checked at a time."""


def checked(
    source: EncodedImages[Entry], entries: Sequence[Entry], full: bool, progress: Progress | None
) -> Iterator[bytes | Unreadable] | None:
    """The outcome of each entry; None where the source cannot be told to another process."""
    told = pickled((source, entries, full))
    if told is None:
        return None
    return _checked(source, entries, full, progress, told)


def _checked(
    source: EncodedImages[Entry], entries: Sequence[Entry], full: bool, progress: Progress | None, told: bytes
) -> Iterator[bytes | Unreadable]:
    pieces = [f"{start}-{min(start + PIECE, len(entries))}" for start in range(0, len(entries), PIECE)]
    outcomes: dict[str, list[bytes | Unreadable]] = {}
    delivered: set[str] = set()

    def tell(piece: str) -> None:
        delivered.add(piece)
        if progress is not None:
            progress(min(len(delivered) * PIECE, len(entries)), len(entries))

    with TemporaryDirectory(prefix="eyechart-", ignore_cleanup_errors=True) as name:
        folder, waiting = Path(name), deque(pieces)
        (folder / "told").write_bytes(told)
        count = min(MOST, os.cpu_count() or 1)
        with helped("eyechart.images.checking", folder, count - 1, waiting) as helpers:
            for piece in taken(waiting):
                outcomes[piece] = _outcomes(source, entries, full, piece)
                tell(piece)
                for other in taken(helpers.delivered):
                    tell(other)
            helpers.wait()
            for other in taken(helpers.delivered):
                tell(other)
        for piece in pieces:
            if piece in outcomes:
                yield from outcomes[piece]
            elif piece in delivered:
                yield from pickle.loads((folder / piece).read_bytes())  # of our own process, in a folder of our own
            else:  # it was killed
                yield from _outcomes(source, entries, full, piece)


def _outcomes(
    source: EncodedImages[Entry], entries: Sequence[Entry], full: bool, piece: str
) -> list[bytes | Unreadable]:
    return [source.outcome(entry, full) for entry in entries[slice(*map(int, piece.split("-")))]]


def piece_checker() -> Callable[[str], object]:
    """What checks a piece of the files that the folder of this process's argument tells of."""
    folder = Path(sys.argv[1])
    source, entries, full = pickle.loads(
        (folder / "told").read_bytes()
    )  # the caller wrote it, into a folder of its own
    return lambda piece: (folder / piece).write_bytes(pickle.dumps(_outcomes(source, entries, full, piece)))


if __name__ == "__main__":
    help_with(piece_checker)
