"""Pictures read by processes of their own: `python -m eyechart.engines.picture_readers FOLDER` is one of them.

Threads that read share Python's lock with the thread that sends work to a GPU. Beside twelve of them, which a GPU
needs, that thread started a quarter as many operations as alone (JPEGs of 500 × 375 pixels, readers on another core).
Processes leave it the lock. They write bytes into one file that all have mapped, and import nothing of torch. What a
process does not deliver is read here.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from eyechart.helper_processes import help_with, pickled, started
from eyechart.images.picture import common_crop, resized

if TYPE_CHECKING:
    from eyechart.images import Images
    from eyechart.scene import Batch

Way = tuple[tuple[int, int], str]
"""Size (y, x) and interpolation."""
Pixels = list[np.ndarray]
"""Bytes (picture, 3, y, x) of each way."""

MOST = 8
"""Processes; a JPEG of 500 × 375 pixels takes one of them 3 ms."""
WORTH = 2_000
"""Pictures, of which threads read fewer before the processes have begun."""
AHEAD = 2
"""Batches that are being read while one is looked at."""
CHUNK = 8
"""Pictures that a process is asked for at a time."""


@dataclass
class PictureReaders:
    """Processes that read batches of pictures ahead of whoever looks at them."""

    images: Images
    ways: Sequence[Way]
    batch_size: int
    pixels: Pixels
    _asked: queue.SimpleQueue[tuple[str, Future[bool]] | None] = field(default_factory=queue.SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list)
    """One for each process that is there to be asked."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, batches: Iterable[Batch]) -> Generator[tuple[Batch, Pixels], None, None]:
        """Each batch with its pixels, which stay as they are until the next is asked for."""
        waiting: deque[tuple[Batch, int, list[Future[bool]]]] = deque()
        try:
            for number, batch in enumerate(batches):
                first = number % (AHEAD + 1) * self.batch_size
                waiting.append((batch, first, self._ask(batch, first)))
                if len(waiting) > AHEAD:
                    yield self._delivered(*waiting.popleft())
            while waiting:
                yield self._delivered(*waiting.popleft())
        finally:  # nobody may write into what the next batches are read to
            wait(future for _, _, futures in waiting for future in futures)

    def _ask(self, batch: Batch, first: int) -> list[Future[bool]]:
        futures = []
        for start in range(0, len(batch.images), CHUNK):
            chunk = [int(index) for index in batch.images[start : start + CHUNK]]
            futures.append(Future[bool]())
            self._asked.put((json.dumps([first + start, chunk]), futures[-1]))
        with self._lock:
            if not self._threads:
                self._give_up()
        return futures

    def _delivered(self, batch: Batch, first: int, futures: Sequence[Future[bool]]) -> tuple[Batch, Pixels]:
        for number, future in enumerate(futures):
            if not future.result():
                start = number * CHUNK
                read_into(self.pixels, self.images, self.ways, first + start, batch.images[start : start + CHUNK])
        return batch, [pixels[first : first + len(batch.images)] for pixels in self.pixels]

    def employ(self, process: subprocess.Popen[str]) -> None:
        self._threads.append(threading.Thread(target=self._serve, args=(process,), daemon=True))
        self._threads[-1].start()

    def _serve(self, process: subprocess.Popen[str]) -> None:
        """Hand one process a chunk after the other, until it ends or all shall."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError, ValueError):  # it was killed
            ready = process.stdout.readline() == "ready\n"
            while ready and (asked := self._asked.get()):
                line, future = asked
                ready = False
                try:
                    print(line, file=process.stdin, flush=True)
                    ready = process.stdout.readline() == f"{line}\n"
                finally:
                    future.set_result(ready)
        with self._lock:
            self._threads.remove(threading.current_thread())
            if not self._threads:
                self._give_up()

    def _give_up(self) -> None:
        """Nobody is left to read what was asked for."""
        with suppress(queue.Empty):
            while True:
                if asked := self._asked.get_nowait():
                    asked[1].set_result(False)

    def dismiss(self) -> None:
        threads = tuple(self._threads)
        for _ in threads:
            self._asked.put(None)
        for thread in threads:
            thread.join()


@contextmanager
def picture_readers(images: Images, ways: Sequence[Way], batch_size: int) -> Iterator[PictureReaders | None]:
    """As many processes as there are cores beside the caller's, at least two; they end with this block. None where the
    source cannot be told to another process."""
    count = min(MOST, max(2, (os.cpu_count() or 1) - 1)) if sys.executable else 0
    told = pickled(images)
    if told is None or not count:
        yield None
        return
    with TemporaryDirectory(prefix="eyechart-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        slots = (AHEAD + 1) * batch_size
        (folder / "pictures").write_bytes(told)
        (folder / "asked.json").write_text(json.dumps({"ways": ways, "slots": slots}), encoding="utf-8")
        with (folder / "pixels").open("wb") as file:
            file.truncate(sum(slots * 3 * height * width for (height, width), _ in ways))
        readers = PictureReaders(images, ways, batch_size, mapped(folder, ways, slots))
        processes: list[subprocess.Popen[str]] = []
        try:
            for _ in range(count):
                processes.append(started("eyechart.engines.picture_readers", folder))
                readers.employ(processes[-1])
            yield readers
        finally:
            for process in processes:
                process.kill()
            readers.dismiss()
            for process in processes:
                process.communicate()


def mapped(folder: Path, ways: Sequence[Way], slots: int) -> Pixels:
    """The file that all write to and read from."""
    begin = 0
    pixels: Pixels = []
    for (height, width), _ in ways:
        shape = (slots, 3, height, width)
        pixels.append(np.memmap(folder / "pixels", np.uint8, "r+", offset=begin, shape=shape))
        begin += pixels[-1].size
    return pixels


def read_into(pixels: Pixels, images: Images, ways: Sequence[Way], first: int, indices: Iterable[int]) -> None:
    """The pictures with these indices, each in every way, from place `first` on."""
    for place, index in enumerate(indices, first):
        crop = common_crop(images.picture(int(index)))
        for values, way in zip(pixels, ways, strict=True):
            values[place] = np.asarray(resized(crop, *way)).transpose(2, 0, 1)


def chunk_reader() -> Callable[[str], object]:
    """What reads a chunk of the pictures that the folder of this process's argument tells of."""
    folder = Path(sys.argv[1])
    images = pickle.loads((folder / "pictures").read_bytes())  # the exam wrote it, into a folder of its own
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    ways = [(tuple(size), interpolation) for size, interpolation in asked["ways"]]
    pixels = mapped(folder, ways, asked["slots"])

    def read(line: str) -> None:
        first, indices = json.loads(line)
        read_into(pixels, images, ways, first, indices)

    return read


if __name__ == "__main__":
    help_with(chunk_reader)
