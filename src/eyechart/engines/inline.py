"""The default engine: this process, one shard after the other. Sound shards already there are not computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eyechart.engines.shard import TappedSubject, examine_shard

if TYPE_CHECKING:
    from eyechart.images import BatchPlan, Images
    from eyechart.run import Run


def examine(
    run: Run,
    tapped: Callable[[], Sequence[TappedSubject]],
    images: Images,
    batches: BatchPlan,
    advance: Callable[[int], Any] = lambda images: None,
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Write every shard of the plan that is not there yet, and say whether there was one to compute.

    Between two shards, where all that was computed is saved, it stops if `stopping` says so.
    Only then is `tapped` called, and `advance`: where nothing is left to do, nothing is said to be done.
    """
    ready: Sequence[TappedSubject] | None = None
    finished = 0  # images of shards that were there, not yet told
    for index in range(len(batches.shards)):
        todo = batches.batches(index)
        if run.read_tallies(index) is not None:
            finished += sum(len(batch.images) for batch in todo)
            continue
        ready = ready or tapped()
        if finished:
            advance(finished)
            finished = 0
        tallies = examine_shard(ready, images, todo, list(run.measures.values()), run.scene, advance)
        run.write_shard(index, tallies)
        if stopping():
            raise KeyboardInterrupt
    if ready is not None and finished:
        advance(finished)
    return ready is not None
