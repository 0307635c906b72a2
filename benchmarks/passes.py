"""Subjects under the taps of some measures, run as an engine runs them, on images that are already prepared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.engines.plan import scene_of, write_plan
from eyechart.engines.shard import Seen, TappedSubject, add_up
from eyechart.images import open_images
from eyechart.images.plan import plan_order
from eyechart.measure import Experiment
from eyechart.measures import choose_measures, measures
from eyechart.scene import Batch
from eyechart.sites import Anatomy
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.subject import Subject
from eyechart.tally import Tally

Feed = Callable[[Batch], Sequence[Tensor]]
"""What each subject is given of a batch."""


def shared_measures() -> list[str]:
    """All that look at the plain pass, without the probes, which are stated on their own."""
    return [name for name, measure in measures().items() if not isinstance(measure, Experiment) and name != "probes"]


@functools.cache
def anatomy(subject: Subject) -> Anatomy:
    weight = next(subject.module.parameters())
    images = torch.randn(2, 3, *subject.input_size).to(weight.device, weight.dtype)
    return anatomy_of(subject.name, subject.module, images, call=subject.call)


class Passes:
    """One measuring of `count` images; `take` gives the tallies, `bare` is the same without looking."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        measure_names: Sequence[str],
        count: int,
        *,
        block: int | None = None,
        labels: np.ndarray | None = None,
        options: dict[str, str] | None = None,
    ) -> None:
        self.subjects = subjects
        for subject in subjects:
            subject.module.requires_grad_(False)  # torch's counter of operations stumbles over PiT's class token else
        self.plan = plan_order(np.arange(count) % 10 if labels is None else labels, count, "benchmark", block=block)
        dtypes = {next(subject.module.parameters()).dtype for subject in subjects}
        assert len(dtypes) == 1, "all subjects of a benchmark compute in one dtype"
        self.dtype = dtypes.pop()
        anatomies = [anatomy(subject) for subject in subjects]
        asked = choose_measures(measure_names, options)
        written = write_plan(
            subjects,
            anatomies,
            open_images("sample"),
            self.plan,
            asked,
            label_maps={subject.name: (tuple(range(10)), "benchmark") for subject in subjects},
            settings={
                "dtype": str(self.dtype).removeprefix("torch."),
                "seed": 0,
                "limit": None,
                "effort": "normal",
                "asked_for": True,
            },
        )
        left_out = {entry["measure"] for entry in written["left_out"]}
        self.measures = [measure for measure in asked if measure.name not in left_out]
        self.scene = scene_of(written)
        pairs = zip(subjects, anatomies, strict=True)
        self.tapped = [TappedSubject(subject, anatomy, self.measures) for subject, anatomy in pairs]
        self.tallies: dict[str, Tally] = {}

    def of_one_batch(self) -> Self:
        """Only the first batch of the plan from now on."""
        self.plan = replace(self.plan, shards=((0,),))
        return self

    @property
    def batches(self) -> list[Batch]:
        return [batch for shard in range(len(self.plan.shards)) for batch in self.plan.batches(shard)]

    def noise(self) -> Feed:
        """Images of random numbers where each subject is: reading and preparing pictures is part of nothing here."""
        ready = {
            subject.input_size: torch.randn(self.plan.block, 3, *subject.input_size).to(subject.device, self.dtype)
            for subject in self.subjects
        }
        return lambda batch: [ready[subject.input_size][: len(batch.images)] for subject in self.subjects]

    def bare(self, feed: Feed) -> None:
        with torch.no_grad():
            for batch in self.batches:
                for subject, part in zip(self.subjects, feed(batch), strict=True):
                    subject.call(part)

    def take(self, feed: Feed) -> None:
        """Tallies grow where the subjects are, as in `engines/shard.py`."""
        there = self.subjects[0].device

        def looks() -> Iterator[tuple[Batch, Seen]]:
            for batch in self.batches:
                seen = Seen()
                for tapped, part in zip(self.tapped, feed(batch), strict=True):
                    if there.type == "cpu":
                        seen.views[tapped.subject.name] = tapped.look(part, batch)
                    else:
                        seen.views[tapped.subject.name], _ = tapped.glance(part, batch)
                yield batch, seen

        self.tallies = add_up(looks(), self.measures, self.scene, there=there)

    def estimate(self, name: str) -> xarray.Dataset:
        (measure,) = [measure for measure in self.measures if measure.name == name]
        return measure.estimate(self.tallies[name].total(), self.scene)
