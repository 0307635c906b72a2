"""The figure of `robustness`: accuracy against how much is missing, shuffled or attacked, and relative to intact."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart

TITLES = {
    "occlusion": ("patches missing", "share of an 8×8 grid"),
    "shuffle": ("patches shuffled", "patches a side"),
    "fgsm": ("FGSM", "ε in 1/255"),
    "pgd": ("PGD", "ε in 1/255"),
}
INTACT = {"occlusion": 0.0, "shuffle": 1.0, "fgsm": 0.0, "pgd": 0.0}
"""The strength at which a picture of each kind is intact."""


def draw(finding: xarray.Dataset) -> Chart:
    finding = finding.isel(subject=np.isfinite(finding["mean"].values).all(1))
    kinds = [kind for kind in TITLES if kind in finding.kind.values]
    above = [curve(finding, kind, "accuracy", first=kind == kinds[0]) for kind in kinds]
    below = [curve(finding, kind, "relative", first=kind == kinds[0]) for kind in kinds]
    rows = [theme.panels(row, columns=len(kinds)) for row in (above, below)]  # a row each, in however many it is broken
    return theme.panels(rows, columns=1)


def curve_table(finding: xarray.Dataset, kind: str, name: str) -> pd.DataFrame:
    """The curve of one kind, which begins at the intact picture; ε in parts of 255."""
    table = table_of(finding.isel(condition=np.isin(finding.met.values, ["intact", kind])), name, gaps=True)
    scale = 255 if kind in ("fgsm", "pgd") else 1
    table["at"] = np.where(table["met"] == "intact", INTACT[kind], table["strength"] * scale)
    return table


def curve(finding: xarray.Dataset, kind: str, name: str, *, first: bool) -> Chart:
    table = curve_table(finding, kind, name)
    strengths = sorted(set(table["at"]))
    title, axis = TITLES[kind]
    scale = alt.Scale(nice=False, padding=theme.MARK)
    if kind == "shuffle":
        scale = alt.Scale(type="log", base=2, nice=False, padding=theme.MARK)
    form = ".1~%" if kind == "occlusion" else ".3~g"
    shown = strengths[::2] if kind == "occlusion" else strengths
    x = alt.X("at:Q", title=axis, scale=scale, axis=theme.axis_at(shown, format=form, grid=False))
    words = {"accuracy": "accuracy", "relative": "of its accuracy when intact"}[name]
    highest = finding[f"{name}_high"].values
    most = float(np.max(highest, where=np.isfinite(highest), initial=1.0)) if name == "relative" else 1.0
    span = alt.Scale(domain=[0, min(most, 1.25)], clamp=True)
    y = alt.Y(f"{name}:Q", title=words, scale=span, axis=alt.Axis(format="%"))
    colour = subject_colours(finding.subject.values)
    tooltip = tooltips("subject", at=(axis, form)) + interval_tooltips(name, words, ".1%")
    chart = theme.curve(table, x, y, colour, *ends_of(name), tooltip=tooltip)
    if name == "accuracy" and finding.attrs["classes"]:
        classes = finding.attrs["classes"]
        chart += theme.reference(1 / classes, f"guessing, 1 of {classes} classes", at="start", named=first)
    steps = f", {finding.attrs['steps']} steps" if kind == "pgd" else ""
    relative = ", relative" if name == "relative" else ""  # said by each: a screen lays panels where they fit
    return theme.panel(chart, (190, 200), title + steps + relative)
