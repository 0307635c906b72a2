"""Docstrings and tables as markdown; also a griffe extension, so that API pages read docstrings in the same way."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import jinja2

COLUMNS = re.compile(r"[\w.,\[\]-]+( [\w\]]+){0,2} {2,}\S")
"""A line of a list in columns: a name, two spaces or more, what it is."""


def as_markdown(docstring: str) -> str:
    """A docstring with its examples fenced and its lists in columns as points; the rest is markdown already.

    >>> print(as_markdown("Doubles.\\n\\n>>> double(2)\\n4"))
    Doubles.
    <BLANKLINE>
    ```pycon
    >>> double(2)
    4
    ```
    """
    text = re.sub(r" ?READ FIRST in this \w+\.", "", inspect.cleandoc(docstring))  # said to readers of the code
    paragraphs = re.split(r"\n[ ]*\n", "\n".join(_lists(text.splitlines())))
    return "\n\n".join(_fenced(paragraph) for paragraph in paragraphs)


def _lists(lines: Sequence[str]) -> Iterator[str]:
    """Lists as Python-Markdown wants them: a blank line before each point, four spaces before what belongs to it."""
    inside = False
    for line in lines:
        if line.startswith("- "):
            yield ""
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        yield f"  {line}" if inside and line.startswith("  ") else line


def _fenced(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if lines[0].startswith(">>> "):
        return f"```pycon\n{paragraph}\n```"
    first = next((place for place, line in enumerate(lines) if line.startswith((">>> ", "├──", "└──"))), None)
    if first is not None:
        return f"```text\n{paragraph}\n```"
    return _points(lines) if sum(COLUMNS.match(line) is not None for line in lines) > 1 else paragraph


def _points(lines: Sequence[str]) -> str:
    """A list in columns as a list of points: fenced, its lines of 120 letters ended outside of what is seen."""
    starts = [match.end() - 1 for match in map(COLUMNS.match, lines) if match]
    second = max(set(starts), key=starts.count)
    points: list[list[str]] = []
    for line in lines:
        name, meaning = line[:second].strip(), line[second:].strip().replace("<", "&lt;")
        if name:
            points.append([f"- `{name}`: {meaning}"])
        else:
            points[-1].append(f"    {meaning}")
    return "\n".join(line for point in points for line in point)


def cell(text: object) -> str:
    """A text as it stands in a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    env = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    env.filters |= {"as_markdown": as_markdown, "cell": cell}
    return env


def filled(template: str, **context: Any) -> str:
    return _templates().get_template(template).render(context)


class Docstrings(griffe.Extension):
    """API pages show docstrings through `as_markdown`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
