"""Options of a measure: the fields of its class."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from eyechart.errors import UsageError
from eyechart.measure import Measure
from eyechart.phrases import did_you_mean


def with_option(measure: Measure, key: str, value: Any) -> Measure:
    """The measure with one of its fields set; the field's annotation says which values it takes."""
    hints = get_type_hints(type(measure))
    allowed = {field.name: hints[field.name] for field in fields(measure)}
    if key not in allowed:
        near = did_you_mean(key, allowed, f"it has {', '.join(allowed) or 'none'}.")
        raise UsageError(f"{measure.name} has no option {key!r}; {near}")
    choices = get_args(allowed[key])
    if choices and value not in choices:
        raise UsageError(f"{measure.name}.{key} takes {', '.join(map(str, choices))}; got {value!r}.")
    if not choices:
        try:
            value = allowed[key](value)
        except ValueError:
            raise UsageError(f"{measure.name}.{key} takes a {allowed[key].__name__}; got {value!r}.") from None
    return replace(measure, **{key: value})


def choices_of(measure: Measure) -> dict[str, tuple[Any, ...]]:
    """The values each option takes; none are listed of one that takes any number or word."""
    hints = get_type_hints(type(measure))
    return {field.name: get_args(hints[field.name]) for field in fields(measure)}


def meanings_of(measure: Measure) -> dict[str, str]:
    """What each option means.

    >>> from eyechart.measures import find_measure
    >>> meanings_of(find_measure("probes"))["token_width"]
    'the same of a single token'
    """
    return {option.name: option.metadata["help"] for option in fields(measure)}
