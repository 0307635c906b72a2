"""A second process for the shards of small subjects on a CPU: `python -m eyechart.engines.shard_helper RUN`.

Two threads hardly help where a pass takes milliseconds, so small subjects run on one thread each in as many processes
as there would have been threads. Numbers are those of one process with the same plan: a shard is a shard, whoever
computes it.
"""

from __future__ import annotations

import base64
import functools
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.errors import EngineError
from eyechart.helper_processes import help_with
from eyechart.question import what_differs
from eyechart.store import RunFiles

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock
    from eyechart.engines.prepared import Prepare
    from eyechart.sites import Anatomy
    from eyechart.subjects.subject import Subject

SMALL = 2e9
"""Operations of a pass of one image: several times a model of the zoo. Beyond that threads help, and memory counts."""
LIGHT = 256 << 20
"""Bytes of weights of all subjects, which every process holds."""
MOST = 4
"""Processes. Experiments use the first images, so that the first of 16 shards is two fifths of the bundled exam."""
WORTH = 15.0
"""Seconds of work on images for each process: a helper's imports and its own dry runs take half of that."""
MEMORY = 3 << 30
"""Bytes that must be free for each helper: one of the bundled exam takes half of that."""


def division(subjects: Sequence[Subject], anatomies: Sequence[Anatomy]) -> dict[str, int]:
    """Into how many processes an exam is divided here, and the threads of each."""
    import torch

    from eyechart.subjects.parking import weight_bytes

    threads = torch.get_num_threads()
    small = all(anatomy.flops <= SMALL for anatomy in anatomies)
    light = sum(weight_bytes(subject.module) for subject in subjects) <= LIGHT
    if small and light and all(subject.device.type == "cpu" for subject in subjects):
        return {"threads": 1, "processes": min(threads, MOST)}
    return {"threads": threads, "processes": 1}


def helpers_worth(settings: Mapping[str, Any], again: Prepare, clock: Clock, shards: int) -> int:
    """How many helpers are started for so many missing shards."""
    return processes_worth(settings, again, clock.left_on_images, shards) - 1


def processes_worth(settings: Mapping[str, Any], again: Prepare, seconds: float, shards: int) -> int:
    """How many processes share so many seconds of work on the images of so many shards."""
    if not can_be_told(again):
        return 1
    most = min(int(settings.get("processes", 1)), shards, int(seconds / WORTH))
    return 1 + max(0, min(most - 1, free_memory() // MEMORY))


def can_be_told(again: Prepare) -> bool:
    """Whether another process can make this exam ready: its subjects and images have names, and are in no memory."""
    given = again.args[:2] if isinstance(again, functools.partial) else ()
    if len(given) < 2 or not isinstance(given[1], str | Path):
        return False
    subjects = list(given[0].values()) if isinstance(given[0], Mapping) else given[0]
    return all(isinstance(subject, str) for subject in (subjects if isinstance(subjects, list | tuple) else [subjects]))


def free_memory() -> int:
    """Bytes that processes may still take; where the system does not say, enough."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return MOST * MEMORY


def told(again: Prepare) -> str:
    """What a helper is told first."""
    return base64.b64encode(pickle.dumps(again)).decode()


def shard_maker() -> Callable[[str], object]:
    """What computes a shard of the run whose folder is this process's argument, and leaves it there."""
    import torch

    from eyechart.engines.plan import scene_of
    from eyechart.measures import planned_measures

    run = RunFiles(Path(sys.argv[1]))
    again = pickle.loads(base64.b64decode(sys.stdin.readline()))
    torch.set_num_threads(int(run.plan["settings"]["threads"]))
    prepared = again()
    if differs := what_differs(run.plan, prepared.plan):
        raise EngineError(f"A helper would not compute what was asked for: there {differs}.")
    measures, scene = planned_measures(run.plan["measures"]), scene_of(run.plan)
    return lambda shard: run.write_shard(int(shard), prepared.compute(int(shard), measures, scene))


if __name__ == "__main__":
    help_with(shard_maker)
