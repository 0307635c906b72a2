"""The figure of M5: the ratio over depth, and of every token at every junction, in Raghu et al.'s layout."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.measures.skip_ratio.measure import has_one_grid
from eyechart.quantity import subjects_in
from eyechart.reading_estimates import site_indices

CLASS_AND_OTHERS = "token (class token, prefix tokens, then the grid)"


def draw(finding: xarray.Dataset) -> Chart:
    one_grid = [subject for subject in subjects_in(finding) if has_one_grid(finding, subject)]
    ratios = finding.ratio.values[np.isin(finding.subject.values, one_grid)]
    ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
    ends = (float(ratios.min()), float(ratios.max())) if ratios.size else (1.0, 1.0)  # the same colours for all
    maps = [token_panel(finding, subject, ends) for subject in one_grid]
    if len(maps) < 2:
        return theme.panels([curves(finding), *maps], columns=2, shared=())
    return theme.panels([curves(finding), theme.panels(maps, columns=2)], columns=1, shared=())


def curves(finding: xarray.Dataset) -> Chart:
    """R's line plot: ratio over depth; the class token of a ViT is dashed."""
    table = curve_table(finding)
    if table.empty:
        return theme.nothing(None, (400, 280))
    x = theme.depth_axis()
    low, high = ends_of("ratio")
    y = theme.log_y("ratio", [*table[low], *table[high], 1.0], "length of skip / length of branch")
    colour = subject_colours(finding.subject.values)
    tokens = list(dict.fromkeys(table["token"]))  # grid tokens, and class tokens where a subject has one
    dashes = alt.Scale(domain=tokens, range=[[1, 0], [5, 4]][: len(tokens)])
    legend = theme.strokes(400) if len(tokens) > 1 else None
    dash = alt.StrokeDash("token:N", scale=dashes, title=None, legend=legend)
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour, strokeDash=dash, detail="kind:N")
    bars = theme.error_bars(table, x, y, low, high, color=colour)
    tooltip = tooltips("subject", "name", "token") + interval_tooltips("ratio", "skip / branch", ".3g")
    marks = theme.kind_points(table, x, y, tooltip=tooltip)
    at_one = theme.reference(1, "equal lengths", under=fewer_under_one(table))
    return theme.panel(line + bars + marks + at_one, (400, 280))


def fewer_under_one(table: pd.DataFrame) -> bool:
    """Is there more room below the line at 1 than above it, where its name stands: at the end, and as high as words?"""
    sizes = np.log(table["ratio"].where(table["ratio"] > 0))
    room = theme.WORDS_HIGH * np.ptp([*sizes.dropna(), 0.0])
    there = sizes[(table["depth"] > 0.7) & (sizes.abs() < room)]
    return bool((there < 0).sum() < (there > 0).sum())


def curve_table(finding: xarray.Dataset) -> pd.DataFrame:
    """One row a point of the line plot: ratio over depth, by subject, kind of junction and token."""
    columns = ["subject", "kind", "name", "depth", "ratio", *ends_of("ratio"), "token"]
    tokens = {"ratio_grid": "grid tokens", "ratio_cls": "class token"}
    tables = [value_table(finding, name, "ratio").assign(token=words)[columns] for name, words in tokens.items()]
    return pd.concat(tables, ignore_index=True)


def token_panel(finding: xarray.Dataset, subject: str, ends: tuple[float, float]) -> Chart:
    """R's heat-map: token by junction, input at the bottom; colour by the logarithm of the ratio."""
    part = finding.isel(site=site_indices(finding, subject))
    table = table_of(part, "ratio", ends=False)
    prefix = int(part.prefix.values.max())
    cls = int(part.cls.values.max()) if "cls" in part.coords else 0  # which of them is the class token, if one is
    names = ["class" if at == cls else f"prefix {at + 1}" for at in range(prefix)]
    table["token"] = [
        names[at] if at < own else f"{at - own + 1}" for at, own in zip(table["token"], table["prefix"], strict=True)
    ]
    if not table.empty:  # in CaiT the class token joins late; its column is the first all the same
        table = pd.concat([table.iloc[:1].assign(token=name, ratio=np.nan) for name in names] + [table])
    table["name"] = table["name"].str.removesuffix(" junction")
    table["log ratio"] = np.log10(table["ratio"])
    return heatmap(
        table,
        x="token",
        y="name",
        value="log ratio",
        x_title=token_title(prefix, cls),
        y_title="junction (input → output)",
        value_title="skip / branch",
        title=subject,
        domain=(float(np.log10(ends[0])), float(np.log10(ends[1]))),
        marks={float(np.log10(ratio)): f"{ratio:g}" for ratio in theme.log_marks(*ends)},
        colours=theme.VIRIDIS,
        tooltip=tooltips("subject", "name", "token", ratio=("skip / branch", ".3g")),
        size=(330, 260),
        apart=prefix,
    )


def token_title(prefix: int, cls: int) -> str:
    """What the columns are, in order."""
    if not prefix:
        return "token, row by row"
    if cls == 0:
        return "token (class token first, then the grid row by row)" if prefix == 1 else CLASS_AND_OTHERS
    return "token (prefix tokens, then the grid row by row)"
