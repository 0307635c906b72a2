"""The figure of `band_noise`: what noise of one frequency costs, and the strengths it was read from."""

from __future__ import annotations

import math

import altair as alt
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.measures.band_noise.measure import END, RINGS

SIZE = (380, 280)


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels([by_frequency(finding), by_strength(finding)], columns=2, shared=("color",))


def changes(finding: xarray.Dataset, name: str) -> pd.DataFrame:
    """Drops as changes of accuracy in points, downwards as in the paper."""
    return table_of(finding, name, times=-100.0)


def tooltips_of(finding: xarray.Dataset, name: str, **column: tuple[str, str]) -> list[alt.Tooltip]:
    """The number is called what it is a change of; where subjects differ in that, each says its own."""
    if len(set(finding.scored.values.tolist())) == 1:
        return tooltips("subject", **column) + interval_tooltips(name, change(finding), "+.1f")
    return tooltips("subject", **column, scored="points of") + interval_tooltips(name, "value", "+.1f")


def change(finding: xarray.Dataset) -> str:
    return f"change of {' or '.join(dict.fromkeys(finding.scored.values.tolist()))} (points)"


def by_frequency(finding: xarray.Dataset) -> Chart:
    """P Fig. 2b."""
    strength = float(finding.read_at[0])
    if math.isnan(strength):
        return theme.nothing("by frequency", SIZE, "no strength that was tried costs 10 points")
    table = changes(finding, "cost")
    x = alt.X("frequency:Q", title="frequency of the noise / π", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("cost:Q", title=change(finding))
    tooltip = tooltips_of(finding, "cost", frequency=("frequency / π", ".2f"))
    colour = subject_colours(finding.subject.values)
    lines = theme.curve(table, x, y, colour, *ends_of("cost"), tooltip=tooltip)
    title = f"by frequency: {unit(finding)} {strength:.2f} quarters of the range"
    ends = theme.reference(END / RINGS, "low", axis="x", side="left")
    ends += theme.reference(1 - END / RINGS, "high", axis="x")
    return theme.panel(lines + theme.reference(0, "") + ends, SIZE, title)


def unit(finding: xarray.Dataset) -> str:
    return "height" if finding.attrs["scaling"] == "paper" else "RMS"


def by_strength(finding: xarray.Dataset) -> Chart:
    """The mean over all frequencies at each strength: where 10 points are lost, the left panel is read."""
    table = changes(finding, "mean_cost")
    ticks = sorted(set(table.strength)) or finding.strength.values.tolist()  # of few pictures not all were tried
    scale = alt.Scale(type="log", domain=[ticks[0] / 1.1, ticks[-1] * 1.1], nice=False, padding=theme.MARK)
    title = f"strength: {unit(finding)}, in quarters of the pixel range"
    x = alt.X("strength:Q", title=title, scale=scale, axis=theme.axis_at(ticks, format=".2~g"))
    y = alt.Y("mean_cost:Q", title="mean change (points)")
    tooltip = tooltips_of(finding, "mean_cost", strength=("strength", ".2f"))
    colour = subject_colours(finding.subject.values)
    lines = theme.curve(table, x, y, colour, *ends_of("mean_cost"), tooltip=tooltip)
    layers = lines + theme.reference(-10, "10 points")
    if not math.isnan(float(finding.read_at[0])):
        layers += theme.reference(float(finding.read_at[0]), "first panel", axis="x", at="start")
    return theme.panel(layers, SIZE, "mean over all frequencies")
