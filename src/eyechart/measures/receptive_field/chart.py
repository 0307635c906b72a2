"""The figure of `receptive_field`: maps by depth after and before the addition, then radius and own-patch share."""

from __future__ import annotations

from typing import Any, Literal, cast

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.small_multiples import MOST_TOGETHER
from eyechart.charts.tables import interval_tooltips, subject_colours, table_of, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.methods.receptive import cell_radius, middle
from eyechart.quantity import subjects_in
from eyechart.reading_estimates import site_indices
from eyechart.site_choice import evenly

TILES = 6  # depths that are shown, as in the original
WIDTH, HEIGHT = 420, 250
KINDS = {"conv": "convolution", "mlp": "MLP"}  # as a title says them
AFTER, BEFORE, DISC = "after the addition", "branch, before it", "after it, in a disc of 1/64"


def draw(finding: xarray.Dataset) -> Chart:
    strips = [strip(finding, subject, role) for subject in subjects_in(finding) for role in ("block", "junction")]
    reach, radius = read_table(finding, "reach"), "radius of half the gradient / width (strokes: a bare cell)"
    radii = curves(finding, reach, radius, alt.Scale(zero=True), explained="subject")
    shares = pd.concat([read_table(finding, "own_share"), discs(finding)], ignore_index=True)
    share = curves(finding, shares, "share inside its own patch", alt.Scale(domain=[0, 1]), explained="read")
    rows = [theme.panels(each, columns=2, shared=()) for each in (strips, [radii, share])]
    return theme.panels(rows, columns=1, shared=())


