"""How every chart of eyechart looks: colours, type, axes, and the few shapes that measures share.

A measure builds its chart from these; it never names a font or an axis colour. Colours that must differ between light
and dark paper are not in the marks but in named styles (`style="reference"`), so that the page can swap the
configuration of a finished chart. Nothing here computes a statistic, and frames come with everything precomputed:
`transform_window` inside a facet breaks vl-convert.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeVar, cast

import altair as alt
import numpy as np
import pandas as pd
from altair.utils import schemapi

from eyechart.charts.palette import DIVERGING as DIVERGING
from eyechart.charts.palette import KIND_MARKS as KIND_MARKS
from eyechart.charts.palette import MAGMA as MAGMA
from eyechart.charts.palette import SUBJECT_COLOURS as SUBJECT_COLOURS
from eyechart.charts.palette import VIRIDIS as VIRIDIS
from eyechart.charts.palette import configuration as configuration
from eyechart.charts.palette import shade_names

Axis = TypeVar("Axis", alt.X, alt.Y)
Chart = alt.Chart | alt.LayerChart | alt.ConcatChart
Drawn = TypeVar("Drawn", bound=Chart)

#: Kinds as a legend says them.
KIND_WORDS = "{mlp: 'MLP', conv: 'convolution', subsampling: 'sub-sampling'}[datum.label] || datum.label"

#: Labels of a few words along a short axis, where they would run into one another: a line for each word.
A_LINE_A_WORD = "split(datum.label, ' ')"


#: Pixels between the frame and the outermost marks, which stood halfway outside it, on the numbers of the axis.
MARK = 6


@dataclass(frozen=True)
class Drawing:
    """For whom charts are being drawn: which subjects have which colour, and whether for paper or for the page."""

    subjects: tuple[str, ...] = ()
    for_export: bool = False
    heatmaps: list[str] = field(default_factory=list)
    """One entry for each heat-map drawn otherwise on paper than on the page: without any, both are the same chart."""


_drawing: ContextVar[Drawing] = ContextVar("drawing", default=Drawing())  # noqa: B039 (frozen, so safe to share)


@contextmanager
def drawing(subjects: Sequence[str] | None = None, for_export: bool | None = None) -> Iterator[Drawing]:
    """Charts made inside give `subjects` their colours in this order, and heat-maps as pictures if `for_export`.

    >>> with drawing(subjects=["zoo:resnet", "zoo:vit"]):
    ...     subject_colour("zoo:vit")
    '#d55e00'
    """
    now = _drawing.get()
    now = now if subjects is None else replace(now, subjects=tuple(subjects))
    now = now if for_export is None else replace(now, for_export=for_export, heatmaps=[])
    token = _drawing.set(now)
    try:
        yield now
    finally:
        _drawing.reset(token)


def current_drawing() -> Drawing:
    return _drawing.get()


def dress(chart: Any) -> Any:
    """The same chart with eyechart's configuration, as `run.chart(name)` hands it out."""
    dressed = chart.copy(deep=False)
    dressed.config = _config().copy()
    return dressed


@cache
def _config() -> alt.Config:
    """The configuration as Altair holds it. Once: reading it against the schema takes 0.1 s, of each of 25 charts."""
    return alt.Config.from_dict(configuration())


#: What a chart is made of that nobody changes once it is there.
FIXED_PARTS = ("data", "encoding", "mark", "config", "transform", "resolve", "title")


@contextmanager
def sharing_fixed_parts() -> Iterator[None]:
    """Charts put together inside share their encodings, marks and data instead of copying them.

    Altair copies every chart whole, several times over, when it becomes a layer or a panel of another: half of the time
    that Python spends on a page. All it changes in such a copy are names, sizes and parameters.
    """
    whole = alt.SchemaBase.copy

    def copy(chart: alt.SchemaBase, deep: bool | Iterable[Any] = True, ignore: Sequence[str] = ()) -> alt.SchemaBase:
        return whole(chart, deep=deep, ignore=[*ignore, *FIXED_PARTS])

    alt.SchemaBase.copy = copy  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        alt.SchemaBase.copy = whole  # type: ignore[method-assign]


_reader_for = cache(schemapi._FromDict)


@contextmanager
def classes_hashed_once() -> Iterator[None]:
    """Altair hashes the schemas of all its 570 classes whenever it reads a part of a chart: 600 times a page."""
    before = schemapi._FromDict
    schemapi._FromDict = lambda classes: _reader_for(tuple(classes))  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        schemapi._FromDict = before  # type: ignore[misc]


