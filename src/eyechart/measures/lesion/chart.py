"""The figure of M20: accuracy change by depth, marks by kind, stages shaded, as in P's figures 10 (right) and D.4."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import ends_of, interval_tooltips, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.measures.lesion.units import BRANCH, CONVOLUTION, INTACT
from eyechart.quantity import subjects_in

#: Fill and shape of each kind: P's attention grey and the rest white.
MARKS = {kind: theme.KIND_MARKS[kind] for kind in ("attention", "mlp", "mixer", "pool")}
MARKS |= {CONVOLUTION: theme.KIND_MARKS["conv"], BRANCH: (theme.KIND_MARKS["other"][0], "triangle-right")}
WIDTH, HEIGHT = 320, 250
TICKS = [-100, -50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100]


def draw(finding: xarray.Dataset) -> Chart:
    subjects = subjects_in(finding)
    with_stages = finding.place_subject.values[np.isfinite(finding.place_cost.values)]
    staged = [subject for subject in subjects if subject in with_stages]
    if not subjects:
        nothing = pd.DataFrame({"x": [""], "y": [""], "value": [np.nan]})
        return heatmap(nothing, x="x", y="y", value="value", title="no subject gives answers")
    depths: list[Any] = [
        over_depth(finding, subject, again=again)
        for subject in subjects
        for again in ([False, True] if was_recalibrated(finding, subject) else [False])
    ]
    stages: list[Any] = [within_stages(finding, subject) for subject in staged]
    shared = ("fill", "shape")
    if (count := len(depths) + len(stages)) <= 4:
        return theme.panels([*depths, *stages], columns=3 if count <= 3 else 2, shared=shared)
    rows = [theme.panels(depths, columns=2, shared=shared), theme.panels(stages, columns=3, shared=shared)]
    return theme.panels(rows[: 1 + bool(stages)], columns=1, shared=shared)


def change(field: str, title: str, values: pd.DataFrame) -> alt.Y:
    """An axis that is even near zero and logarithmic far from it: one vital unit must not flatten all others."""
    ends = [float(np.nanmin([*values.to_numpy().ravel(), -2.0])), float(np.nanmax([*values.to_numpy().ravel(), 2.0]))]
    scale = alt.Scale(type="symlog", constant=2, domain=ends, nice=False, padding=theme.MARK)
    return alt.Y(field, type="quantitative", title=title, scale=scale, axis=theme.axis_at(TICKS, labelOverlap=False))


def was_recalibrated(finding: xarray.Dataset, subject: str) -> bool:
    return bool(np.isfinite(finding.lost_recalibrated.values[finding.subject.values == subject]).any())


def over_depth(finding: xarray.Dataset, subject: str, *, again: bool) -> Chart:
    """What each unit costs; `again` with the statistics of batch norms re-estimated without the unit."""
    mine = finding.isel(unit=(finding.subject.values == subject) & (finding.kind.values != INTACT))
    has_labels = bool(np.isfinite(mine.lost.values).all())
    variable = ("lost_recalibrated" if again else "lost") if has_labels else "changed"
    sign = -100.0 if has_labels else 100.0  # what is lost is drawn downwards, as in the paper
    table = value_table(mine, variable, gaps=True, times=sign)
    x = theme.depth_axis()
    title = "Δ accuracy (points)" if has_labels else "answers that change (%)"
    y = change("value", title, reach(finding, "lost" if has_labels else "changed", sign))
    # One way through attention and MLP in turn; a CNN's convolutions and branches are two.
    table = table.assign(way=table["kind"].where(table["kind"].isin([CONVOLUTION, BRANCH]), "units"))
    table["name"] = table["unit_name"]  # the page marks layers by it
    tooltip = tooltips("subject", unit_name="without") + interval_tooltips("value", "Δ", ".2f")
    colour = theme.subject_colour(subject, subjects_in(finding))
    line = (
        alt.Chart(table).mark_line(strokeWidth=1, opacity=0.5, color=colour, tooltip=None).encode(x, y, detail="way:N")
    )
    bars = theme.error_bars(table, x, y, "low", "high", color=alt.value(colour))
    marks = theme.kind_points(table, x, y, in_legend=finding.kind.values, marks=MARKS, tooltip=tooltip)
    chart = alt.layer(*shades(table), line, bars, marks, theme.reference(0, ""))
    return theme.panel(chart, (WIDTH, HEIGHT), titled(finding, subject, again))


def reach(finding: xarray.Dataset, variable: str, sign: float) -> pd.DataFrame:
    """The ends of all intervals of a kind: subjects are compared, and the same units before and after recalibration."""
    units = finding.isel(unit=finding.kind.values != INTACT)
    every = [name for name in (variable, f"{variable}_recalibrated") if name in units]
    return pd.DataFrame({end: sign * units[end].values for name in every for end in ends_of(name)})


def titled(finding: xarray.Dataset, subject: str, again: bool) -> alt.TitleParams:
    if not was_recalibrated(finding, subject):
        beside = any(was_recalibrated(finding, other) for other in subjects_in(finding))
        return alt.TitleParams(subject, subtitle=" " if beside else alt.Undefined, limit=WIDTH)  # at one height
    statistics = "batch norms recalibrated" if again else "batch norms as trained"
    return alt.TitleParams(subject, subtitle=statistics, limit=WIDTH)


def shades(table: pd.DataFrame) -> list[alt.Chart]:
    """Every second stage on a pale ground; a model of one stage has none."""
    stages = table.groupby("stage")["depth"].agg(["min", "max"]).sort_values("min")
    ends = [0.0, *(stages["max"].to_numpy()[:-1] + stages["min"].to_numpy()[1:]) / 2, 1.03]
    bands = pd.DataFrame({"from": ends[1:-1:2], "to": ends[2::2]})
    if bands.empty:
        return []
    return [
        alt.Chart(bands)
        .mark_rect(style="frame", stroke=None, opacity=0.6, clip=True, tooltip=None)
        .encode(x="from:Q", x2="to:Q")
    ]


def within_stages(finding: xarray.Dataset, subject: str) -> Chart:
    """Mean over the stages after the first of what their first and their last block lose: what the claim compares."""
    mine = finding.isel(group=finding.place_subject.values == subject)
    table = value_table(mine, "place_cost", gaps=True, times=-100.0)
    x = alt.X("place:N", sort=["first", "last"], title="block of its stage", axis=alt.Axis(labelAngle=0))
    y = alt.Y("value:Q", title="Δ accuracy (points), mean over stages")
    apart = alt.XOffset("place_kind:N", sort=list(MARKS))
    bars = theme.error_bars(table, x, y, "low", "high", xOffset=apart)
    tooltip = tooltips(place_subject="subject", place_kind="without") + interval_tooltips("value", "Δ", ".2f")
    marks = theme.kind_points(table, x, y, "place_kind", finding.kind.values, MARKS, tooltip=tooltip, xOffset=apart)
    title = alt.TitleParams(subject, subtitle="ends of later stages", limit=WIDTH)
    return theme.panel(alt.layer(bars, marks, theme.reference(0, "")), (170, HEIGHT), title)
