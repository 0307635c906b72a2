"""The figure of `matching`: over depth, a panel for each way of comparing two pictures."""

from __future__ import annotations

import altair as alt
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.quantity import subjects_in


def draw(finding: xarray.Dataset) -> Chart:
    ways = [way for way in finding.way.values.tolist() if finding["rank"].sel(way=way).notnull().any()]
    return theme.panels([panel(finding, way) for way in ways], columns=2)


def panel(finding: xarray.Dataset, way: str) -> Chart:
    lowest = min(0.0, float(finding["rank_low"].min()))
    y = alt.Y("rank:Q", title="same class before another", scale=alt.Scale(domain=[lowest, 1], nice=True))
    tooltip = tooltips("subject", name="block") + interval_tooltips("rank", "same class before another", ".2f")
    curve = theme.curve(
        table_of(finding.sel(way=[way]), "rank"),
        theme.depth_axis(),
        y,
        subject_colours(subjects_in(finding)),
        *ends_of("rank"),
        tooltip=tooltip,
    )
    return theme.panel(curve + theme.reference(0, "by chance"), (380, 230), alt.TitleParams(way))
