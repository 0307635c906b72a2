"""The figure of `shift`: similarity of moved feature maps over depth, and how much of the answer changes."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.small_multiples import MOST_TOGETHER
from eyechart.charts.tables import interval_tooltips, subject_colours, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.quantity import subjects_in

WIDTH, HEIGHT = 400, 250
ALONG, STAYED = "the map moved along, if it can follow", "the map left in place"
LEGEND: dict[str, Any] = {"title": None, "orient": "bottom", "columns": 2, "labelLimit": 240}


def draw(finding: xarray.Dataset) -> Chart:
    above = [features(finding, "one patch"), features(finding, "one pixel")]
    below = [
        answers(finding, "variation", "share of the answer that changes", "answers: what moves"),
        answers(finding, "agreement", "share of equal top-1 answers", "answers: what stays"),
    ]
    return theme.panels([*above, *below], columns=2, shared=())


def colour_of(subjects: list[str], with_legend: bool) -> alt.Color:
    """The colour of each subject; explained in one panel of a row, because two legends would be wider than a panel."""
    return subject_colours(subjects, legend=alt.Legend(**LEGEND) if with_legend else None)


def features(finding: xarray.Dataset, shift: str) -> Chart:
    """Similarity over depth; dashed: the map left where it was. Hollow points: cells too large to follow the shift."""
    moved = finding.sel(shift=shift)
    along = value_table(moved, "similarity", also=["follows"]).assign(read=ALONG)
    stayed = value_table(moved, "unmoved", also=["follows"]).assign(read=STAYED)
    stayed = stayed[stayed["follows"]]  # where the map cannot move both are the same
    table = pd.concat([along, stayed], ignore_index=True)
    low = min(0.0, float(table["low"].min()) if len(table) else 0.0)
    x = theme.depth_axis()
    y = alt.Y("value:Q", title="similarity of features", scale=alt.Scale(domain=[low, 1]))
    many = len(subjects_in(finding)) > MOST_TOGETHER  # each in a panel of its own, under its name
    colour = colour_of(subjects_in(finding), with_legend=shift == "one patch")
    dashes = alt.Scale(domain=[ALONG, STAYED], range=[[1, 0], [6, 4]])
    dash = alt.StrokeDash(
        "read:N", scale=dashes, legend=theme.strokes(500, **LEGEND) if many or shift != "one patch" else None
    )
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour, strokeDash=dash)
    area = theme.band(table, x, y, "low", "high", color=colour, detail="read:N")
    tooltip = tooltips("subject", name="after", read="read") + interval_tooltips("value", "similarity", ".4f")
    marks = [
        alt.Chart(along[along["follows"] == follows])
        .mark_point(size=42, filled=filled, strokeWidth=1.5)
        .encode(x, y, color=colour, tooltip=tooltip)
        for follows, filled in ((True, True), (False, False))
    ]
    words = own_patches(finding) if shift == "one patch" else "the same for all; hollow: maps that cannot follow"
    title = alt.TitleParams(f"features, {shift}", subtitle=words, limit=WIDTH)
    return theme.panel(alt.layer(line, area, *marks), (WIDTH, HEIGHT), title)


def own_patches(finding: xarray.Dataset) -> str:
    """How far each subject's picture moves; of many, whose list no title has room for, from where to where."""
    patches = dict(zip(finding.each_subject.values.tolist(), finding.patch.values.tolist(), strict=True))
    low, high = min(patches.values()), max(patches.values())
    if low == high:
        return f"{low} px in all of them" if len(patches) > 1 else f"{low} px"
    if len(patches) > MOST_TOGETHER:
        return f"{low} to {high} px, each by its own patch"
    return "; ".join(f"{name} {patch} px" for name, patch in patches.items())


def answers(finding: xarray.Dataset, variable: str, title: str, heading: str) -> Chart:
    """What becomes of the answer over the size of the shift; the rings mark each subject's own patch."""
    table = value_table(finding, variable).rename(columns={"each_subject": "subject"})
    subjects = [str(name) for name in finding.each_subject.values]
    aside = np.array([subjects.index(name) - (len(subjects) - 1) / 2 for name in table["subject"]], dtype=float)
    step = 1.05 if len(subjects) <= MOST_TOGETHER else 1.0  # more have a panel each, with nothing beside them
    table = table.assign(at=table["px"] * step**aside)  # side by side, or intervals would hide each other
    marks = [2**power for power in range(int(table["px"].max()).bit_length())] if len(table) else [1]
    scale = alt.Scale(type="log", base=2, nice=False, domain=[0.8, 1.25 * marks[-1]])
    x = alt.X("at:Q", title="shift (pixels)", scale=scale, axis=theme.axis_at(marks))
    zero = variable == "variation"
    # Axes that end at a number, or the titles above the two panels are not level; answers can stay in all pictures.
    ends = alt.Scale(zero=zero, nice=6, domainMax=alt.Undefined if zero else 1)
    y = alt.Y("value:Q", title=title, scale=ends, axis=alt.Axis(format="~%"))
    colour = colour_of(subjects, with_legend=False)  # the row above has it
    tooltip = tooltips("subject", px=("pixels", "")) + interval_tooltips("value", title, ".1%")
    curve = theme.curve(table, x, y, colour, tooltip=tooltip)
    bars = theme.error_bars(table, x, y, "low", "high", color=colour)
    own = table[table["px"] == table["patch"]]
    ring = (
        alt.Chart(own).mark_point(size=140, filled=False, strokeWidth=1.5).encode(x, y, color=colour, tooltip=tooltip)
    )
    return theme.panel(alt.layer(bars, curve, ring), (WIDTH, HEIGHT), heading)