def subject_colour(subject: str, subjects: Sequence[str] = ()) -> str:
    """The colour of a subject: by its place in the exam (see `drawing`), else among the given ones."""
    order = _drawing.get().subjects or tuple(subjects)
    place = order.index(subject) if subject in order else 0
    return SUBJECT_COLOURS[place % len(SUBJECT_COLOURS)]


def subject_scale(subjects: Sequence[str]) -> alt.Scale:
    """Colour scale for a `subject` field, the same on the whole page even where a measure has only some of them."""
    names = list(dict.fromkeys(subjects))
    return alt.Scale(domain=names, range=[subject_colour(subject, names) for subject in names])


def ordered_colours(count: int) -> list[str]:
    """`count` colours from blue to green for things in order, such as blocks from lowest to highest.

    Only the middle of viridis: its violet vanishes on dark paper, its yellow on white. These have a contrast of at
    least 3 with dark paper and of 2.1 with white, as the subjects' colours have.
    """
    return shade_names(np.linspace(0.35, 0.75, max(count, 1)), VIRIDIS)[:count]


def ordered_scale(labels: Sequence[str]) -> alt.Scale:
    """Colour scale for labels in order of depth."""
    names = list(dict.fromkeys(labels))
    return alt.Scale(domain=names, range=ordered_colours(len(names)))


def kind_points(
    frame: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    kind: str = "kind",
    in_legend: Iterable[str] | None = None,
    marks: Mapping[str, tuple[str, str]] = KIND_MARKS,
    **encoding: Any,
) -> alt.Chart:
    """Marks that tell what each step does by fill and shape together, outlined so that white ones show.

    Panels that share one legend name all kinds they have together as `in_legend`: of two lists Vega takes the first.
    """
    present = set(frame[kind] if in_legend is None else in_legend)
    kinds = [name for name in marks if name in present]
    # A legend without entries makes Vega's picture infinitely large, so where there is nothing to show there is none.
    legend = alt.Legend(labelExpr=KIND_WORDS) if kinds else None
    fills, shapes = (alt.Scale(domain=kinds, range=[marks[name][part] for name in kinds]) for part in (0, 1))
    fill = alt.Fill(kind, type="nominal", scale=fills, title=None, legend=legend)
    shape = alt.Shape(kind, type="nominal", scale=shapes, title=None, legend=legend)
    points: alt.Chart = (
        alt.Chart(frame).mark_point(style="outlined", size=70).encode(x=x, y=y, fill=fill, shape=shape, **encoding)
    )
    return points


def band(frame: pd.DataFrame, x: alt.X, y: alt.Y, low: str, high: str, **encoding: Any) -> alt.Chart:
    """The 95 % interval of a curve as a pale band. `x`, `y` as the curve has them; `encoding` takes its `color`."""
    area: alt.Chart = alt.Chart(frame).mark_area(style="interval-band", line=False, clip=True, tooltip=None)
    return area.encode(x=x, y=column_on(y, low), y2=alt.Y2(high), **encoding)


def error_bars(frame: pd.DataFrame, x: alt.X, y: alt.Y, low: str, high: str, **encoding: Any) -> alt.Chart:
    """The 95 % interval of single points as thin upright rules, to lie under the points."""
    bars: alt.Chart = alt.Chart(frame).mark_rule(style="interval-bar", strokeWidth=1.5, clip=True, tooltip=None)
    return bars.encode(x=x, y=column_on(y, low), y2=alt.Y2(high), **encoding)


def depth_axis() -> alt.X:
    """From 0 to 1, and 4 pixels beyond both: intervals, clipped at the frame, were halved at the last block."""
    return alt.X("depth:Q", title="depth (input → output)", scale=alt.Scale(domain=[0, 1], padding=4, nice=False))


def curve(
    frame: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    color: alt.Color,
    low: str | None = None,
    high: str | None = None,
    points: bool = True,
    **encoding: Any,
) -> alt.LayerChart:
    """A line with its points and, where `low` and `high` name columns, its interval as a band under it.

    The `tooltip` is that of the points alone: over a line or a band Vega tells the numbers of its first point.
    """
    tooltip = {"tooltip": encoding.pop("tooltip")} if "tooltip" in encoding else {}
    line = alt.Chart(frame).mark_line(tooltip=None).encode(x=x, y=y, color=color, **encoding)
    layers = [line] if low is None or high is None else [line, band(frame, x, y, low, high, color=color, **encoding)]
    if points:
        layers.append(alt.Chart(frame).mark_point(size=36).encode(x=x, y=y, color=color, **encoding, **tooltip))
    return cast(alt.LayerChart, alt.layer(*layers))