def strip(finding: xarray.Dataset, subject: str, role: str) -> Chart:
    """One row of the original: what the middle of the map sees, a tile for each depth."""
    sites = site_indices(finding, subject, role)
    sites = sites[[*evenly(len(sites), TILES)]]
    kinds = " and ".join(dict.fromkeys(KINDS.get(kind, kind) for kind in finding.kind.values[sites].tolist()))
    words = AFTER if role == "block" else f"{kinds} branch, before the addition"
    title = alt.TitleParams(subject, subtitle=words if len(sites) else "no branch before an addition")
    side = finding.sizes["x"]
    if not len(sites):
        nothing = pd.DataFrame({"x": [0], "y": [0], "gradient": [np.nan]})
        empty = heatmap(nothing, x="x", y="y", value="gradient", title=title, size=(WIDTH, WIDTH // TILES))
        return theme.of_subject(empty, subject)
    across = np.concatenate([*finding.field.values[sites]], axis=1) / 255  # tiles side by side
    y, x = np.divmod(np.arange(across.size), across.shape[1])
    chart = heatmap(
        pd.DataFrame({"x": x, "y": -y, "gradient": np.sqrt(across[::-1].ravel()), "tile": x // side}),
        x="x",
        y="y",
        value="gradient",
        title=title,
        domain=(0, 1),
        legend=False,  # eight would say the same; the text says what bright means
        x_group="tile",
        x_labels=False,
        y_labels=False,
        size=(WIDTH * len(sites) // TILES, WIDTH // TILES),
        for_export=True,  # a picture on the page as well: the maps of four subjects are 50,000 rectangles
    )
    layers = chart + places(finding, sites, side, subject) + outlines(finding, sites, side)
    layers += depths(finding, sites, side, chart.height)
    return theme.of_subject(cast("Chart", layers), subject)


def places(finding: xarray.Dataset, sites: np.ndarray, side: int, subject: str) -> alt.Chart:
    """A clear pane over every tile, which says whose layer it is: the page marks it where that layer is picked."""
    names = finding.name.values[sites]
    panes = [
        {"x": tile * side, "x2": (tile + 1) * side, "y": 0, "y2": side, "whose": subject, "name": str(name)}
        for tile, name in enumerate(names)
    ]
    pane = alt.Chart(pd.DataFrame(panes)).mark_rect(fill="transparent", stroke=None)
    return cast(alt.Chart, pane.encode(alt.X("x:Q"), alt.Y("y:Q"), x2="x2", y2="y2", tooltip=alt.value(None)))


def outlines(finding: xarray.Dataset, sites: np.ndarray, side: int) -> alt.Chart:
    """The own patch in every tile."""
    boxes = []
    for tile, at in enumerate(sites):
        grid = int(finding.rows[at]), int(finding.columns[at])
        (row, column), (height, width) = middle(grid), (side / grid[0], side / grid[1])
        left, low = tile * side + column * width, side - (row + 1) * height
        boxes.append({"x": left, "x2": left + width, "y": low, "y2": low + height})
    frame = alt.Chart(pd.DataFrame(boxes)).mark_rect(fill=None, stroke=theme.SUBJECT_COLOURS[5], strokeWidth=1)
    return cast(alt.Chart, frame.encode(alt.X("x:Q"), alt.Y("y:Q"), x2="x2", y2="y2", tooltip=alt.value(None)))


def depths(finding: xarray.Dataset, sites: np.ndarray, side: int, height: float) -> alt.Chart:
    first, *others = [int(block) + 1 for block in finding.block.values[sites]]
    labels = [f"block {first}", *map(str, others)]  # on a phone "block 10" and "block 12" stood on one another
    frame = pd.DataFrame({"x": [(tile + 0.5) * side for tile in range(len(sites))], "text": labels})
    words = alt.Chart(frame).mark_text(style="note", baseline="top", dy=4, tooltip=None)
    return cast(alt.Chart, words.encode(alt.X("x:Q"), y=alt.value(height), text="text:N"))


def read_table(finding: xarray.Dataset, variable: str) -> pd.DataFrame:
    table = value_table(finding, variable)
    return table.assign(read=np.where(table["role"] == "block", AFTER, BEFORE))


def bare_cells(finding: xarray.Dataset, x: alt.X, colour: alt.Color) -> alt.Chart:
    """Short strokes at the radius of a cell that is seen alone: what is above them comes from elsewhere."""
    blocks = table_of(finding.isel(site=finding.role.values == "block"), "rows", "columns", ends=False)
    blocks["bare"] = [cell_radius(grid) for grid in zip(blocks["rows"], blocks["columns"], strict=True)]
    # No longer: under the twelve blocks of a small panel they would join to a line.
    strokes = alt.Chart(blocks).mark_tick(orient="horizontal", thickness=2, size=7, tooltip=None)
    return cast(alt.Chart, strokes.encode(x, alt.Y("bare:Q"), color=colour))


def discs(finding: xarray.Dataset) -> pd.DataFrame:
    """The share in a disc that is as large for all, so that small cells do not look like far sight."""
    table = read_table(finding, "disc_share")
    return table[table["role"] == "block"].assign(read=DISC)


def curves(
    finding: xarray.Dataset, table: pd.DataFrame, title: str, scale: alt.Scale, explained: Literal["subject", "read"]
) -> Chart:
    """A number over depth with its interval; dashed before the addition, dotted in the common disc.

    `explained` is what this panel's legend explains: both would be wider than the panel. Of more subjects than one
    panel holds each is named above its own, and the lines are explained below both numbers.
    """
    explained = "read" if len(subjects_in(finding)) > MOST_TOGETHER else explained
    looks: dict[str, Any] = {"title": None, "orient": "bottom", "columns": 2, "labelLimit": 260}
    below = theme.strokes(500, **looks) if explained == "read" else alt.Legend(**looks)
    legends = {name: below if name == explained else None for name in ("subject", "read")}
    x = theme.depth_axis()
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(format=".0%"))
    colour = subject_colours(finding.subject.values, legend=legends["subject"])
    read = [words for words in (AFTER, BEFORE, DISC) if words in set(table["read"])]
    dashes = alt.Scale(domain=read, range=[{AFTER: [1, 0], BEFORE: [6, 4], DISC: [1, 4]}[words] for words in read])
    line = (
        alt.Chart(table)
        .mark_line(tooltip=None)
        .encode(
            x,
            y,
            color=colour,
            strokeDash=alt.StrokeDash("read:N", scale=dashes, legend=legends["read"]),
        )
    )
    area = theme.band(table, x, y, "low", "high", color=colour, detail=["read:N"])
    tooltip = tooltips("subject", "name", read="read") + interval_tooltips("value", title.partition(" (")[0], ".1%")
    marks = table[table["read"] != DISC]
    points = alt.Chart(marks).mark_point(size=30).encode(x, y, color=colour, tooltip=tooltip)
    layers = line + area + points
    if DISC not in read:
        layers += bare_cells(finding, x, colour)
    return theme.panel(layers, (WIDTH, HEIGHT))
