"""What an exam will cost, before it runs (`--dry-run`): seconds, memory and disk of each measure.

Measured here, for a second or two a subject: bare passes of the first pictures, one pass under the taps of all
measures, and the statistic of every measure that shares it. From these follow the passes of experiments (`workload.py`)
and the intervals. Not measured: how the machine is shared later, and what gradients take of the memory.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from eyechart.engines.plan import reasons, scene_of
from eyechart.engines.shard import SiteViews, TappedSubject
from eyechart.engines.shard_helper import processes_worth
from eyechart.engines.workload import Part, Workload, estimates_of
from eyechart.images import common_crop
from eyechart.images.source import THREADS
from eyechart.measure import Experiment, Views
from eyechart.measures import planned_measures
from eyechart.shard_files import pack_shard
from eyechart.subjects.subject import blamed
from eyechart.tally import Concat

if TYPE_CHECKING:
    from eyechart.engines.prepared import Prepare, Prepared
    from eyechart.measure import Measure
    from eyechart.scene import Batch, Scene
    from eyechart.subjects.subject import Subject
    from eyechart.tally import Tally

ENOUGH = 0.5  # seconds that passes of a subject are timed for
FEWEST = 4  # images; a Gram matrix of fewer has no unbiased HSIC


@dataclass(frozen=True)
class Row:
    """What one measure costs."""

    name: str
    images: int
    """How many it uses; 0: it reads weights."""
    shares: bool
    """Whether it looks on in the shared pass, whose seconds are not among its own."""
    seconds: float
    """As one process would take them."""
    memory: int
    """Bytes of its tally; when shards are added there are two."""
    disk: int
    """Bytes that its tallies take at most until the run is finished."""


@dataclass(frozen=True)
class Forecast:
    rows: tuple[Row, ...]
    shared_seconds: float
    """Of the pass that measures share, all subjects together."""
    pass_seconds: Mapping[str, float]
    """Of one bare forward pass of one image, as measured."""
    images: int
    calibrated_on: int
    """Images of the passes that were timed."""
    memory: int | None
    """Bytes that this process (on a GPU: its tensors) held at most while they were, once for each process that would
    share the work; None: not known on this system."""
    left_out: Mapping[str, str]
    """Measures that would not run, with the reasons."""
    processes: int = 1
    """How many would share the work: several for small subjects on a CPU."""

    @property
    def seconds(self) -> float:
        return (self.shared_seconds + sum(row.seconds for row in self.rows)) / self.processes

    @property
    def disk(self) -> int:
        return sum(row.disk for row in self.rows)

    @property
    def notices(self) -> list[str]:
        """What would be left out, as the plan of the exam will say it: measures with one reason in one sentence."""
        entries = [{"measure": name, "reason": reason} for name, reason in self.left_out.items()]
        return reasons({"left_out": entries}, ("would be", "would be"))

    @property
    def method(self) -> str:
        speeds = ", ".join(f"{name} {1000 * each:.3g} ms" for name, each in self.pass_seconds.items())
        return (
            f"Estimated from passes of {self.calibrated_on} images timed just now (an image takes {speeds}), the "
            "passes that each measure states, and its statistic timed once. On the bundled pair 20 of 27 experiments "
            "took 0.8 to 1.3 times what was estimated, if the machine was as busy as then. Gradients (hessian, "
            "receptive_field, robustness) may take several times the memory of a pass."
        )


def forecast_of(prepared: Prepared, again: Prepare, progress: Callable[[str], None] = lambda what: None) -> Forecast:
    """Time what can be timed shortly, on as many threads as the exam would use, and reckon the rest."""
    measures, scene = planned_measures(prepared.plan["measures"]), scene_of(prepared.plan)
    workload = Workload(measures, scene, prepared.batches)
    began = time.perf_counter()
    pictures, read_seconds = first_pictures(prepared, FEWEST)
    on_few = [bare_seconds(subject, images) for subject, images in zip(prepared.subjects, pictures, strict=True)]
    count = max(FEWEST, min(int(2 * ENOUGH / max(sum(on_few), 1e-9)), len(prepared.batches.batch(0).images)))
    pictures, read_seconds = first_pictures(prepared, count)
    seconds: dict[str, float] = {}
    watched: dict[str, float] = {}
    seen: dict[str, SiteViews] = {}
    batch = shortened(prepared.batches.batch(0), count)
    for subject, anatomy, images in zip(prepared.subjects, prepared.anatomies, pictures, strict=True):
        progress(f"{subject.name}: timing its passes")
        tapped = TappedSubject(subject, anatomy, measures)
        with blamed(subject, "while its passes were timed"):
            seconds[subject.name] = bare_seconds(subject, images)
            before = time.perf_counter()
            seen[subject.name] = tapped.look(images.to(tapped.dtype), batch)
            watched[subject.name] = (time.perf_counter() - before) / len(images)
    looked_on = sum(watched.values()) if any(seen.values()) else 0.0
    # Pictures are read by threads beside the passes: only what they take longer than these is waited for.
    waited = max(0.0, read_seconds / THREADS - looked_on)
    parts = workload.expected(seconds)
    rows = [
        row_of(measure, workload, parts, batch, Views(seen), len(pictures[0]), progress=progress)
        for measure in measures
    ]
    progress(f"calibrated in {time.perf_counter() - began:.1f} s")
    shared, held = scene.images * (looked_on + waited), memory_held(prepared.subjects[0].device)
    on_images = shared + sum(cost for part, cost in parts.items() if part.kind != "intervals")
    processes = processes_worth(prepared.plan["settings"], again, on_images, len(prepared.batches.shards))
    return Forecast(
        tuple(rows),
        shared,
        seconds,
        scene.images,
        len(pictures[0]),
        held * processes if held else None,
        {entry["measure"]: entry["reason"] for entry in prepared.plan["left_out"]},
        processes,
    )


def first_pictures(prepared: Prepared, count: int) -> tuple[list[torch.Tensor], float]:
    """The first pictures of the exam as each subject is fed, and the seconds that one takes to read."""
    indices = prepared.batches.order[:count]
    before = time.perf_counter()
    crops = [common_crop(prepared.source.picture(index)) for index in indices]
    fed = [subject.prepare(crops) for subject in prepared.subjects]
    return fed, (time.perf_counter() - before) / len(indices)


@torch.no_grad()
def bare_seconds(subject: Subject, images: torch.Tensor) -> float:
    """Of a bare pass of one image: the median of some."""
    weight = next(subject.module.parameters(), None)
    images = images.to(subject.device, images.dtype if weight is None else weight.dtype)
    subject.call(images)  # caches and kernels are made
    taken: list[float] = []
    while sum(taken) < ENOUGH:
        settle(subject.device)
        before = time.perf_counter()
        subject.call(images)
        settle(subject.device)
        taken.append(time.perf_counter() - before)
    return statistics.median(taken) / len(images)


def settle(device: torch.device) -> None:
    """Wait for a GPU, which works on after its calls return."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def shortened(batch: Batch, count: int) -> Batch:
    labels = None if batch.labels is None else batch.labels[:count]
    return replace(batch, images=batch.images[:count], labels=labels, image_folds=batch.image_folds[:count], whole=True)


