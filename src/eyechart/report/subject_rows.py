"""Subjects as rows of the page: what each is, and how well it names these pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eyechart.charts.numbers import percent

if TYPE_CHECKING:
    from eyechart.run import Run
    from eyechart.sites import Anatomy


def subject_row(entry: Mapping[str, Any], run: Run) -> dict[str, Any]:
    anatomy = run.scene.anatomy(entry["name"])
    return {
        "architecture": {"cnn": "CNN"}.get(anatomy.architecture, anatomy.architecture),
        "parameters": entry["parameters"],
        "input": "×".join(map(str, entry["input_size"])),
        "blocks": len(anatomy.pick("block")) or "–",
        "heads": heads(anatomy),
        "grid": grids(anatomy),
        "accuracy": accuracy(run, entry["name"]),
        "no_accuracy": no_accuracy(entry, run),
        "weights": entry["weights"],
        "trained": entry["trained"],
    }


def no_accuracy(entry: Mapping[str, Any], run: Run) -> str:
    if not entry.get("classifier", True):
        return "has no classifier"
    if not run.scene.classes:
        return "no labels"
    labels = entry.get("labels", {})
    if labels.get("indices") is not None:
        return "not measured"  # the exam was asked for other measures
    known = not labels.get("reason", "").endswith("are not known.")
    return "classes do not match" if known else "classes not known"


def heads(anatomy: Anatomy) -> str:
    """
    >>> from eyechart.sites import Anatomy
    >>> heads(Anatomy("vgg", (), (), (32, 32), "cnn", None, "gap"))
    '–'
    """
    numbers = sorted({site.heads for site in anatomy.pick("attention") if site.heads})
    return "–" if not numbers else f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def grids(anatomy: Anatomy) -> str:
    """The grid of the first and of the last block, if it has one: "8×8", "32×32 → 4×4"."""
    seen = [f"{site.grid[0]}×{site.grid[1]}" for site in anatomy.pick("block") if site.grid]
    return "–" if not seen else seen[0] if seen[0] == seen[-1] else f"{seen[0]} → {seen[-1]}"


def accuracy(run: Run, subject: str) -> dict[str, str] | None:
    finding = run.findings.get("recognition")
    if finding is None or subject not in finding.subject.values:
        return None
    here = finding.sel(subject=subject)
    names = {"value": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}
    return {name: percent(float(here[variable])) for name, variable in names.items()}
