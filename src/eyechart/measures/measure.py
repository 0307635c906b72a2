"""What a measure is. Each other file of this folder holds one; they are found by scanning it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

import numpy as np

from eyechart.claims.judge import LEAST_IMAGES
from eyechart.claims.verdict import ClaimTest
from eyechart.errors import DoesNotApply, UsageError
from eyechart.sites import Anatomy, Site
from eyechart.tracing.needs import Need, View
from eyechart.words import did_you_mean

if TYPE_CHECKING:
    import altair
    import torch
    import xarray

    from eyechart.tally import Tally
    from eyechart.tracing.bench import Bench

    Chart = altair.Chart | altair.LayerChart | altair.ConcatChart

EFFORTS = ("quick", "normal", "full")
SPEED = 4e10
"""Operations a second of the plain machine that budgets are counted on: about one core's."""


@dataclass(frozen=True)
class Batch:
    """The images of one statistical block, as the plan cut them. A short last block is not `whole`."""

    index: int
    start: int
    """Place of its first image in the order of the exam."""
    images: np.ndarray
    """Positions in the source, (image,)."""
    labels: np.ndarray | None
    """Class of each image in the source's own numbering; -1 where unknown."""
    fold: int
    """The fold of the block as a whole, for statistics that need whole blocks (CKA)."""
    image_folds: np.ndarray
    """The fold of each image, for sums over images."""
    whole: bool


@dataclass(frozen=True)
class Scene:
    """Who is examined on what: all that a measure may know. Written to plan.json, so findings need no model."""

    anatomies: tuple[Anatomy, ...]
    images: int
    whole_blocks: int
    block: int
    """Images in a block: the statistical batch of CKA."""
    folds: int
    classes: tuple[str, ...] | None
    """Class names of the images, if they have labels."""
    label_maps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each subject whose classes match: image class -> index of its logit."""
    trained: Mapping[str, bool] = field(default_factory=dict)
    """Whether a subject's weights are trained, where known."""
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How a subject was made, where known: recipe, data, seed, what it was fine-tuned from."""

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(anatomy.subject for anatomy in self.anatomies)

    def anatomy(self, subject: str) -> Anatomy:
        return next(anatomy for anatomy in self.anatomies if anatomy.subject == subject)

    def targets(self, subject: str, batch: Batch) -> np.ndarray | None:
        """The logit of each image's class in a subject, -1 unknown; None where its classes do not match the images'."""
        places = self.label_maps.get(subject)
        if places is None or batch.labels is None:
            return None
        return np.array([places[label] if label >= 0 else -1 for label in batch.labels], np.int64)

    def sites(self, choose: Callable[[Anatomy], Sequence[Site]]) -> list[tuple[str, Site]]:
        """The flat `site` axis of a tally or finding: (subject, site) over all subjects, in order."""
        return [(anatomy.subject, site) for anatomy in self.anatomies for site in choose(anatomy)]


class Views:
    """What one batch of all subjects showed: in the pass that measures share, and in this measure's experiment."""

    def __init__(
        self,
        seen: Mapping[str, Mapping[str, Mapping[str, torch.Tensor]]],
        found: Mapping[str, Mapping[str, torch.Tensor]] | None = None,
    ) -> None:
        self._seen, self._found = seen, found or {}

    def __call__(self, subject: str, site: Site, view: View) -> torch.Tensor:
        return self._seen[subject][site.name][view.name]

    def experiment(self, subject: str) -> Mapping[str, torch.Tensor]:
        """What `Measure.experiment` returned for this subject."""
        return self._found[subject]


#: A number for each tuple of subjects it applies to. No key: the tuple does not qualify; NaN: it has no number.
PerSubjects = dict[tuple[str, ...], float]


