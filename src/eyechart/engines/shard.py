"""One shard: some blocks of images through all subjects, once each, into the tallies of all measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from eyechart.errors import NotFinite
from eyechart.images import iterate
from eyechart.measures.measure import Views
from eyechart.tracing.finite import first_not_finite
from eyechart.tracing.needs import Condition, View
from eyechart.tracing.taps import Tap

if TYPE_CHECKING:
    from eyechart.images import Images
    from eyechart.measures.measure import Batch, Measure, Scene
    from eyechart.sites import Anatomy
    from eyechart.subjects.subject import Subject
    from eyechart.tally import Tally

SiteViews = dict[str, dict[str, torch.Tensor]]


class Station:
    """A subject under its taps: the needs of all measures, unioned, so that it runs once per batch and condition."""

    def __init__(self, subject: Subject, anatomy: Anatomy, measures: Sequence[Measure]) -> None:
        self.subject, self.anatomy = subject, anatomy
        wanted: dict[Condition, dict[str, dict[str, View]]] = {}
        for measure in measures:
            for need in measure.needs():
                for site in need.sites(anatomy):
                    at_site = wanted.setdefault(need.condition, {}).setdefault(site.name, {})
                    at_site.setdefault(need.view.name, need.view)
        self.taps = {
            condition: Tap(
                subject.module,
                anatomy,
                {site: tuple(views.values()) for site, views in by_site.items()},
                condition.interventions,
            )
            for condition, by_site in wanted.items()
        }
        self.micro_batch: int | None = None
        self.dtype = next((weight.dtype for weight in subject.module.parameters()), torch.float32)

    def look(self, images: torch.Tensor) -> dict[Condition, SiteViews]:
        """What every tap sees of these images; stops at the first site where a number is not finite."""
        seen = {condition: self._run(tap, images) for condition, tap in self.taps.items()}
        numbers = [value for views in seen.values() for at_site in views.values() for value in at_site.values()]
        # A view may be infinite by right (a branch that adds nothing has an infinite skip ratio), so NaN or infinity in
        # a view is only a reason to look at the activations themselves.
        if not all(bool(value.isfinite().all()) for value in numbers):
            site = first_not_finite(self.subject.module, self.anatomy, images, self.subject.call)
            if site is not None:
                raise NotFinite(
                    f"{self.subject.name}: every activation was expected to be finite, but NaN or infinity appears "
                    f"first at {site.name} ({site.role}, module {site.path!r}); check the weights, or use "
                    "--dtype float32."
                )
        return seen

    def _run(self, tap: Tap, images: torch.Tensor) -> SiteViews:
        """One pass; when memory runs out the micro-batch is halved. The statistical batch never changes."""
        micro = min(self.micro_batch or len(images), len(images))
        while True:
            try:
                if micro == len(images):
                    _, views = tap.run(images, self.subject.call)
                else:
                    _, views = tap.run_in_pieces(images, micro, self.subject.call)
                return {site: {name: value.cpu() for name, value in seen.items()} for site, seen in views.items()}
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not out_of_memory(error) or micro == 1:
                    raise
                micro = (micro + 1) // 2
                self.micro_batch = micro
                torch.cuda.empty_cache()  # does nothing where CUDA was never used


def out_of_memory(error: BaseException) -> bool:
    """CUDA has an exception of its own; the CPU allocator raises a RuntimeError with these words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def examine_shard(
    stations: Sequence[Station],
    images: Images,
    batches: Sequence[Batch],
    measures: Sequence[Measure],
    scene: Scene,
    advance: Callable[[int], Any] = lambda images: None,
) -> dict[str, Tally]:
    """The tallies of all measures over the batches of a shard."""
    tallies = {measure.name: measure.tally(scene) for measure in measures}
    # Pictures are prepared for every subject in the reader's threads, while the batch before is being examined.
    prepare = lambda crop: [station.subject.prepare([crop])[0] for station in stations]  # noqa: E731
    for batch, pictures in iterate(images, batches, prepare):
        seen: dict[tuple[str, Condition], SiteViews] = {}
        for number, station in enumerate(stations):
            prepared = torch.stack([picture[number] for picture in pictures]).to(station.dtype)
            for condition, views in station.look(prepared).items():
                seen[station.subject.name, condition] = views
        for measure in measures:
            measure.update(tallies[measure.name], batch, Views(seen), scene)
        advance(len(batch.images))
    return tallies
