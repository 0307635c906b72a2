"""Shards → findings: each measure by itself, several side by side.

Resampling is Python's work on small arrays: one thread does it best (the decoders of token_place took 6 s of CPU time;
with two threads of BLAS, beside a busy neighbour, 92), and a second core helps only as a second process: a helper
(`helper_processes.py`), which is given names of measures. What it does not deliver is made here. Large arrays are
another matter: few-shot on 8,192 features of a ViT-B and a ResNet-50 takes a minute of one core, nearly all of it
outside Python's lock, so there several weightings of the folds are estimated at a time.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eyechart.errors import RunFolderError
from eyechart.helper_processes import help_with, helped, taken
from eyechart.intervals import with_intervals
from eyechart.run import Run

if TYPE_CHECKING:
    import xarray

    from eyechart.tally import Tally

FEWEST = 4
"""Measures for each process: a helper's imports take as long as a finding or two."""
LARGE = 2_000_000
"""Bytes of a shard's tally whose finding takes longer than the imports of a helper: rows, maps of large subjects."""
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
    left, cores = list(run.measures), processes
    sizes = {name: size_of(run.read_tally(0, name)) for name in left}
    waiting = deque(sorted(left, key=lambda name: -sizes[name]))
    processes = min(processes, MOST, max(len(left) // FEWEST, sum(size > LARGE for size in sizes.values())))
    if any("sha256" in entry for entry in run.plan["measures"]):  # measures of a plugin are known to this process alone
        processes = 1

    def tell(name: str) -> None:
        left.remove(name)
        told(name)

    with one_thread(), helped("eyechart.findings", run.path, processes - 1, waiting, str(cores)) as helpers:
        for name in taken(waiting):
            make_finding(run, name, cores)
            tell(name)
            for other in taken(helpers.delivered):
                tell(other)
        helpers.wait()
        for other in taken(helpers.delivered):
            tell(other)
        if left:
            run.notice(f"A helper process ended early; what it had begun ({', '.join(left)}) was made again.")
        for name in tuple(left):
            make_finding(run, name, cores)
            tell(name)
    return {name: run.read_finding(run.path / "findings" / f"{name}.nc") for name in run.measures}


def size_of(tally: Tally) -> int:
    """Bytes. Rows of images, which are drawn anew hundreds of times, take most of them, and longest: they come first,
    for whoever began last with the longest would keep all others waiting."""
    return sum(values.numel() * values.element_size() for values in tally.tensors().values())


def make_finding(run: Run, name: str, cores: int = 1) -> None:
    tally = run.measures[name].tally(run.scene)
    for index in range(len(run.plan["batches"]["shards"])):  # in index order: memory is one tally's, numbers the same
        tally = tally.merge(run.read_tally(index, name))
    threads = max(1, cores // 2) if size_of(tally) > LARGE else 1  # other large ones are made at the same time
    run.write_finding(name, with_intervals(run.measures[name], tally, run.scene, threads))


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


def finding_maker() -> Callable[[str], object]:
    """In a helper: what makes a finding of the run whose folder is this process's argument."""
    run, cores = Run(Path(sys.argv[1])), int(sys.stdin.readline())
    return lambda name: make_finding(run, name, cores)


if __name__ == "__main__":
    with one_thread():
        help_with(finding_maker)
