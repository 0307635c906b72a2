"""The figure of M8: probe accuracy over depth, from single tokens and from one vector, and a map of tokens."""

from __future__ import annotations

import altair as alt
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.quantity import subjects_in
from eyechart.reading_estimates import site_indices

WORDS = {
    "cls": "class token",
    "gap": "mean of patch tokens",
    "gap with cls": "mean with class token",
    "first": "first patch token",
    "tokens": "single tokens, averaged",
}
TOOLTIPS = [
    *tooltips("subject", "name", readout="read from"),
    *interval_tooltips("accuracy", "accuracy", ".1%"),
    *tooltips(features=("features there", ""), features_read=("features read", "")),
]
TOGETHER = 2  # subjects whose readouts one panel can show; of more, every readout has a panel of its own


def draw(finding: xarray.Dataset) -> Chart:
    if len(subjects_in(finding)) <= TOGETHER:
        curves = theme.panels([token_curves(finding), readout_curves(finding)], columns=2)
    else:
        met = [readout for readout in WORDS if readout in set(finding.readout.values) - {"tokens"}]
        curves = theme.panels([token_curves(finding, 260), *(readout_curve(finding, each) for each in met)], columns=3)
    return theme.panels([curves, token_maps(finding)], columns=1, shared=())


def accuracies(finding: xarray.Dataset) -> pd.DataFrame:
    table = table_of(finding, "accuracy")
    table["block"] += 1
    table["readout"] = table["readout"].map(WORDS)
    return table


def token_curves(finding: xarray.Dataset, width: int = 380) -> Chart:
    """R Fig. 11 left: single tokens, averaged."""
    return one_readout(finding, "tokens", width).properties(title="single tokens, averaged")


def readout_curve(finding: xarray.Dataset, readout: str) -> Chart:
    """R Fig. 11 right and Fig. 13, one way of reading out one vector."""
    return one_readout(finding, readout, 260).properties(title=f"one vector: {WORDS[readout]}")


def one_readout(finding: xarray.Dataset, readout: str, width: int) -> alt.LayerChart:
    table = accuracies(finding)
    table = table[table["readout"] == WORDS[readout]]
    x = theme.depth_axis()
    y = alt.Y("accuracy:Q", title="probe accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    colour = subject_colours(finding.subject.values)
    lines = theme.curve(table, x, y, colour, *ends_of("accuracy"), tooltip=TOOLTIPS)
    chance = theme.chance(float(finding.chance[0]), "commonest class", last_scores(table))
    return theme.panel(lines + chance, (width, 240))


def last_scores(table: pd.DataFrame) -> pd.Series:
    return table["accuracy"][table["depth"] > 0.7]


def readout_curves(finding: xarray.Dataset) -> Chart:
    """R Fig. 11 right and Fig. 13: the ways of reading out one vector, by dashes."""
    table = accuracies(finding)
    table = table[table["readout"] != WORDS["tokens"]]
    x = theme.depth_axis()
    y = alt.Y("accuracy:Q", title="probe accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    colour = subject_colours(finding.subject.values)
    readouts = [words for words in WORDS.values() if words in set(table["readout"])]
    patterns = {"class token": [1, 0], "mean of patch tokens": [7, 3], "mean with class token": [2, 2]}
    scale = alt.Scale(domain=readouts, range=[patterns.get(words, [8, 3, 2, 3]) for words in readouts])
    legend = theme.strokes(700, title=None, orient="bottom", columns=2, labelLimit=200)
    dash = alt.StrokeDash("readout:N", scale=scale, legend=legend)
    bars = theme.error_bars(table, x, y, *ends_of("accuracy"), color=colour)
    lines = alt.Chart(table).mark_line(strokeWidth=1.8, tooltip=None).encode(x, y, color=colour, strokeDash=dash)
    points = alt.Chart(table).mark_point(size=24).encode(x, y, color=colour, tooltip=TOOLTIPS)
    chance = theme.chance(float(finding.chance[0]), "commonest class", last_scores(table))
    return theme.panel(bars + lines + points + chance, (380, 240), "one vector")


def token_maps(finding: xarray.Dataset) -> Chart:
    """R Fig. D.4: accuracy of every token's own probe, at the first two, the middle and the last two blocks."""
    highest = float(finding.token_accuracy.max())
    rows = []
    for subject in subjects_in(finding):
        sites, charts = site_indices(finding, subject), []
        for site in dict.fromkeys(sites[[0, min(1, len(sites) - 1), len(sites) // 2, -2 % len(sites), -1]].tolist()):
            table = table_of(finding.isel(site=site), "token_accuracy", ends=False)
            table = table.sort_values(["y", "x"], ascending=[False, True])  # the first row of the frame is the lowest
            table = table.assign(row=table["y"] + 1, column=table["x"] + 1)
            charts.append(
                heatmap(
                    table.astype({"x": str, "y": str}),
                    x="x",
                    y="y",
                    value="token_accuracy",
                    value_title="accuracy",
                    title=alt.TitleParams(str(finding.name.values[site]), subtitle=subject, limit=120),
                    domain=(0.0, highest),
                    format=".0%",
                    x_labels=False,
                    y_labels=False,
                    tooltip=tooltips("subject", "name", "row:Q", "column:Q", token_accuracy=("accuracy", ".0%")),
                    size=120,
                )
            )
        rows.append(theme.panels(charts, columns=5))
    return theme.panels(rows, columns=1)  # on a phone too no row holds maps of two subjects
