"""Shards → findings: each measure by itself, several side by side.

Resampling is Python's work on small arrays: one thread does it best (the decoders of token_place took 6 s of CPU time;
with two threads of BLAS, beside a busy neighbour, 92), and a second core helps only as a second process. Such a helper
leaves what it makes in the run folder:

    python -m eyechart.findings RUN     reads names of measures, a line each, and says each again when it is there

What a helper does not deliver, because it was killed or could not start, is made here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eyechart.errors import RunFolderError
from eyechart.intervals import with_intervals
from eyechart.memory import keep_freed_memory
from eyechart.run import Run

if TYPE_CHECKING:
    import xarray

FEWEST = 4
"""Measures for each process: a helper's imports take as long as a finding or two."""
MOST = 8
"""Processes: more of them would wait for the longest measure."""


def make_findings(
    run: Run, processes: int = 1, told: Callable[[str], object] = lambda name: None
) -> dict[str, xarray.Dataset]:
    """The findings of all measures of a run whose shards are there, written into its folder.

    `told` hears the name of each when it is made.
    """
    count = len(run.plan["batches"]["shards"])
    if missing := sum(not run.has_shard(index) for index in range(count)):
        raise RunFolderError(f"{run.path}: {missing} of {count} shards are missing; run the exam again.")
    waiting, delivered, left = deque(run.measures), deque[str](), list(run.measures)
    processes = min(processes, MOST, len(left) // FEWEST)
    if any("sha256" in entry for entry in run.plan["measures"]):  # measures of a plugin are known to this process alone
        processes = 1

    def tell(name: str) -> None:
        left.remove(name)
        told(name)

    with one_thread(), _helpers(run.path, processes - 1, waiting, delivered) as wait:
        for name in _taken(waiting):
            make_finding(run, name)
            tell(name)
            for other in _taken(delivered):
                tell(other)
        wait()
        for other in _taken(delivered):
            tell(other)
        if left:
            run.notice(f"A helper process ended early; what it had begun ({', '.join(left)}) was made again.")
        for name in tuple(left):
            make_finding(run, name)
            tell(name)
    return {name: run.read_finding(run.path / "findings" / f"{name}.nc") for name in run.measures}


def make_finding(run: Run, name: str) -> None:
    tally = run.measures[name].tally(run.scene)
    for index in range(len(run.plan["batches"]["shards"])):  # in index order: memory is one tally's, numbers the same
        tally = tally.merge(run.read_tally(index, name))
    run.write_finding(name, with_intervals(run.measures[name], tally, run.scene))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and for the linear algebra of NumPy, which would take every core for the smallest matrix."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _helpers(folder: Path, count: int, waiting: deque[str], delivered: deque[str]) -> Iterator[Callable[[], None]]:
    """So many processes that take names from `waiting`; what is yielded waits until they are done."""
    paths = os.pathsep.join(path for path in sys.path if path)  # the same eyechart as here, wherever it came from
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    processes, threads = [], []
    try:
        for _ in range(count if sys.executable else 0):
            process = subprocess.Popen(
                [sys.executable, "-m", "eyechart.findings", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # where it fails, the same fails here, and is told
                text=True,
                env=environment,
            )
            processes.append(process)
            threads.append(threading.Thread(target=_feed, args=(process, waiting, delivered), daemon=True))
            threads[-1].start()

        def wait() -> None:
            for thread in threads:
                thread.join()

        yield wait
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _feed(process: subprocess.Popen[str], waiting: deque[str], delivered: deque[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":  # nothing is given to one that could not start
            return
        for name in _taken(waiting):
            print(name, file=process.stdin, flush=True)
            if process.stdout.readline() != f"{name}\n":
                return
            delivered.append(name)
    except (OSError, ValueError):  # it was killed
        return


def _taken(names: deque[str]) -> Iterator[str]:
    """Names until none is left; several may take from one list."""
    while True:
        try:
            yield names.popleft()
        except IndexError:
            return


def main() -> None:
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the exam, which ends its helpers
    run = Run(Path(sys.argv[1]))
    with one_thread():
        print("ready", flush=True)
        for line in sys.stdin:
            make_finding(run, line.strip())
            print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
