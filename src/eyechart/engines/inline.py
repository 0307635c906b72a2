"""The default engine: this process, one shard after the other, with helpers beside it where that is shorter.

Sound shards already there are not computed again.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from eyechart.engines.interruption import between_shards, is_asked_to_stop
from eyechart.engines.prepared import Prepare, Prepared, missing_shards
from eyechart.engines.shard_helper import helpers_worth, told
from eyechart.helper_processes import Helpers, helped, taken

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
        measures, left = list(run.measures.values()), {str(shard) for shard in missing}

        def compute(shard: str) -> None:
            run.write_shard(int(shard), prepared.compute(int(shard), measures, run.scene, clock))
            left.remove(shard)

        def look(helpers: Helpers) -> None:
            clock.workers = 1 + helpers.working
            for shard in taken(helpers.delivered):
                clock.already(prepared.batches.batches(int(shard)))
                left.remove(shard)

        waiting = deque(sorted(left, key=int))
        count = helpers_worth(run.plan["settings"], again, clock, len(missing))
        with (
            helped("eyechart.engines.shard_helper", run.path, count, waiting, told(again) if count else "") as helpers,
            prepared.reading(missing, measures),
        ):
            for shard in taken(waiting):
                if is_asked_to_stop():
                    waiting.clear()  # helpers, too, end what they have begun
                    break
                compute(shard)
                look(helpers)
            if left:
                clock.say("another process ends its shard")
            helpers.wait()
            look(helpers)
        clock.workers = 1
        between_shards()
        if left:
            run.notice(f"A helper process ended early; its shards ({', '.join(sorted(left, key=int))}) were made here.")
        for shard in sorted(left, key=int):
            compute(shard)
        return bool(missing)
