"""The figure of M13: a grid of grids in the ViT paper's layout, likeness over distance, and relative tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import interval_tooltips, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.reading_estimates import signed

SIDE = 8  # small squares along each side of the grid of grids
HEADS = 8  # tables of heads in a row
SIZE = 330
PAIRS = {"in one row": "in_row", "in one column": "in_column", "others as far apart": "aside"}


def draw(finding: xarray.Dataset) -> Chart:
    rows: list[Any] = []
    subjects = finding.subject.values.tolist()
    low = lowest(finding)
    for subject in dict.fromkeys(subjects):
        tables = [at for at, name in enumerate(subjects) if name == subject]
        for at in dict.fromkeys([tables[0], tables[-1]]):
            part = finding.isel(table=at)
            made = [grid_of_grids(part, subject, legend=not rows), over_distance(part, subject, low)]
            rows += [theme.of_subject(each, subject) for each in made]
    names = finding.steps_subject.values.tolist()
    for subject in dict.fromkeys(names):
        tables = [at for at, name in enumerate(names) if name == subject]
        ends = [finding.isel(relative=at) for at in dict.fromkeys([tables[0], tables[-1]])]
        shown = [step_tables(at, subject, largest(ends)) for at in ends]
        made = [theme.panels(shown, columns=1, shared=()), heads_by_depth(finding.isel(relative=tables), subject)]
        rows += [theme.of_subject(each, subject) for each in made]
    return theme.panels(rows, columns=2, shared=())


def place(block: int) -> str:
    return "added at the stem" if block < 0 else f"added after block {block + 1}"


def grid_of_grids(at: xarray.Dataset, subject: str, *, legend: bool) -> Chart:
    """Each square: the cosine of one patch's embedding with those of all patches. All have the same colours."""
    height, width = int(at.rows), int(at.columns)
    picked = [np.unique(np.linspace(0, side - 1, min(SIDE, side)).round().astype(int)) for side in (height, width)]
    maps = at.cosine.values[: height * width, : height * width].reshape(height, width, height, width)
    maps = maps[np.ix_(picked[0], picked[1])]  # (row, column, y, x)
    flat = maps.transpose(0, 2, 1, 3).reshape(len(picked[0]) * height, len(picked[1]) * width)[::-1]
    learned = "learned" if int(at.learned) else "fixed"
    few = "" if flat.size == (height * width) ** 2 else f", {len(picked[0])}×{len(picked[1])} of them shown"
    title = alt.TitleParams(subject, subtitle=f"{height}×{width} {learned} positions, {place(int(at.block))}{few}")
    looks: dict[str, Any] = {"domain": (-1.0, 1.0), "colours": theme.VIRIDIS, "legend": legend, "title": title}
    return side_by_side(flat, (height, width), "cosine", **looks)


def side_by_side(flat: np.ndarray, tile: tuple[int, int], value_title: str, *, size: int = SIZE, **looks: Any) -> Chart:
    """Maps that lie side by side in one array, lowest row first, with lines between them."""
    up, across = np.divmod(np.arange(flat.size), flat.shape[1])
    table = pd.DataFrame({"x": across.astype(str), "y": up.astype(str), "value": flat.ravel()})
    table["column"], table["row"] = across // tile[1], up // tile[0]
    return heatmap(
        table,
        x="x",
        y="y",
        value="value",
        value_title=value_title,
        x_group="column",
        y_group="row",
        x_labels=False,
        y_labels=False,
        size=(size, round(size * flat.shape[0] / flat.shape[1])),
        for_export=True,  # up to 60,000 cells: one picture, also on the page
        **looks,
    )


def lowest(finding: xarray.Dataset) -> float:
    """Where the axis of all curves begins, so that subjects are compared on one: in tenths, at 0 or below."""
    ends = [finding[f"{name}_low"].values for name in PAIRS.values()]
    return float(np.floor(10 * np.nanmin([0.0, *np.concatenate([each.ravel() for each in ends])])) / 10)


