"""What a measure is. Each other file of this folder holds one; they are found by scanning it."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

from eyechart.claims.verdict import ClaimTest
from eyechart.errors import UsageError
from eyechart.sites import Anatomy, Site
from eyechart.tracing.needs import PLAIN, Condition, Need, View

if TYPE_CHECKING:
    import altair
    import numpy as np
    import torch
    import xarray

    from eyechart.tally import Tally

    Chart = altair.Chart | altair.LayerChart | altair.ConcatChart


@dataclass(frozen=True)
class Batch:
    """The images of one statistical block, as the plan cut them. A short last block is not `whole`."""

    index: int
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

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(anatomy.subject for anatomy in self.anatomies)

    def anatomy(self, subject: str) -> Anatomy:
        return next(anatomy for anatomy in self.anatomies if anatomy.subject == subject)

    def sites(self, choose: Callable[[Anatomy], Sequence[Site]]) -> list[tuple[str, Site]]:
        """The flat `site` axis of a tally or finding: (subject, site) over all subjects, in order."""
        return [(anatomy.subject, site) for anatomy in self.anatomies for site in choose(anatomy)]


class Views:
    """What the taps saw of one batch of all subjects."""

    def __init__(self, seen: Mapping[tuple[str, Condition], Mapping[str, Mapping[str, torch.Tensor]]]) -> None:
        self._seen = seen

    def __call__(self, subject: str, site: Site, view: View, condition: Condition = PLAIN) -> torch.Tensor:
        return self._seen[subject, condition][site.name][view.name]


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
    share: bool = False
    """A share of the images: at exactly 0 or 1 it gets the exact binomial bound."""


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

    @abstractmethod
    def needs(self) -> Sequence[Need]:
        """Views this measure wants, where, under which condition."""

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

    @abstractmethod
    def chart(self, finding: xarray.Dataset) -> Chart:
        """The figure, in the paper's layout."""

    @abstractmethod
    def sentence(self, finding: xarray.Dataset) -> str:
        """What the numbers say here, made from them."""


def site_coordinates(scene: Scene, sites: Sequence[tuple[str, Site]], dim: str = "site") -> dict[str, Any]:
    """Plain coordinates of a flat site axis (subjects are ragged, and a MultiIndex does not serialise)."""
    prefix = "" if dim == "site" else dim.removesuffix("site")
    columns: dict[str, list[Any]] = {
        "subject": [subject for subject, _ in sites],
        "family": [scene.anatomy(subject).family for subject, _ in sites],
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


def choose_measures(names: Sequence[str] | None, options: Mapping[str, Any] | None = None) -> list[Measure]:
    """The measures asked for by name, or all, with options such as {"cka.readout": "gap"} set on them.

    >>> [measure.name for measure in choose_measures(["cka"], {"cka.readout": "gap"})]
    ['cka']
    """
    known = measures()
    chosen = list(known) if names is None else list(dict.fromkeys(names))
    for name in chosen:
        if name not in known:
            raise UsageError(f"No measure is called {name!r}; there are {', '.join(known)}.")
    result = {name: known[name] for name in chosen}
    for option, value in (options or {}).items():
        name, _, key = option.partition(".")
        if name not in result:
            raise UsageError(f"The option {option!r} is for no measure of this exam ({', '.join(result)}).")
        result[name] = with_option(result[name], key, value)
    return list(result.values())


def with_option(measure: Measure, key: str, value: Any) -> Measure:
    """The measure with one of its fields set; the field's annotation says which values it takes."""
    hints = get_type_hints(type(measure))
    allowed = {field.name: hints[field.name] for field in fields(measure)}
    if key not in allowed:
        raise UsageError(f"{measure.name} has no option {key!r}; it has {', '.join(allowed) or 'none'}.")
    choices = get_args(allowed[key])
    if choices and value not in choices:
        raise UsageError(f"{measure.name}.{key} takes {', '.join(map(str, choices))}; {value!r} came.")
    if not choices:
        try:
            value = allowed[key](value)
        except ValueError:
            raise UsageError(f"{measure.name}.{key} takes a {allowed[key].__name__}; {value!r} came.") from None
    return replace(measure, **{key: value})


def options_of(measure: Measure) -> dict[str, Any]:
    return {field.name: getattr(measure, field.name) for field in fields(measure)}
