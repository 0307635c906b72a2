"""The figure of `few_shot`: linear evaluation and episodes, over the pictures of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import pandas as pd

from eyechart.charts import theme
from eyechart.measures.few_shot.measure import SHOTS

if TYPE_CHECKING:
    import xarray

    from eyechart.measure import Chart

SIDE = 260  # pixels of a panel
TOO_FEW = "too few pictures of each class"


def draw(finding: xarray.Dataset) -> Chart:
    subjects = finding.subject.values.tolist()
    episodes = theme.panels([episode_curves(finding, subject) for subject in subjects], columns=2)
    return theme.panels([linear_curves(finding), episodes], columns=2, shared=())


def linear_curves(finding: xarray.Dataset) -> Chart:
    """V Fig. 4, with shots on the axis (its own is the size of the pre-training set)."""
    table = frame(finding, "linear")
    if table.empty:
        return theme.nothing("linear evaluation", (SIDE, SIDE), TOO_FEW)
    colour = alt.Color(
        "subject:N",
        scale=theme.subject_scale(finding.subject.values.tolist()),
        legend=alt.Legend(title=None, orient="bottom", columns=2, labelLimit=130),
    )
    y = alt.Y("linear:Q", title="accuracy, all classes", scale=alt.Scale(domain=[0, 1]))
    lines = theme.curve(table, shot_axis(), y, colour, "linear_low", "linear_high", tooltip=tooltips("linear"))
    chance = theme.reference(1 / int(finding.way.max()), "guessing")
    return (lines + chance).properties(width=SIDE, height=SIDE, title="linear evaluation")


def episode_curves(finding: xarray.Dataset, subject: str) -> Chart:
    table = frame(finding.sel(subject=[subject]), "episodes")
    title = alt.TitleParams(f"episodes: {subject}", limit=SIDE)
    if table.empty:
        return theme.nothing(title, (SIDE, SIDE), TOO_FEW)
    table["ways"] = table["way"].map("{} ways".format)
    names = [f"{way} ways" for way in finding.way.values]
    colour = alt.Color("ways:N", scale=theme.ordered_scale(names), sort=None, title=None)
    y = alt.Y("episodes:Q", title="episode accuracy", scale=alt.Scale(domain=[0, 1]))
    lines = theme.curve(table, shot_axis(), y, colour, "episodes_low", "episodes_high", tooltip=tooltips("episodes"))
    guesses = table[["way", "ways"]].drop_duplicates().assign(guess=lambda rows: 1 / rows["way"])
    dashed: alt.Chart = alt.Chart(guesses).mark_rule(strokeDash=[5, 4], strokeWidth=1.75, tooltip=None)
    chance: alt.Chart = dashed.encode(y="guess:Q", color=colour)
    drawn: alt.LayerChart = (lines + chance).properties(width=SIDE, height=SIDE, title=title)
    return drawn


def shot_axis() -> alt.X:
    axis = theme.axis_at(SHOTS, grid=False)
    return alt.X("shot:Q", title="pictures of each class", scale=alt.Scale(type="log", base=2, nice=False), axis=axis)


def frame(finding: xarray.Dataset, name: str) -> pd.DataFrame:
    table = finding[[name, f"{name}_low", f"{name}_high"]].to_dataframe().reset_index()
    return table.dropna(subset=[name])


def tooltips(name: str) -> list[alt.Tooltip]:
    way = [alt.Tooltip("way:Q", title="ways")] if name == "episodes" else []
    shots = alt.Tooltip("shot:Q", title="shots")
    return [alt.Tooltip("subject:N"), shots, *way, *theme.told_with_interval(name, "accuracy")]
