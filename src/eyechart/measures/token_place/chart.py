"""The figure of `token_place`: hit-rates under controls, the place decoder and the patch decoder over depth."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.small_multiples import MOST_TOGETHER
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.measures.token_place.hits import CONTROLS, hits_at_end
from eyechart.quantity import subjects_in

DASHES = {"own": [1, 0], "adjacent": [6, 3], "far": [2, 3]}


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels([controls(finding), place_decoder(finding), patch_decoder(finding)], columns=3)


def controls(finding: xarray.Dataset) -> Chart:
    table = table_of(finding, "hit_rate")
    for control in CONTROLS:
        for subject, (_, low, high) in hits_at_end(finding, control).items():
            table.loc[(table["subject"] == subject) & (table["control"] == control), list(ends_of("hit_rate"))] = [
                low,
                high,
            ]
    colour = subject_colours(finding.subject.values)
    x = alt.X("control:N", title=None, sort=list(CONTROLS), axis=alt.Axis(labelAngle=0, labelExpr=theme.A_LINE_A_WORD))
    axis = alt.Axis(format=".0%")
    y = alt.Y("hit_rate:Q", title="tokens most like their own patch", scale=alt.Scale(domain=[0, 1]), axis=axis)
    offset = alt.XOffset("subject:N", sort=subjects_in(finding))
    tooltip = tooltips("subject", "control") + interval_tooltips("hit_rate", "hit-rate", ".1%")
    points = alt.Chart(table).mark_point(size=60, filled=True).encode(x, y, offset, colour, tooltip=tooltip)
    bars = alt.Chart(table).mark_rule(strokeWidth=1.6, tooltip=None)
    bars = bars.encode(x, alt.Y("hit_rate_low:Q"), offset, colour, y2="hit_rate_high:Q")
    # Of many, whose curves get a panel each, it is a row of its own: page.js would put one of 270 beside those panels.
    width = 270 if len(subjects_in(finding)) <= MOST_TOGETHER else 440
    return theme.panel(bars + points, (width, 250), "last block, under controls")


def least(lows: pd.Series) -> float:
    """Where the axis begins: at 0 or at the lowest interval's end, but never so low that the rest is flattened."""
    return float(np.nanmax([np.nanmin([0.0, *lows]), -0.5]))


def place_decoder(finding: xarray.Dataset) -> Chart:
    table = table_of(finding, "place")
    y = alt.Y("place:Q", title="row and column decoded (R²)", scale=alt.Scale(domain=[least(table.place_low), 1]))
    colour = subject_colours(finding.subject.values)
    tooltip = tooltips("subject", name="block") + interval_tooltips("place", "R²")
    lines = theme.curve(table, theme.depth_axis(), y, colour, *ends_of("place"), tooltip=tooltip)
    return theme.panel(lines, (250, 250), "where does it stand?")


def patch_decoder(finding: xarray.Dataset) -> Chart:
    table = table_of(finding, "pixels")
    colour = subject_colours(finding.subject.values)
    y = alt.Y("pixels:Q", title="patch decoded (R²)", scale=alt.Scale(domain=[least(table.pixels_low), 1]))
    scale = alt.Scale(domain=list(DASHES), range=list(DASHES.values()))
    legend = theme.strokes(500, title="which patch", orient="bottom")
    dash = alt.StrokeDash("relation:N", scale=scale, legend=legend)
    x = theme.depth_axis()
    lines = alt.Chart(table).mark_line(strokeWidth=1.8, tooltip=None).encode(x, y, colour, dash)
    bars = theme.error_bars(table, x, y, *ends_of("pixels"), color=colour)
    tooltip = tooltips("subject", name="block", relation="patch") + interval_tooltips("pixels", "R²")
    points = alt.Chart(table).mark_point(size=30, filled=True).encode(x, y, colour, tooltip=tooltip)
    return theme.panel(lines + bars + points, (250, 250), "which pixels does it hold?")
