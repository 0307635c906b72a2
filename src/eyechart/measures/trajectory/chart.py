"""The figure of M17b: trainings as paths in polar coordinates around their first weights."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import interval_tooltips, subject_colours, tooltips
from eyechart.charts.theme import Chart

ALONG = ["distance along the final direction", "(lengths of the first weights)"]
SIDE = 290
"""Pixels: as wide as a phone, where a wider plot would become higher than wide and its angles wrong."""


def draw(finding: xarray.Dataset) -> Chart:
    table = finding.to_dataframe().reset_index()
    turn = np.radians(table["angle"].fillna(0.0))
    table["x"], table["y"] = table["radius"] * np.cos(turn), table["radius"] * np.sin(turn)
    table["order"] = range(len(table))
    reach = float(table["radius"].max()) * 1.15 or 1.0
    scale = alt.Scale(domain=[0, reach], nice=False)
    x = alt.X("x:Q", title=ALONG, scale=scale)
    y = alt.Y("y:Q", title="distance off it", scale=scale)
    colour = subject_colours(table["training"], "training")
    tooltip = tooltips("subject", "moment") + interval_tooltips("radius", "radius", among=True)
    tooltip += interval_tooltips("angle", "angle (degrees)", ".1f", among=True)
    rings = []
    for share in (0.25, 0.5, 0.75, 1.0):
        angles = np.linspace(0, np.pi / 2, 40)
        length = share * reach / 1.15
        rings.append(pd.DataFrame({"x": length * np.cos(angles), "y": length * np.sin(angles), "ring": share}))
    circles = (
        alt.Chart(pd.concat(rings))
        .mark_line(style="quiet-line", strokeWidth=0.75, tooltip=None)
        .encode(x, y, detail="ring:Q", order="x:Q")
    )
    lines = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour, order="order:Q")
    points = alt.Chart(table).mark_point(size=60, filled=True).encode(x, y, color=colour, tooltip=tooltip)
    beside: dict[str, Any] = {"align": "left", "baseline": "bottom", "dx": 7, "dy": -3, "fontSize": 11, "tooltip": None}
    named = alt.Chart(table).encode(x, y, text="moment:N")
    rim = named.mark_text(style="reference-rim", fontStyle="normal", **beside)  # no line crosses a name
    words = named.mark_text(**beside).encode(color=colour)
    return theme.panel(circles + lines + points + rim + words, (SIDE, SIDE))
