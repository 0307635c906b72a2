"""Further processes on this machine that take from a list of things to do, beside the one that asked.

    python -m MODULE FOLDER     says "ready", then reads names, a line each, and says each again when it is done

What they make they leave in the run's folder. What a helper does not deliver, because it was killed or could not start,
is left to whoever asked.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eyechart.memory import keep_freed_memory

LARGEST = 64 << 20
"""Bytes of what a process is told: a list of a million files. A source that holds its pictures is larger."""


@dataclass
class Helpers:
    """What helpers have done so far, and the list that they take from."""

    waiting: deque[str]
    delivered: deque[str] = field(default_factory=deque)
    """Names of what they have done since somebody took from here."""
    working: int = 0
    """How many are ready and have not ended."""
    _threads: list[threading.Thread] = field(default_factory=list)

    def wait(self) -> None:
        """Until all have ended what they began and nothing waits."""
        for thread in self._threads:
            thread.join()

    def feed(self, process: subprocess.Popen[str], first: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError, ValueError):  # it was killed
            if first:
                print(first, file=process.stdin, flush=True)
            if process.stdout.readline() != "ready\n":  # nothing is given to one that could not start
                return
            self.working += 1
            try:
                for name in taken(self.waiting):
                    print(name, file=process.stdin, flush=True)
                    if process.stdout.readline() != f"{name}\n":
                        return
                    self.delivered.append(name)
            finally:
                self.working -= 1


@contextmanager
def helped(module: str, folder: Path, count: int, waiting: deque[str], first: str = "") -> Iterator[Helpers]:
    """`count` processes that take names from `waiting`; each is told `first` before anything else. They end with this
    block, whatever they do then."""
    helpers, processes = Helpers(waiting), []
    try:
        for _ in range(count if sys.executable else 0):
            process = started(module, folder)
            processes.append(process)
            helpers._threads.append(threading.Thread(target=helpers.feed, args=(process, first), daemon=True))
            helpers._threads[-1].start()
        yield helpers
    finally:
        for process in processes:
            process.kill()
        helpers.wait()
        for process in processes:
            process.communicate()


def started(module: str, folder: Path) -> subprocess.Popen[str]:
    """One process of a module: the same eyechart as here, wherever it came from, on one thread."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-m", module, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # where it fails, the same fails here, and is told
        text=True,
        errors="replace",  # a library may print what the pipe's encoding has no letters for
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )


def pickled(thing: Any) -> bytes | None:
    """A thing as another process can be told of it; None where it cannot, or is too large to be sent about."""
    try:
        told = pickle.dumps(thing)
    except Exception:  # of whatever kind: a data set of the user's may hold anything
        return None
    return told if len(told) <= LARGEST else None


def taken(names: deque[str]) -> Iterator[str]:
    """Names until none is left; several may take from one list."""
    while True:
        try:
            yield names.popleft()
        except IndexError:
            return


def help_with(prepare: Callable[[], Callable[[str], object]]) -> None:
    """In a helper: make ready what does the work, and do what is asked for until nobody asks any more."""
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the exam, which ends its helpers
    said, sys.stdout = sys.stdout, sys.stderr  # nobody else's words may come between
    work = prepare()
    print("ready", file=said, flush=True)
    for line in sys.stdin:
        work(line.strip())
        print(line.strip(), file=said, flush=True)
