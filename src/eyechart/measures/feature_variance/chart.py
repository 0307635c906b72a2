"""The figure of `feature_variance`: variance over depth (Park & Kim, figure 9), and what each sub-layer changes."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.measures.feature_variance.measure import of_first_half
from eyechart.quantity import subjects_in

SIZE = (400, 280)
RATIO = ("variance / mean square", "ratio")


def draw(finding: xarray.Dataset) -> Chart:
    changed = [
        changes(finding, "step", "what a sub-layer changes: variance"),
        changes(finding, "relative_step", "what a sub-layer changes: variance / mean square"),
    ]
    return theme.panels([*levels(finding), *changed], columns=2, shared=("color", "shape"))


def levels(finding: xarray.Dataset) -> list[Chart]:
    """The variance itself, and over the mean square, after every sub-layer."""
    table = table_of(finding, "variance", "relative", gaps=True)
    table.loc[on_new_grid(table["subject"], table["stage"]), "kind"] = "subsampling"
    x = theme.depth_axis()
    colour = subject_colours(finding.subject.values)
    panels: list[Chart] = []
    for column, what, title in (("variance", "variance", "variance over positions"), ("relative", *RATIO)):
        low, high = ends_of(column)
        y = theme.log_y(column, [*table[low], *table[high]], title)
        line = alt.Chart(table).mark_line(strokeWidth=1.5, tooltip=None).encode(x, y, color=colour)
        bars = theme.error_bars(table, x, y, low, high, color=colour)
        tooltip = tooltips("subject", "name", "kind") + interval_tooltips(column, title, ".3g")
        marks = theme.kind_points(table[table["role"] != "stem"], x, y, in_legend=kinds_of(finding), tooltip=tooltip)
        panels.append(theme.panel(line + bars + marks, SIZE, f"after every sub-layer: {what}"))
    return panels


def on_new_grid(subject: pd.Series, stage: pd.Series) -> pd.Series:
    """Of rows in the order of the pass, the first of every further stage of a subject."""
    return subject.eq(subject.shift(1)) & ~stage.eq(stage.shift(1))


def kinds_of(finding: xarray.Dataset) -> list[str]:
    """What the marks of all panels tell apart, so that one legend serves them."""
    met: list[str] = finding.kind.values[finding.role.values != "stem"].tolist()
    any_new = on_new_grid(pd.Series(finding.subject.values), pd.Series(finding.stage.values)).any()
    return [*met, "subsampling"] if any_new else met


def changes(finding: xarray.Dataset, name: str, title: str) -> Chart:
    """Each sub-layer's result against the skip it met: what the claims count. Stretched about 0, where most lie."""
    table = table_of(finding, name)
    table = table[np.isfinite(table[name])]
    if table.empty:
        return theme.nothing(title, SIZE)
    y = theme.y_stretched_about_0(name, "log change")
    x = theme.depth_axis()
    colour = subject_colours(finding.subject.values)
    line = alt.Chart(table).mark_line(strokeWidth=1.2, tooltip=None).encode(x, y, colour, detail="kind:N")
    bars = theme.error_bars(table, x, y, *ends_of(name), color=colour)
    tooltip = tooltips("subject", "name", "kind") + interval_tooltips(name, "log change", "+.3f")
    marks = theme.kind_points(table, x, y, in_legend=kinds_of(finding), tooltip=tooltip)
    layers = [theme.reference(0, ""), *first_half(finding), line, bars, marks]
    return theme.panel(alt.layer(*layers), SIZE, title)


def first_half(finding: xarray.Dataset) -> list[alt.LayerChart]:
    """A line behind the last sub-layer of each ViT that its claim counts; a panel of a CNN has none."""
    lines = []
    for vit in subjects_in(finding, "vit"):
        counted = [index for kind in ("attention", "mlp") for index in of_first_half(finding, vit, kind)]
        rest = finding.depth.values[(finding.subject.values == vit) & (finding.role.values != "stem")]
        if counted:
            edge = finding.depth.values[counted].max()
            beyond = rest[rest > edge].min(initial=1.0)
            middle = float(edge + beyond) / 2
            lines.append(theme.reference(middle, "ViT: first half", axis="x", at="start", side="left", subject=vit))
    return lines
