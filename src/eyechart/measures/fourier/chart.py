"""The figure of `fourier`: spectra by depth, the highest frequency over depth, sub-layers taken apart, energies."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.quantity import subjects_in

CHANGES = {
    "change": ("highest frequency against the mean", "change of Δ log amplitude"),
    "high_change": ("amplitude of high frequencies", "change of log amplitude"),
}
STEPS = {"matrix_change": "attention matrix (mixed − values)", "branch_change": "branch − skip"}
BANDS = {"constant": ("constant", [1, 0]), "low": ("lowest third", [6, 3]), "high": ("highest third", [2, 2])}
"""How a legend calls them, and their dashes. Between both thirds is another, which is not drawn."""
WIDTH, HEIGHT, CURVES = 400, 240, 8


def draw(finding: xarray.Dataset) -> Chart:
    subjects = subjects_in(finding)
    above = theme.panels([spectra(finding, subject) for subject in subjects], columns=2, shared=("color", "stroke"))
    changed = [changes(finding, name) for name in CHANGES]
    marked = theme.panels([over_depth(finding), *changed, taken_apart(finding)], columns=2, shared=("color", "shape"))
    return theme.panels([above, marked, energies(finding)], columns=1, shared=())  # a legend below what it explains


def spectra(finding: xarray.Dataset, subject: str) -> Chart:
    """P Fig. 2a: Δ log amplitude over frequency, a curve after the stem and after blocks, at most eight of them."""
    own = finding.isel(site=finding.subject.values == subject)
    ends = np.flatnonzero(~pd.Series(own.block.values).duplicated(keep="last").to_numpy())
    shown = ends[np.unique(np.linspace(0, len(ends) - 1, min(len(ends), CURVES)).round().astype(int))]
    table = table_of(own.isel(site=shown), "delta").assign(radians=lambda rows: rows["radians"] / np.pi)
    x = alt.X("radians:Q", title="frequency / π", scale=alt.Scale(domain=[0, 1]))
    levels = np.concatenate([finding[name].values.ravel() for name in ("delta", *ends_of("delta"))])
    reach = [float(np.nanmin(levels, initial=-1.0)), float(np.nanmax(levels, initial=0.0))]  # the same for all subjects
    y = alt.Y("delta:Q", title="Δ log amplitude", scale=alt.Scale(domain=reach))
    # Its legend is a bar only if lines alone are named by it: Vega gives scales that fill and stroke dots, and those of
    # one domain are one to Vega-Lite, so the fills take the same colours in fewer steps.
    shades, strokes = (alt.Scale(domain=list(np.linspace(0, 1, n)), range=theme.ordered_colours(n)) for n in (9, 17))
    legend = alt.Legend(title="depth", type="gradient", gradientLength=120, values=[0, 0.5, 1])
    colour = alt.Color("depth:Q", scale=shades, legend=None)
    named = alt.Stroke("depth:Q", scale=strokes, legend=legend)
    lines = alt.Chart(table).mark_line(strokeWidth=1.4, tooltip=None).encode(x, y, named, detail="name:N")
    bands = theme.band(table, x, y, *ends_of("delta"), color=colour, detail="name:N")
    tooltip = tooltips("subject", name="after", radians=("frequency / π", ".3f"))
    tooltip += interval_tooltips("delta", "Δ log amplitude", ".2f")
    points = alt.Chart(table).mark_point(size=14, filled=True, aria=False).encode(x, y, colour, tooltip=tooltip)
    title = alt.TitleParams(f"{subject}: spectrum by depth", limit=WIDTH)
    return theme.panel(bands + lines + points, (WIDTH, HEIGHT), title)


def kinds_of(finding: xarray.Dataset) -> list[str]:
    """What the marks of all panels tell apart, so that one legend serves them."""
    met: list[str] = finding.kind.values[finding.role.values != "stem"].tolist()
    return [*met, "subsampling"] if np.isfinite(finding.strided.values).any() else met


def over_depth(finding: xarray.Dataset) -> Chart:
    """P Fig. 8: the highest frequency's Δ log amplitude after every sub-layer, with the strided identity beside it."""
    table = table_of(finding, "highest", also=["strided"], gaps=True)
    table.loc[np.isfinite(table["strided"]), "kind"] = "subsampling"
    y = alt.Y("highest:Q", title="Δ log amplitude, highest frequency", scale=alt.Scale(zero=False))
    colour = subject_colours(finding.subject.values)
    x = theme.depth_axis()
    # The highest frequency means another size after a change of grid, so lines end there.
    line = alt.Chart(table).mark_line(strokeWidth=1.5, tooltip=None).encode(x, y, colour, detail="stage:N")
    bars = theme.error_bars(table, x, y, *ends_of("highest"), color=colour)
    steps = table[table["role"] != "stem"]
    tooltip = tooltips("subject", name="after", kind="kind")
    tooltip += interval_tooltips("highest", "Δ log amplitude", ".2f")
    marks = theme.kind_points(steps, x, y, in_legend=kinds_of(finding), tooltip=tooltip)
    control = table.dropna(subset=["strided"])
    if control.empty:  # of crosses without a height Vega complains
        return theme.panel(line + bars + marks, (WIDTH, HEIGHT), "highest frequency")
    crosses = alt.Chart(control).mark_point(shape="cross", size=60, angle=45, filled=True)
    striding = tooltips("subject", name="after", strided=("mere striding", ".2f"))
    crosses = crosses.encode(x, alt.Y("strided:Q"), colour, tooltip=striding)
    return theme.panel(line + bars + crosses + marks, (WIDTH, HEIGHT), "highest frequency (×: mere striding)")