@dataclass(frozen=True)
class Quantity:
    """A number a claim can be judged by: a function of an estimate, for each tuple of subjects it applies to.

    `smooth` ones get the jackknife; the others (minima, argmax) a bootstrap over folds. `exact` ones have no sampling.
    """

    name: str
    compute: Callable[[xarray.Dataset], PerSubjects]
    explain: str
    smooth: bool = True
    unit: str = ""
    limits: tuple[float | None, float | None] = (None, None)
    exact: bool = False
    """Read off the weights alone: no image was drawn, so it has no interval."""
    share: bool = False
    """A share of the images, or of what the estimate's `trials` counts: at exactly 0 or 1 it gets the exact bound."""
    paired: bool = False
    """A difference of two shares of the same images: where none of them moved it gets the exact bound."""
    halving: bool = False
    """A rank, an argmax, a share of heads, a hit-rate: too low or too high where images are few. It is computed on
    halves of the images as well, and what it still moves widens its interval (see `intervals.still_moving`)."""
    bounds: Callable[[xarray.Dataset], Mapping[tuple[str, ...], tuple[float, float]]] | None = None
    """An interval that the estimate holds itself (from random draws), in place of one over images."""
    if_unmoved: Callable[[xarray.Dataset], Mapping[tuple[str, ...], tuple[float, float]]] | None = None
    """Bounds where no draw of images moved it, or hardly. Of few possible values (shares of heads, of tokens, places of
    maxima) a bare [1, 1] would pass for certainty."""
    among: Callable[[xarray.Dataset], PerSubjects] | None = None
    """Of how many things (sub-layers) it is a share, in a sign test over them: the interval is the exact one of that
    many trials, wider by what images move."""
    ceiling: Callable[[xarray.Dataset], PerSubjects] | None = None
    """The most that is possible, where that depends on the subjects: the interval is cut there."""


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
    """Place in the report."""
    sources: ClassVar[tuple[Source, ...]]
    how_to_read: ClassVar[str]
    how_to_read_ko: ClassVar[str]
    method: ClassVar[str]
    """How it is computed, in two or three sentences with the formula in words."""
    quantities: ClassVar[tuple[Quantity, ...]] = ()
    claims: ClassVar[tuple[ClaimTest, ...]] = ()
    needs_labels: ClassVar[bool] = False
    budget: ClassVar[Mapping[str, float]] = {}
    """Seconds an experiment may take for each subject, by effort; an effort that is not named leaves the measure out.

    Counted on a plain machine of `SPEED`, from the size of the subject, so that the same question is asked everywhere.
    """
    least_images: ClassVar[int] = 64
    """Where its budget does not allow as many, it is left out. To decide a claim takes more (LEAST_IMAGES)."""

    @abstractmethod
    def needs(self) -> Sequence[Need]:
        """Views this measure wants of the shared pass, and where."""

    def experiment(self, bench: Bench) -> Mapping[str, torch.Tensor]:
        """Passes of its own over one batch of one subject; `views.experiment(subject)` hands the result to `update`.

        Many experiments need few images: `bench.first(self.images)` picks them, and an empty mapping says "not here".
        """
        return {}

    def passes(self, anatomy: Anatomy) -> float:
        """How many forward passes the experiment spends on each image it uses; a backward pass counts as two."""
        return 1.0

    def sized(self, effort: str, scene: Scene, *, asked_for: bool = False) -> Measure:
        """The measure as large as its budget at this effort allows; left out (DoesNotApply) where that is too small.

        A measure that was `asked_for` by name is never left out: it gets its smallest budget, and at least
        `least_images`. One that decides claims gets as many as decide. An option `images` that was set by hand stays.
        """
        mine = {option.name for option in fields(self)}
        if not self.budget or "images" not in mine or getattr(self, "images"):  # noqa: B009 - only some have it
            return self
        work = max(self.passes(anatomy) * anatomy.flops for anatomy in scene.anatomies)
        allowed = {name: int(seconds * SPEED / work) if work else scene.images for name, seconds in self.budget.items()}
        allowed = {name: images - images % scene.folds for name, images in allowed.items()}  # as many in every fold
        images = allowed.get(effort, min(allowed.values()) if asked_for else 0)
        if images < self.least_images and not asked_for:
            # Only a measure without a budget here costs the same at a higher effort; others do more work there.
            longer = [] if effort in allowed else [name for name in allowed if allowed[name] >= self.least_images]
            runs = [*(f"--effort {name}" for name in longer[:1]), f"--measures {self.name}"]
            raise DoesNotApply(
                f"it needs at least {self.least_images} images, which takes longer than --effort {effort} "
                f"allows for the largest subject; {' or '.join(runs)} runs it."
            )
        # Up to twice its seconds where it would otherwise show numbers and decide nothing.
        least = max(self.least_images, LEAST_IMAGES) if self.decides_at(effort) else self.least_images
        return with_option(self, "images", min(max(images, least), scene.images))

    def decides_at(self, effort: str) -> bool:
        """Whether a claim is read from it at this effort: a test of its own, or one of a measure that runs there too.

        >>> [measures()["robustness"].decides_at(effort) for effort in ("quick", "normal")]  # C69 needs corruptions
        [False, True]
        """
        mine = {quantity.name for quantity in self.quantities}
        there = (measure for measure in measures().values() if not measure.budget or effort in measure.budget)
        read = {part.quantity for measure in there for test in measure.claims for part in test.parts}
        return bool(self.claims) or not mine.isdisjoint(read)

    @property
    def experiments(self) -> bool:
        return type(self).experiment is not Measure.experiment

    @abstractmethod
    def tally(self, scene: Scene) -> Tally:
        """The empty tally for this scene; raises DoesNotApply with the reason where there is nothing to measure."""

    @abstractmethod
    def update(self, tally: Any, batch: Batch, views: Views, scene: Scene) -> None:
        """Add one batch to the tally, in float64."""

    @abstractmethod
    def estimate(self, total: Any, scene: Scene) -> xarray.Dataset:
        """The statistic of a tally whose folds were summed. Called on the whole and on every leave-one-out sum."""

    def tests(self) -> Sequence[ClaimTest]:
        """The claims this measure decides with the options it was run with."""
        return self.claims

    def chart(self, finding: xarray.Dataset) -> Chart:
        """The figure, in the paper's layout: `draw` of report/drawings/NAME.py, unless a measure draws its own."""
        drawn: Chart = importlib.import_module(f"eyechart.report.drawings.{self.name}").draw(finding)
        return drawn

    @abstractmethod
    def sentence(self, finding: xarray.Dataset) -> str:
        """What the numbers say here, made from them."""


