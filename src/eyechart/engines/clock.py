"""How far an exam is and how long the rest takes: expected seconds, corrected by the speed of this very run.

Each part is corrected by itself as soon as some of it is done; before that, by what else was done on its subject; and
before that, by all that was done. So the time left does not jump when a dear experiment gives way to a cheap one, and
a machine that is twice as slow as the expectation is known to be so after its first batch.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from eyechart.engines.workload import Kind, Part, Workload
from eyechart.phrases import one_line

if TYPE_CHECKING:
    from eyechart.scene import Batch

Tell = Callable[[str, float, float], None]
"""What is being done, seconds gone, and seconds it will take in all as far as is known now (infinite: it is not).
Lines after the first say what each worker of a cluster does just now."""

TRUST = 2.0
"""Seconds that the expectation of intervals and figures is worth: one that took a tenth of a second tells little."""
WORDS: dict[Kind, str] = {"intervals": "intervals", "figure": "figures"}
THEN: dict[Kind, str] = {"figure": "writing the page"}
"""What comes after all work of a kind, where nobody counts it."""


Group = Part | tuple[str, str] | str
"""A part by itself, all parts of one subject, all of a kind, or all that are done on images."""


def groups_of(part: Part) -> tuple[Group, ...]:
    """What a part says something about, nearest first."""
    return (part, ("subject", part.subject), "images") if part.subject else (part.kind,)


class Steps(Protocol):
    """Whoever is told what is being done on the images."""

    def doing(self, batch: Batch, subject: str, measure: str = "") -> AbstractContextManager[None]:
        """Around a piece of the work: the shared pass, or a measure's own."""

    def batch_done(self, batch: Batch) -> None:
        """All pieces of this batch are done."""

    def tell(self, what: str, done: float, total: float, /) -> None:
        """Of something that is not a step; see `Tell`."""


class Clock:
    def __init__(
        self, workload: Workload, tell: Tell, began: float | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.workload, self.tell, self.now = workload, tell, now
        self.expected = workload.expected()
        self.done = dict.fromkeys(self.expected, 0.0)  # shares
        self.speeds: dict[Group, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        """By group of parts: the seconds that they took, and those that were expected for as much of them."""
        self.workers = 1
        """How many work on the images at once."""
        self.last = self.now()
        self.began = self.last if began is None else began
        self.images = 0

    # --- what happens ---------------------------------------------------------------------------------------------

    @contextmanager
    def doing(self, batch: Batch, subject: str, measure: str = "") -> Iterator[None]:
        """Around a piece of the work; the time since the piece before (waiting for pictures) counts as this one's."""
        part = Part("experiment" if measure else "pass", measure, subject)
        portion = self.workload.portion(part, batch)
        if portion and self.expected.get(part):
            first, last, total = batch.start + 1, batch.start + len(batch.images), self.workload.scene.images
            self.say(f"images {first:,} to {last:,} of {total:,}: {subject}, {measure or 'the shared pass'}")
        yield
        self._charge({part: portion}, self.now() - self.last)

    def counting(self, kind: Kind, names: Iterable[str]) -> Callable[[str], None]:
        """To be called with each of these measures when its `kind` of work is done, here or by a helper."""
        left = list(names)
        total = len(left)
        self.last = self.now()
        self.say(f"{WORDS[kind]} of {total} measures")

        def done(name: str) -> None:
            left.remove(name)
            self._charge({Part(kind, name): 1.0}, self.now() - self.last)
            self.say(f"{WORDS[kind]}: {total - len(left)} of {total} measures")
            if not left and kind in THEN:
                self.say(THEN[kind])

        return done

    def batch_done(self, batch: Batch) -> None:
        self.images += len(batch.images)
        self.say(f"images: {self.images:,} of {self.workload.scene.images:,}")

    def already(self, batches: Sequence[Batch]) -> None:
        """These were done by an earlier call: nothing is left of them, and they say nothing about the speed."""
        for part, portion in self._portions(batches).items():
            self.done[part] += portion
        self.images += sum(len(batch.images) for batch in batches)

    def elsewhere(self, batches: Sequence[Batch], who: str = "") -> None:
        """Another process has done these meanwhile, one of `workers`; `who` says what is known of them."""
        portions = self._portions(batches)
        self._charge(portions, (self.now() - self.last) * self.workers)
        self.images += sum(len(batch.images) for batch in batches)
        self.say(f"images: {self.images:,} of {self.workload.scene.images:,}{f'; {who}' if who else ''}")

    def meanwhile(self, workers: Sequence[str]) -> None:
        """What each worker is doing, a line each; nothing was finished since the last time that anything was said."""
        gone = self.now() - self.began
        total = max(gone, self.last - self.began + self.left) if self.speeds else math.inf
        whole = f"images: {self.images:,} of {self.workload.scene.images:,}"
        self.tell("\n".join([whole, *map(one_line, workers)]), gone, total)

    def skip(self, *kinds: Kind) -> None:
        """Work of these kinds is not needed this time."""
        self.done |= {part: 1.0 for part in self.expected if part.kind in kinds}

    def say(self, words: str) -> None:
        gone = self.now() - self.began
        self.tell(one_line(words), gone, gone + self.left)

    # --- what it means --------------------------------------------------------------------------------------------

    @property
    def left(self) -> float:
        """Seconds, as far as is known now."""
        return self.left_on_images / self.workers + self._left("intervals", "figure", "page")

    @property
    def left_on_images(self) -> float:
        """Seconds of one worker."""
        return self._left("pass", "experiment")

    def _left(self, *kinds: Kind) -> float:
        return sum(
            cost * max(0.0, 1 - self.done[part]) * self._slowness(part)
            for part, cost in self.expected.items()
            if part.kind in kinds
        )

    def _slowness(self, part: Part) -> float:
        """Seconds that such work takes for each second that it was expected to take."""
        if not part.subject:
            spent, work = self.speeds["figure" if part.kind == "page" else part.kind]  # the page is written once
            return (spent + TRUST) / (work + TRUST)
        for group in groups_of(part):
            spent, work = self.speeds[group]
            if work > 0:
                return spent / work
        return 1.0

    def _portions(self, batches: Sequence[Batch]) -> dict[Part, float]:
        portions = {part: sum(self.workload.portion(part, batch) for batch in batches) for part in self.expected}
        return {part: portion for part, portion in portions.items() if portion}

    def _charge(self, portions: Mapping[Part, float], seconds: float) -> None:
        self.last = self.now()
        costs = {part: self.expected[part] * portion for part, portion in portions.items() if part in self.expected}
        whole = sum(costs.values())
        for part, cost in costs.items():
            self.done[part] += portions[part]
            taken = seconds * (cost / whole if whole else 1 / len(costs))
            for group in groups_of(part):
                spent, work = self.speeds[group]
                self.speeds[group] = (spent + taken, work + cost)
