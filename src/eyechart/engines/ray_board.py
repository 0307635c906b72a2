"""What each worker of a Ray cluster is doing just now, on a board that all of them see: the key-value store that Ray
itself keeps on its head node.

A task has an entry there, which a thread of its own writes: the task neither waits for the board nor fails with it. An
entry is a hundred bytes, and the driver removes it when its shard is there. An actor would do the same with one more
process, which could die.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from eyechart.phrases import count

if TYPE_CHECKING:
    from eyechart.scene import Batch

EVERY = 0.5  # seconds between two looks at the board, and between two writings of an entry
PATIENCE = 1.0  # seconds that a task waits at its end for a board that hangs
SHOWN = 4  # workers whose names fit into a line of progress
ALL, SUM = "all", "sum"
"""Parts of a shard: all subjects in one task, or what groups of them saw added up; otherwise the number of a group."""


def _store() -> Any:
    from ray.experimental import internal_kv

    return internal_kv


class Entry:
    """In a worker: what its task is doing. It is told of steps as a `Clock` is."""

    def __init__(self, board: str, shard: int, part: str, worker: str) -> None:
        self.key = f"{board}|{shard}|{part}|{worker}|{time.time_ns():016x}"
        self.words = ""
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write, name="board", daemon=True)

    def say(self, words: str) -> None:
        self.words = words

    @contextmanager
    def doing(self, batch: Batch, subject: str, measure: str = "") -> Iterator[None]:
        first, last = batch.start + 1, batch.start + len(batch.images)
        self.say(f"images {first:,} to {last:,}: {subject}, {measure or 'the shared pass'}")
        yield

    def batch_done(self, batch: Batch) -> None:
        """The next step says where it is."""

    def tell(self, what: str, done: float, total: float) -> None:
        """A sentence for a person, who is elsewhere."""

    def _write(self) -> None:
        written = None
        with suppress(Exception):  # a board that cannot be reached costs the task nothing
            while True:
                if self.words != written:
                    written = self.words
                    _store()._internal_kv_put(self.key, written)
                if self._ended.wait(EVERY):
                    return

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._writer.join(PATIENCE)  # what is written later would stay there


class Attempt(NamedTuple):
    """What a key of the board says: one task in one worker."""

    shard: int
    part: str
    worker: str
    key: bytes

    @classmethod
    def read(cls, key: bytes) -> Attempt:
        _, shard, part, worker, _ = key.decode(errors="replace").split("|")
        return cls(int(shard), part, worker, key)

    @property
    def task(self) -> tuple[int, str]:
        return self.shard, self.part


class Board:
    """In the driver: who does what. What it cannot read it does not show, and nothing else changes."""

    def __init__(self, shards: int, groups: Sequence[Sequence[str]]) -> None:
        self.name = f"eyechart-{uuid.uuid4().hex}"
        self.shards, self.groups = shards, groups
        self.tasks_done = Counter[str]()
        """By worker."""
        self.attempts: dict[tuple[int, str], list[Attempt]] = {}
        """By task, in the order in which they were seen here: the last is the one that counts."""
        self._over: set[bytes] = set()
        """Keys of attempts whose task has ended, or was begun again."""
        self._lost: set[str] = set()
        """Workers whose task was begun again."""

    @property
    def repeated(self) -> int:
        """How often a task was begun again, because its worker or what it had seen was lost."""
        return sum(len(attempts) - 1 for attempts in self.attempts.values())

    def ended(self, shard: int, part: str, worker: str) -> None:
        """A task has ended; the entries of a shard go with its last one."""
        self.tasks_done[worker] += 1
        self.look()
        self._over |= {attempt.key for attempt in self.attempts.get((shard, part), ())}
        if part in (ALL, SUM):
            self._remove(f"{self.name}|{shard}|")

    def look(self) -> dict[str, Attempt]:
        """What each worker is at, of those that are at anything."""
        with suppress(Exception):
            keys = _store()._internal_kv_list(f"{self.name}|")
            for attempt in map(Attempt.read, sorted(keys, key=lambda key: key.rpartition(b"|")[2])):
                others = self.attempts.setdefault(attempt.task, [])
                if attempt not in others:
                    self._over |= {other.key for other in others}
                    self._lost |= {other.worker for other in others}
                    others.append(attempt)
        every = (attempt for attempts in self.attempts.values() for attempt in attempts)
        return {attempt.worker: attempt for attempt in every if attempt.key not in self._over}

    def lines(self) -> list[str]:
        """One for each worker, always in the same order; those that are gone come last."""
        busy = self.look()
        lost = self._lost - busy.keys()

        def words(worker: str) -> str:
            if worker in busy:
                return self._words(busy[worker])
            return f"{'lost' if worker in lost else 'idle'}, {count(self.tasks_done[worker], 'task')} done"

        known = self.tasks_done.keys() | busy.keys() | lost
        if not known:
            return ["waiting for the first worker"]
        return [f"{worker}  {words(worker)}" for worker in sorted(known, key=lambda name: (name in lost, name))]

    def _words(self, attempt: Attempt) -> str:
        words = ""
        with suppress(Exception):
            words = (_store()._internal_kv_get(attempt.key) or b"").decode(errors="replace")
        if attempt.part == SUM:
            words = "adding up"
        elif attempt.part != ALL:
            first, *others = self.groups[int(attempt.part)]
            names = f"{first} and {len(others)} more" if others else first
            words = f"group {int(attempt.part) + 1} of {len(self.groups)} ({names}), {words or 'begins'}"
        number = len(self.attempts[attempt.task])
        again = f"; attempt {number}" if number > 1 else ""
        return f"shard {attempt.shard + 1} of {self.shards}: {words or 'begins'}{again}"

    def close(self) -> None:
        self._remove(f"{self.name}|")

    def _remove(self, prefix: str) -> None:
        with suppress(Exception):
            _store()._internal_kv_del(prefix, del_by_prefix=True)


def told(workers: Mapping[str, int], repeated: int = 0) -> str:
    """What each worker has done, in a line.

    >>> told({"one/17": 3, "other/4": 1}), told({f"one/{number}": 1 + number % 2 for number in range(64)}, 2)
    ('one/17: 3 tasks, other/4: 1 task', '64 workers: 1 to 2 tasks each; 2 were begun again')
    """
    again = f"; {repeated} {'was' if repeated == 1 else 'were'} begun again" if repeated else ""
    if len(workers) > SHOWN:
        return f"{len(workers)} workers: {min(workers.values())} to {max(workers.values())} tasks each{again}"
    return ", ".join(f"{name}: {count(tasks, 'task')}" for name, tasks in workers.items()) + again