def site_coordinates(scene: Scene, sites: Sequence[tuple[str, Site]], dim: str = "site") -> dict[str, Any]:
    """Plain coordinates of a flat site axis (subjects are ragged, and a MultiIndex does not serialise)."""
    prefix = "" if dim == "site" else dim.removesuffix("site")
    families = {subject: scene.anatomy(subject).family for subject in dict.fromkeys(who for who, _ in sites)}
    columns: dict[str, list[Any]] = {
        "subject": [subject for subject, _ in sites],
        "family": [families[subject] for subject, _ in sites],
        "name": [site.name for _, site in sites],
        "path": [site.path for _, site in sites],
        "role": [site.role for _, site in sites],
        "kind": [site.kind for _, site in sites],
        "depth": [site.depth for _, site in sites],
        "stage": [site.stage for _, site in sites],
        "block": [site.block for _, site in sites],
    }
    labels = {dim: [f"{subject}/{site.name}" for subject, site in sites]}
    return labels | {prefix + name: (dim, values) for name, values in columns.items()}


@cache
def measures() -> dict[str, Measure]:
    """Every measure, by name, in the order of the report."""
    import eyechart.measures as folder

    found: list[Measure] = []
    for module in pkgutil.iter_modules(folder.__path__):
        if module.name == "measure":
            continue
        contents = vars(importlib.import_module(f"{folder.__name__}.{module.name}"))
        found += [
            thing()
            for thing in contents.values()
            if isinstance(thing, type) and issubclass(thing, Measure) and thing.__module__.endswith(module.name)
        ]
    return {measure.name: measure for measure in sorted(found, key=lambda measure: measure.order)}


def choose_measures(names: str | Sequence[str] | None, options: Mapping[str, Any] | None = None) -> list[Measure]:
    """The measures asked for by name, or all, with options such as {"cka.readout": "gap"} set on them.

    >>> [measure.name for measure in choose_measures(["cka"], {"cka.readout": "gap"})]
    ['cka']
    """
    known = measures()
    names = names.split(",") if isinstance(names, str) else names
    chosen = list(known) if names is None else list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not chosen:
        raise UsageError(
            "No measure is named: --measures takes names such as cka,recognition; without it all are taken."
        )
    for name in chosen:
        if name not in known:
            raise UsageError(f"No measure is called {name!r}; {did_you_mean(name, known, there_are(known))}")
    result = {name: known[name] for name in chosen}
    for option, value in (options or {}).items():
        name, _, key = option.partition(".")
        if name not in known:
            near = did_you_mean(name, known, there_are(known))
            raise UsageError(f"The option {option!r} is for no measure, for none is called {name!r}; {near}")
        if name not in result:
            raise UsageError(
                f"The option {option!r} is for a measure that is not in this exam ({', '.join(result)}); "
                f"add {name} to --measures."
            )
        result[name] = with_option(result[name], key, value)
    return list(result.values())


def there_are(names: Iterable[str]) -> str:
    return f"there are {', '.join(names)}."


def with_option(measure: Measure, key: str, value: Any) -> Measure:
    """The measure with one of its fields set; the field's annotation says which values it takes."""
    hints = get_type_hints(type(measure))
    allowed = {field.name: hints[field.name] for field in fields(measure)}
    if key not in allowed:
        near = did_you_mean(key, allowed, f"it has {', '.join(allowed) or 'none'}.")
        raise UsageError(f"{measure.name} has no option {key!r}; {near}")
    choices = get_args(allowed[key])
    if choices and value not in choices:
        raise UsageError(f"{measure.name}.{key} takes {', '.join(map(str, choices))}; {value!r} came.")
    if not choices:
        try:
            value = allowed[key](value)
        except ValueError:
            raise UsageError(f"{measure.name}.{key} takes a {allowed[key].__name__}; {value!r} came.") from None
    return replace(measure, **{key: value})


def choices_of(measure: Measure) -> dict[str, tuple[Any, ...]]:
    """The values each option takes; none are listed of one that takes any number or word."""
    hints = get_type_hints(type(measure))
    return {field.name: get_args(hints[field.name]) for field in fields(measure)}


def meanings_of(measure: Measure) -> dict[str, str]:
    """What each option means: the words written below its field, which Python itself does not keep.

    >>> meanings_of(measures()["robustness"])["steps"]
    'Of PGD; −1: by effort (quick 0, normal 10, full 40). Without steps there is no PGD.'
    """
    (body,) = (node.body for node in ast.parse(dedent(getsource(type(measure)))).body if isinstance(node, ast.ClassDef))
    told = {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }
    return {option: told.get(option, "") for option in options_of(measure)}


def options_of(measure: Measure) -> dict[str, Any]:
    return {field.name: getattr(measure, field.name) for field in fields(measure)}
