"""The figure of E12: what other attention costs, all at once and block by block, and how data-specific heads are."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import interval_tooltips, subject_colours, table_of, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.measures.attention_role.kernels import REPLACEMENTS


def draw(finding: xarray.Dataset) -> Chart:
    has_labels = bool(np.isfinite(finding.lost.values).all())
    rows = [theme.panels([together(finding, has_labels), specific(finding)], columns=2)]
    if np.isfinite(finding.changed_alone.values).any():
        each = [alone(finding, has_labels, replacement) for replacement in REPLACEMENTS]
        rows.append(theme.panels(each, columns=3))
    return theme.panels(rows, columns=1)


def costs(finding: xarray.Dataset, has_labels: bool, suffix: str = "") -> tuple[pd.DataFrame, str]:
    """What is drawn, and what its axis says: accuracy lost, drawn downwards, or the share of answers that change."""
    if has_labels:
        return value_table(finding, f"lost{suffix}", times=-100.0), "Δ accuracy (points)"
    return value_table(finding, f"changed{suffix}", times=100.0), "answers that change (%)"


def together(finding: xarray.Dataset, has_labels: bool) -> Chart:
    table, title = costs(finding, has_labels)
    words = alt.Axis(labelAngle=0, labelExpr=theme.A_LINE_A_WORD)
    x = alt.X("replacement:N", sort=list(REPLACEMENTS), title=None, axis=words)
    low, high = min(0.0, float(table["low"].min())), max(0.0, float(table["high"].max()))
    above = alt.Scale(domainMax=high + 0.06 * (high - low), nice=6)  # room for the name of the dashed line
    y = alt.Y("value:Q", title=title, scale=above)
    apart = alt.XOffset("each_subject:N", sort=finding.each_subject.values.tolist())
    colour = subject_colours(finding.each_subject.values, "each_subject")
    tooltip = [*tooltips(each_subject="subject", replacement="weights"), *interval_tooltips("value", title, ".1f")]
    bars = theme.error_bars(table, x, y, "low", "high", xOffset=apart, color=colour)
    points = alt.Chart(table).mark_point(size=90).encode(x, y, xOffset=apart, color=colour, tooltip=tooltip)
    chart = alt.layer(bars, points, theme.reference(0, "as intact" if has_labels else "same answers"))
    return theme.panel(chart, (380, 250), alt.TitleParams("all attentions replaced at once"))


def alone(finding: xarray.Dataset, has_labels: bool, replacement: str) -> Chart:
    every, title = costs(finding, has_labels, "_alone")
    limits = [float(every["low"].min()), float(every["high"].max())]
    ends = alt.Scale(domain=limits, nice=6)  # the same for all replacements
    table = every[every["replacement"] == replacement]
    x = theme.depth_axis()
    y = alt.Y("value:Q", title=title, scale=ends)
    colour = subject_colours(finding.subject.values)
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour)
    bars = theme.error_bars(table, x, y, "low", "high", color=colour)
    tooltip = [*tooltips("subject", "name"), *interval_tooltips("value", title, ".1f")]
    points = alt.Chart(table).mark_point(size=40).encode(x, y, color=colour, tooltip=tooltip)
    chart = alt.layer(line, bars, points, theme.reference(0, ""))
    words = alt.TitleParams(f"one at a time: {replacement}")
    return theme.panel(chart, (240, 220), words)


def specific(finding: xarray.Dataset) -> Chart:
    """Each head a point, the mean over heads a line; dashed, what tells the heads of a block apart."""
    heads = value_table(finding, "data_specific")
    heads["head"] += 1  # counted from 1, as everywhere on the page
    means = heads.groupby(["subject", "name", "depth"], sort=False)["value"].mean().reset_index()
    between = table_of(finding, "head_specific", ends=False, gaps=True).rename(columns={"head_specific": "value"})
    kinds = ["from picture to picture", "from head to head"]
    lines = pd.concat([means.assign(varies=kinds[0]), between.assign(varies=kinds[1])], ignore_index=True)
    x = theme.depth_axis()
    title = "share of the pattern that varies"
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domainMin=0, nice=6))
    colour = subject_colours(finding.subject.values)
    dashes = alt.Scale(domain=kinds, range=[[1, 0], [5, 4]])
    dash = alt.StrokeDash("varies:N", scale=dashes, title=None, legend=theme.strokes(400, orient="bottom"))
    line = alt.Chart(lines).mark_line(tooltip=None).encode(x, y, color=colour, strokeDash=dash)
    points = alt.Chart(heads).mark_point(style="one-of-many", size=26)
    tooltip = [*tooltips("subject", "name", "head"), *interval_tooltips("value", title, ".2f")]
    chart = line + points.encode(x, y, color=colour, tooltip=tooltip)
    words = alt.TitleParams("how much of each head's pattern varies")
    return theme.panel(chart, (380, 250), words)
