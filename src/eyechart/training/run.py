"""A run: everything that decides one training, as data that travels between processes. No torch here."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from eyechart.errors import UsageError
from eyechart.files import is_file_name
from eyechart.training.recipes import Recipe, find_recipe

SNAPSHOTS = ("init", "warmup", "quarter")
LAST_GOOD = "last-good"  # kept when a training diverges
FREEZE = ("none", "low-third", "all-but-head")
HEADS = ("new", "keep")
STOPS = ("end", "warmup")

# What may differ when a training goes on: where it lies, how it is watched, and how the device computes the same thing.
NOT_DECIDING = frozenset(
    {"out", "name", "data", "evaluate_every", "device", "bfloat16", "compiled", "captured", "own_kernels"}
    | {"time_limit", "save_seconds", "overwrite", "stop_after"}
)


@dataclass(frozen=True)
class TrainingRun:
    """`model` trained on `data` by `recipe`, into `out`."""

    model: str
    data: str
    recipe: Recipe
    out: str
    name: str = ""
    """What the files are called; the model's name by default."""
    seed: int = 0
    classes: tuple[str, ...] = ()
    """Only these classes, numbered in this order."""
    class_count: int | None = None
    """Only so many classes, drawn by the seed."""
    validation: int = 0
    """So many of the last training images, stratified, are held out and scored; the test images only at the end."""
    imbalance: float = 1.0
    """How many times as many images the first class has as the last; the classes between fall off exponentially."""
    shots: int | None = None
    """So many images of each class."""
    fraction: float = 1.0
    label_noise: float = 0.0
    """This share of the training images of each class is trained on with a wrong label."""
    shuffle_patches: int = 0
    """Side, in pixels, of patches that are put in a random order whenever a training image is shown; 0: none are."""
    steps: int | None = None
    """So many gradient steps in all, whatever the fraction; the recipe's epochs are then equal parts of them."""
    image_size: int | None = None
    switches: Mapping[str, Any] = field(default_factory=dict)
    """Of the zoo's model, in place of the table's."""
    begin_from: str | None = None
    """A subject, or a checkpoint of `model`, whose weights are the first ones."""
    head: str = "new"
    freeze: str = "none"
    backbone_lr_scale: float = 1.0
    """The learning rate of everything but the head is this many times the recipe's."""
    evaluate_every: int = 1
    snapshots: tuple[str, ...] = SNAPSHOTS
    """Which to keep beside the end."""
    device: str = "auto"
    bfloat16: bool | None = None
    compiled: bool | None = None
    captured: bool | None = None
    own_kernels: bool | None = None
    """None: on a GPU yes, on a CPU no. Trainings before 2026-11-18 had no kernels of our own."""
    time_limit: float | None = None
    """Seconds after which the training ends early, with everything written; the same command goes on."""
    save_seconds: float = 60.0
    """The state, from which a killed training goes on, is written after the first epoch that ends so much later."""
    overwrite: bool = False
    stop_after: str = "end"
    """"warmup": stop there, with everything written. The schedule stays that of the whole training."""

    @property
    def again(self) -> str:
        """What lets a training that was stopped go on."""
        return "the same command without --overwrite" if self.overwrite else "the same command"

    @property
    def last_epoch(self) -> int:
        """The epoch after which this run stops."""
        return self.recipe.warmup_epochs if self.stop_after == "warmup" else self.recipe.epochs

    @property
    def label(self) -> str:
        return self.name or self.model

    def checked(self) -> TrainingRun:
        """The run itself, or one sentence on what is wrong with it."""
        self.recipe.checked()
        if unknown := [name for name in self.snapshots if name not in SNAPSHOTS]:
            raise UsageError(f"Snapshots are {', '.join(SNAPSHOTS)}; got {unknown[0]!r}.")
        words = (("--freeze", self.freeze, FREEZE), ("--head", self.head, HEADS))
        for what, value, allowed in (*words, ("--stop-after", self.stop_after, STOPS)):
            if value not in allowed:
                raise UsageError(f"{what} is one of {', '.join(allowed)}; got {value!r}.")
        if self.last_epoch < 1:
            raise UsageError("--stop-after warmup needs a recipe with a warm-up; got warmup_epochs=0.")
        if not 0 < self.fraction <= 1:
            raise UsageError(f"The fraction of the training images must be above 0 and at most 1; got {self.fraction}.")
        if not 0 <= self.label_noise < 1:
            raise UsageError(f"--label-noise must be at least 0 and below 1; got {self.label_noise:g}.")
        if not 1 <= self.imbalance < math.inf:
            raise UsageError(
                f"--imbalance is the largest class divided by the smallest, so at least 1; got {self.imbalance:g}."
            )
        if self.steps is not None and self.steps < self.recipe.epochs:
            raise UsageError(
                f"{self.steps} steps cannot be split into {self.recipe.epochs} epochs; ask for fewer with --epochs."
            )
        least = {"evaluate_every": 1, "validation": 0, "backbone_lr_scale": 0, "save_seconds": 0, "shuffle_patches": 0}
        if self.class_count is not None and self.class_count < 2:
            raise UsageError(f"--class-count must be at least 2; got {self.class_count}.")
        least |= {name: 1 for name in ("shots", "image_size", "time_limit") if getattr(self, name) is not None}
        for name, bound in least.items():
            if not getattr(self, name) >= bound:  # a NaN is not
                raise UsageError(f"--{name.replace('_', '-')} must be at least {bound}; got {getattr(self, name)}.")
        if not 0 <= self.seed < 2**62:  # others are made of it by adding
            raise UsageError(f"--seed must be a whole number from 0 to below 2^62; got {self.seed}.")
        if self.backbone_lr_scale == math.inf:
            raise UsageError("--backbone-lr-scale must be a finite number; got inf.")
        if not is_file_name(self.label):
            raise UsageError(
                f"--name is the name of the files, not a path (that is --out); got {self.label!r}, and a name that "
                'every system takes has none of \\ / : * ? " < > |, and no dot at either end.'
            )
        if self.label.endswith(endings := tuple(f".{name}" for name in (*SNAPSHOTS, LAST_GOOD))):
            raise UsageError(f"A name that ends in {', '.join(endings)} is the name of a snapshot; got {self.label!r}.")
        if self.begin_from is None and (self.freeze != "none" or self.head != "new" or self.backbone_lr_scale != 1):
            raise UsageError("--freeze, --head and --backbone-lr-scale need --from: there are no weights to keep.")
        return self

    def identity(self) -> dict[str, Any]:
        """What decides the weights: two runs of equal identity on equal data are one training."""
        deciding = {name: value for name, value in json.loads(self.as_json()).items() if name not in NOT_DECIDING}
        for name in ("label_noise", "shuffle_patches", "class_count"):
            if not deciding[name]:
                del deciding[name]  # trainings begun before there was such a thing go on
        return deciding

    def command(self, data: str) -> str:
        """The command that makes this run again, with the data's name in place of where it lay."""
        words = ["eyechart", "train", self.model, "--data", data, "--recipe", self.recipe.name]
        words += _changes(self.recipe)
        plain = {one.name: one.default for one in fields(TrainingRun)}
        for name, word in OPTIONS.items():
            if (value := getattr(self, name)) != plain[name]:
                words += [word, ",".join(value) if isinstance(value, tuple) else str(value)]
        if self.bfloat16 is not None:
            words.append("--bfloat16" if self.bfloat16 else "--no-bfloat16")
        for name, value in self.switches.items():
            words += ["--switch", f"{name}={','.join(map(str, value)) if isinstance(value, (tuple, list)) else value}"]
        return shlex.join([*words, "--seed", str(self.seed)])

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TrainingRun:
        values: Mapping[str, Any] = json.loads(text)
        tuples = {name: tuple(values[name]) for name in ("snapshots", "classes")}
        switches = {name: as_tuple(value) for name, value in values["switches"].items()}
        return cls(**{**values, **tuples, "switches": switches, "recipe": Recipe.from_json(values["recipe"])})


