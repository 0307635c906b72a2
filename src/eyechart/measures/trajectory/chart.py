"""The figure of M17b: trainings as paths in polar coordinates around their first weights."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart

ALONG = ["distance along the final direction", "(lengths of the first weights)"]
SIDE = 290
"""Pixels: as wide as a phone, where a wider plot would become higher than wide and its angles wrong."""


def draw(finding: xarray.Dataset) -> Chart:
    table = table_of(finding, "radius", "angle", gaps=True)  # of the whole finding each row came once a quantity
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
    # A name stands below its point where the path rises from there: above it, it would lie on the path.
    rises = (table.groupby("training")["y"].shift(-1) > table["y"]) & (table["y"] > 0.06 * reach)
    names = [named for own, dy in ((table[~rises], -9), (table[rises], 9)) for named in names_of(own, x, y, colour, dy)]
    return theme.panel(alt.layer(circles, lines, points, *names), (SIDE, SIDE))


def names_of(table: pd.DataFrame, x: alt.X, y: alt.Y, colour: alt.Color, dy: int) -> list[alt.Chart]:
    """The moments beside their points, on rims of paper, so that no line crosses them."""
    if table.empty:
        return []
    beside: dict[str, Any] = {"align": "left", "baseline": "middle", "dx": 7, "dy": dy, "fontSize": 11, "tooltip": None}
    named = alt.Chart(table).encode(x, y, text="moment:N")
    rim = named.mark_text(style="reference-rim", fontStyle="normal", **beside)
    return [rim, named.mark_text(**beside).encode(color=colour)]