def changes(finding: xarray.Dataset, name: str) -> Chart:
    """What each sub-layer does, on one of two scales; the axis is stretched about 0, where most of them lie."""
    table, title = table_of(finding, name), f"what a sub-layer changes: {CHANGES[name][0]}"
    if table.empty:
        return theme.nothing(title, (WIDTH, HEIGHT))
    y = theme.y_stretched_about_0(name, CHANGES[name][1])
    x = theme.depth_axis()
    colour = subject_colours(finding.subject.values)
    bars = theme.error_bars(table, x, y, *ends_of(name), color=colour)
    line = alt.Chart(table).mark_line(strokeWidth=1.2, tooltip=None).encode(x, y, colour, detail="kind:N")
    tooltip = tooltips("subject", name="after", kind="kind") + interval_tooltips(name, "change")
    marks = theme.kind_points(table, x, y, in_legend=kinds_of(finding), tooltip=tooltip)
    zero = theme.reference(0, "")
    return theme.panel(zero + line + bars + marks, (WIDTH, HEIGHT), title)


def taken_apart(finding: xarray.Dataset) -> Chart:
    """E5: the attention matrix alone, and what the branch writes against what the skip carries."""
    columns = ["subject", "name", "kind", "depth", "change", *ends_of("change"), "step"]
    tables = [value_table(finding, name, "change").assign(step=words)[columns] for name, words in STEPS.items()]
    table, title = pd.concat(tables, ignore_index=True), "matrix and branch apart"
    if table.empty:
        return theme.nothing(title, (WIDTH, HEIGHT))
    y = alt.Y("change:Q", title="difference of Δ log amplitude")
    dashes = alt.Scale(domain=list(STEPS.values()), range=[[2, 2], [1, 0]])
    legend = theme.strokes(400, title=None, orient="bottom", columns=2, labelLimit=WIDTH)
    line = alt.Chart(table).mark_line(strokeWidth=1.4, tooltip=None)
    x = theme.depth_axis()
    colour = subject_colours(finding.subject.values)
    line = line.encode(x, y, colour, alt.StrokeDash("step:N", scale=dashes, legend=legend))
    bars = theme.error_bars(table, x, y, *ends_of("change"), color=colour)
    tooltip = tooltips("subject", "name", step="what") + interval_tooltips("change", "difference")
    marks = theme.kind_points(table, x, y, in_legend=kinds_of(finding), tooltip=tooltip)
    zero = theme.reference(0, "")
    return theme.panel(zero + line.encode(detail="kind:N") + bars + marks, (WIDTH, HEIGHT), title)


def energies(finding: xarray.Dataset) -> Chart:
    """Mean square of the features by band: absolute, so that a lower mean cannot look like more detail."""
    table = table_of(finding.sel(band=list(BANDS)), "energy")
    table = table[table["energy"] > 0]  # 0: a grid of 4×4 has no frequency in the lowest third
    table["band"] = table["band"].map({band: words for band, (words, _) in BANDS.items()})
    table["energy_low"] = table["energy_low"].clip(lower=table["energy"] / 100)  # a logarithmic axis has no 0
    y = theme.log_y("energy", [*table["energy_low"], *table["energy_high"]], "mean square in the band")
    legend = theme.strokes(400, title=None, orient="bottom")
    words, dashes = zip(*BANDS.values(), strict=True)
    dash = alt.StrokeDash("band:N", scale=alt.Scale(domain=words, range=dashes), legend=legend)
    colour = subject_colours(finding.subject.values)
    x = theme.depth_axis()
    line = alt.Chart(table).mark_line(strokeWidth=1.5, tooltip=None).encode(x, y, colour, dash, detail="stage:N")
    bands = theme.band(table, x, y, *ends_of("energy"), color=colour, detail=["stage:N", "band:N"])
    tooltip = tooltips("subject", name="after", band="band") + interval_tooltips("energy", "mean square", ".3g")
    points = alt.Chart(table).mark_point(size=16, filled=True, aria=False).encode(x, y, colour, tooltip=tooltip)
    title = "absolute energy by frequency"
    return theme.panel(line + bands + points, (WIDTH, HEIGHT), title)
