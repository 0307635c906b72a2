"""The figure of M8: probe accuracy over depth, from single tokens and from one vector, and a map of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.estimates import places_of, subjects_in

if TYPE_CHECKING:
    import pandas as pd
    import xarray

    from eyechart.measure import Chart

WORDS = {
    "cls": "class token",
    "gap": "mean of patch tokens",
    "gap with cls": "mean with class token",
    "first": "first patch token",
}


TOGETHER = 2  # subjects whose readouts one panel can show; of more, every readout has a panel of its own


def draw(finding: xarray.Dataset) -> Chart:
    if len(subjects_in(finding)) <= TOGETHER:
        curves = theme.panels([token_curves(finding), readout_curves(finding)], columns=2)
    else:
        met = [readout for readout in WORDS if readout in set(table_of(finding)["readout"])]
        curves = theme.panels([token_curves(finding, 260), *(readout_curve(finding, each) for each in met)], columns=3)
    return theme.panels([curves, token_maps(finding)], columns=1, shared=())


def table_of(finding: xarray.Dataset) -> pd.DataFrame:
    columns = ["accuracy", "accuracy_low", "accuracy_high"]
    table = finding[columns].to_dataframe().reset_index().dropna(subset=["accuracy"])
    table["block"] += 1
    return table


def token_curves(finding: xarray.Dataset, width: int = 380) -> Chart:
    """R Fig. 11 left: single tokens, averaged."""
    return one_readout(finding, "tokens", width).properties(title="single tokens, averaged")


def readout_curve(finding: xarray.Dataset, readout: str) -> Chart:
    """R Fig. 11 right and Fig. 13, one way of reading out one vector."""
    return one_readout(finding, readout, 260).properties(title=f"one vector: {WORDS[readout]}")


def one_readout(finding: xarray.Dataset, readout: str, width: int) -> alt.LayerChart:
    table = table_of(finding)
    table = table[table["readout"] == readout]
    x = theme.depth_axis()
    y = alt.Y("accuracy:Q", title="probe accuracy", scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color("subject:N", scale=theme.subject_scale(subjects_in(finding)), title=None)
    lines = theme.curve(table, x, y, colour, "accuracy_low", "accuracy_high", tooltip=tooltips())
    chance = theme.reference(float(finding.chance[0]), "commonest class")
    return (lines + chance).properties(width=width, height=240)


def readout_curves(finding: xarray.Dataset) -> Chart:
    """R Fig. 11 right and Fig. 13: the ways of reading out one vector, by dashes."""
    table = table_of(finding)
    table = table[table["readout"] != "tokens"].assign(readout=lambda rows: rows["readout"].map(WORDS))
    x = theme.depth_axis()
    y = alt.Y("accuracy:Q", title="probe accuracy", scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color("subject:N", scale=theme.subject_scale(subjects_in(finding)), title=None)
    known = [words for words in WORDS.values() if words in set(table["readout"])]
    patterns = {"class token": [1, 0], "mean of patch tokens": [7, 3], "mean with class token": [2, 2]}
    scale = alt.Scale(domain=known, range=[patterns.get(words, [8, 3, 2, 3]) for words in known])
    legend = alt.Legend(title=None, orient="bottom", columns=2, symbolSize=700, labelLimit=200)
    dash = alt.StrokeDash("readout:N", scale=scale, legend=legend)
    bars = theme.error_bars(table, x, y, "accuracy_low", "accuracy_high", color=colour)
    lines = alt.Chart(table).mark_line(strokeWidth=1.8).encode(x, y, color=colour, strokeDash=dash)
    points = alt.Chart(table).mark_point(size=24).encode(x, y, color=colour, tooltip=tooltips())
    chance = theme.reference(float(finding.chance[0]), "commonest class")
    drawn: alt.LayerChart = (bars + lines + points + chance).properties(width=380, height=240, title="one vector")
    return drawn


def token_maps(finding: xarray.Dataset) -> Chart:
    """R Fig. D.4: accuracy of every token's own probe, at the first two, the middle and the last two blocks."""
    highest = float(finding.token_accuracy.max())
    charts = []
    for subject in subjects_in(finding):
        places = places_of(finding, subject)
        for place in dict.fromkeys(
            places[[0, min(1, len(places) - 1), len(places) // 2, -2 % len(places), -1]].tolist()
        ):
            table = (
                finding.token_accuracy.isel(site=place).to_dataframe().reset_index().dropna(subset=["token_accuracy"])
            )
            table = table.sort_values(["y", "x"], ascending=[False, True])  # the first row of the frame is the lowest
            charts.append(
                heatmap(
                    table.astype({"x": str, "y": str}),
                    x="x",
                    y="y",
                    value="token_accuracy",
                    value_title="accuracy",
                    title=alt.TitleParams(str(finding.name.values[place]), subtitle=subject, limit=130),
                    domain=(0.0, highest),
                    x_labels=False,
                    y_labels=False,
                    size=120,
                )
            )
    return theme.panels(charts, columns=5)


def tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("subject:N"),
        alt.Tooltip("name:N"),
        alt.Tooltip("readout:N"),
        alt.Tooltip("accuracy:Q", format=".3f"),
        alt.Tooltip("accuracy_low:Q", format=".3f", title="from"),
        alt.Tooltip("accuracy_high:Q", format=".3f", title="to"),
        alt.Tooltip("features:Q", title="features there"),
        alt.Tooltip("features_read:Q", title="features read"),
    ]
