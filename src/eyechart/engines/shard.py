"""One shard: some blocks of images through subjects, once each, and what is seen into the tallies of all measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from eyechart.engines.aside import Aside
from eyechart.engines.picture_readers import PictureReaders
from eyechart.errors import NotFinite
from eyechart.images import iterate
from eyechart.measure import Experiment, Views
from eyechart.subjects.parking import ViewParking
from eyechart.subjects.preprocessing import Resizing
from eyechart.subjects.subject import blamed
from eyechart.tracing.bench import Bench
from eyechart.tracing.captured import Replays, all_finite
from eyechart.tracing.finite import first_not_finite
from eyechart.tracing.homeward import brought_home
from eyechart.tracing.pieces import PieceSize
from eyechart.tracing.random_numbers import seeded
from eyechart.tracing.taps import Tap

if TYPE_CHECKING:
    from PIL import Image

    from eyechart.engines.clock import Steps
    from eyechart.images import Images
    from eyechart.measure import Measure
    from eyechart.scene import Batch, Scene
    from eyechart.sites import Anatomy
    from eyechart.subjects.subject import Subject
    from eyechart.tally import Tally
    from eyechart.tracing.needs import View

SiteViews = dict[str, dict[str, torch.Tensor]]
CPU = torch.device("cpu")
Way = Callable[["Image.Image"], torch.Tensor]
"""What is made of one picture."""
Results = Mapping[str, torch.Tensor]


class TappedSubject:
    """A subject under its taps: the needs of all measures, unioned, so that it runs once per batch."""

    def __init__(self, subject: Subject, anatomy: Anatomy, measures: Sequence[Measure]) -> None:
        self.subject, self.anatomy = subject, anatomy
        wanted: dict[str, dict[str, View]] = {}
        for measure in measures:
            for need in measure.needs():
                for site in need.sites(anatomy):
                    wanted.setdefault(site.name, {}).setdefault(need.view.name, need.view)
        self.experimenting = [measure for measure in measures if isinstance(measure, Experiment)]
        views = {site: tuple(views.values()) for site, views in wanted.items()}
        tap = Tap(subject.module, anatomy, views) if views else None
        self.replays = Replays(tap, subject.call, random=anatomy.random) if tap else None
        self.piece_size, self.experiment_size = PieceSize(), PieceSize()
        self.dtype = next((weight.dtype for weight in subject.module.parameters()), torch.float32)

    def look(self, images: torch.Tensor, batch: Batch) -> SiteViews:
        """What the taps see of these images, on the CPU; stops at the first site where a number is not finite."""
        seen, finite = self.glance(images, batch)
        # A view may be infinite by right (a branch that adds nothing has an infinite skip ratio), so NaN or infinity in
        # a view is only a reason to look at the activations themselves.
        if not bool(finite):
            site = first_not_finite(self.subject.module, self.anatomy, images, self.subject.call)
            if site is not None:
                raise NotFinite(
                    f"{self.subject.name}: every activation was expected to be finite, but NaN or infinity appears "
                    f"first at {site.name} ({site.role}, module {site.path!r}); check the weights, or use "
                    "--dtype float32."
                )
        return brought_home(seen)

    def glance(self, images: torch.Tensor, batch: Batch) -> tuple[SiteViews, torch.Tensor]:
        """The same where the subject is, until the next glance; and whether all of it is finite, not yet asked."""
        replays = self.replays
        if replays is None:
            return {}, torch.tensor(True)

        def work(size: int) -> tuple[SiteViews, torch.Tensor]:
            if size == len(images):
                return replays.run(images, self.subject.device)
            seen: SiteViews = replays.tap.run_in_pieces(images, size, self.subject.call)[1]
            return seen, all_finite(seen)

        with seeded(batch.index):
            return self.piece_size.fit(len(images), work)

    def experiments(
        self, images: torch.Tensor, batch: Batch, scene: Scene, clock: Steps | None = None
    ) -> dict[str, Results]:
        """What each measure with passes of its own found out about this subject on this batch."""
        targets = scene.targets(self.subject.name, batch)
        bench = Bench(
            self.subject,
            self.anatomy,
            batch,
            images.to(self.subject.device),
            None if targets is None else torch.from_numpy(targets).to(self.subject.device),
            self.experiment_size,
        )
        results: dict[str, Results] = {}
        for measure in self.experimenting:
            timed = clock.doing(batch, self.subject.name, measure.name) if clock else nullcontext()
            with timed, seeded(batch.index):
                results[measure.name] = measure.experiment(bench)
        return results


@dataclass(frozen=True)
class Seen:
    """What one batch showed of subjects: all that measures are given of it, and small beside activations."""

    views: dict[str, SiteViews] = field(default_factory=dict)
    """By subject."""
    experiments: dict[str, dict[str, Results]] = field(default_factory=dict)
    """By measure and subject."""
    finite: list[torch.Tensor] = field(default_factory=list)
    """Of each subject whose views stayed where it is: whether they are finite."""
    parking: ViewParking = field(default_factory=ViewParking)

    def keep(self, subject: str, views: SiteViews) -> str:
        """The views of one more subject, in a file if there are many already; a sentence where that cannot be done."""
        self.views[subject] = views
        return self.parking.take(value for at_site in views.values() for value in at_site.values())

    @classmethod
    def together(cls, parts: Iterable[Seen]) -> Seen:
        """The same batch as several processes saw it, each with subjects of its own."""
        whole = cls()
        for part in parts:
            for subject, views in part.views.items():
                whole.keep(subject, views)
            for measure, results in part.experiments.items():
                whole.experiments.setdefault(measure, {}).update(results)
        return whole

    def compact(self) -> Seen:
        """The same on the CPU in memory of its own, to be sent: a view into a large tensor would take that along."""
        return Seen(_copied(self.views), _copied(self.experiments))


def _copied(seen: Mapping[str, Mapping[str, Results]]) -> dict[str, dict[str, Any]]:
    return {
        outer: {
            inner: {name: value.to("cpu", copy=True) for name, value in values.items()}
            for inner, values in within.items()
        }
        for outer, within in seen.items()
    }


def look_at(
    tapped: Sequence[TappedSubject],
    images: Images | PictureReaders,
    batches: Sequence[Batch],
    scene: Scene,
    clock: Steps | None = None,
    *,
    stay: bool = False,
) -> Iterator[tuple[Batch, Seen]]:
    """What each batch shows of these subjects; the clock is told of every step.

    Views that `stay` where the subjects are have to be added up before the next batch, and were not yet checked.
    """
    for batch, pictures in pictures_of(tapped, images, batches):
        seen, told = Seen(), ""
        for prepared, each in zip(pictures, tapped, strict=True):
            name = each.subject.name
            with blamed(each.subject, f"on batch {batch.index}"):
                with clock.doing(batch, name) if clock else nullcontext():
                    if stay:
                        seen.views[name], finite = each.glance(prepared, batch)
                        seen.finite.append(finite)
                    else:
                        told = seen.keep(name, each.look(prepared, batch)) or told
                by_measure = each.experiments(prepared, batch, scene, clock)
            each.subject.rest()
            if clock and each.replays and (news := each.replays.news()):
                clock.tell(f"{name}: {news}", 0, 0)
            for measure_name, results in by_measure.items():
                seen.experiments.setdefault(measure_name, {})[name] = results
        if clock and told and batch.index == batches[0].index:
            clock.tell(told, 0, 0)
        yield batch, seen


def pictures_of(
    tapped: Sequence[TappedSubject], images: Images | PictureReaders, batches: Sequence[Batch]
) -> Iterator[tuple[Batch, Iterator[torch.Tensor]]]:
    """The pictures of each batch as each subject is fed them, where it is."""
    # Pictures are resized by readers while the batch before is being examined, once for all subjects of equal size, and
    # stay bytes until they are where a subject is: two batches of 64 pictures of 224 pixels take 19 MB for each size.
    ways = ways_of(tapped)
    if isinstance(images, PictureReaders):
        for batch, pixels in images.read(batches):
            yield batch, _fed(tapped, dict(zip(ways, map(torch.from_numpy, pixels), strict=True)))
        return
    for batch, pictures in iterate(images, batches, lambda crop: [way(crop) for way in ways]):
        stacked = {way: torch.stack([picture[at] for picture in pictures]) for at, way in enumerate(ways)}
        yield batch, _fed(tapped, stacked)


def ways_of(tapped: Sequence[TappedSubject]) -> list[Way]:
    """What is made of each picture, each way once."""
    ways: list[Way] = []
    for each in tapped:
        if each.subject.preprocessing.each not in ways:
            ways.append(each.subject.preprocessing.each)
    return ways


def ways_to_read(tapped: Sequence[TappedSubject]) -> list[tuple[tuple[int, int], str]] | None:
    """The same as another process can be told of it; None where a user's transform is among them."""
    ways = [(way.size, way.interpolation) for way in ways_of(tapped) if isinstance(way, Resizing)]
    return ways if len(ways) == len(ways_of(tapped)) else None


