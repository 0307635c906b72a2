"""An exam made ready: what a process needs to compute any of its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eyechart.engines.interruption import between_shards

if TYPE_CHECKING:
    from eyechart.engines.clock import Clock, Steps
    from eyechart.engines.picture_readers import PictureReaders
    from eyechart.engines.shard import Seen, TappedSubject
    from eyechart.images import BatchPlan, Images
    from eyechart.measure import Measure
    from eyechart.run import Run
    from eyechart.scene import Batch, Scene
    from eyechart.sites import Anatomy
    from eyechart.subjects.subject import Subject
    from eyechart.tally import Tally

Prepare = Callable[..., "Prepared"]
"""The same exam made ready again, in another process: it can be pickled. With `part=Part(…)`, some subjects of it."""


@dataclass(frozen=True)
class Part:
    """Some subjects of an exam that another process has planned."""

    plan: Mapping[str, Any]
    places: Sequence[int]
    """Which of its subjects."""

    @property
    def asked(self) -> dict[str, Any]:
        """The plan with these subjects alone: what a plan of them is compared with."""
        return {**self.plan, "subjects": [self.plan["subjects"][place] for place in self.places]}


@dataclass
class Prepared:
    """The plan with subjects, anatomies and images as they are in this process."""

    plan: Mapping[str, Any]
    subjects: Sequence[Subject]
    anatomies: Sequence[Anatomy]
    source: Images
    batches: BatchPlan
    _tapped: Sequence[TappedSubject] | None = field(default=None, init=False, repr=False)
    _readers: PictureReaders | None = field(default=None, init=False, repr=False)

    def compute(
        self, shard: int, measures: Sequence[Measure], scene: Scene, clock: Steps | None = None
    ) -> dict[str, Tally]:
        """The tallies of one shard."""
        from eyechart.engines.shard import examine_shard

        between_shards()
        tapped, batches = self.tapped(measures), self.batches.batches(shard)
        return examine_shard(tapped, self._readers or self.source, batches, measures, scene, clock)

    def look(
        self, shard: int, measures: Sequence[Measure], scene: Scene, clock: Steps | None = None
    ) -> Iterator[tuple[Batch, Seen]]:
        """What the batches of one shard show of the subjects that are here; the scene is that of the whole exam."""
        from eyechart.engines.shard import look_at

        return look_at(self.tapped(measures), self.source, self.batches.batches(shard), scene, clock)

    @contextmanager
    def reading(self, shards: Sequence[int], measures: Sequence[Measure]) -> Iterator[None]:
        """While this lasts, the pictures of these shards are read by processes of their own, where that gains."""
        from eyechart.engines.picture_readers import WORTH, picture_readers
        from eyechart.engines.shard import ways_to_read
        from eyechart.images.source import EncodedImages

        batches = [batch for shard in shards for batch in self.batches.batches(shard)]
        ways = ways_to_read(self.tapped(measures)) if self.on_gpu else None
        many = sum(len(batch.images) for batch in batches) >= WORTH
        if ways is None or not many or not isinstance(self.source, EncodedImages):
            yield
            return
        with picture_readers(self.source, ways, max(len(batch.images) for batch in batches)) as self._readers:
            try:
                yield
            finally:
                self._readers = None

    @property
    def on_gpu(self) -> bool:
        return all(subject.device.type == "cuda" for subject in self.subjects)

    def tapped(self, measures: Sequence[Measure]) -> Sequence[TappedSubject]:
        """The subjects under their taps, where the first call puts them."""
        from eyechart.engines.shard import TappedSubject

        if self._tapped is None:
            pairs = zip(self.subjects, self.anatomies, strict=True)
            self._tapped = [TappedSubject(subject, anatomy, measures) for subject, anatomy in pairs]
        return self._tapped


def missing_shards(run: Run, prepared: Prepared, clock: Clock) -> list[int]:
    """The shards that are not there yet; the clock is told of those that are."""
    every = range(len(prepared.batches.shards))
    missing = [shard for shard in every if not run.has_shard(shard)]
    for shard in set(every) - set(missing):
        clock.already(prepared.batches.batches(shard))
    return missing
