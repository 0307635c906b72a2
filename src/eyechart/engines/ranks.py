"""Several processes started by somebody else (torchrun, SLURM), each with the same command and a rank of its own.

Shard files are all they share: rank r of n computes the shards r, r + n, r + 2n, …, and rank 0 finishes the run when
all are there. No collectives, so ranks may be on different machines with one file system, and need not share evenly.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from eyechart.engines.prepared import Prepare, Prepared, missing_shards
from eyechart.errors import EngineError, UsageError

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock
    from eyechart.run import Run

NAMES = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
WAIT_SECONDS = 600.0
"""Longest silence: no plan, or no new shard of another rank, for so long means that somebody is gone."""
POLL_SECONDS = 0.2


def own_rank() -> tuple[int, int]:
    """This process's rank and how many there are, as its launcher says.

    >>> import os
    >>> os.environ |= {"RANK": "1", "WORLD_SIZE": "4"}
    >>> own_rank()
    (1, 4)
    >>> del os.environ["RANK"], os.environ["WORLD_SIZE"]
    """
    for rank, size in NAMES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    raise UsageError(
        "--engine ranks needs a launcher that sets RANK and WORLD_SIZE (or SLURM's variables), such as "
        "torchrun --nproc-per-node 2 -m eyechart exam --engine ranks --out FOLDER; there are none."
    )


class Ranks:
    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        self.rank, self.size = own_rank()
        self.wait_seconds = wait_seconds

    @property
    def finishes(self) -> bool:
        return self.rank == 0

    def admit(self, folder: Path, *, overwrite: bool) -> None:
        """Rank 0 opens the folder; the others wait until its plan is there."""
        if overwrite:
            raise UsageError("--overwrite cannot be used with --engine ranks: one rank would delete what another made.")
        began = time.monotonic()
        while self.rank and not (folder / "plan.json").exists():
            if time.monotonic() - began > self.wait_seconds:
                raise EngineError(
                    f"Rank {self.rank} waited {self.wait_seconds:.0f} s for {folder / 'plan.json'}, written by rank 0;"
                    " check that rank 0 runs and that all ranks see the same folder (--out)."
                )
            time.sleep(POLL_SECONDS)

    def examine(self, run: Run, prepared: Prepared, again: Prepare, clock: Clock) -> bool:
        missing = missing_shards(run, prepared, clock)
        clock.workers = self.size
        for shard in missing:
            if shard % self.size == self.rank:
                run.write_shard(shard, prepared.compute(shard, list(run.measures.values()), run.scene, clock))
        if self.finishes:
            self.wait_for(run, prepared, [shard for shard in missing if shard % self.size], clock)
        return bool(missing)

    def wait_for(self, run: Run, prepared: Prepared, shards: list[int], clock: Clock) -> None:
        """Until the other ranks' shards are there."""
        last = time.monotonic()
        while shards:
            there = [shard for shard in shards if run.has_shard(shard)]
            for shard in there:
                clock.elsewhere(prepared.batches.batches(shard))
                shards.remove(shard)
                last = time.monotonic()
            if shards and time.monotonic() - last > self.wait_seconds:
                raise EngineError(
                    f"{len(shards)} shards of other ranks have not come for {self.wait_seconds:.0f} s; what is there "
                    "is kept, and the same command continues."
                )
            time.sleep(POLL_SECONDS if shards else 0)
