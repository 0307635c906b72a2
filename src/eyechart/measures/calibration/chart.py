"""The figure of M23: reliability diagrams, and the calibration error before and after temperature scaling."""

from __future__ import annotations

import altair as alt
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart

TOGETHER = 2  # subjects in one reliability diagram; the intervals of more would hide each other


def draw(finding: xarray.Dataset) -> Chart:
    subjects = finding.subject.values.tolist()
    if len(subjects) <= TOGETHER:
        return theme.panels([reliability(finding, subjects, "reliability", 330), errors(finding)], columns=2)
    each = [reliability(finding.sel(subject=[subject]), subjects, subject, 190) for subject in subjects]
    # The names of colours stand with the errors: each diagram has its subject's name above it.
    return theme.panels([theme.panels(each, columns=2), errors(finding)], columns=2, shared=())


def reliability(finding: xarray.Dataset, subjects: list[str], title: str, side: int) -> Chart:
    """Of the subjects in `finding`, in colours among all `subjects`, which a diagram of one need not name."""
    table = table_of(finding, "accuracy_in_bin", also=["confidence_in_bin", "share_in_bin"])
    whole = alt.Scale(domain=[0, 1], padding=10, nice=False)  # points stood out at the top and pushed their titles up
    x = alt.X("confidence_in_bin:Q", title="confidence", scale=whole)
    y = alt.Y("accuracy_in_bin:Q", title="share named right", scale=whole)
    colour = subject_colours(subjects) if finding.sizes["subject"] > 1 else subject_colours(subjects, legend=None)
    size = alt.Size("share_in_bin:Q", scale=alt.Scale(range=[20, 420]), legend=None)
    tooltip = tooltips("subject", bin="confidence") + interval_tooltips("accuracy_in_bin", "named right", ".1%")
    tooltip += tooltips(share_in_bin=("of the pictures", ".1%"))
    diagonal = (
        alt.Chart(pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]}))
        .mark_line(style="reference", tooltip=None)
        .encode(alt.X("x:Q"), alt.Y("y:Q"))
    )
    lines = alt.Chart(table).mark_line(opacity=0.6, tooltip=None).encode(x, y, color=colour)
    bars = theme.error_bars(table, x, y, *ends_of("accuracy_in_bin"), color=colour)
    points = (
        alt.Chart(table).mark_point(filled=True, opacity=0.65).encode(x, y, color=colour, size=size, tooltip=tooltip)
    )
    # As far above as the title of the errors, whose axis has a number at its very top.
    return theme.panel(diagonal + lines + bars + points, (side, side), alt.TitleParams(title, limit=side, offset=15))


def errors(finding: xarray.Dataset) -> Chart:
    rows = [
        {
            "subject": str(subject),
            "weights": words,
            "error": float(here[name]),
            "low": float(here[f"{name}_low"]),
            "high": float(here[f"{name}_high"]),
            "floor": float(here.floor),
        }
        for subject in finding.subject.values
        for here in [finding.sel(subject=subject)]
        for name, words in (("ece", "as it is"), ("scaled_ece", "temperature scaled"))
    ]
    table = pd.DataFrame(rows)
    x = alt.X("weights:N", title=None, sort=["as it is", "temperature scaled"], axis=alt.Axis(labelAngle=0))
    title = "expected calibration error"
    y = alt.Y("error:Q", title=title, scale=alt.Scale(zero=True, nice=6))
    offset = alt.XOffset("subject:N", sort=finding.subject.values.tolist())
    base = alt.Chart(table).encode(x, offset, color=subject_colours(finding.subject.values))
    bars = base.mark_rule(strokeWidth=1.6, tooltip=None).encode(alt.Y("low:Q", title=title), y2="high:Q")
    tooltip = tooltips("subject", weights="logits")
    tooltip += interval_tooltips("error", "calibration error", ends=("low", "high"))
    tooltip += tooltips(floor=("by chance alone", ".3f"))
    points = base.mark_point(size=70, filled=True).encode(y, tooltip=tooltip)
    floor = base.mark_tick(orient="horizontal", thickness=2, size=22, tooltip=None).encode(
        alt.Y("floor:Q", title=title)
    )
    return theme.panel(bars + floor + points, (260, 330), "calibration error (strokes: chance)")
