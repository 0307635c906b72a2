"""What a measure is. Each folder of `measures` is the room of one: measure.py, chart.py, its mathematics."""

from __future__ import annotations

import importlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from eyechart.claims.judge import LEAST_IMAGES
from eyechart.errors import DoesNotApply
from eyechart.quantity import Quantity
from eyechart.scene import Batch, Scene
from eyechart.sites import Anatomy, Site
from eyechart.tracing.needs import Need, View

if TYPE_CHECKING:
    import numpy as np
    import torch
    import xarray

    from eyechart.charts.theme import Chart as Chart
    from eyechart.tally import Tally
    from eyechart.tracing.bench import Bench

Chapter = Literal["share", "look", "skip", "place", "tell", "loss", "frequency", "break", "more"]
CHAPTERS: dict[Chapter, str] = {
    "share": "What do layers share?",
    "look": "How far do they look?",
    "skip": "What rides the skip?",
    "place": "Where does a token come from?",
    "tell": "What can each layer tell?",
    "loss": "How does the loss bend?",
    "frequency": "Which frequencies pass?",
    "break": "What breaks it?",
    "more": "What else was asked?",
}
"""The questions a person asks, in the order of the report; each is a chapter of it."""
EFFORTS = ("quick", "normal", "full")
SPEED = 4e10
"""Operations a second of the plain machine that budgets are counted on: about one core's."""
ACCELERATED = 1e13
"""The same of a middling GPU in float32; an H200 did 3e13 on ViT-B and ResNet-50."""
SMALL = 4e8
"""Operations of a pass of a small subject: the bundled ViT does 3.8e8. On a GPU no large one counts for less: launches
take the time there. A small subject gets the same images with and without a GPU."""
A_MINUTE = 60.0  # seconds that a figure of a large subject may take at any effort


