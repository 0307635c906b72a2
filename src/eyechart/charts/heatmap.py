"""A table as colours: rectangles that answer to the pointer on the page, one picture in an exported figure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from eyechart.charts import theme
from eyechart.charts.palette import MAGMA, shades
from eyechart.charts.pictures import data_uri
from eyechart.charts.tables import tooltips


def heatmap(
    frame: pd.DataFrame,
    *,
    x: str,
    y: str,
    value: str,
    x_title: str = "",
    y_title: str = "",
    value_title: str = "",
    title: str | alt.TitleParams | None = None,
    domain: tuple[float, float] | None = None,
    colours: Sequence[str] = MAGMA,
    x_group: str | None = None,
    y_group: str | None = None,
    x_labels: bool = True,
    y_labels: bool = True,
    tooltip: Sequence[alt.Tooltip | str] = (),
    format: str = ".2f",
    marks: Mapping[float, str] | None = None,
    legend: bool | int = True,
    size: int | tuple[int, int] = 260,
    apart: int = 0,
    for_export: bool | None = None,
) -> alt.LayerChart:
    """A table as colours: one row of `frame` a cell, first row and column at the lower left, as in Raghu et al.

    `x` and `y` name columns of labels, in order of first appearance; `x_group` and `y_group` name columns whose change
    along the axis is drawn as a boundary (the stage of a site). `size` is about the longest side in pixels, or
    (width, height); cells get a whole number of pixels each, or pale seams would show. On the page cells are rectangles
    that answer to the pointer; for export the table is one picture under vector axes (PDF 41 kB against 321 kB).
    `marks` are the values that the colour bar names and how: a map of logarithms can say 1, 3, 10. Without `legend`
    there is no bar: for maps beside one that has the same. A number is the length of the bar: maps that share one must
    ask for the same. So many first columns as `apart` says stand by themselves, `APART` pixels wide each: a class token
    beside 196 patches would be a line of two pixels, and of one on a telephone.

    >>> table = pd.DataFrame({"a": ["0", "1", "0", "1"], "b": ["0", "0", "1", "1"], "cka": [1.0, 0.5, 0.5, 1.0]})
    >>> chart = heatmap(table, x="a", y="b", value="cka", domain=(0, 1))
    """
    if not np.isfinite(frame[value].to_numpy(dtype=float)).any():
        return theme.nothing(title, (size, size) if isinstance(size, int) else size)
    if for_export is None:
        drawing = theme.current_drawing()
        for_export = drawing.for_export
        drawing.heatmaps.append(value)
    names = [list(dict.fromkeys(frame[column].astype(str))) for column in (x, y)]
    target = (size, size) if isinstance(size, int) else size
    cells = [max(1, round(pixels / max(len(each), 1))) for pixels, each in zip(target, names, strict=True)]
    if isinstance(size, int):
        cells = [min(cells)] * 2
    across, up = _places(names[0], cells[0], apart), _places(names[1], cells[1])
    wide, lefts = across[names[0][-1]][1], [left for left, _ in across.values()]
    width, height = cells[0] * wide, cells[1] * len(up)
    numbers = frame[value].to_numpy(dtype=float)
    finite = numbers[np.isfinite(numbers)]
    low, high = domain or (float(finite.min()), float(finite.max()))
    high = high if high > low else low + 1.0

    scale = alt.Scale(domain=list(np.linspace(low, high, len(colours))), range=list(colours), clamp=True)
    length = min(160, max(80, height // 40 * 40)) if legend is True else int(legend)
    bar = _colour_bar(value_title, low, high, format, marks, length) if legend else None
    colour: dict[str, Any] = {"type": "quantitative", "scale": scale, "legend": bar}
    axis_x = _axis(across, x_title, width, x_labels, apart=apart)
    place_x = alt.X("x", type="quantitative", scale=_span(wide), axis=axis_x)
    place_y = alt.Y("y", type="quantitative", scale=_span(len(up)), axis=_axis(up, y_title, height, y_labels, up=True))

    parts = [(0, across[names[0][apart - 1]][1]), (lefts[apart], wide)] if apart else [(0, wide)]
    base = pd.DataFrame([{"x": left, "y": 0, "x2": right, "y2": len(up)} for left, right in parts])
    layers: list[Any] = [alt.Chart(base).mark_rect(style="frame").encode(place_x, place_y, x2="x2", y2="y2")]
    if for_export:
        grid = np.full((len(up), wide), np.nan)
        for column, row, number in zip(frame[x].astype(str), frame[y].astype(str), numbers, strict=True):
            grid[up[row][0], slice(*across[column])] = number
        picture = pd.DataFrame({"url": [_picture((grid - low) / (high - low), colours)]})
        middle: dict[str, Any] = {"x": alt.value(width / 2), "y": alt.value(height / 2)}
        image = alt.Chart(picture).mark_image(width=width, height=height, aspect=False, smooth=False, aria=False)
        ends = alt.Chart(pd.DataFrame({"value": [low, high]})).mark_point(size=0, opacity=0)
        layers += [image.encode(url="url:N", **middle), ends.encode(color=alt.Color("value", **colour), **middle)]
    else:
        ends = frame[x].astype(str).map(across), frame[y].astype(str).map(up)
        at = frame.assign(x=ends[0].str[0], y=ends[1].str[0], x2=ends[0].str[1], y2=ends[1].str[1])
        cell_words = tooltips(**{x: x_title or x, y: y_title or y}) + tooltips(
            **{value: (value_title or value, format)}
        )
        shown = list(tooltip) or cell_words
        cell = alt.Chart(at[np.isfinite(numbers)]).mark_rect()
        layers.append(cell.encode(place_x, place_y, x2="x2", y2="y2", color=alt.Color(value, **colour), tooltip=shown))
    sides: list[tuple[Any, str, str | None]] = [(place_x, x, x_group), (place_y, y, y_group)]
    for axis, column, group in sides:
        edges = [lefts[edge] if column == x else edge for edge in _edges(frame, column, group)]
        if edges:
            rule = alt.Chart(pd.DataFrame({"edge": edges})).mark_rule(style="boundary", tooltip=None)
            layers.append(rule.encode(theme.column_on(axis, "edge")))
    return theme.panel(alt.layer(*layers), (width, height), title)


def _colour_bar(
    title: str, low: float, high: float, form: str, marks: Mapping[float, str] | None, length: int
) -> alt.Legend:
    """A legend no longer than its map, with five even values at most or with those of `marks` that lie on it."""
    looks: dict[str, Any] = {"title": title or None, "gradientLength": length}
    if marks is None:
        even = even_marks(low, high, form)
        return alt.Legend(format=form, values=even, tickCount=len(even), **looks)
    named = {value: words for value, words in marks.items() if low <= value <= high}
    names = f"{json.dumps(list(named.values()))}[indexof({json.dumps(list(named))}, datum.value)]"
    return alt.Legend(labelExpr=names, values=list(named), tickCount=len(named), **looks)


APART, GAP = 16, 6  # pixels of a column that stands apart, and between those and the others
NEAR = 0.06  # of a bar: half of the words of its number


def even_marks(low: float, high: float, form: str) -> list[float]:
    """Round numbers between two, five at most; where this format would round them, five even ones.

    One that all but meets an end stands on it: Vega sets the number of an end within its bar, any other about its
    place, so that at the edge of the picture −4.00 lost its sign.

    >>> even_marks(0.0, 0.963, ".2f"), even_marks(0.0, 6.0, ".0f"), even_marks(0.0, 0.002, ".2f")
    ([0.0, 0.2, 0.4, 0.6, 0.8], [0.0, 2.0, 4.0, 6.0], [0.0, 0.0005, 0.001, 0.0015, 0.002])
    >>> even_marks(-4.03, 4.03, ".2f")
    [-4.03, -2.0, 0.0, 2.0, 4.03]
    """
    places = int(form[1:-1]) if re.fullmatch(r"\.\d+f", form) else 12
    power = 10.0 ** np.floor(np.log10((high - low) / 4))
    for step in (float(power) * many for many in (1, 2, 2.5, 5, 10)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if 2 <= last - first + 1 <= 5 and math.isclose(round(step, places), step):
            marks = [round(at * step, 12) for at in range(first, last + 1)]
            return [next((end for end in (low, high) if abs(end - at) < NEAR * (high - low)), at) for at in marks]
    return [float(mark) for mark in np.linspace(low, high, 5)]


def _places(names: Sequence[str], cell: int, apart: int = 0) -> dict[str, tuple[int, int]]:
    """Where each name begins and ends, in cells.

    >>> _places(["class", "1", "2"], cell=8), _places(["class", "1", "2"], cell=8, apart=1)
    ({'class': (0, 1), '1': (1, 2), '2': (2, 3)}, {'class': (0, 2), '1': (3, 4), '2': (4, 5)})
    """
    wide, gap = (max(1, round(pixels / cell)) for pixels in (APART, GAP))
    begin = wide * apart + (gap if apart else 0)
    own = {name: (wide * at, wide * (at + 1)) for at, name in enumerate(names[:apart])}
    return own | {name: (begin + at, begin + at + 1) for at, name in enumerate(names[apart:])}


def _span(count: int) -> alt.Scale:
    return alt.Scale(domain=[0, count], nice=False, zero=False)


def _axis(
    places: dict[str, tuple[int, int]], title: str, pixels: int, labels: bool, up: bool = False, apart: int = 0
) -> alt.Axis:
    """Names at the middle of their cells, thinned to at most one every 15 pixels (26 along the bottom)."""
    names = [""] * max(right for _, right in places.values())
    for name, (left, right) in places.items():
        names[left:right] = [name] * (right - left)
    step = max(1, -(-len(names) * (15 if up else 26) // max(pixels, 1)))
    middles = [(left + right) / 2 for left, right in places.values()]
    shown = [*middles[:apart], *middles[apart::step]]
    # The names stand in an expression: json.dumps quotes them, and "<" is spelt out so that no "</script>" can arise.
    listed = json.dumps(names).replace("<", "\\u003c")
    turned: dict[str, Any] = {} if up or max(map(len, names), default=0) <= 3 else {"labelAngle": -45}
    return alt.Axis(
        title=title or None,
        # A long name is cut there; the panel's own title has it whole. Below a map it may stand out a little: the page
        # allows as much, and "zoo:vit-gap →" was cut below the narrow map of 9 blocks × 17.
        titleLimit=pixels + (0 if up else 24),
        values=shown,
        tickCount=len(shown),
        labelExpr=f"{listed}[floor(datum.value)]",
        labels=labels,
        ticks=labels,
        labelOverlap=False,
        grid=False,
        domain=False,
        **turned,
    )


def _edges(frame: pd.DataFrame, column: str, group: str | None) -> list[int]:
    if group is None:
        return []
    groups = frame.assign(name=frame[column].astype(str)).drop_duplicates("name")[group].tolist()
    return [index for index in range(1, len(groups)) if groups[index] != groups[index - 1]]


def _picture(values: np.ndarray, colours: Sequence[str]) -> str:
    """`values` in 0..1, row 0 at the bottom, NaN clear; about 480 pixels wide, as equal pixels cost little in a PNG."""
    alpha = np.where(np.isfinite(values), 255, 0)[..., None]
    pixels = np.concatenate([shades(values, colours), alpha], axis=-1).astype(np.uint8)[::-1]
    return data_uri(pixels, times=max(1, 480 // max(values.shape)))
