"""The figure of `mc_dropout`: log-likelihood, accuracy and calibration against the size of the ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from eyechart.charts import theme

if TYPE_CHECKING:
    import xarray

    from eyechart.measure import Chart

TITLES = {"nll": "negative log-likelihood", "accuracy": "accuracy", "ece": "calibration error"}


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels([by_size(finding, name) for name in TITLES], columns=3)


def by_size(finding: xarray.Dataset, name: str) -> Chart:
    table = finding[[name, f"{name}_low", f"{name}_high"]].to_dataframe().reset_index()
    sizes = finding["size"].values.tolist()
    form = ".1%" if name == "accuracy" else ".3f"
    ticks = theme.axis_at(sizes, format="d", grid=False)
    x = alt.X("size:Q", title="passes", scale=alt.Scale(type="log", domain=[sizes[0], sizes[-1]]), axis=ticks)
    axis = alt.Axis(format="%") if name == "accuracy" else alt.Axis()
    y = alt.Y(f"{name}:Q", title=TITLES[name], scale=alt.Scale(zero=name == "ece"), axis=axis)
    colour = alt.Color("subject:N", scale=theme.subject_scale(finding.subject.values.tolist()), title=None)
    tooltip = [alt.Tooltip("subject:N"), alt.Tooltip("size:Q", title="passes")]
    tooltip += [
        alt.Tooltip(f"{name}{end}:Q", title=said, format=form)
        for end, said in (("", TITLES[name]), ("_low", "from"), ("_high", "to"))
    ]
    lines = theme.curve(table, x, y, colour, f"{name}_low", f"{name}_high", tooltip=tooltip)
    drawn: Chart = lines.properties(width=225, height=230)
    return drawn
