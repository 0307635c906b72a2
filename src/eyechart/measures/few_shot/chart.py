"""The figure of `few_shot`: linear evaluation and episodes, over the pictures of each class."""

from __future__ import annotations

import altair as alt
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart

SIDE = 260  # pixels of a panel
TOO_FEW = "too few pictures of each class"


def draw(finding: xarray.Dataset) -> Chart:
    subjects = finding.subject.values.tolist()
    if table_of(finding, "linear").empty and table_of(finding, "episodes").empty:
        return theme.nothing(None, (SIDE, SIDE // 4), TOO_FEW)
    episodes = theme.panels([episode_curves(finding, subject) for subject in subjects], columns=2)
    return theme.panels([linear_curves(finding), episodes], columns=2, shared=())


def linear_curves(finding: xarray.Dataset) -> Chart:
    """V Fig. 4, with shots on the axis (its own is the size of the pre-training set)."""
    table = table_of(finding, "linear")
    if table.empty:
        return theme.nothing("linear evaluation", (SIDE, SIDE), TOO_FEW)
    abreast = 2 if max(map(len, finding.subject.values)) <= 16 else 1  # a legend wider than its panel parts the panels
    legend = alt.Legend(title=None, orient="bottom", columns=abreast, labelLimit=220)
    colour = subject_colours(finding.subject.values, legend=legend)
    y = alt.Y("linear:Q", title="accuracy, all classes", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    tooltip = tooltips("subject", shot=("shots", "")) + interval_tooltips("linear", "accuracy", ".1%")
    lines = theme.curve(table, shot_axis(table), y, colour, *ends_of("linear"), tooltip=tooltip)
    chance = theme.chance(1 / int(finding.way.max()), "guessing")
    return theme.panel(lines + chance, (SIDE, SIDE), "linear evaluation")


def episode_curves(finding: xarray.Dataset, subject: str) -> Chart:
    table = table_of(finding.sel(subject=[subject]), "episodes")
    title = alt.TitleParams(f"episodes: {subject}", subtitle="dashed: guessing", limit=SIDE)
    if table.empty:
        return theme.nothing(title, (SIDE, SIDE), TOO_FEW)
    table["ways"] = table["way"].map("{} classes".format)
    names = [f"{way} classes" for way in finding.way.values]
    colour = alt.Color("ways:N", scale=theme.ordered_scale(names), sort=None, title=None)
    y = alt.Y("episodes:Q", title="episode accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    tooltip = tooltips("subject", shot=("shots", ""), way=("classes", ""))
    tooltip += interval_tooltips("episodes", "accuracy", ".1%")
    lines = theme.curve(table, shot_axis(table), y, colour, *ends_of("episodes"), tooltip=tooltip)
    guesses = table[["way", "ways"]].drop_duplicates().assign(guess=lambda rows: 1 / rows["way"])
    dashed: alt.Chart = alt.Chart(guesses).mark_rule(strokeDash=[5, 4], strokeWidth=1.75, tooltip=None)
    chance: alt.Chart = dashed.encode(y="guess:Q", color=colour)
    return theme.panel(lines + chance, (SIDE, SIDE), title)


def shot_axis(table: pd.DataFrame) -> alt.X:
    """Marks at the shots that there are: of one alone, all marks would stand on it."""
    axis = theme.axis_at(sorted(set(table["shot"])), grid=False)
    return alt.X("shot:Q", title="pictures of each class", scale=alt.Scale(type="log", base=2, nice=False), axis=axis)
