"""Figures for print: exactly as wide as asked, with words that can be read there."""

from __future__ import annotations

import io
import re
from typing import Any

import altair as alt
import pandas as pd
import pytest
from PIL import Image

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.paper import LEAST_POINTS, POINTS, TALLEST, dressed, millimetres, parts_of, printed
from eyechart.errors import UsageError

FRAME = pd.DataFrame({"depth": [0.0, 0.5, 1.0] * 2, "value": [1, 2, 3, 3, 2, 1], "subject": ["a"] * 3 + ["b"] * 3})


def chart(panels: int, small: int = 0) -> dict[str, Any]:
    """Panels in one row as on the page, with a legend and sizes of words that a measure has set by itself."""
    colour = alt.Color("subject:N", scale=theme.subject_scale(["a", "b"]))
    y = alt.Y("value:Q", axis=alt.Axis(labelFontSize=9, titleFontSize=6))
    drawn = [
        theme.panel(theme.curve(FRAME, theme.depth_axis(), y, colour), (260, 200), f"panel {index}")
        for index in range(panels)
    ]
    maps = [theme.panel(theme.curve(FRAME, theme.depth_axis(), y, colour), (60, 60)) for _ in range(small)]
    rows = [theme.panels(drawn, columns=3), *([theme.panels(maps, columns=5)] if maps else [])]
    return specification(theme.dress(theme.panels(rows, columns=1) if maps else rows[0]))


def svg(spec: dict[str, Any], width: float) -> str:
    return printed(spec, "svg", width).decode()


@pytest.mark.parametrize(("panels", "width"), [(1, 84.0), (3, 84.0), (6, 174.0)])
def test_words_have_seven_points_and_are_black(panels: int, width: float) -> None:
    picture = svg(chart(panels), width)
    stated, box = re.findall(r'<svg[^>]*? width="([\d.]+)mm"[^>]*viewBox="0 0 ([\d.]+) ', picture)[0]
    assert float(stated) == width
    pixels_in_points = width * POINTS / float(box)
    words = re.findall(r"<text[^>]*>", picture)
    assert len(words) > 5 * panels
    sizes = [float(size) * pixels_in_points for word in words for size in re.findall(r'font-size="([\d.]+)px"', word)]
    assert len(sizes) == len(words)
    assert min(sizes) >= LEAST_POINTS - 1e-6
    assert max(sizes) < 2 * LEAST_POINTS
    assert {ink for word in words for ink in re.findall(r'fill="([^"]+)"', word)} == {"#000000"}


def test_every_format_is_exactly_as_wide() -> None:
    spec = chart(2)
    (box,) = re.findall(rb"MediaBox ?\[0 0 ([\d.]+) ", printed(spec, "pdf", 84.0))
    assert float(box) == pytest.approx(84 / 25.4 * 72, abs=0.01)
    with Image.open(io.BytesIO(printed(spec, "png", 84.0))) as picture:
        dots = picture.info["dpi"][0]
        assert picture.width / dots * 25.4 == pytest.approx(84, abs=0.05)
        assert dots == pytest.approx(300, abs=1)


def test_panels_stand_below_one_another_where_they_need_it_and_small_ones_stay_together() -> None:
    narrow = dressed(chart(3, small=5), 12.0, 1)
    columns = [part["columns"] for part in parts_of(narrow) if "concat" in part]
    assert columns == [1, 1, 2]  # two small ones in the room of a large one
    assert [part["columns"] for part in parts_of(dressed(chart(3), 12.0, 3)) if "concat" in part] == [3]


def test_a_long_title_of_an_upright_axis_takes_lines() -> None:
    """It ran over the panel and out of the picture."""
    title = "radius of half the gradient / width (strokes: a bare cell)"
    y = alt.Y("value:Q", title=title)
    one = theme.panel(theme.curve(FRAME, theme.depth_axis(), y, alt.Color("subject:N")), (260, 200))
    picture = svg(specification(theme.dress(one)), 84.0)
    assert f">{title}<" not in picture
    assert "(strokes: a bare" in picture


def test_no_figure_of_curves_is_higher_than_a_sheet() -> None:
    """Four panels below one another were 310 mm high; curves can be flatter."""
    for panels in (3, 4):
        wide, high = re.findall(r'<svg[^>]*? width="([\d.]+)mm" height="([\d.]+)mm"', svg(chart(panels), 84.0))[0]
        assert float(wide) == 84.0
        assert float(high) <= TALLEST


def test_the_name_of_a_line_that_would_cross_its_panel_is_left_out() -> None:
    for words, left in (("chance", 2), ("guessing, one of ten classes, all of them alike", 0)):
        y = alt.Y("value:Q")
        layers = theme.curve(FRAME, theme.depth_axis(), y, alt.Color("subject:N")) + theme.reference(2, words)
        picture = svg(specification(theme.dress(theme.panel(layers, (260, 200)))), 84.0)
        assert picture.count(f">{words}<") == left  # and its rim


def test_a_width_needs_its_unit() -> None:
    for wrong in ("84", "84px", "-3mm", "1mm", "", "mm"):
        with pytest.raises(UsageError, match="A width is a number with mm, cm, in or pt"):
            millimetres(wrong)