def dots_with_intervals(
    frame: pd.DataFrame, *, x: str, y: str, low: str = "low", high: str = "high", x_title: str = "", format: str = ".2f"
) -> alt.LayerChart:
    """One row a subject: its number as a point on its interval, in the subject's colour. `y` names the subjects."""
    colour = alt.Color(y, type="nominal", scale=subject_scale(frame[y].astype(str).tolist()), legend=None)
    row = alt.Y(
        y,
        type="nominal",
        sort=None,
        title=None,
        axis=alt.Axis(labelFontSize=12, labelLimit=260, labelPadding=9, grid=True),
    )
    scale, axis = alt.Scale(zero=False, padding=20), alt.Axis()
    if format.endswith("%"):  # a share is on no axis from −10 % or to 101 %
        ends = frame[[x, low, high]].to_numpy(dtype=float)
        least, most = (float(end) if np.isfinite(end) else 0.0 for end in (np.nanmin(ends), np.nanmax(ends)))
        beyond = max(0.04 * (most - least), 0.005)
        scale = alt.Scale(zero=False, domain=[max(0.0, least - beyond), min(1.0, most + beyond)], nice=6)
        axis = alt.Axis(format="~%")
    span = alt.X(x, type="quantitative", title=x_title or x, scale=scale, axis=axis)
    shown = [alt.Tooltip(y, type="nominal", title=y)] + [
        alt.Tooltip(field, type="quantitative", format=format, title=title)
        for field, title in ((x, x_title or x), (low, "from"), (high, "to"))
    ]
    base = alt.Chart(frame).encode(row, color=colour, tooltip=shown)
    rules = base.mark_rule(style="interval-bar", strokeWidth=3).encode(column_on(span, low), x2=alt.X2(high))
    layers = alt.layer(rules, base.mark_point(size=90).encode(span)).properties(width=520, height=alt.Step(34))
    return cast(alt.LayerChart, layers)


def column_on(axis: Axis, field: str) -> Axis:
    """The same axis for another column: layers whose titles differ would have them strung together."""
    other = axis.copy(deep=False)
    other["shorthand"], other["field"], other["type"] = alt.Undefined, field, "quantitative"
    return other


def reference(
    value: float,
    text: str,
    axis: Literal["x", "y"] = "y",
    at: Literal["start", "end", "beyond"] = "end",
    side: Literal["left", "right"] = "right",
    under: bool = False,
    subject: str | None = None,
    named: bool = True,
) -> alt.LayerChart:
    """A dashed line at a known value, with its name on it: what chance, a uniform or an idle model would score.

    `axis` "y" draws a level line, "x" an upright one; the name stands at the "start" or the "end" of the line, and
    `side` of an upright one. It stands on a rim of paper, so that a curve or an interval behind it does not cross it;
    among points, which it would hide, the name of a level line stands "beyond" the plot, or `under` the line. A line
    that means something for one `subject` alone is drawn where that one is. One that the panel before has, too, need
    not be `named` again; where panels are taken apart, it is.
    """
    frame = pd.DataFrame({"reference": [float(value)], "text": [text]} | ({"subject": [subject]} if subject else {}))
    at_end = at != "start"
    if axis == "y":
        end = "right" if at_end else "left"
        words: dict[str, Any] = {"align": end, "dx": -2 if at_end else 2}
        words |= {"baseline": "top", "dy": 4} if under else {"baseline": "bottom", "dy": -4}
        words = {"align": "left", "baseline": "middle", "dx": 8} if at == "beyond" else words
        place: dict[str, Any] = {"x": alt.value("width") if at_end else alt.value(0), "y": alt.Y("reference:Q")}
    else:
        words = {"baseline": "top" if at_end else "bottom", "dy": 2 if at_end else -2}
        words |= {"align": "left", "dx": 5} if side == "right" else {"align": "right", "dx": -5}
        place = {"x": alt.X("reference:Q"), "y": alt.value(0) if at_end else alt.value("height")}
    rule = alt.Chart(frame).mark_rule(style="reference", tooltip=None).encode(**{axis: place[axis]})
    labels = [
        alt.Chart(frame).mark_text(style=style, tooltip=None, **words).encode(text="text:N", **place)
        for style in ("reference-rim", "reference-label")
    ]
    return cast(alt.LayerChart, alt.layer(rule, *(labels if text and named else [])))


WORDS_HIGH = 0.1  # of an axis from 0 to 1: a line's name and its distance from the line


def chance(share: float, text: str, ends: Iterable[float] = ()) -> alt.LayerChart:
    """The line of guessing on an axis from 0 to 1, named below it where there is room: few score less, while those who
    know nothing score just as much. `ends` are the scores at the end of the axis, where the name stands: of few
    pictures most may lie below it."""
    away = np.array(list(ends), dtype=float) - share
    below, above = (int(((away * way > 0) & (away * way < WORDS_HIGH)).sum()) for way in (-1, 1))
    return reference(share, text, under=share >= 0.09 and below <= above)