class Views:
    """What one batch of all subjects showed: in the pass that measures share, and in this measure's experiment.

    All of it is given on the device where the measure's tally is.
    """

    def __init__(
        self,
        seen: Mapping[str, Mapping[str, Mapping[str, torch.Tensor]]],
        results: Mapping[str, Mapping[str, torch.Tensor]] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._seen, self._results, self.device = seen, results or {}, device

    def __call__(self, subject: str, site: Site, view: View) -> torch.Tensor:
        return self._seen[subject][site.name][view.name].to(self.device)

    def stacked(self, sites: Sequence[tuple[str, Site]], view: View) -> Iterator[tuple[slice, torch.Tensor]]:
        """One view of many sites, (site, image, …): those in a row that have one shape at once, and which they are.

        A few large operations instead of many small ones, which an accelerator waits for.
        """
        import torch

        seen = [self(subject, site, view) for subject, site in sites]
        at = 0
        for _, alike in itertools.groupby(seen, lambda values: values.shape):
            rows = list(alike)
            yield slice(at, at + len(rows)), torch.stack(rows)
            at += len(rows)

    def put(self, values: np.ndarray | Sequence[int]) -> torch.Tensor:
        """What is known without the views, such as the folds of the images, beside them."""
        from eyechart.device import put

        return put(values, self.device)

    def experiment(self, subject: str) -> Mapping[str, torch.Tensor]:
        """What `Measure.experiment` returned for this subject."""
        return self._results[subject]

    def experiments(self, subjects: Iterable[str]) -> Iterator[tuple[int, Mapping[str, torch.Tensor]]]:
        """The results of those subjects that have any, each with its place among them all."""
        return ((row, self._results[subject]) for row, subject in enumerate(subjects) if self._results[subject])


def option(default: Any, help: str) -> Any:
    """A field that a user may set (`--set cka.readout=gap`), with what it means."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Source:
    """Where a measure comes from: paper, figure."""

    paper: str
    figures: str


@dataclass(frozen=True)
class Measure(ABC):
    """One question asked of subjects. Subclasses are frozen: their fields are options, their state is the tally."""

    name: ClassVar[str]
    title: ClassVar[str]
    """The question a person asks; the heading of its section."""
    title_ko: ClassVar[str]
    order: ClassVar[int]
    """Place in the report, within its chapter."""
    chapter: ClassVar[Chapter] = "more"
    """Which of the report's questions it helps to answer."""
    sources: ClassVar[tuple[Source, ...]]
    how_to_read: ClassVar[str]
    how_to_read_ko: ClassVar[str]
    method: ClassVar[str]
    """How it is computed, in two or three sentences with the formula in words."""
    quantities: ClassVar[tuple[Quantity, ...]] = ()
    labels: ClassVar[Literal["", "images", "subjects"]] = ""
    """What it needs: images with classes, or also a subject whose classes are those of the images."""
    adds_up_anywhere: ClassVar[bool] = False
    """Its `update` takes tally and views on an accelerator: what it makes of numbers it `put`s beside them, and it asks
    for no value. Then nothing comes home before a shard is done; else views come one by one, and the device waits."""

    @property
    def options(self) -> dict[str, Any]:
        return {option.name: getattr(self, option.name) for option in fields(self)}

    @property
    def reading(self) -> str | None:
        """How its options make claims read, where that is not as the papers do; None: with them it decides nothing."""
        return ""

    @abstractmethod
    def needs(self) -> Sequence[Need]:
        """Views this measure wants of the shared pass, and where."""

    def check_labels(self, scene: Scene) -> None:
        """Raises DoesNotApply where the labels it needs are missing; the plan asks before anything else."""
        if self.labels and not scene.classes:
            raise DoesNotApply("the images have no classes; give labelled images.")
        if self.labels == "subjects" and not scene.scored_subjects:
            headless = not any(anatomy.pick("head") for anatomy in scene.anatomies)
            whose = f"{' and '.join(scene.subjects)} {'have' if len(scene.subjects) > 1 else 'has'}"
            raise DoesNotApply(
                f"{whose} no classifier." if headless else "no subject's classes match the classes of the images."
            )

    def runs_at(self, effort: str) -> bool:
        """Whether it is part of an exam of this effort: one that shares the pass always is."""
        return True

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        """The measure as large as this effort allows: one that shares the pass costs little and stays as it is."""
        return self

    @abstractmethod
    def tally(self, scene: Scene) -> Tally:
        """The empty tally for this scene; raises DoesNotApply with the reason where there is nothing to measure."""

    @abstractmethod
    def update(self, tally: Any, batch: Batch, views: Views, scene: Scene) -> None:
        """Add one batch to the tally, in float64."""

    @abstractmethod
    def estimate(self, total: Any, scene: Scene) -> xarray.Dataset:
        """The statistic of a tally whose folds were summed. Called on the whole and on every leave-one-out sum."""

    def chart(self, finding: xarray.Dataset) -> Chart:
        """The figure, in the paper's layout: `draw` of the chart.py beside the measure, unless it draws its own."""
        room = type(self).__module__.rpartition(".")[0]
        drawn: Chart = importlib.import_module(f"{room}.chart").draw(finding)
        return drawn

    @abstractmethod
    def sentence(self, finding: xarray.Dataset) -> str:
        """What the numbers say here, made from them."""


@dataclass(frozen=True)
class Experiment(Measure):
    """A measure that works on subjects by itself: passes of its own, or a look at their weights."""

    def needs(self) -> Sequence[Need]:
        """Nothing of the shared pass, unless it says otherwise."""
        return ()

    @abstractmethod
    def experiment(self, bench: Bench) -> Mapping[str, torch.Tensor]:
        """What it does with one batch of one subject; `views.experiment(subject)` hands the result to `update`.

        Many experiments need few images: `bench.first(self.images)` picks them, and an empty mapping says "not here".
        """


@dataclass(frozen=True)
class SampledExperiment(Experiment):
    """An experiment on as many images as its budget allows."""

    images: int = option(0, "how many images are used; 0: as many as the effort allows")

    budget: ClassVar[Mapping[str, float]] = {}
    """Seconds it may take for each subject, by effort; an effort that is not named leaves the measure out.

    Counted on a plain machine of `SPEED`, from the size of the subject, so that the same question is asked everywhere;
    on a GPU large subjects count for less (`operations`).
    """
    least_images: ClassVar[int] = 64
    """Where its budget does not allow as many, it is left out. To decide a claim takes more (LEAST_IMAGES)."""
    shown_from: ClassVar[int] = 0
    """Images from which its figure is worth showing though they decide nothing; 0: from `least_images`.

    A subject too large for its budget is shown on so many, if that takes no longer than `A_MINUTE`: a figure on 16
    pictures (one in each fold) is better than none, and its intervals say how sure it is.
    """

    def passes(self, anatomy: Anatomy) -> float:
        """How many forward passes the experiment spends on each image it uses; a backward pass counts as two."""
        return 1.0

    def work(self, scene: Scene) -> float:
        """Operations of the experiment on one image of the largest subject, counted on the plain machine."""
        return max(self.passes(anatomy) * operations(anatomy, scene) for anatomy in scene.anatomies)

    def in_fewer_passes(self) -> Self:
        """The same figure for fewer passes an image, for a subject that is too large to be shown otherwise; itself
        where there is none, or where an option says how many."""
        return self

    def runs_at(self, effort: str) -> bool:
        return effort in self.budget

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False, decides: bool = True) -> Self:
        """The measure as large as its budget at this effort allows; left out (DoesNotApply) where that is too small.

        A measure that was `asked_for` by name is never left out: it gets its smallest budget, and at least
        `least_images`. One that `decides` a claim gets as many as decide. An option `images` set by hand stays.
        """
        if self.images:
            return self
        work = self.work(scene)
        allowed = {name: int(seconds * SPEED / work) if work else scene.images for name, seconds in self.budget.items()}
        allowed = {name: images - images % scene.folds for name, images in allowed.items()}  # as many in every fold
        images = allowed.get(effort, min(allowed.values()) if asked_for else 0)
        few, enough = self.shown_from, max(self.least_images, self.shown_from)
        if few and images < enough and effort in self.budget and not asked_for and scene.images >= few:
            for shown in (self, self.in_fewer_passes()):
                if few * shown.work(scene) <= A_MINUTE * SPEED:
                    return replace(shown, images=max(few, images))
        if images < self.least_images and not asked_for:
            # Only a measure without a budget here costs the same at a higher effort; others do more work there.
            longer = [] if effort in allowed else [name for name in allowed if allowed[name] >= self.least_images]
            runs = [*(f"--effort {name}" for name in longer[:1]), f"--measures {self.name}"]
            raise DoesNotApply(
                f"it needs at least {self.least_images} images, which takes longer than --effort {effort} "
                f"allows for the largest subject; {' or '.join(runs)} runs it."
            )
        # Up to twice its seconds where it would otherwise show numbers and decide nothing.
        least = max(self.least_images, LEAST_IMAGES) if decides else self.least_images
        return replace(self, images=min(max(images, least), scene.images))


