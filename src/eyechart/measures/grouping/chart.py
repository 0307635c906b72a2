"""The figure of `grouping`: every head over depth, their mean, and attention without parameters (dashed)."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import interval_tooltips, subject_colours, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.intervals import jackknife
from eyechart.quantity import subjects_in

LEARNED, FREE = "learned, mean over heads", "without parameters"
TITLES = {
    "by rank": "own picture above the other, by rank",
    "by mass": "attention kept within the own picture, by mass",
}


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels([panel(finding, way) for way in TITLES], columns=2, shared=("color", "strokeDash"))


def panel(finding: xarray.Dataset, way: str) -> Chart:
    heads = value_table(finding.sel(way=way), "learned")
    heads["head"] += 1  # counted from 1, as everywhere on the page
    learned = value_table(means_over_heads(finding.sel(way=way)), "learned").assign(read=LEARNED)
    free = value_table(finding.sel(way=way), "free").assign(read=FREE)
    means = pd.concat([learned, free], ignore_index=True)
    x = theme.depth_axis()
    drawn = np.concatenate([finding[name].values.ravel() for name in ("learned", "free_low", "free_high")])
    ends = alt.Scale(domain=[min(0.0, np.nanmin(drawn)), np.nanmax(drawn)], nice=6)  # both ways are compared
    y = alt.Y("value:Q", title="grouping (0: none, 1: all)", scale=ends)
    colour = subject_colours(subjects_in(finding))
    dashes = alt.Scale(domain=[LEARNED, FREE], range=[[1, 0], [6, 4]])
    dash = alt.StrokeDash("read:N", scale=dashes, title=None, legend=theme.strokes(400))
    lines = alt.Chart(means).mark_line(tooltip=None)
    band = theme.band(means.dropna(subset=["low", "high"]), x, y, "low", "high", color=colour, detail="read:N")
    tooltip = [*tooltips("subject", "name", "head"), *interval_tooltips("value", "grouping", ".2f")]
    points = alt.Chart(heads).mark_point(style="one-of-many", size=30).encode(x, y, color=colour, tooltip=tooltip)
    curves = lines.encode(x, y, color=colour, strokeDash=dash)
    chart = alt.layer(theme.reference(0, "by place alone", at="beyond"), band, curves, points)
    return theme.panel(chart, (380, 250), alt.TitleParams(TITLES[way]))


def means_over_heads(finding: xarray.Dataset) -> xarray.Dataset:
    """The heads of each attention as one, with the jackknife over the folds that were left out of all of them."""
    mean = finding.drop_dims("head").assign(learned=finding.learned.mean("head"))
    low = high = np.full(mean.learned.shape, np.nan)
    if "learned_replicates" in finding:
        left_out = finding.learned_replicates.mean("head").transpose("replicate", ...)
        low, high = jackknife(mean.learned.values, left_out.values, (-1.0, 1.0))
    return mean.assign(learned_low=(mean.learned.dims, low), learned_high=(mean.learned.dims, high))
