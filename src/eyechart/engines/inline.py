"""The default engine: this process, one shard after the other. Shards already there are not computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eyechart.engines.shard import Station, examine_shard

if TYPE_CHECKING:
    from eyechart.images import Images, Plan
    from eyechart.store import Run


def examine(
    run: Run,
    stations: Callable[[], Sequence[Station]],
    images: Images,
    batches: Plan,
    advance: Callable[[int], Any] = lambda images: None,
) -> bool:
    """Write every shard of the plan that is not there yet, and say whether there was one to compute.

    `stations` is called only then.
    """
    ready: Sequence[Station] | None = None
    for index in range(len(batches.shards)):
        todo = batches.batches(index)
        if run.read_shard(index) is not None:
            advance(sum(len(batch.images) for batch in todo))
            continue
        ready = ready or stations()
        tallies = examine_shard(ready, images, todo, list(run.measures.values()), run.scene, advance)
        run.write_shard(index, tallies)
    return ready is not None
