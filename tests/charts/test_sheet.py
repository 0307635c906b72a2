"""Figures on a sheet of paper: words of all of them can be read, and none runs out of its panel."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd
import pytest

from eyechart.charts import sheet, theme
from eyechart.charts.export import specification
from eyechart.charts.heatmap import heatmap
from eyechart.charts.paper import POINTS
from eyechart.charts.tables import subject_colours
from eyechart.charts.wrapping import ems, layers_of, lines_of, thin_names
from eyechart.measures import find_measure, names
from eyechart.report.embed import fitted_picture, size_of

from .findings import CNN, SWIN, VIT, finding_of
from .test_small_multiples import curves

SMALLEST = 6.0  # points


@cache
def spec_of(measure: str) -> dict[str, Any]:
    with theme.drawing(subjects=(CNN, SWIN, VIT), for_export=True):
        return specification(find_measure(measure).chart(finding_of(measure)), validate=False)


def row(panels: int, words: str = "accuracy") -> dict[str, Any]:
    frame = pd.DataFrame({"depth": [0.0, 1.0], "value": [0.2, 0.7], "subject": ["a", "a"]})
    y, colour = alt.Y("value:Q", title=words), alt.Color("subject:N", scale=theme.subject_scale(["a"]))
    curve = theme.curve(frame, theme.depth_axis(), y, colour)
    drawn = [theme.panel(curve, (300, 200), f"panel {at}") for at in range(panels)]
    return specification(theme.panels(drawn, columns=panels))


def points_on_paper(layout: sheet.Layout, picture: str) -> list[float]:
    width, _ = size_of(picture)
    sizes = map(float, re.findall(r' font-size="([\d.]+)px"', picture))
    return [size * layout.millimetres(width) * POINTS / width for size in sizes]


@pytest.mark.parametrize("measure", names())
def test_no_word_of_any_figure_is_smaller_than_six_points(measure: str) -> None:
    layout, picture = fitted_picture(spec_of(measure))
    sizes = points_on_paper(layout, picture)
    assert min(sizes) >= SMALLEST
    assert max(sizes) <= 10  # nor as large as a heading
    assert layout.millimetres(size_of(picture)[0]) <= sheet.SHEET


@pytest.mark.parametrize("panels", [1, 2, 3, 4, 6])
def test_however_many_panels_stand_in_a_row(panels: int) -> None:
    layout, picture = fitted_picture(row(panels))
    assert min(points_on_paper(layout, picture)) >= SMALLEST
    assert (layout.columns or panels) == {1: 1, 2: 2, 3: 3, 4: 3, 6: 3}[panels]


def test_what_fits_is_left_as_it_is() -> None:
    spec = row(1)
    assert fitted_picture(spec)[0] == sheet.AS_IT_IS
    one = sheet.laid_out(spec, sheet.AS_IT_IS)
    assert one["datasets"] is spec["datasets"]
    assert spec == row(1)  # the live chart is made from it


def test_a_long_title_of_an_upright_axis_takes_lines() -> None:
    title = "radius of half the gradient / width (strokes: a bare cell)"
    _, picture = fitted_picture(row(3, title))
    assert f">{title}<" not in picture
    assert ">radius of half the" in picture
    assert lines_of("short", 12, 100) == "short"
    assert max(ems(line) for line in lines_of(title, 12, 200)) * 12 <= 200


def test_names_along_a_map_are_thinned_where_words_are_larger() -> None:
    """They stood 15 pixels apart, whatever the size of their words."""
    layers = [f"block {number}" for number in range(17)]
    frame = pd.DataFrame([{"a": one, "b": two, "cka": 0.5} for one in layers for two in layers])
    with theme.drawing(for_export=True):
        chart = specification(theme.panels([heatmap(frame, x="a", y="b", value="cka")] * 4, columns=4))
    layout, picture = fitted_picture(chart)
    places = [float(y) for y in re.findall(r"translate\(-\d+(?:\.\d+)?,(-?[\d.]+)\)[^>]*>block \d+<", picture)]
    apart = sorted(abs(two - one) for one, two in pairwise(places) if two != one)
    assert layout.words > 1
    assert apart[0] >= 11 * layout.words


def test_names_are_thinned_on_an_axis_that_reaches_as_far_as_in_another_run() -> None:
    """The axes of a comparison say "at least from here to there": no figure with fixed names on them could be drawn."""
    axis: dict[str, Any] = {"values": list(range(0, 41, 2)), "labelOverlap": False}
    place = {"field": "a", "type": "quantitative", "scale": {"domain": {"unionWith": [0, 40]}}, "axis": axis}
    spec = {"mark": "point", "width": 100, "height": 100, "encoding": {"y": place}}
    thin_names(spec, 2.0)
    assert 1 < len(axis["values"]) < 21


@pytest.mark.parametrize(("subjects", "abreast"), [(4, 4), (5, 3), (6, 3), (7, 4), (8, 4), (9, 3)])
def test_small_panels_of_four_subjects_stand_in_one_row(subjects: int, abreast: int) -> None:
    """The fourth stood alone in a second row: half of every figure, and of seven pages of one section, was empty."""
    spec = specification(curves(subjects, subjects))
    layout, picture = fitted_picture(spec)
    small = [part["concat"] for part in sheet.laid_out(spec, layout)["concat"]]
    assert {part["columns"] for part in sheet.laid_out(spec, layout)["concat"]} == {abreast}
    assert layout.one_more == (abreast == 4)
    assert min(points_on_paper(layout, picture)) >= SMALLEST
    assert layout.millimetres(size_of(picture)[0]) <= sheet.SHEET
    assert len({panel["width"] for panels in small for panel in panels}) == 1
    assert spec == specification(curves(subjects, subjects))  # on a screen they stay as they are


def test_a_long_name_above_a_narrower_panel_takes_lines() -> None:
    name = "a_model_with_a_name_of_forty_letters_ok"
    titles: list[dict[str, Any]] = [{"text": name, "fontSize": 12, "limit": 230} for _ in range(4)]
    part = {"concat": [{"width": 190, "title": title, "mark": "point"} for title in titles], "columns": 3}
    sheet.with_one_more(part)
    for title in titles:
        assert "".join(title["text"]) == name
        assert max(ems(line) for line in title["text"]) * 12 <= 1.16 * title["limit"]


def test_the_name_of_a_line_that_crosses_a_curve_of_its_small_panel_is_left_out() -> None:
    """Larger words in narrower panels: "equal lengths" lay over the curve of one subject of four."""
    heights = {"s0": [0.9] * 7, "s1": [0.9, 0.6] * 3, "s2": [0.6, 0.4] * 3, "s3": [0.1] * 7}
    rows = [
        {"subject": name, "depth": at / 6, "value": up} for name, ups in heights.items() for at, up in enumerate(ups)
    ]
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]))
    chart = theme.curve(pd.DataFrame(rows), theme.depth_axis(), y, subject_colours(list(heights)))
    spec = specification(theme.panels([(chart + theme.reference(0.5, "one half")).properties(width=380, height=200)]))
    layout, picture = fitted_picture(spec)
    (small,) = sheet.laid_out(spec, layout)["concat"]
    shown = [
        sum(
            layer["encoding"]["text"].get("field") == "text"
            for layer in layers_of(panel)
            if "text" in layer["encoding"]
        )
        for panel in small["concat"]
    ]
    assert shown == [2, 2, 0, 2]  # each with its rim
    assert picture.count(">one half<") == 6
