"""Shards × groups of subjects as tasks on a Ray cluster: an existing one (`ray://ADDRESS`, `auto`), or one on this
machine.

A task carries what was asked, not what was loaded: a worker makes the exam ready for itself once, and refuses if that
gives another question than the driver's (other weights, images or versions there). A shard comes back as the bytes
of its file, which the driver writes, so workers need no common file system. Ray repeats tasks whose worker died.

Subjects whose weights fit together (`ROOM`) are one group, and a shard is then one task. Where there are more, a task
looks at a shard with one group, whose subjects alone its worker loads; what it saw (views and results of experiments)
stays in Ray's object store, and a last task adds it up for all subjects. So measures that compare subjects need no two
of them in one process, and the numbers are the same: tallies are given what they are given elsewhere. That moves about
0.3 MB for each image and subject (ViT-S/16, ResNet-50; all measures of the shared pass).
"""

from __future__ import annotations

import os
import pickle
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eyechart.engines.interruption import between_shards
from eyechart.engines.prepared import Part, Prepare, Prepared, missing_shards
from eyechart.engines.ray_board import ALL, EVERY, SUM, Board, Entry, told
from eyechart.errors import EngineError, EyechartError
from eyechart.question import what_differs
from eyechart.ray_connection import RETRIES, connected

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock
    from eyechart.run import Run
    from eyechart.subjects.subject import Subject

AHEAD = 2  # tasks that wait for each one that runs, so that no worker waits for the driver
ROOM = 2 << 30  # bytes of weights that a group has at most, unless one subject has more
MEMORY_OF_GPU = 16 << 30  # bytes that a GPU is taken to have at least
ACTIVATIONS = 2 << 30  # bytes that a batch may take beside the weights

_prepared: dict[tuple[str, tuple[int, ...]], Prepared] = {}  # in a worker: what it made ready, by question and group


def made_ready(
    asked: Mapping[str, Any],
    version: str,
    again: Prepare,
    threads: int,
    group: Sequence[int] | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> Prepared:
    """In a worker: the exam that the driver's plan asks for, or a group of its subjects."""
    begin(version, threads)
    key = (asked["question"], tuple(group or ()))
    if key not in _prepared:
        _prepared.clear()  # first: memory is that of one group
        part = None if group is None else Part(asked, group)
        prepared = again(progress=say) if part is None else again(part=part, progress=say)
        if differs := what_differs(asked if part is None else part.asked, prepared.plan):
            raise EngineError(f"A Ray worker would not compute what the driver asks for: there {differs}.")
        _prepared[key] = prepared
    return _prepared[key]


def begin(version: str, threads: int) -> None:
    import torch

    import eyechart

    if eyechart.__version__ != version:
        raise EngineError(
            f"A Ray worker has eyechart {eyechart.__version__}, the driver {version}; install the same one."
        )
    torch.set_num_threads(threads)


class Done(NamedTuple):
    """What a task gives back when it ends."""

    packed: bytes | None
    """The bytes of a shard's file; None where a group was looked at."""
    worker: str


def own_name() -> str:
    return f"{platform.node()}/{os.getpid()}"


def compute_shard(asked: Mapping[str, Any], version: str, again: Prepare, shard: int, threads: int, board: str) -> Done:
    """In a worker: the bytes of one shard's file, all subjects at once."""
    from eyechart.engines.plan import scene_of
    from eyechart.measures import planned_measures
    from eyechart.shard_files import pack_shard

    with Entry(board, shard, ALL, own_name()) as entry:
        prepared = made_ready(asked, version, again, threads, say=entry.say)
        tallies = prepared.compute(shard, planned_measures(asked["measures"]), scene_of(asked), entry)
    return Done(pack_shard(tallies, asked["question"], shard), own_name())


def look_at_shard(
    asked: Mapping[str, Any],
    version: str,
    again: Prepare,
    shard: int,
    threads: int,
    board: str,
    part: str,
    group: Sequence[int],
) -> Iterator[np.ndarray | Done]:
    """In a worker: what each batch of a shard shows of a group, pickled, and when that was all, that it is done.

    As an array of bytes, which another worker on the same machine reads where it lies: of all that it is given, only
    the batch that it adds up takes memory of its own.
    """
    from eyechart.engines.plan import scene_of
    from eyechart.measures import planned_measures

    with Entry(board, shard, part, own_name()) as entry:
        prepared = made_ready(asked, version, again, threads, group, entry.say)
        for _, seen in prepared.look(shard, planned_measures(asked["measures"]), scene_of(asked), entry):
            yield np.frombuffer(pickle.dumps(seen.compact()), np.uint8)
    yield Done(None, own_name())


def add_up_shard(
    asked: Mapping[str, Any], version: str, shard: int, threads: int, board: str, *seen: np.ndarray
) -> Done:
    """In a worker: the bytes of one shard's file, from what all groups saw of its first batch, of its second, …

    They are arguments of their own, not a list of references: of such a list Ray 2.60 did not bring back what was lost
    with a node, and waited for ever.
    """
    from eyechart.engines.plan import scene_of
    from eyechart.engines.shard import Seen, add_up
    from eyechart.images import BatchPlan
    from eyechart.measures import load_plugin, planned_measures
    from eyechart.shard_files import pack_shard

    begin(version, threads)
    for plugin in {entry["plugin"] for entry in asked["measures"] if "plugin" in entry}:
        load_plugin(plugin)
    batches = BatchPlan.from_json(asked["batches"]).batches(shard)
    groups = len(seen) // len(batches)
    by_batch = (seen[at : at + groups] for at in range(0, len(seen), groups))
    together = (
        (batch, Seen.together(pickle.loads(part.data) for part in parts))
        for batch, parts in zip(batches, by_batch, strict=True)
    )
    with Entry(board, shard, SUM, own_name()):
        tallies = add_up(together, planned_measures(asked["measures"]), scene_of(asked))
    return Done(pack_shard(tallies, asked["question"], shard), own_name())


class RayCluster:
    finishes = True

    def __init__(self, address: str = "") -> None:
        self.address = address

    def admit(self, folder: Path, *, overwrite: bool) -> None:
        """The driver alone writes into this folder."""

    def examine(self, run: Run, prepared: Prepared, again: Prepare, clock: Clock) -> bool:
        missing = missing_shards(run, prepared, clock)
        if missing:
            self.compute(run, prepared, again, missing, clock)
        return bool(missing)

    def compute(self, run: Run, prepared: Prepared, again: Prepare, missing: list[int], clock: Clock) -> None:
        import torch

        clock.meanwhile([f"connecting to Ray at {self.address}" if self.address else "starting Ray on this machine"])
        ray = connected(self.address)
        threads = torch.get_num_threads()
        clock.workers = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        tasks = Tasks(ray, run.plan, prepared, again, threads)
        board = tasks.board
        waiting = list(missing)
        try:
            while waiting or tasks.going:
                while waiting and len(tasks.going) < clock.workers * AHEAD:
                    tasks.begin(waiting.pop(0))
                for shard, packed in tasks.ended():
                    run.keep_shard(shard, packed)
                    clock.elsewhere(prepared.batches.batches(shard), told(board.tasks_done, board.repeated))
                    between_shards()
                clock.meanwhile(board.lines())
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, EyechartError):
                raise cause from None
            raise EngineError(f"A Ray worker failed: {type(cause).__name__}: {cause}") from error
        except ray.exceptions.RayError as error:
            words = str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
            memory = " Give its machines more memory or fewer CPUs." if "memory" in words else ""
            raise EngineError(
                f"Ray lost a shard and {RETRIES} further attempts ({words}); what is there is kept, and the same "
                f"command continues.{memory}"
            ) from error
        finally:
            for reference in tasks.going:
                ray.cancel(reference, force=True)
            board.close()


