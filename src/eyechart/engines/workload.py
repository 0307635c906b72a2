"""The work of an exam in parts, and the seconds that each is expected to take.

A part is the pass of one subject that measures share, one experiment on one subject, or the intervals, the figure or
the section of one measure. An experiment states how many forward passes it spends on an image
(`SampledExperiment.passes`): of 27 measured on the bundled pair, 20 took between 0.8 and 1.3 times that, and 24 between
0.8 and 1.6. So all that has to be known is how long a pass takes here: `forecast.py` measures it beforehand, `clock.py`
learns it while the exam runs.

`--effort` does not size measures by what is measured: sizes stand in the plan, the plan is the question, and two calls
of one command must ask the same question, though the machine is busier in one of them. It counts on a plain machine
(`measure.SPEED`) instead, or on a plain GPU (`measure.ACCELERATED`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from eyechart.halves import SPLITS
from eyechart.intervals import DRAWS, SMALL_DRAWS
from eyechart.measure import SPEED, Experiment, SampledExperiment, operations

if TYPE_CHECKING:
    from eyechart.images import BatchPlan
    from eyechart.measure import Measure
    from eyechart.scene import Batch, Scene

Kind = Literal["pass", "experiment", "intervals", "figure", "page"]

VIEWS = 0.07
"""Of a bare pass, for each measure that looks on: the bundled pair's pass under 13 of them took 1.85 times the bare."""
ESTIMATE = 0.006
"""Seconds: the median over 23 measures of the bundled pair is 4.5 milliseconds, the mean 22."""
FIGURE = 0.6
"""Seconds, with both of its pictures."""
PAGE = 0.3
"""Seconds of writing the page, for each measure: 5.1 of two subjects with 17 measures, 0.3 of one with 4."""
LOOK_AT_WEIGHTS = 0.1
"""Seconds of an experiment that only reads weights."""


class Part(NamedTuple):
    kind: Kind
    measure: str = ""
    subject: str = ""


@dataclass(frozen=True)
class Workload:
    measures: Sequence[Measure]
    scene: Scene
    batches: BatchPlan

    def images_of(self, measure: Measure) -> int:
        """How many images a measure uses; none, if it only reads weights."""
        if isinstance(measure, SampledExperiment):
            return min(measure.images, self.scene.images)
        return 0 if isinstance(measure, Experiment) else self.scene.images

    def expected(self, seconds: Mapping[str, float] | None = None) -> dict[Part, float]:
        """Seconds of every part; `seconds` says what a bare pass of one image takes each subject.

        Where nobody has measured that, it follows from the number of operations, on the plain machine of `SPEED`.
        """
        looking = sum(bool(measure.needs()) for measure in self.measures)
        parts: dict[Part, float] = {}
        for anatomy in self.scene.anatomies:
            subject = anatomy.subject
            each = seconds[subject] if seconds else operations(anatomy, self.scene) / SPEED
            parts[Part("pass", "", subject)] = self.scene.images * each * (1 + VIEWS * looking) if looking else 0.0
            for measure in self.measures:
                if isinstance(measure, SampledExperiment):
                    parts[Part("experiment", measure.name, subject)] = (
                        self.images_of(measure) * measure.passes(anatomy) * each
                    )
                elif isinstance(measure, Experiment):
                    parts[Part("experiment", measure.name, subject)] = LOOK_AT_WEIGHTS
        for measure in self.measures:
            parts[Part("intervals", measure.name)] = estimates_of(measure, self.scene) * ESTIMATE
            parts[Part("figure", measure.name)] = FIGURE
            parts[Part("page", measure.name)] = PAGE
        return parts

    def portion(self, part: Part, batch: Batch) -> float:
        """Which share of a part is done on this batch. Experiments use the first images of an exam."""
        if part.kind not in ("pass", "experiment"):
            return 0.0
        measure = next((measure for measure in self.measures if measure.name == part.measure), None)
        images = self.scene.images if measure is None else self.images_of(measure)
        if not images:
            return float(batch.start == 0)
        return max(0, min(len(batch.images), images - batch.start)) / images


def estimates_of(measure: Measure, scene: Scene) -> int:
    """How often its statistic is computed for the intervals: on the whole, without each fold, on the draws of what is
    not smooth, and on the halves of what asks for them."""
    drawn = any(not quantity.smooth for quantity in measure.quantities)
    halved = any(quantity.halving for quantity in measure.quantities)
    return 1 + scene.folds + (DRAWS + SMALL_DRAWS if drawn else 0) + (2 * SPLITS if halved else 0)
