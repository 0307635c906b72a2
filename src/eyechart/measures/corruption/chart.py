"""The figure of `corruption`: what the corruptions look like, what they cost by severity, and by type."""

from __future__ import annotations

from typing import Any, cast

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.pictures import data_uri
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.measures.corruption.measure import named

TILE, COLUMNS, ROWS = 96, 4, 2
"""Pixels of a picture, and how many stand in a row and below one another in a panel; of panels two fill a wide page."""
NAMES = 46  # pixels below a picture: a line a word, or "gaussian noise" touches "shot noise" on a phone
ROW = 28


def draw(finding: xarray.Dataset) -> Chart:
    finding = finding.isel(subject=np.isfinite(finding["mean"].values))
    curves = theme.panels(
        [
            by_severity(finding, "by_severity", "accuracy", "%"),
            by_severity(finding, "nll", "negative log-likelihood", ".2f"),
            by_severity(finding, "signed_ece", "confidence − accuracy (points)", "+.1f"),
        ],
        columns=3,
    )
    types = [by_type(finding)] + ([differences(finding)] if finding.sizes["pair"] else [])
    strip = [examples(finding)] if finding.sizes["shown"] else []
    return theme.panels([*strip, curves, theme.panels(types, columns=2)], columns=1)


def examples(finding: xarray.Dataset) -> Chart:
    """One picture, clean and in every type. In two panels: in a row of eight names ran into one another on a phone."""
    names = ["clean", *map(named, finding.type.values.tolist())]
    tiles = list(zip(names, finding.example.values[0], strict=True))
    parts = [tiles[at : at + COLUMNS * ROWS] for at in range(0, len(tiles), COLUMNS * ROWS)]
    titles = ["the corruptions, at severity 3", *[" "] * len(parts)]
    return theme.panels([strip(part, title) for part, title in zip(parts, titles, strict=False)], columns=2)


def strip(tiles: list[tuple[str, np.ndarray]], title: str) -> Chart:
    table = pd.DataFrame(
        {
            "x": [(index % COLUMNS + 0.5) * (TILE + 6) for index in range(len(tiles))],
            "y": [(index // COLUMNS) * (TILE + NAMES) + TILE / 2 for index in range(len(tiles))],
            "text": [name for name, _ in tiles],  # so called, because that column is said in the language of the page
            "url": [drawn_small(tile) for _, tile in tiles],
        }
    )
    width, height = COLUMNS * (TILE + 6), -(-len(tiles) // COLUMNS) * (TILE + NAMES)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, width], nice=False), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[height, 0], nice=False), axis=None)
    base = alt.Chart(table).encode(x, y)
    pictures = base.mark_image(width=TILE, height=TILE, tooltip=None).encode(url="url:N")
    words = base.mark_text(style="note", baseline="top", dy=TILE / 2 + 4, lineBreak=" ", lineHeight=12, tooltip=None)
    return theme.panel(pictures + words.encode(text="text:N"), (width, height), alt.TitleParams(title))


def drawn_small(pixels: np.ndarray) -> str:
    """Small pictures enlarged without smoothing, as PNG; the rest as JPEG."""
    times = max(1, TILE // max(pixels.shape[:2]))
    return data_uri(pixels, "PNG" if times > 1 else "JPEG", times)


def by_severity(finding: xarray.Dataset, name: str, title: str, form: str) -> Chart:
    in_points = form == "+.1f"
    ece = table_of(finding, "ece", gaps=True)[["subject", "level", "ece"]]
    table = table_of(finding, name, gaps=True, times=100.0 if in_points else 1.0).merge(ece)
    x = alt.X(
        "level:Q",
        title="severity",
        scale=alt.Scale(nice=False, padding=theme.MARK),
        axis=theme.axis_at(range(6), format="d"),
    )
    scale = alt.Scale(domain=[0, 1]) if form == "%" else alt.Scale(zero=True)
    y = alt.Y(f"{name}:Q", title=title, scale=scale, axis=alt.Axis(format="%") if form == "%" else alt.Axis())
    tooltip = tooltips("subject", level=("severity", ""))
    tooltip += interval_tooltips(name, title, {"%": ".1%", ".2f": ".3f"}.get(form, form))
    tooltip += tooltips(ece=("calibration error (ECE)", ".3f")) if in_points else []
    colour = subject_colours(finding.subject.values)
    lines = theme.curve(table, x, y, colour, *ends_of(name), tooltip=tooltip)
    return theme.panel(lines + theme.reference(0, "") if in_points else lines, (215, 210))


def by_type(finding: xarray.Dataset) -> Chart:
    """One row a type: the accuracy of every subject, with a stroke at its clean accuracy."""
    table = table_of(finding, "by_type", gaps=True).assign(corruption=lambda frame: frame["type"].map(named))
    clean = finding.by_severity.sel(level=0).to_dataframe(name="clean").reset_index()
    rules = alt.Chart(clean).mark_rule(strokeDash=[4, 3], strokeWidth=1.5, tooltip=None)
    rules = rules.encode(alt.X("clean:Q", title="accuracy"), color=subject_colours(finding.subject.values))
    x: dict[str, Any] = {"title": "accuracy", "scale": alt.Scale(domain=[0, 1]), "axis": alt.Axis(format="%")}
    layers = row_layers(finding, table, rules, "by_type", ".1%", **x)
    return theme.panel(layers, (330, ROW * finding.sizes["type"]), "by type; dashed: clean")


def differences(finding: xarray.Dataset) -> Chart:
    """The other subjects against the first that sees the same pictures, picture by picture."""
    first = finding.one.values[0]
    table = table_of(finding.isel(pair=finding.one.values == first), "difference", gaps=True, times=100)
    table = table.assign(corruption=table["type"].map(named), subject=table["other"].astype(str))
    zero = theme.reference(0, "", axis="x")
    layers = row_layers(finding, table, zero, "difference", "+.1f", title=f"points more than {first}")
    return theme.panel(layers, (250, ROW * finding.sizes["type"]), "difference")


def row_layers(
    finding: xarray.Dataset, table: pd.DataFrame, below: Chart, name: str, form: str, *, title: str, **x: Any
) -> Chart:
    """One row a corruption: each subject's number on its interval, above what lies `below`."""
    order = [named(kind) for kind in finding.type.values.tolist()]
    axis = alt.Axis(labelFontSize=12, labelLimit=200, grid=True)
    y = alt.Y("corruption:N", sort=order, title=None, axis=axis)
    offset = alt.YOffset("subject:N", sort=finding.subject.values.tolist(), scale=alt.Scale(paddingOuter=0.8))
    base = alt.Chart(table).encode(y=y, yOffset=offset, color=subject_colours(finding.subject.values))
    low, high = ends_of(name)
    span = base.mark_rule(style="interval-bar", strokeWidth=2.5, tooltip=None).encode(
        alt.X(f"{low}:Q", title=title), x2=f"{high}:Q"
    )
    tooltip = tooltips("subject", "corruption") + interval_tooltips(name, title, form)
    points = base.mark_point(size=45, filled=True, opacity=1).encode(
        alt.X(f"{name}:Q", title=title, **x), tooltip=tooltip
    )
    return cast(alt.LayerChart, alt.layer(below, span, points))