def strokes(size: float, **more: Any) -> alt.Legend:
    """A legend of dashes: `size` is the square of their length, and no line of it is higher than its words.

    Without the clip a line would be as high as the stroke is long. It swallows clicks, so subjects have none.
    """
    return alt.Legend(symbolSize=size, clipHeight=12, **more)


def axis_at(values: Sequence[float], **more: Any) -> alt.Axis:
    """Marks at these values, all of them: of more than `tickCount` Vega drops every second one, even if told."""
    return alt.Axis(values=list(values), tickCount=len(values), **more)


def log_y(field: str, values: Iterable[float], title: str) -> alt.Y:
    """A logarithmic axis as long as its `values`, with few lines: Vega's own draws nine a decade and whole decades.

    >>> log_y("ratio", [0.4, 7.0], "ratio").to_dict()["axis"]["values"]
    [0.5, 1.0, 2.0, 5.0]
    """
    positive = np.array([value for value in values if np.isfinite(value) and value > 0] or [1.0])
    low, high = float(positive.min()) / 1.1, float(positive.max()) * 1.1
    scale = alt.Scale(type="log", domain=[low, high], nice=False, padding=MARK)
    axis = axis_at(log_marks(low, high), labelOverlap="greedy", format="~g")  # Vega's own takes every second away
    return alt.Y(field, type="quantitative", title=title, scale=scale, axis=axis)


def y_stretched_about_0(field: str, title: str) -> alt.Y:
    """For log changes, most of which are small: even near 0 and logarithmic beyond."""
    ticks = [sign * size for size in (1, 0.3, 0.1, 0.03) for sign in (-1, 1)]
    axis = axis_at([0, *ticks], format="~g", labelOverlap=False)
    scale = alt.Scale(type="symlog", constant=0.02, padding=MARK)
    return alt.Y(f"{field}:Q", title=f"{title} (log scale about 0)", scale=scale, axis=axis)


def log_marks(low: float, high: float) -> list[float]:
    """Round numbers between two, few of them: powers of ten, or as many steps between these as give three.

    >>> log_marks(0.2, 8.0)
    [0.2, 0.5, 1.0, 2.0, 5.0]
    """
    powers = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    marks: list[float] = []
    for steps in ((1,), (1, 2, 5), range(1, 10), np.arange(1, 10, 0.2)):
        marks = [float(f"{step:g}e{int(power)}") for power in powers for step in steps]
        marks = [mark for mark in marks if low <= mark <= high]
        if len(marks) >= 3:
            break
    return marks


def panels(charts: Sequence[Any], columns: int = 3, shared: Collection[str] = ("color",)) -> alt.ConcatChart:
    """Charts side by side, `columns` in a row; on a narrow screen the page puts them below one another.

    Scales named in `shared` get one legend; the others are resolved for each panel.
    """
    every = ("color", "fill", "shape", "stroke", "strokeDash", "size")
    if {"fill", "shape"} & set(shared):
        shared = {*shared, "fill", "shape"}  # `kind_points` tells one thing by both: apart they would be two legends
    resolve: dict[str, Any] = {channel: "shared" if channel in shared else "independent" for channel in every}
    joined: alt.ConcatChart = alt.concat(*charts, columns=columns).resolve_scale(**resolve)
    return joined


def panel(chart: Any, size: tuple[int, Any], title: str | alt.TitleParams | None = None) -> alt.LayerChart:
    """The layers of a chart as one panel, (width, height) pixels large."""
    framed: alt.LayerChart = chart.properties(width=size[0], height=size[1])
    return framed if title is None else framed.properties(title=title)


def of_subject(chart: Drawn, subject: str) -> Drawn:
    """The same panel, or panels, marked as this subject's, so that the page can pick it: its table names no subject."""
    return cast(Drawn, chart.properties(description=subject))


def nothing(
    title: str | alt.TitleParams | None, size: tuple[int, int], words: str = "no finite value"
) -> alt.LayerChart:
    """An empty frame that says so: a randomly initialised ResNet, whose branches add zero, has no ratio to show."""
    empty = alt.Chart(pd.DataFrame({"text": [words]}))
    said = empty.mark_text(style="note").encode(text="text:N", x=alt.value(size[0] / 2), y=alt.value(size[1] / 2))
    frame = empty.mark_rect(style="frame").encode(
        x=alt.value(0), x2=alt.value(size[0]), y=alt.value(0), y2=alt.value(size[1])
    )
    return panel(alt.layer(frame, said), size, title)
