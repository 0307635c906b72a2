"""Which measures there are: a folder with a measure.py each. Only those that are asked for are imported."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from eyechart.errors import UsageError
from eyechart.measure import Measure
from eyechart.measure_options import with_option
from eyechart.words import did_you_mean


@cache
def names() -> tuple[str, ...]:
    """The name of every measure; nothing of them is imported."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


@cache
def find_measure(name: str) -> Measure:
    """The measure of this name, with its default options."""
    module = importlib.import_module(f"eyechart.measures.{name}.measure")
    (kind,) = (
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, Measure) and thing.__module__ == module.__name__
    )
    measure: Measure = kind()
    return measure


@cache
def measures() -> dict[str, Measure]:
    """Every measure, by name, in the order of the report."""
    return {measure.name: measure for measure in in_order(names())}


def in_order(wanted: Iterable[str]) -> list[Measure]:
    return sorted(map(find_measure, wanted), key=lambda measure: measure.order)


def choose_measures(asked: str | Sequence[str] | None, options: Mapping[str, Any] | None = None) -> list[Measure]:
    """The measures asked for by name, or all, with options such as {"cka.readout": "gap"} set on them.

    >>> [measure.name for measure in choose_measures(["cka"], {"cka.readout": "gap"})]
    ['cka']
    """
    words = asked.split(",") if isinstance(asked, str) else asked
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


def there_are() -> str:
    return f"there are {', '.join(names())}."
