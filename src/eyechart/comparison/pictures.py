"""The pictures of a comparison: quantities over the runs, and the figures of measures in each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.comparison.common_axes import on_common_axes
from eyechart.report.embed import picture, unchecked
from eyechart.report.sections import in_one_line
from eyechart.report.sentences import name_of_quantity

if TYPE_CHECKING:
    from eyechart.comparison.comparison import Comparison
    from eyechart.comparison.differences import Difference

MOST_PANELS = 12
PANEL = (200, 130)  # pixels
MOST_FIGURES = 6  # measures whose figures are shown in every run
MOST_BYTES = 7_000_000  # of these figures: with the rest of the page below what mail servers still take


def clearest(differences: Sequence[Difference]) -> list[Difference]:
    """The quantities that changed most clearly, three of a measure at most; of two with the same numbers, one."""
    chosen: list[Difference] = []
    for each in sorted(differences, key=lambda each: -each.clearness):
        alike = [other for other in chosen if other.measure == each.measure]
        same = [other for other in alike if other.quantity == each.quantity and {*other.subjects} == {*each.subjects}]
        twice = bool(same) or any(other.values == each.values for other in alike)
        if each.clearness > 1 and not twice and len(alike) < 3 and len(chosen) < MOST_PANELS:
            chosen.append(each)
    return chosen


def panel(each: Difference, labels: Sequence[str]) -> dict[str, Any]:
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
    name, subjects = name_of_quantity(each.quantity), " and ".join(each.subjects)
    title = alt.TitleParams(name, subtitle=subjects, limit=PANEL[0] + 40)
    chart = theme.panel(alt.layer(bars, theme.curve(frame, x, y, colour)), PANEL, title)
    return picture(specification(theme.dress(chart)), each.subjects) | {"words": f"{name} of {subjects} over the runs"}


def bytes_of(made: dict[str, Any]) -> int:
    return sum(len(each["light"]) + len(each["dark"]) for each in made["languages"].values())


def figures(comparison: Comparison, undrawn: dict[str, str]) -> list[dict[str, Any]]:
    """The figures of the measures that changed most clearly: a picture for each run, all on the same axes.

    What cannot be drawn is named in `undrawn` with the reason.
    """
    clear: dict[str, float] = {}
    for each in comparison.differences:
        clear[each.measure] = max(clear.get(each.measure, 0.0), each.clearness)
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


def in_every_run(comparison: Comparison, name: str) -> list[dict[str, Any]]:
    specs = []
    for run, compared in zip(comparison.runs, comparison.subjects, strict=True):
        # Those compared come first: colours go by place, and a subject has one colour on the whole page.
        order = [*compared, *(name for name in run.scene.subjects if name not in compared)]
        with theme.drawing(subjects=order, for_export=True), unchecked():
            specs.append(specification(run.chart(name), validate=False))
    return [picture(spec, run.scene.subjects) for spec, run in zip(on_common_axes(specs), comparison.runs, strict=True)]
