"""Figures of the pages: drawn once from the run folders that `make docs` leaves in runs/."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from eyechart import Run

FOLDER = Path(__file__).parents[2] / "runs"
RUNS = ("docs", "docs-slow", "docs-slower", "docs-training")
"""The exam of the bundled pair, two of what `--effort quick` leaves out, and one of a training's snapshots."""


@cache
def runs() -> Mapping[str, Run]:
    """The run of every measure that has a finding, the first that has it."""
    made: dict[str, Run] = {}
    for run in map(Run.open, exams()):
        made |= {name: run for name in run.findings if name not in made}
    return made


def exams() -> list[Path]:
    return [FOLDER / name for name in RUNS]


@cache
def reasons() -> Mapping[str, str]:
    """Why the first exam left measures out, in its own words."""
    first, *_ = map(Run.open, exams())
    return {entry["measure"]: entry["reason"] for entry in first.plan["left_out"]}


@cache
def figures() -> Mapping[str, Path]:
    """The figure of every measure that was run, as an SVG file in the run's own folder."""
    made = {}
    for name, run in runs().items():
        path = run.path / "figures" / f"{name}.svg"
        if not path.exists():
            run.figures("svg")
        made[name] = path
    return made
