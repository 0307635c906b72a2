"""The figure of `shape_texture`: filtered, shuffled and conflicting pictures."""

from __future__ import annotations

import altair as alt
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, tooltips, value_table
from eyechart.charts.theme import Chart

SIZE = (250, 260)
LONG = 24  # letters of a name that is written beside a row of its own
FILTERS = {"low_passed": "only lower frequencies", "high_passed": "only higher frequencies"}


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels([filters(finding), shuffles(finding), conflicts(finding)], columns=3, shared=())


def colour(finding: xarray.Dataset, with_legend: bool = True) -> alt.Color:
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=220) if with_legend else None
    return subject_colours(finding.subject.values, legend=legend)


def tooltips_of(finding: xarray.Dataset, **columns: str | tuple[str, str]) -> list[alt.Tooltip]:
    """The number is called what it is a share of; where subjects differ in that, each says its own."""
    if len(scored := set(finding.scored.values.tolist())) == 1:
        return tooltips("subject", **columns) + interval_tooltips("accuracy", scored.pop(), ".1%")
    return tooltips("subject", **columns, scored="share of") + interval_tooltips("accuracy", "value", ".1%")


def accuracy(finding: xarray.Dataset) -> alt.Y:
    what = " or ".join(dict.fromkeys(finding.scored.values.tolist()))
    return alt.Y("accuracy:Q", title=what, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))


def with_chance(layers: alt.LayerChart, finding: xarray.Dataset, ends: pd.Series) -> alt.LayerChart:
    """Guessing means something only where the classes are the images'; `ends` are the scores beside its name."""
    classes = finding.attrs["classes"]
    labelled = classes and (finding.scored.values == "accuracy").all()
    return layers + theme.chance(1 / classes, "guessing", ends.dropna()) if labelled else layers


def at_end(table: pd.DataFrame, along: str) -> pd.Series:
    scores: pd.Series = table.loc[table[along] == table[along].max(), "accuracy"]
    return scores


def filters(finding: xarray.Dataset) -> Chart:
    table = pd.concat([value_table(finding, name, "accuracy").assign(kept=words) for name, words in FILTERS.items()])
    ticks = finding.cutoff.values.tolist()
    scale = alt.Scale(type="log", base=2, domain=[ticks[0] / 1.1, ticks[-1] * 1.1], nice=False)
    x = alt.X("cutoff:Q", title="limit (frequency / π)", scale=scale, axis=theme.axis_at(ticks, format=".3~f"))
    legend = theme.strokes(400, title=None, orient="bottom", columns=1, labelLimit=260)
    dashes = alt.Scale(domain=list(FILTERS.values()), range=[[1, 0], [5, 3]])
    tooltip = tooltips_of(finding, kept="kept", cutoff=("limit / π", ".3f"))
    line = alt.Chart(table).mark_line(tooltip=None)
    line = line.encode(x, accuracy(finding), colour(finding), alt.StrokeDash("kept:N", scale=dashes, legend=legend))
    bars = theme.error_bars(table, x, accuracy(finding), *ends_of("accuracy"), color=colour(finding))
    points = alt.Chart(table).mark_point(size=36, filled=True)
    points = points.encode(x, accuracy(finding), colour(finding), tooltip=tooltip)
    return theme.panel(with_chance(line + bars + points, finding, at_end(table, "cutoff")), SIZE, "filtered pictures")


def shuffles(finding: xarray.Dataset) -> Chart:
    intact, shuffled = (value_table(finding, name, "accuracy") for name in ("clean", "shuffled"))
    table = pd.concat([intact.assign(pieces=1), shuffled])
    names = ["intact", *(f"{n}×{n}" for n in finding.pieces.values)]
    table["tiles"] = table["pieces"].map(dict(zip([1, *finding.pieces.values], names, strict=True)))
    x = alt.X("tiles:N", title="pieces that change places", sort=names, axis=alt.Axis(labelAngle=0))
    lines = theme.curve(
        table,
        x,
        accuracy(finding),
        colour(finding, with_legend=False),  # the panel before has it
        *ends_of("accuracy"),
        tooltip=tooltips_of(finding, tiles="pieces"),
    )
    return theme.panel(with_chance(lines, finding, at_end(table, "pieces")), SIZE, "shuffled pictures")


def conflicts(finding: xarray.Dataset) -> Chart:
    table = value_table(finding, "phase_share", "accuracy")
    tooltip = tooltips("subject") + interval_tooltips("accuracy", "decided by phase", ".1%")
    subjects = finding.subject.values.tolist()
    plain = colour(finding, with_legend=False)  # the axis names them
    if max(map(len, subjects)) > LONG:  # slanted, they lay over one another
        row = alt.Y("subject:N", title=None, sort=subjects, axis=alt.Axis(labelLimit=260, grid=True))
        share = alt.X("accuracy:Q", title="decided by phase", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
        low, high = ends_of("accuracy")
        spans = alt.Chart(table).mark_rule(style="interval-bar", strokeWidth=1.5, tooltip=None)
        spans = spans.encode(theme.column_on(share, low), row, plain, x2=alt.X2(high))
        points = alt.Chart(table).mark_point(size=90, filled=True).encode(share, row, plain, tooltip=tooltip)
        layers = spans + points + theme.reference(0.5, "both alike", axis="x", at="start")
        return theme.panel(layers, (SIZE[0], alt.Step(40)), "cue conflict")
    axis = alt.Axis(labelAngle=-30 if len("".join(subjects)) > 24 else 0, labelLimit=140)
    x = alt.X("subject:N", title=None, sort=subjects, axis=axis)
    y = alt.Y(
        "accuracy:Q",
        title="decided by phase",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%"),
    )
    bars = theme.error_bars(table, x, y, *ends_of("accuracy"), color=plain)
    points = alt.Chart(table).mark_point(size=90, filled=True).encode(x, y, plain, tooltip=tooltip)
    layers = bars + points + theme.reference(0.5, "both alike", at="beyond")
    return theme.panel(layers, (max(160, 60 * len(subjects)), SIZE[1]), "cue conflict")
