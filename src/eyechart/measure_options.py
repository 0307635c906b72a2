"""Options of a measure: the fields of its class."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from typing import Any, get_args, get_type_hints

from eyechart.errors import UsageError
from eyechart.measure import Measure
from eyechart.words import did_you_mean


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
