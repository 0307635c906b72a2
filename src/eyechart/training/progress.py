"""What a training says while it goes: a bar for each on a terminal, plain lines elsewhere. No torch here.

A report is a dictionary: `run`, `steps` of `total`, and at times a `line` (an epoch's numbers), a `notice` or an
`error`, each a sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

Report = Callable[[Mapping[str, Any]], None]


def sentence(event: Mapping[str, Any], kind: str) -> str:
    """What a report says, after the name of its run; errors begin as those of every command do."""
    return f"{'eyechart: ' if kind == 'error' else ''}{event['run']}: {event[kind]}"


def plainly(event: Mapping[str, Any]) -> None:
    """One line on stderr for every sentence; mere ticks are left out."""
    for kind in ("line", "notice", "error"):
        if kind in event:
            print(sentence(event, kind), file=sys.stderr, flush=True)


@contextmanager
def board(names: Sequence[str]) -> Iterator[Report]:
    """Where the reports of several trainings go."""
    from rich.console import Console

    errors = Console(stderr=True)
    if not errors.is_terminal:
        yield plainly
        return
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.fields[run]}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[line]}"), console=errors) as bars:
        tasks = {name: bars.add_task("", total=None, run=escape(name), line="waiting", start=False) for name in names}

        def report(event: Mapping[str, Any]) -> None:
            task = tasks[event["run"]]
            bars.start_task(task)
            if "steps" in event:
                bars.update(task, completed=event["steps"], total=event["total"])
            if "line" in event:
                bars.update(task, line=escape(event["line"]))
            for kind in ("notice", "error"):
                if kind in event:
                    bars.console.print(sentence(event, kind), markup=False, highlight=False)

        yield report