#: The options that belong into the command of a card; where files lie and how a run is watched do not.
OPTIONS = {
    "name": "--name",
    "classes": "--classes",
    "class_count": "--class-count",
    "validation": "--validation",
    "imbalance": "--imbalance",
    "shots": "--shots",
    "fraction": "--fraction",
    "label_noise": "--label-noise",
    "shuffle_patches": "--shuffle-patches",
    "steps": "--steps",
    "image_size": "--image-size",
    "begin_from": "--from",
    "head": "--head",
    "freeze": "--freeze",
    "backbone_lr_scale": "--backbone-lr-scale",
    "stop_after": "--stop-after",
}
RECIPE_OPTIONS = ("epochs", "warmup_epochs", "batch_size", "learning_rate")


def _changes(recipe: Recipe) -> list[str]:
    """The options that make the named recipe this one."""
    named = find_recipe(recipe.name)
    changed = [one.name for one in fields(Recipe) if getattr(recipe, one.name) != getattr(named, one.name)]
    words = []
    for name in RECIPE_OPTIONS:
        words += [f"--{name.replace('_', '-')}", str(getattr(recipe, name))] if name in changed else []
    for name in changed:
        words += [] if name in RECIPE_OPTIONS else ["--set", f"{name}={getattr(recipe, name)}"]
    return words


def as_tuple(value: Any) -> Any:
    """JSON and TOML have lists where a switch has a tuple."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first thing in which two identities differ, in words; None if they are equal.

    >>> difference({"seed": 0, "recipe": {"clip": 1.0}}, {"seed": 0, "recipe": {"clip": 5.0}})
    'clip was 1.0 and is now 5.0'
    """
    for name in sorted({*before, *now}, key=lambda name: (name == "data", name)):  # a fraction changes the data too
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name == "data":  # hashes, which say nothing to anyone
            return "its training images or their labels were others"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            return difference(old, new)
        return f"{name.replace('_', ' ')} was {old} and is now {new}"
    return None
