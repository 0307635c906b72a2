"""Which measures there are. Only those that are asked for are imported.

Each folder here is the room of one, with its class in measure.py. Others come from installed packages, through the
entry points `eyechart.measures` (name = "package.module:Class"), or from a file: `--plugin FILE.py`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from eyechart.claims.table import CLAIMS
from eyechart.errors import UsageError
from eyechart.measure import Measure
from eyechart.measure_options import with_option
from eyechart.phrases import did_you_mean

_from_files: dict[str, tuple[Measure, Path]] = {}
"""Measures of plugin files, and where each was read."""


@cache
def built_in() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


@cache
def _installed() -> dict[str, EntryPoint]:
    """Measures of other packages, by name; one that has the name of ours is not taken."""
    return {entry.name: entry for entry in entry_points(group="eyechart.measures") if entry.name not in built_in()}


def names() -> tuple[str, ...]:
    """The name of every measure; nothing of them is imported."""
    return (*built_in(), *_installed(), *_from_files)


def find_measure(name: str) -> Measure:
    """The measure of this name, with its default options."""
    return _from_files[name][0] if name in _from_files else _imported(name)


@cache
def _imported(name: str) -> Measure:
    if name in built_in():
        (kind,) = measures_in(importlib.import_module(f"eyechart.measures.{name}.measure"))
        return kind()
    entry = _installed()[name]
    try:
        kind = entry.load()
    except Exception as error:  # somebody else's code: anything may happen in it
        raise UsageError(f"The measure {name} of {entry.value} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Measure)) or kind.name != name:
        raise UsageError(f"The entry point {name} = {entry.value} is not a Measure called {name!r}.")
    return kind()


def measures_in(module: Any) -> list[type[Measure]]:
    """The measures that a module defines."""
    classes = [thing for thing in vars(module).values() if isinstance(thing, type) and issubclass(thing, Measure)]
    return [kind for kind in classes if kind.__module__ == module.__name__ and not inspect.isabstract(kind)]


def load_plugin(path: str | Path) -> list[str]:
    """Make the measures of a Python file known in this process, and say their names. It is run, so trust it."""
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise UsageError(f"--plugin takes a Python file with measures; there is none at {path}.")
    module_name = f"eyechart_plugin_{file.stem}_{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, file)
        if spec is None or spec.loader is None:
            raise UsageError(f"--plugin takes a Python file (.py) with measures; got {path}.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up there
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # somebody else's code: anything may happen in it
            del sys.modules[module_name]
            raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    kinds = measures_in(sys.modules[module_name])
    if not kinds:
        raise UsageError(f"{path} defines no measure: a subclass of eyechart.Measure was expected.")
    for kind in kinds:
        if kind.name in (*built_in(), *_installed()):
            raise UsageError(f"{path} calls a measure {kind.name!r}, which is the name of another one; rename it.")
        _from_files[kind.name] = (kind(), file)
    measures.cache_clear()
    return [kind.name for kind in kinds]


def source_of(name: str) -> dict[str, str]:
    """Where a measure comes from that is not ours, and the hash of its code, which is part of the question."""
    if name in built_in():
        return {}
    file = _from_files[name][1] if name in _from_files else Path(inspect.getfile(type(find_measure(name))))
    source = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    return source | ({"plugin": str(file)} if name in _from_files else {"package": _installed()[name].value})


@cache
def measures() -> dict[str, Measure]:
    """Every measure, by name, in the order of the report."""
    return {measure.name: measure for measure in sorted(map(find_measure, names()), key=lambda each: each.order)}


def choose_measures(asked: str | Sequence[str] | None, options: Mapping[str, Any] | None = None) -> list[Measure]:
    """The measures asked for by name, or all, with options such as {"cka.readout": "gap"} set on them.

    >>> [measure.name for measure in choose_measures(["cka"], {"cka.readout": "gap"})]
    ['cka']
    """
    words: Any = asked.split(",") if isinstance(asked, str) else list(asked) if isinstance(asked, Iterable) else asked
    if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise UsageError(f"Measures are asked for by their names, such as ['cka', 'recognition']; got {asked!r}.")
    chosen = list(measures()) if words is None else list(dict.fromkeys(word.strip() for word in words if word.strip()))
    if not chosen:
        raise UsageError(
            "No measure is named: --measures takes names such as cka,recognition; without it all are taken."
        )
    for name in chosen:
        if name not in names():
            raise UsageError(f"No measure is called {name!r}; {did_you_mean(name, names(), there_are())}")
    result = {name: find_measure(name) for name in chosen}
    for option, value in (options or {}).items():
        name, _, key = option.partition(".")
        if name not in names():
            near = did_you_mean(name, names(), there_are())
            raise UsageError(f"The option {option!r} is for no measure, for none is called {name!r}; {near}")
        if name not in result:
            raise UsageError(
                f"The option {option!r} is for a measure that is not in this exam ({', '.join(result)}); "
                f"add {name} to --measures."
            )
        result[name] = with_option(result[name], key, value)
    return list(result.values())


def planned_measures(entries: Sequence[Mapping[str, Any]]) -> list[Measure]:
    """The measures that a plan lists, with the options it gives them."""
    options = {f"{entry['name']}.{key}": value for entry in entries for key, value in entry["options"].items()}
    return choose_measures([entry["name"] for entry in entries], options)


def check_tests(claims: Sequence[str], where: str) -> None:
    """Whether the tests of a user's own claims name measures, quantities and options that exist."""
    for test in (test for claim in claims for test in CLAIMS[claim].tests):
        for name in test.measures:
            if name not in names():
                raise UsageError(
                    f"{where}: {test.claim} names the measure {name!r}; {did_you_mean(name, names(), there_are())}"
                )
        for part in test.parts:
            measure = find_measure(part.measure or test.measure)
            offered = [quantity.name for quantity in measure.quantities]
            if part.quantity not in offered:
                near = did_you_mean(part.quantity, offered, f"it has {', '.join(offered)}.")
                raise UsageError(f"{where}: {test.claim} asks {measure.name} for {part.quantity!r}; {near}")
        options = find_measure(test.measure).options
        for name in (*test.when, *test.unless):
            if name not in options:
                near = did_you_mean(name, options, f"it has {', '.join(options) or 'none'}.")
                raise UsageError(f"{where}: {test.claim} names the option {name!r} of {test.measure}; {near}")


def there_are() -> str:
    return f"there are {', '.join(names())}."