def over_distance(at: xarray.Dataset, subject: str, low: float) -> Chart:
    """Likeness over distance: within a row, within a column, and aside."""
    table = pd.concat(
        pd.DataFrame(
            {
                "distance": at.distance.values,
                "cosine": at[name].values,
                "low": at[f"{name}_low"].values,
                "high": at[f"{name}_high"].values,
                "pairs": words,
                "subject": subject,
            }
        )
        for words, name in PAIRS.items()
    ).dropna(subset=["cosine"])
    x = alt.X("distance:Q", title="distance (patches)", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("cosine:Q", title="mean cosine", scale=alt.Scale(domain=[low, 1], nice=False))
    shades = alt.Scale(domain=list(PAIRS), range=[theme.subject_colour(subject), "#7d5ba6", "#8b9099"])
    colour = alt.Color("pairs:N", scale=shades, title=None, sort=None, legend=alt.Legend(orient="bottom"))
    tooltip = tooltips("subject", "pairs", distance=("distance (patches)", ".3~g"))
    tooltip += interval_tooltips("cosine", "mean cosine", ends=("low", "high"))
    numbers = {"nearness": signed(float(at.nearness), ".2f"), "rows": signed(float(at.row_bonus), "+.2f")}
    numbers["columns"] = signed(float(at.column_bonus), "+.2f")
    words = ", ".join(f"{name}\u00a0{number}" for name, number in numbers.items())  # no line ends within one
    words = words.replace("-", "−")
    lines = theme.curve(table, x, y, colour, "low", "high", tooltip=tooltip)
    return theme.panel(lines + theme.reference(0, ""), (300, 260), quiet_title(words))


def largest(tables: Sequence[xarray.Dataset]) -> float:
    """Where the colours of a subject's tables end: one scale, so that its layers can be compared."""
    sizes = [np.abs(at.steps.values[np.isfinite(at.steps.values)]) for at in tables]
    return max(float(np.concatenate(sizes).max(initial=0.0)), 1e-6)


def step_tables(at: xarray.Dataset, subject: str, end: float) -> Chart:
    """The tables of the first heads of one layer, each over the step from query to key."""
    count, rows, columns = min(HEADS, int(at.steps_heads)), int(at.steps_rows), int(at.steps_columns)
    maps = at.steps.values[:count, :rows, :columns]
    width = min(count, 4)
    tall = -(-count // width)
    flat = np.full((tall * rows, width * columns), np.nan)
    for head, values in enumerate(maps):
        row, column = divmod(head, width)
        flat[row * rows : (row + 1) * rows, column * columns : (column + 1) * columns] = values
    bias = str(at.steps_kind.item()) == "relative bias"
    heads = int(at.steps_heads)
    whose = f"of its {heads} heads" if count == heads else f"of {count} of {heads} heads"
    shared = heads == 1  # AlterNet's has one table for all heads of a layer
    what = "cosine with no step" if not bias else "one bias for all heads" if shared else f"bias {whose}"
    title = alt.TitleParams(subject, subtitle=f"block {int(at.steps_block) + 1}: {what}")
    looks: dict[str, Any] = {"domain": (-end, end), "colours": theme.DIVERGING, "title": title}
    looks["size"] = SIZE if width > 1 else SIZE // 2  # a head has few steps to show
    return side_by_side(flat[::-1], (rows, columns), "bias" if bias else "cosine", **looks)


def heads_by_depth(part: xarray.Dataset, subject: str) -> Chart:
    table = table_of(part, "steps_nearness", ends=False)
    table["block"] = table["steps_block"] + 1
    table["head"] += 1  # counted from 1, as everywhere on the page
    table = table.assign(subject=subject, name=[f"block {block} attention" for block in table["block"]])
    reach = alt.Scale(domain=[0.5, int(part.steps_block.max()) + 1.5], nice=False)
    x = alt.X("block:Q", title="block", axis=alt.Axis(tickMinStep=1), scale=reach)
    y = alt.Y("steps_nearness:Q", title="rank correlation with nearness", scale=alt.Scale(domain=[-1, 1]))
    of_heads = bool((part.steps_heads > 1).any())
    table = table if of_heads else table.drop(columns="head")  # a table of all heads shows the map of none
    tooltip = tooltips("subject", "block:Q", *(["head:Q"] if of_heads else []), steps_nearness=("nearness", ".2f"))
    dots = alt.Chart(table).mark_point(filled=True, size=46, opacity=0.75).encode(x, y, tooltip=tooltip)
    dots = dots.encode(color=alt.value(theme.subject_colour(subject)))
    return theme.panel(
        dots + theme.reference(0, "no relation", at="beyond"),
        (300, 260),
        quiet_title("each point a head" if of_heads else "each point a table"),
    )


def quiet_title(words: str) -> alt.TitleParams:
    return alt.TitleParams(words, fontSize=12, fontWeight="normal")
