"""From what a person writes, on the command line or in a TOML list, to runs. No torch here.

A list has settings for all in `[common]` and one `[[run]]` a training; their keys are the command's options with
underscores, any setting of a recipe, and `switches`, a table:

    [common]
    data = "cifar10"
    recipe = "zoo"

    [[run]]
    model = "vit"
    name = "vit-fine"
    switches = { patch = 2 }
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from eyechart import zoo
from eyechart.errors import UsageError
from eyechart.phrases import did_you_mean
from eyechart.training.recipes import Recipe, find_recipe
from eyechart.training.run import TrainingRun, as_tuple
from eyechart.zoo.switches import check_switches

RECIPE_SETTINGS = {one.name: str(one.type) for one in fields(Recipe) if one.name != "name"}
RUN_SETTINGS = {one.name: str(one.type) for one in fields(TrainingRun) if one.name not in ("recipe", "begin_from")}
KNOWN = RUN_SETTINGS | RECIPE_SETTINGS | {"recipe": "str", "from": "str | None"}
ALSO = {"sam": "sam_radius", "optimizer": "optimiser"}


def make_run(settings: Mapping[str, Any]) -> TrainingRun:
    """One run from its settings, each checked; what is None counts as not given.

    >>> run = make_run({"model": "vit", "recipe": "zoo", "epochs": 30, "switches": {"patch": 2}})
    >>> run.recipe.epochs, run.recipe.clip, run.switches
    (30, 1.0, {'patch': 2})
    """
    given = {ALSO.get(name, name): value for name, value in settings.items() if value is not None}
    if unknown := [name for name in given if name not in KNOWN]:
        near = did_you_mean(unknown[0], KNOWN, f"there are {', '.join(sorted(KNOWN))}.")
        raise UsageError(f"A training has no setting called {unknown[0]!r}; {near}")
    if "model" not in given:
        raise UsageError("A run needs a model: model = NAME.")
    given = {name: fitted(name, value) for name, value in given.items()}
    recipe = find_recipe(given.pop("recipe", "strong"))
    changes = {name: given.pop(name) for name in RECIPE_SETTINGS if name in given}
    epochs = changes.get("epochs", recipe.epochs)
    if "warmup_epochs" not in changes and 0 < epochs <= recipe.warmup_epochs:
        changes["warmup_epochs"] = 1 if epochs > 1 else 0  # the recipe's own would not end before the training does
    recipe = recipe.changed(**changes)
    begin_from = given.pop("from", None)
    if begin_from is None:
        check_switches(given["model"], zoo.switches(given["model"]), given.get("switches", {}))
    defaults = {"data": "cifar10", "out": "runs/train"}
    return TrainingRun(recipe=recipe, begin_from=begin_from, **{**defaults, **given}).checked()


def fitted(name: str, value: Any) -> Any:
    """The value as the setting's type, or one sentence."""
    kind = KNOWN[name].removesuffix(" | None")
    if kind.startswith("tuple"):
        value = value.split(",") if isinstance(value, str) else value
        if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
            raise UsageError(f"{name} takes names separated by commas; got {value!r}.")
        return tuple(part.strip() for part in value if part.strip())
    if kind.startswith("Mapping"):
        if not isinstance(value, Mapping):
            raise UsageError(f"{name} takes a table such as {{ patch = 2 }}; got {value!r}.")
        return {key: as_tuple(part) for key, part in value.items()}
    wanted: tuple[type, ...]
    wanted, words = {
        "int": ((int,), "a whole number"),
        "float": ((int, float), "a number"),
        "bool": ((bool,), "true or false"),
    }.get(kind, ((str,), "a word"))
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
        raise UsageError(f"{name} takes {words}; got {value!r}.")
    if kind.startswith("Literal") and value not in (choices := ast.literal_eval(kind.removeprefix("Literal"))):
        raise UsageError(f"{name} is one of {', '.join(choices)}; got {value!r}.")
    return float(value) if kind == "float" else value


def parse_pairs(option: str, pairs: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE` words as a dictionary; a value that reads as a Python literal is one, any other is a word.

    >>> parse_pairs("--switch", ["patch=2", "depths=(1,1)", "pool=gap", "qkv_bias=false"])
    {'patch': 2, 'depths': (1, 1), 'pool': 'gap', 'qkv_bias': False}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} takes NAME=VALUE; got {pair!r}.")
        words = {"true": "True", "false": "False"}
        try:
            values[name.strip()] = ast.literal_eval(words.get(text.strip(), text.strip()))
        except (ValueError, SyntaxError):
            values[name.strip()] = text.strip()
    return values


def read_list(path: Path, given: Mapping[str, Any], only: Iterable[str] = ()) -> list[TrainingRun]:
    """The runs of a TOML list; what was `given` on the command line counts before what the list says.

    `only` takes some of them, by name.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The list {path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    common, rows = document.get("common", {}), document.get("run", [])
    well_formed = not set(document) - {"common", "run"} and isinstance(rows, list) and rows
    if not well_formed or not all(isinstance(part, dict) for part in (common, *rows)):
        raise UsageError(
            f"{path} must hold one [[run]] for each training and may hold [common]; it holds something else."
        )
    runs = []
    for number, row in enumerate(rows, 1):
        try:
            runs.append(make_run({**common, **row, **given}))
        except UsageError as error:
            raise UsageError(f"Run {number} of {path}: {error}") from error
    wanted = list(only)
    if missing := [name for name in wanted if name not in {run.label for run in runs}]:
        raise UsageError(f"{path} has no run called {missing[0]!r}; it has {', '.join(run.label for run in runs)}.")
    return [run for run in runs if not wanted or run.label in wanted]


def refuse_clashes(runs: Iterable[TrainingRun]) -> None:
    """Trainings of one command need names of their own: for their files, their bars and their errors."""
    seen: set[str] = set()
    for run in runs:
        if run.label in seen:
            raise UsageError(f"Two trainings are called {run.label}; give one of them a name.")
        seen.add(run.label)