def row_of(
    measure: Measure,
    workload: Workload,
    parts: Mapping[Part, float],
    batch: Batch,
    views: Views,
    count: int,
    *,
    progress: Callable[[str], None],
) -> Row:
    """A measure's cost. One that shares the pass adds the calibrated batch to a tally, and its statistic is timed."""
    scene = workload.scene
    own = sum(cost for part, cost in parts.items() if part.measure == measure.name and part.kind != "intervals")
    intervals = parts[Part("intervals", measure.name)]
    tally = measure.tally(scene)
    shards = [workload.batches.batches(shard) for shard in range(len(workload.batches.shards))]
    memory = tally.nbytes
    if isinstance(measure, Experiment):
        images = workload.images_of(measure)
        with_images = sum(shard[0].start < max(images, 1) for shard in shards if shard)
        return Row(measure.name, images, False, own + intervals, memory, memory * with_images)
    progress(f"{measure.name}: timing its statistic")
    measure.update(tally, batch, views, scene)  # of 1,000 images it took no measure more than 0.3 s
    memory, disk = bytes_of(tally, scene.images / count)
    intervals = statistic_seconds(measure, tally, scene) or intervals
    return Row(measure.name, scene.images, True, own + intervals, memory, disk * len(shards))


def bytes_of(tally: Tally, growth: float) -> tuple[int, int]:
    """Of a tally of all images in memory, and of one in a shard, from one of the first images; rows grow with these."""
    rows = sum(tally.tensors()[name].nbytes for name in row_fields(tally))
    return int(tally.nbytes + rows * (growth - 1)), len(pack_shard({"": tally}, "", 0))


def row_fields(tally: Tally) -> Sequence[str]:
    return [name for name, law in tally.laws.items() if isinstance(law, Concat)]


def statistic_seconds(measure: Measure, tally: Tally, scene: Scene) -> float | None:
    """What its intervals take, from two estimates on the first images; None where these are too few for it.

    The first makes what all others use again (axes, solved systems), so it counts once; the second leaves out a fold.
    """
    taken: list[float] = []
    weights = torch.ones(2, scene.folds, dtype=torch.float64)
    weights[1, 0] = 0
    for row in weights:
        before = time.perf_counter()
        try:
            estimate: Any = measure.estimate(tally.weighted(row), scene)
            for quantity in measure.quantities:
                quantity.compute(estimate)
        except Exception:  # a ridge of more columns than images, a class without a picture: each has its own way
            return None
        taken.append(time.perf_counter() - before)
    return taken[0] + taken[1] * (estimates_of(measure, scene) - 1)


def memory_held(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
