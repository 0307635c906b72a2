"""Pages whose text is the docstring of the code that does it: verdicts, subjects, engines, run folders, commands."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from site_text import filled, table

import eyechart
from eyechart.claims.gates import GATES
from eyechart.claims.judge import LEAST_IMAGES
from eyechart.cli import main
from eyechart.plan_form import FORM
from eyechart.store import FORMAT

TEMPLATES = ("verdicts", "subjects", "watch", "engines", "run-folder", "api")
WIDTH = 100
"""Columns of the help texts."""


def pages(drawn: Mapping[str, Path]) -> dict[str, str]:
    context = {
        "doc": docstring,
        "gates": table(("gate", "asks for", "why"), gate_rows()),
        "least_images": LEAST_IMAGES,
        "format": FORMAT,
        "form": table(("key", "holds"), form_rows(FORM)),
        # What is called first, then what is held in the hand.
        "exported": [(name, eyechart._HOMES[name]) for name in sorted(eyechart.__all__, key=str.swapcase)],
        "version": eyechart.__version__,
    }
    made = {f"{name}.md": filled(f"{name}.md", **context) for name in TEMPLATES}
    return made | {"commands.md": filled("commands.md", commands=list(commands(main, "eyechart")))}


def docstring(where: str) -> str:
    """The words of a module, or of what stands behind a colon in one."""
    name, _, thing = where.partition(":")
    module = importlib.import_module(name)
    return inspect.getdoc(getattr(module, thing) if thing else module) or ""


def gate_rows() -> Iterator[tuple[str, ...]]:
    for key, gate in GATES.items():
        yield f"`{key}`", gate.title, (inspect.getdoc(gate) or "").partition("\n\n")[0]


def form_rows(form: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, part in form.items():
        inner = part[0] if isinstance(part, list) else part
        name = f"{prefix}{key}{'[]' if isinstance(part, list) else ''}"
        if isinstance(inner, dict) and inner:
            yield f"`{name}`", "a list of objects" if isinstance(part, list) else "an object"
            yield from form_rows(inner, f"{name}.")
        else:
            yield f"`{name}`", type_words(inner)


def type_words(part: Any) -> str:
    if isinstance(part, tuple):
        return " or ".join(map(type_words, part))
    if isinstance(part, list):
        return f"a list of {type_words(part[0])}"
    if isinstance(part, dict):
        return "an object"
    return {str: "text", int: "a number", bool: "true or false", None: "null"}[part]


def commands(group: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Every command with what its --help prints."""
    yield (
        name,
        CliRunner().invoke(main, [*name.split()[1:], "--help"], terminal_width=WIDTH, prog_name="eyechart").output,
    )
    if isinstance(group, click.Group):
        for each, command in group.commands.items():
            yield from commands(command, f"{name} {each}")
