"""The figure of E12: what other attention costs, all at once and block by block, and how data-specific heads are."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import altair as alt
import numpy as np
import pandas as pd

from eyechart.charts import theme
from eyechart.measures.attention_role.kernels import REPLACEMENTS
from eyechart.quantity import subjects_in

if TYPE_CHECKING:
    import xarray

    from eyechart.measure import Chart

ENDS = ("", "_low", "_high")


def draw(finding: xarray.Dataset) -> Chart:
    known = bool(np.isfinite(finding.lost.values).all())
    told = ("color", "strokeDash")
    rows = [theme.panels([together(finding, known), specific(finding)], columns=2, shared=told)]
    if np.isfinite(finding.changed_alone.values).any():
        each = [alone(finding, known, replacement) for replacement in REPLACEMENTS]
        rows.append(theme.panels(each, columns=3, shared=told))
    return theme.panels(rows, columns=1, shared=told)


def columns(known: bool, suffix: str = "") -> tuple[list[str], float, str]:
    """Which variable is drawn, upside down where it is a loss, and what its axis says."""
    name = ("lost" if known else "changed") + suffix
    return (
        [f"{name}{end}" for end in ENDS],
        -100.0 if known else 100.0,
        ("Δ accuracy (points)" if known else "answers that change (%)"),
    )


def scaled(table: pd.DataFrame, names: list[str], sign: float) -> pd.DataFrame:
    low, high = (names[2], names[1]) if sign < 0 else (names[1], names[2])
    return table.assign(value=table[names[0]] * sign, low=table[low] * sign, high=table[high] * sign)


def together(finding: xarray.Dataset, known: bool) -> Chart:
    names, sign, title = columns(known)
    table = scaled(finding[names].to_dataframe().reset_index(), names, sign)
    x = alt.X("replacement:N", sort=list(REPLACEMENTS), title=None, axis=alt.Axis(labelAngle=0))
    y = alt.Y("value:Q", title=title)
    apart = alt.XOffset("who:N", sort=finding.who.values.tolist())
    colour = alt.Color("who:N", scale=theme.subject_scale(finding.who.values.tolist()), title=None)
    tooltip = tips("who")
    bars = theme.error_bars(table, x, y, "low", "high", xOffset=apart, color=colour)
    points = alt.Chart(table).mark_point(size=90).encode(x, y, xOffset=apart, color=colour, tooltip=tooltip)
    chart = alt.layer(bars, points, theme.reference(0, "as intact" if known else "same answers"))
    return cast(
        alt.LayerChart,
        chart.properties(width=380, height=250, title=alt.TitleParams("all attentions replaced at once")),
    )


def alone(finding: xarray.Dataset, known: bool, replacement: str) -> Chart:
    names, sign, title = columns(known, "_alone")
    every = scaled(finding[names].to_dataframe().reset_index(), names, sign).dropna(subset=["value"])
    ends = alt.Scale(domain=[float(every["low"].min()), float(every["high"].max())])  # the same for all replacements
    table = every[every["replacement"] == replacement]
    x = alt.X("depth:Q", title="depth (input → output)", scale=alt.Scale(domain=[0, 1.02], nice=False))
    y = alt.Y("value:Q", title=title, scale=ends)
    colour = alt.Color("subject:N", scale=theme.subject_scale(subjects_in(finding)), title=None)
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour)
    bars = theme.error_bars(table, x, y, "low", "high", color=colour)
    points = alt.Chart(table).mark_point(size=40).encode(x, y, color=colour, tooltip=tips("subject", "name"))
    chart = alt.layer(line, bars, points, theme.reference(0, ""))
    words = alt.TitleParams(f"one at a time: {replacement}")
    return cast(alt.LayerChart, chart.properties(width=240, height=220, title=words))


def tips(*fields: str) -> list[alt.Tooltip]:
    named = [alt.Tooltip(field, type="nominal") for field in fields]
    return named + [
        alt.Tooltip(field, type="quantitative", title=title, format=".2f")
        for field, title in (("value", "value"), ("low", "from"), ("high", "to"))
    ]


def specific(finding: xarray.Dataset) -> Chart:
    """Each head a point, the mean over heads a line; dashed, what tells the heads of a block apart."""
    names = [f"data_specific{end}" for end in ENDS]
    heads = finding[names].to_dataframe().reset_index().dropna(subset=[names[0]])
    heads = heads.rename(columns=dict(zip(names, ("value", "low", "high"), strict=True)))
    means = heads.groupby(["subject", "name", "depth"], sort=False)["value"].mean().reset_index()
    between = finding[["head_specific"]].to_dataframe().reset_index().rename(columns={"head_specific": "value"})
    kinds = ["from picture to picture", "from head to head"]
    lines = pd.concat([means.assign(varies=kinds[0]), between.assign(varies=kinds[1])], ignore_index=True)
    x = alt.X("depth:Q", title="depth (input → output)", scale=alt.Scale(domain=[0, 1.02], nice=False))
    y = alt.Y("value:Q", title="share of the kernel that varies", scale=alt.Scale(domainMin=0))
    colour = alt.Color("subject:N", scale=theme.subject_scale(subjects_in(finding)), title=None)
    dashes = alt.Scale(domain=kinds, range=[[1, 0], [5, 4]])
    dash = alt.StrokeDash("varies:N", scale=dashes, title=None, legend=alt.Legend(symbolSize=400))
    line = alt.Chart(lines).mark_line(tooltip=None).encode(x, y, color=colour, strokeDash=dash)
    points = alt.Chart(heads).mark_point(size=26, opacity=0.55)
    chart = line + points.encode(x, y, color=colour, tooltip=tips("subject", "name", "head"))
    words = alt.TitleParams("how much of each head's pattern varies")
    return cast(alt.LayerChart, chart.properties(width=380, height=250, title=words))