def operations(anatomy: Anatomy, scene: Scene) -> float:
    """What a pass of one image counts for on the plain machine of `SPEED`: its operations; of a large subject on a GPU
    as much less as the GPU is faster, down to what a small one counts for."""
    if not scene.accelerated:
        return anatomy.flops
    return max(min(anatomy.flops, SMALL), anatomy.flops * SPEED / ACCELERATED)


def subject_coordinates(scene: Scene, subjects: Sequence[str]) -> dict[str, Any]:
    """Coordinates of an axis of subjects."""
    return {"subject": list(subjects), "family": ("subject", [scene.anatomy(name).family for name in subjects])}


def site_coordinates(scene: Scene, sites: Sequence[tuple[str, Site]], dim: str = "site") -> dict[str, Any]:
    """Plain coordinates of a flat site axis (subjects are ragged, and a MultiIndex does not serialise)."""
    import xarray

    key = dim, tuple((subject, site.name) for subject, site in sites)
    if key not in scene.coordinates:
        made = xarray.Dataset(coords=_site_columns(scene, sites, dim))
        scene.coordinates[key] = {str(name): variable for name, variable in made.variables.items()}
    return scene.coordinates[key]


def _site_columns(scene: Scene, sites: Sequence[tuple[str, Site]], dim: str) -> dict[str, Any]:
    prefix = "" if dim == "site" else dim.removesuffix("site")
    anatomies = {subject: scene.anatomy(subject) for subject in dict.fromkeys(subject for subject, _ in sites)}
    columns: dict[str, list[Any]] = {
        "subject": [subject for subject, _ in sites],
        "family": [anatomies[subject].family for subject, _ in sites],
        "name": [anatomies[subject].words(site) for subject, site in sites],
        "path": [site.path for _, site in sites],
        "role": [site.role for _, site in sites],
        "kind": [site.kind for _, site in sites],
        "depth": [site.depth for _, site in sites],
        "stage": [site.stage for _, site in sites],
        "block": [site.block for _, site in sites],
    }
    labels = {dim: [f"{subject}/{site.name}" for subject, site in sites]}
    return labels | {prefix + name: (dim, values) for name, values in columns.items()}