def _fed(tapped: Sequence[TappedSubject], pictures: Mapping[Way, torch.Tensor]) -> Iterator[torch.Tensor]:
    """For one subject after the other; what they share goes to each device once."""
    there: dict[tuple[Way, torch.device], torch.Tensor] = {}
    for each in tapped:
        prepare, device = each.subject.preprocessing, each.subject.device
        key = prepare.each, device
        if key not in there:
            there[key] = sent(pictures[prepare.each], device)
        yield prepare.together(there[key]).to(each.dtype)


def add_up(
    seen: Iterable[tuple[Batch, Seen]],
    measures: Sequence[Measure],
    scene: Scene,
    clock: Steps | None = None,
    *,
    beside: bool = False,
    there: torch.device = CPU,
) -> dict[str, Tally]:
    """The tallies of all measures over what was seen, batch after batch; `beside` the looking, where that gains.

    They are added up `there`, as far as measures can, and come home at the end.
    """
    places = {measure.name: there if measure.adds_up_anywhere else CPU for measure in measures}
    tallies = {measure.name: measure.tally(scene).to(places[measure.name]) for measure in measures}

    def update(batch: Batch, seen: Seen) -> None:
        for measure in measures:
            views = Views(seen.views, seen.experiments.get(measure.name, {}), places[measure.name])
            measure.update(tallies[measure.name], batch, views, scene)
            seen.parking.rest()

    with Aside(beside=beside) as aside:
        for batch, of_batch in seen:
            aside.do(update, batch, of_batch)
            del of_batch  # while the next is looked at, only one that is added up beside stays in memory
            if clock:
                clock.batch_done(batch)
    return {name: tally.to(CPU) for name, tally in tallies.items()}


