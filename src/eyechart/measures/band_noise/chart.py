"""The figure of `band_noise`: what noise of one frequency costs, and the strengths it was read from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import altair as alt

from eyechart.charts import theme
from eyechart.measures.band_noise.measure import END, RINGS

if TYPE_CHECKING:
    import xarray

    from eyechart.measure import Chart

SIZE = (380, 280)
ENDS = {"": "value", "_low": "from", "_high": "to"}


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels([by_frequency(finding), by_strength(finding)], columns=2, shared=("color",))


def colour(finding: xarray.Dataset) -> alt.Color:
    return alt.Color("subject:N", scale=theme.subject_scale(finding.subject.values.tolist()), title=None)


def table_of(finding: xarray.Dataset, name: str) -> Any:
    """Drops as changes of accuracy in points, downwards as in the paper."""
    table = finding[[f"{name}{end}" for end in ENDS]].to_dataframe().reset_index().dropna(subset=[name])
    table[name], low, high = -100 * table[name], -100 * table[f"{name}_high"], -100 * table[f"{name}_low"]
    return table.assign(**{f"{name}_low": low, f"{name}_high": high})


def tooltip(name: str, *fields: alt.Tooltip) -> list[alt.Tooltip]:
    numbers = [alt.Tooltip(f"{name}{end}:Q", title=words, format="+.1f") for end, words in ENDS.items()]
    return [alt.Tooltip("subject:N"), *fields, alt.Tooltip("scored:N", title="points of"), *numbers]


def by_frequency(finding: xarray.Dataset) -> Chart:
    """P Fig. 2b."""
    strength = float(finding.read_at[0])
    if math.isnan(strength):
        return theme.nothing("by frequency", SIZE, "no strength of the noise costs 10 points")
    table = table_of(finding, "cost")
    x = alt.X("frequency:Q", title="frequency of the noise / π", scale=alt.Scale(domain=[0, 1]))
    what = " or ".join(dict.fromkeys(finding.scored.values.tolist()))
    y = alt.Y("cost:Q", title=f"change of {what} (points)")
    shown = tooltip("cost", alt.Tooltip("frequency:Q", title="frequency / π", format=".2f"))
    lines = theme.curve(table, x, y, colour(finding), "cost_low", "cost_high", tooltip=shown)
    title = f"by frequency: noise of {unit(finding)} {strength:.2f}"
    ends = theme.reference(END / RINGS, "low", axis="x", side="left")
    ends += theme.reference(1 - END / RINGS, "high", axis="x")
    drawn: Chart = (lines + theme.reference(0, "") + ends).properties(width=SIZE[0], height=SIZE[1], title=title)
    return drawn


def unit(finding: xarray.Dataset) -> str:
    return "height" if finding.attrs["scaling"] == "paper" else "RMS"


def by_strength(finding: xarray.Dataset) -> Chart:
    """The mean over all frequencies at each strength: where 10 points are lost, the left panel is read."""
    table = table_of(finding, "mean_cost")
    ticks = finding.strength.values.tolist()
    scale = alt.Scale(type="log", domain=[ticks[0] / 1.1, ticks[-1] * 1.1], nice=False)
    title = f"strength: {unit(finding)}, in quarters of the pixel range"
    x = alt.X("strength:Q", title=title, scale=scale, axis=theme.axis_at(ticks, format=".2~g"))
    y = alt.Y("mean_cost:Q", title="mean change (points)")
    shown = tooltip("mean_cost", alt.Tooltip("strength:Q", format=".2f"))
    lines = theme.curve(table, x, y, colour(finding), "mean_cost_low", "mean_cost_high", tooltip=shown)
    layers = lines + theme.reference(-10, "10 points")
    if not math.isnan(float(finding.read_at[0])):
        layers += theme.reference(float(finding.read_at[0]), "read at left", axis="x")
    drawn: Chart = layers.properties(width=260, height=SIZE[1], title="mean over all frequencies")
    return drawn
