"""An exam made ready: what a process needs to compute any of its shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eyechart.engines.interruption import between_shards

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock
    from eyechart.engines.shard import TappedSubject
    from eyechart.images import BatchPlan, Images
    from eyechart.measure import Measure
    from eyechart.run import Run
    from eyechart.scene import Scene
    from eyechart.sites import Anatomy
    from eyechart.subjects.subject import Subject
    from eyechart.tally import Tally

Prepare = Callable[[], "Prepared"]
"""The same exam made ready again, in another process: it can be pickled."""


@dataclass
class Prepared:
    """The plan with subjects, anatomies and images as they are in this process."""

    plan: Mapping[str, Any]
    subjects: Sequence[Subject]
    anatomies: Sequence[Anatomy]
    source: Images
    batches: BatchPlan
    _tapped: Sequence[TappedSubject] | None = field(default=None, init=False, repr=False)

    def compute(
        self, shard: int, measures: Sequence[Measure], scene: Scene, clock: Clock | None = None
    ) -> dict[str, Tally]:
        """The tallies of one shard; the first call puts the subjects under their taps."""
        from eyechart.engines.shard import TappedSubject, examine_shard

        between_shards()
        if self._tapped is None:
            pairs = zip(self.subjects, self.anatomies, strict=True)
            self._tapped = [TappedSubject(subject, anatomy, measures) for subject, anatomy in pairs]
        return examine_shard(self._tapped, self.source, self.batches.batches(shard), measures, scene, clock)


def missing_shards(run: Run, prepared: Prepared, clock: Clock) -> list[int]:
    """The shards that are not there yet; the clock is told of those that are."""
    every = range(len(prepared.batches.shards))
    missing = [shard for shard in every if not run.has_shard(shard)]
    for shard in set(every) - set(missing):
        clock.already(prepared.batches.batches(shard))
    return missing
