"""Jobs side by side, each worker process doing one after the other, so that many short jobs share one start-up.

A worker reads jobs from its standard input, a line of JSON each, and answers with lines of JSON: reports while it
works, and `{"ended": …}` with the exit code and the result of the job. On one GPU the workers share it. No torch here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from eyechart.errors import UsageError
from eyechart.training.progress import Report

Child = subprocess.Popen[str]


@dataclass(frozen=True)
class Job:
    """One piece of work: a label for its reports, and what the worker is told."""

    label: str
    task: Mapping[str, Any] = field(compare=False)


@dataclass(frozen=True)
class Ended:
    """How a job ended. A negative code is the signal that killed the worker; `result` is what the worker answered."""

    job: Job
    code: int
    result: Mapping[str, Any] | None = None


def work_through(
    module: str,
    jobs: Iterable[Job],
    parallel: int,
    report: Report,
    ended: Callable[[Ended], Iterable[Job]] = lambda ended: (),
    may_begin: Callable[[Job], bool] = lambda job: True,
    engine: str = "processes",
) -> None:
    """Every job, at most `parallel` at a time, by processes of `python -m MODULE` or by the cluster of `engine`.

    `ended` is called as each job ends and may give further jobs, which come before those that wait. A worker that was
    killed is replaced. A job is left out if it may not begin any more when its turn comes. An exception, such as an
    interruption, ends all workers.
    """
    hire = hiring(engine, module, max(1, parallel))
    waiting, going = deque(jobs), 0
    changed = threading.Condition()
    hired: list[Worker] = []
    failure: list[BaseException] = []

    def say(event: Mapping[str, Any]) -> None:
        with suppress(OSError):  # whoever read the reports may be gone; the work goes on without
            report(event)

    def leave_out() -> None:
        while waiting and not may_begin(waiting[0]):
            waiting.popleft()

    def take() -> Job | None:
        nonlocal going
        with changed:
            leave_out()
            while not waiting and going and not failure:
                changed.wait(0.5)
                leave_out()
            if not waiting or failure:
                return None
            going += 1
            return waiting.popleft()

    def give_back(end: Ended) -> None:
        nonlocal going
        with changed:
            waiting.extendleft(reversed(list(ended(end))))
            going -= 1
            changed.notify_all()

    def serve() -> None:
        worker: Worker | None = None
        try:
            while (job := take()) is not None:
                if worker is None:
                    worker = hire()
                    hired.append(worker)
                give_back(worker.ask(job, lambda event: _locked(changed, say, event)))
        except BaseException as error:
            with changed:
                failure.append(error)
                changed.notify_all()
        finally:
            if worker is not None:
                worker.close()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(max(1, parallel))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # so that an interruption is heard
    finally:
        for worker in hired:
            worker.kill()
    if failure:
        raise failure[0]


def _locked(lock: threading.Condition, say: Report, event: Mapping[str, Any]) -> None:
    with lock:
        say(event)


def hiring(engine: str, module: str, parallel: int) -> Callable[[], Worker]:
    """How to get one more worker."""
    if engine == "processes":
        return lambda: LocalWorker(module)
    if engine.partition(":")[0] != "ray":
        raise UsageError(f"The engine is one of processes, ray, ray:auto, ray://ADDRESS; got {engine!r}.")
    from eyechart.ray_connection import address_of
    from eyechart.training.ray_worker import RayWorker

    return lambda: RayWorker(module, address_of(engine), parallel)


class Worker(Protocol):
    def ask(self, job: Job, say: Report) -> Ended:
        """Do one job; one that dies ends the job with its exit code."""

    def close(self) -> None:
        """No more jobs come."""

    def kill(self) -> None:
        """Stop now."""


class LocalWorker:
    """A process of this machine, started with its first job, and again after one that killed it."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.child: Child | None = None

    def ask(self, job: Job, say: Report) -> Ended:
        if self.child is None or self.child.poll() is not None:
            self.child = _start(self.module)
        return _ask(self.child, job, say)

    def close(self) -> None:
        if self.child is not None and self.child.stdin is not None:
            with suppress(OSError):
                self.child.stdin.close()  # the end of its input is the end of the worker
            self.child.wait()

    def kill(self) -> None:
        if self.child is not None:
            self.child.terminate()


def _ask(child: Child, job: Job, say: Report) -> Ended:
    """One job given to a worker, and its answer; a worker that dies ends the job with its exit code."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(OSError):  # a worker that is gone has nothing to read: its exit code says so below
        child.stdin.write(json.dumps(job.task) + "\n")
        child.stdin.flush()
    for line in child.stdout:
        if not line.startswith("{"):  # a library may print a line of its own
            continue
        event = json.loads(line)
        if "ended" in event:
            return Ended(job, int(event["ended"]), event.get("result"))
        say({"run": job.label, **event})
    return Ended(job, child.wait() or 1)


def _start(module: str) -> Child:
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", module],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",  # a library may print what the pipe's encoding has no letters for
    )
