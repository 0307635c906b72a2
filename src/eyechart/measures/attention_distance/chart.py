"""The figure of M2: heads sorted by distance, as Raghu et al. draw them, and all heads over depth."""

from __future__ import annotations

import altair as alt
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import interval_tooltips, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.quantity import subjects_in


def draw(finding: xarray.Dataset) -> Chart:
    panels = []
    tables = {subject: head_table(finding, subject) for subject in subjects_in(finding)}
    uniforms = {each: float(finding.uniform.values[finding.subject.values == each].max()) for each in tables}
    tops = {subject: max([uniforms[subject], *table["distance"]]) for subject, table in tables.items()}
    for subject, table in tables.items():
        uniform = uniforms[subject]
        # One axis for all who see pictures of about one size; of 32 px on an axis for 224 px nothing would be seen.
        alike = [other for other in tops if 0.8 * uniform < uniforms[other] < 1.25 * uniform]
        reach = alt.Scale(domain=[0, 1.06 * max(tops[other] for other in alike)], nice=False)
        y = alt.Y("distance:Q", title="mean attention distance (px)", scale=reach)
        panels += [sorted_heads(table, subject, uniform, y), heads_by_depth(table, subject, uniform, y)]
    return theme.panels(panels, columns=2, shared=())


def head_table(finding: xarray.Dataset, subject: str) -> pd.DataFrame:
    """One row a head, with its rank within its block by distance."""
    part = finding.isel(site=finding.subject.values == subject)
    table = table_of(part, "distance", also=["relative", "coverage", "prefix_mass"])
    table["rank"] = table.groupby("site")["distance"].rank(method="first").astype(int)
    table[["block", "head"]] += 1  # counted from 1, as everywhere on the page
    return table


def head_tooltips() -> list[alt.Tooltip]:
    rest = {"relative": "of uniform", "coverage": "coverage", "prefix_mass": "given to prefix tokens"}
    numbers = interval_tooltips("distance", "distance (px)", ".1f")
    return tooltips("subject", "name", "head:Q") + numbers + tooltips(**{name: (rest[name], ".2f") for name in rest})


def sorted_heads(table: pd.DataFrame, subject: str, uniform: float, y: alt.Y) -> Chart:
    """R's figure: heads sorted by distance, for the two lowest and the two highest attentions."""
    names = list(dict.fromkeys(table["name"]))
    shown = table[table["name"].isin(names[:2] + names[-2:])]
    labels = list(dict.fromkeys(shown["name"]))
    ranks = alt.Scale(domain=[1, max(2, *table["rank"])], nice=False)
    below = alt.Legend(orient="bottom", columns=2, labelLimit=190, columnPadding=24)
    lines = theme.curve(
        shown,
        x=alt.X("rank:Q", title="head, sorted by distance", axis=alt.Axis(tickMinStep=1), scale=ranks),
        y=y,
        color=alt.Color("name:N", scale=theme.ordered_scale(labels), sort=None, title=None, legend=below),
        low="distance_low",
        high="distance_high",
        tooltip=head_tooltips(),
    )
    return theme.panel(references(uniform) + lines, (400, 260), f"{subject}: lowest and highest blocks")


def heads_by_depth(table: pd.DataFrame, subject: str, uniform: float, y: alt.Y) -> Chart:
    """V's figure: every head as a dot over depth."""
    x = theme.depth_axis()
    colour = alt.value(theme.subject_colour(subject))
    dots = alt.Chart(table).mark_point(style="one-of-many", filled=True, size=46)
    dots = dots.encode(x, y, color=colour, tooltip=head_tooltips())
    bars = theme.error_bars(table, x, y, "distance_low", "distance_high", color=colour)
    return theme.panel(references(uniform) + bars + dots, (400, 260), f"{subject}: all heads")


def references(uniform: float) -> alt.LayerChart:
    """Attention to all patches alike, and to the patch itself; named beside the plot, as heads lie on both sides."""
    return theme.reference(uniform, "uniform", at="beyond") + theme.reference(0, "itself", at="beyond")
