"""The figure of `mc_dropout`: log-likelihood, accuracy and calibration against the size of the ensemble."""

from __future__ import annotations

import altair as alt
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart

TITLES = {"nll": "negative log-likelihood", "accuracy": "accuracy", "ece": "calibration error"}


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels([by_size(finding, name) for name in TITLES], columns=3)


def by_size(finding: xarray.Dataset, name: str) -> Chart:
    table = table_of(finding, name, gaps=True)
    sizes = finding["size"].values.tolist()
    form = ".1%" if name == "accuracy" else ".3f"
    ticks = theme.axis_at(sizes, format="d", grid=False)
    x = alt.X(
        "size:Q",
        title="passes",
        scale=alt.Scale(type="log", domain=[sizes[0], sizes[-1]], padding=theme.MARK),
        axis=ticks,
    )
    axis = alt.Axis(format="%") if name == "accuracy" else alt.Axis()
    y = alt.Y(f"{name}:Q", title=TITLES[name], scale=alt.Scale(zero=name == "ece"), axis=axis)
    colour = subject_colours(finding.subject.values)
    tooltip = tooltips("subject", size=("passes", "")) + interval_tooltips(name, TITLES[name], form)
    lines = theme.curve(table, x, y, colour, *ends_of(name), tooltip=tooltip)
    return theme.panel(lines, (225, 230))
