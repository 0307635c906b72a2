"""Maps of a picture side by side, a tile each: what single tokens resemble, in the layout of Raghu et al."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import altair as alt
import numpy as np
import pandas as pd

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import tooltips


@dataclass(frozen=True)
class Tile:
    """One number for each place of a grid, row by row. `own` is the place to outline, if there is one."""

    name: str
    values: np.ndarray
    own: int | None = None


def tiles(
    rows: Sequence[Sequence[Tile]],
    cells: tuple[int, int],
    patch_names: Sequence[str],
    *,
    title: str | alt.TitleParams,
    size: int,
    value_title: str = "CKA",
    highest: float | None = None,
    legend: bool | int = True,
) -> alt.LayerChart:
    """Rows of tiles, the first on top, each a map of `cells`; `patch_names` names these. About `size` pixels wide.

    Colours go from 0 to `highest`, which panels that are compared share; None: the largest value here. `legend` as a
    heat-map takes it.
    """
    height, width = cells
    table = pd.DataFrame(
        [
            {
                "token": tile.name,
                "patch": patch_names[y * width + x],
                "across": f"{column} {x}",
                "up": f"{row} {y}",
                "column": column,
                "row": row,
                "value": tile.values[y * width + x],
            }
            for row, line in reversed(list(enumerate(rows)))  # heat-maps start at the bottom, pictures at the top
            for y in reversed(range(height))
            for column, tile in enumerate(line)
            for x in range(width)
        ]
    )
    finite = table["value"][np.isfinite(table["value"])]
    chart = heatmap(
        table,
        x="across",
        y="up",
        value="value",
        value_title=value_title,
        title=title,
        domain=(0, max(float(finite.max()) if highest is None else highest, 1e-3)) if len(finite) else None,
        x_group="column",
        y_group="row",
        x_labels=False,
        y_labels=False,
        tooltip=tooltips(token="token", patch="patch", value=(value_title, ".3f")),
        legend=legend,
        size=(size, round(size * len(rows) * height / (max(map(len, rows)) * width))),
    )
    own = [
        {"x": column * width + tile.own % width, "y": (len(rows) - row) * height - 1 - tile.own // width}
        for row, line in enumerate(rows)
        for column, tile in enumerate(line)
        if tile.own is not None
    ]
    if not own or not len(finite):
        return chart
    outlines = alt.Chart(pd.DataFrame([{**at, "x2": at["x"] + 1, "y2": at["y"] + 1} for at in own])).mark_rect(
        fill=None, stroke=theme.SUBJECT_COLOURS[5], strokeWidth=1.5, tooltip=None
    )
    return cast(alt.LayerChart, chart + outlines.encode(alt.X("x:Q"), alt.Y("y:Q"), x2="x2", y2="y2"))
