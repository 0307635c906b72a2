"""The pictures of a comparison: quantities over the runs, and the figures of measures in each run."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.comparison.common_axes import on_common_axes
from eyechart.comparison.differences import rank
from eyechart.report.embed import picture, unchecked
from eyechart.report.sections import in_one_line
from eyechart.report.sentences import name_of_quantity

if TYPE_CHECKING:
    import xarray

    from eyechart.comparison.comparison import Comparison
    from eyechart.comparison.differences import Difference

MOST_PANELS = 12
PANEL = (200, 130)  # pixels
LETTERS = 28
MOST_FIGURES = 6  # measures whose figures are shown in every run
MOST_BYTES = 7_000_000  # of these figures: with the rest of the page below what mail servers still take


def clearest(differences: Sequence[Difference]) -> list[Difference]:
    """The quantities that changed most clearly, three of a measure at most; of two with the same numbers, one."""
    chosen: list[Difference] = []
    for each in sorted(differences, key=lambda each: -rank(each.clearness)):
        alike = [other for other in chosen if other.measure == each.measure]
        same = [other for other in alike if other.quantity == each.quantity and {*other.subjects} == {*each.subjects}]
        twice = bool(same) or any(other.values == each.values for other in alike)
        if each.clearness > 1 and not twice and len(alike) < 3 and len(chosen) < MOST_PANELS:
            chosen.append(each)
    return chosen


def panel(each: Difference, labels: Sequence[str], shown: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A quantity over the runs in their order, with its interval in each. Single pictures, which flow on any screen."""
    import altair as alt
    import pandas as pd

    values = zip(labels, each.values, strict=True)
    rows = [{"run": label, "value": value.value, "low": value.low, "high": value.high} for label, value in values]
    frame = pd.DataFrame(rows).assign(subject=each.subjects[0])
    x = alt.X("run:N", sort=list(labels), title=None, axis=alt.Axis(labelAngle=0, labelLimit=90))
    y = alt.Y("value:Q", title=each.unit or None, scale=alt.Scale(zero=False))
    colour = alt.Color("subject:N", scale=theme.subject_scale([each.subjects[0]]), legend=None)
    bars = theme.error_bars(frame, x, y, "low", "high", color=colour)
    written = [(shown or {}).get(name, name) for name in each.subjects]
    name, subjects = name_of_quantity(each.quantity), ", ".join(written)
    # Longer names were cut: a line holds as many letters as a panel is wide in the widest of readers' fonts.
    lines = textwrap.wrap(name, LETTERS)
    title = alt.TitleParams(lines, subtitle=textwrap.wrap(subjects, LETTERS + 8), limit=PANEL[0] + 60)
    chart = theme.panel(alt.layer(bars, theme.curve(frame, x, y, colour)), PANEL, title)
    return picture(
        specification(theme.dress(chart)), [*each.subjects, *textwrap.wrap(subjects, LETTERS + 8), *labels, *lines]
    ) | {"words": f"{name} of {subjects} over the runs"}


def bytes_of(made: dict[str, Any]) -> int:
    papers = ("light", "dark", "sheet")
    return sum(len(each[paper]) for each in made["languages"].values() for paper in papers)


def figures(comparison: Comparison, undrawn: dict[str, str]) -> list[dict[str, Any]]:
    """The figures of the measures that changed most clearly: a picture for each run, all on the same axes.

    What cannot be drawn is named in `undrawn` with the reason.
    """
    clear: dict[str, float] = {}
    for each in comparison.differences:
        clear[each.measure] = max(clear.get(each.measure, 0.0), rank(each.clearness))
    made: list[dict[str, Any]] = []
    room = MOST_BYTES
    for name in sorted(clear, key=lambda name: -clear[name]):
        if len(made) == MOST_FIGURES:
            break
        try:
            pictures = in_every_run(comparison, name)
        except Exception as error:  # one figure of many: whatever it is, the others are drawn
            undrawn[name] = f"its figure could not be drawn ({in_one_line(error)})"
            continue
        room -= sum(map(bytes_of, pictures))
        if made and room < 0:
            break
        made.append({"name": name, "title": comparison.runs[0].measures[name].title, "pictures": pictures})
    return made


def of_subjects(finding: xarray.Dataset, kept: Collection[str], every: Collection[str]) -> xarray.Dataset:
    """What a finding says of `kept` among `every` subject of its run: along each dimension whose entries are theirs.

    >>> import xarray
    >>> finding = xarray.Dataset({"cka": ("site", [0.1, 0.9])}, {"subject": ("site", ["vit", "cnn"])})
    >>> of_subjects(finding, ["cnn"], ["vit", "cnn"]).cka.values
    array([0.9])
    """
    for coordinate in finding.coords.values():
        owners = [str(owner) for owner in coordinate.values] if coordinate.ndim == 1 else []
        if set(owners) - {""} <= set(every) and any(owners):
            (dimension,) = coordinate.dims
            own = [owner in kept or not owner for owner in finding[coordinate.name].values]
            finding = finding.isel({dimension: np.flatnonzero(own)})
    return finding


def in_every_run(comparison: Comparison, name: str) -> list[dict[str, Any]]:
    """Of those who are compared alone: a subject has one colour on the whole page, and panels have their like."""
    specs = []
    for run, compared in zip(comparison.runs, comparison.subjects, strict=True):
        finding = of_subjects(run.findings[name], compared, run.scene.subjects)
        with theme.drawing(subjects=compared, for_export=True), unchecked():
            specs.append(specification(theme.dress(run.measures[name].chart(finding)), validate=False))
    return [picture(spec, run.scene.subjects) for spec, run in zip(on_common_axes(specs), comparison.runs, strict=True)]
