"""The default engine: this process, one shard after the other. Sound shards already there are not computed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eyechart.engines.prepared import Prepare, Prepared, missing_shards

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock
    from eyechart.run import Run


class Inline:
    finishes = True

    def admit(self, folder: Path, *, overwrite: bool) -> None:
        """Nobody else works on this folder."""

    def examine(self, run: Run, prepared: Prepared, again: Prepare, clock: Clock) -> bool:
        """Write every shard of the plan that is not there yet, and say whether there was one to compute."""
        missing = missing_shards(run, prepared, clock)
        for shard in missing:
            run.write_shard(shard, prepared.compute(shard, list(run.measures.values()), run.scene, clock))
        return bool(missing)