def examine_shard(
    tapped: Sequence[TappedSubject],
    images: Images | PictureReaders,
    batches: Sequence[Batch],
    measures: Sequence[Measure],
    scene: Scene,
    clock: Steps | None = None,
) -> dict[str, Tally]:
    """The tallies of all measures over the batches of a shard, where all subjects are in this process."""
    devices = {each.subject.device for each in tapped}
    if len(devices) == 1 and next(iter(devices)).type == "cuda":  # other accelerators do not add up in float64
        return examine_there(tapped, images, batches, measures, scene, clock)
    seen = look_at(tapped, images, batches, scene, clock)
    return add_up(seen, measures, scene, clock, beside=devices != {CPU})


def examine_there(
    tapped: Sequence[TappedSubject],
    images: Images | PictureReaders,
    batches: Sequence[Batch],
    measures: Sequence[Measure],
    scene: Scene,
    clock: Steps | None = None,
) -> dict[str, Tally]:
    """The same on the device where all subjects are, which is asked for nothing before the last batch.

    Only then is it known whether a number was not finite; such a batch is looked at once more, to name the site.
    """
    flags: list[tuple[Batch, list[torch.Tensor]]] = []

    def flagged() -> Iterator[tuple[Batch, Seen]]:
        for batch, seen in look_at(tapped, images, batches, scene, clock, stay=True):
            flags.append((batch, seen.finite))
            yield batch, seen

    tallies = add_up(flagged(), measures, scene, clock, there=tapped[0].subject.device)
    doubtful = [batch for batch, finite in flags if not all(bool(each) for each in finite)]
    for batch, pictures in pictures_of(tapped, images, doubtful):
        for prepared, each in zip(pictures, tapped, strict=True):
            each.look(prepared, batch)
    return tallies


def sent(pictures: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Pictures on a device, or on their way to a GPU, which nobody waits for."""
    return pictures.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else pictures.to(device)