class Tasks:
    """The tasks that a driver has given to Ray and that have not ended."""

    def __init__(self, ray: Any, plan: Mapping[str, Any], prepared: Prepared, again: Prepare, threads: int) -> None:
        import eyechart

        self.ray, self.prepared, self.threads = ray, prepared, threads
        self.groups = groups_of(prepared.subjects)
        self.asked, self.again, self.version = ray.put(plan), ray.put(again), eyechart.__version__
        names = [[prepared.subjects[place].name for place in group] for group in self.groups]
        self.board = Board(len(prepared.batches.shards), names)
        self.going: dict[Any, tuple[int, str]] = {}
        """The shard that each reference is of, and the part of it."""
        self.seen: dict[int, list[Any]] = {}
        """Of shards that groups look at: references to what each group saw of the first batch, of the second, …"""

    def begin(self, shard: int) -> None:
        if len(self.groups) == 1:
            task = self._remote(compute_shard, self.groups[0])
            arguments = (self.asked, self.version, self.again, shard, self.threads, self.board.name)
            self.going[task.remote(*arguments)] = shard, ALL
            return
        batches = len(self.prepared.batches.shards[shard])
        by_group = []
        for number, group in enumerate(self.groups):
            task = self._remote(look_at_shard, group, num_returns=batches + 1)
            arguments = (self.asked, self.version, self.again, shard, self.threads, self.board.name)
            *seen, end = task.remote(*arguments, str(number), group)
            by_group.append(seen)
            self.going[end] = shard, str(number)
        self.seen[shard] = [seen for of_batch in zip(*by_group, strict=True) for seen in of_batch]

    def ended(self) -> list[tuple[int, bytes]]:
        """Waits a little for a task to end; the shard, with the bytes of its file, if that made one whole."""
        references = self.ray.wait(list(self.going), num_returns=1, timeout=EVERY)[0]
        if not references:
            return []
        shard, part = self.going.pop(references[0])
        packed, worker = self.ray.get(references[0])
        self.board.ended(shard, part, worker)
        if packed is not None:
            self.seen.pop(shard, None)  # Ray forgets what nobody refers to
            return [(shard, packed)]
        if not any(other == shard for other, _ in self.going.values()):
            task = self._remote(add_up_shard, ())
            arguments = (self.asked, self.version, shard, self.threads, self.board.name)
            self.going[task.remote(*arguments, *self.seen[shard])] = shard, SUM
        return []

    def _remote(self, work: Any, group: Sequence[int], **more: Any) -> Any:
        """A task with what it needs of a machine."""
        needs: dict[str, Any] = {"num_cpus": self.threads, "max_retries": RETRIES, **more}
        if group and self.prepared.subjects[0].device.type == "cuda":
            needs["num_gpus"] = share_of_gpu(sum(self.prepared.subjects[place].parameters for place in group))
        return self.ray.remote(**needs)(work)


def groups_of(subjects: Sequence[Subject]) -> list[list[int]]:
    """Places of subjects whose weights have room together, one group after the other."""
    from eyechart.subjects.parking import weight_bytes

    groups: list[list[int]] = []
    room = 0
    for place, subject in enumerate(subjects):
        size = weight_bytes(subject.module)
        if size > room or not groups:
            groups.append([])
            room = ROOM
        groups[-1].append(place)
        room -= size
    return groups


def share_of_gpu(parameters: int) -> float:
    """Of a GPU, for one task: weights in float32 four times over, and a batch's activations.

    >>> share_of_gpu(3_000_000), share_of_gpu(300_000_000)
    (0.2, 0.5)
    """
    share = (16 * parameters + ACTIVATIONS) / MEMORY_OF_GPU
    return min(1.0, max(0.1, round(share + 0.05, 1)))
