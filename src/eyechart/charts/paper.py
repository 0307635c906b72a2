"""Charts for print: exactly as wide as a column, words black and no smaller than 7 points.

A figure of the page is made for a screen: shrunk to a column of 84 mm its words would be 3 points high. So its panels
are put below one another until the words fit, and the words are set so large that at the printed size they have their
points. The data colours are those of the page, which every kind of colour vision tells apart.
"""

from __future__ import annotations

import copy
import io
import math
import re
from contextlib import suppress
from typing import Any

import vl_convert
from PIL import Image

from eyechart.charts.palette import in_inks
from eyechart.charts.whole_names import with_whole_names
from eyechart.charts.wrapping import TITLE, fit_references, layers_of, panels_of, thin_names, wrap_titles
from eyechart.errors import UsageError

POINTS = 72 / 25.4  # in a millimetre
LEAST_POINTS = 7.0
START = 11.0  # pixels of the words on the page
ROOMY = 20.0  # pixels of the words: larger ones crowd a panel of 250, so it gets a row of its own
CROWDED = 32.0  # the same where it must not: a figure higher than a sheet
DOTS = 300  # an inch, of a PNG
TALLEST = 230.0  # millimetres: a sheet with its caption; ten panels below one another were 450
FLATTER = (0.8, 0.65, 0.5)  # times as high as on the page, but no lower than 0.45 of their width
INKS = ("#000000", "#000000", "#6b6b6b", "#e3e3e3", "#ffffff")  # words, quiet words, lines, faint lines, paper
FONT_SIZES = {"fontSize", "labelFontSize", "titleFontSize", "subtitleFontSize"}
LIMITS = {"labelLimit", "titleLimit", "limit"}
SIZE = re.compile(r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"')


def millimetres(text: str) -> float:
    """
    >>> millimetres("84mm"), millimetres("3.5in"), millimetres("17 cm")
    (84.0, 88.9, 170.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(mm|cm|in|pt)\s*", text)
    units = {"mm": 1.0, "cm": 10.0, "in": 25.4, "pt": 1 / POINTS}
    width = float(match[1]) * units[match[2]] if match else 0.0
    if not 20 <= width <= 2000:
        raise UsageError(f"A width is a number with mm, cm, in or pt, from 20 mm to 2 m, such as 84mm; got {text!r}.")
    return round(width, 3)


def printed(spec: dict[str, Any], format: str, width: float) -> bytes:
    """A Vega-Lite specification as a file that is `width` millimetres wide."""
    picture = for_print(spec, width)
    points = width * POINTS
    match = SIZE.search(picture)
    assert match is not None  # vl-convert states it
    height = points * float(match[3]) / float(match[2])
    if format == "svg":
        return SIZE.sub(rf'\1 width="{width:g}mm" height="{height / POINTS:.3f}mm"', picture, count=1).encode()
    if format == "pdf":  # a pixel of the picture becomes a point of the page
        return vl_convert.svg_to_pdf(SIZE.sub(rf'\1 width="{points:.4f}" height="{height:.4f}"', picture, count=1))
    scale = points / 72 * DOTS / float(match[2])
    png = vl_convert.svg_to_png(picture, scale=scale, ppi=72)
    file = io.BytesIO()
    with Image.open(io.BytesIO(png)) as drawn:
        dots = drawn.width / (points / 72)  # the scaled picture is whole pixels: so it is exactly as wide as asked
        drawn.convert("RGB").save(file, "PNG", optimize=True, dpi=(dots, dots))
    return file.getvalue()


def for_print(spec: dict[str, Any], width: float) -> str:
    """The chart as SVG in its own pixels, whose words are LEAST_POINTS high once it is `width` millimetres wide.

    Curves of one higher than a sheet are flatter; where that is not enough, two panels stand in a row after all.
    """
    spec = with_whole_names(spec)
    picture = as_wide(spec, width)
    for factor in FLATTER:
        if width * ratio_of(picture) <= TALLEST:
            return picture
        picture = as_wide(flattened(spec, factor), width)
    if width * ratio_of(picture) > TALLEST:
        with suppress(UsageError):  # words of that size do not fit beside each other
            beside = fitted(spec, width, 2, CROWDED)
            return beside if beside is not None and ratio_of(beside) < ratio_of(picture) else picture
    return picture


def ratio_of(picture: str) -> float:
    match = SIZE.search(picture)
    assert match is not None
    return float(match[3]) / float(match[2])


def flattened(spec: dict[str, Any], factor: float) -> dict[str, Any]:
    made = {key: value if key == "datasets" else copy.deepcopy(value) for key, value in spec.items()}
    for panel in panels_of(made):
        width, height = panel.get("width"), panel.get("height")
        if isinstance(width, int | float) and isinstance(height, int | float) and not is_picture(panel):
            panel["height"] = round(max(factor * height, min(height, 0.45 * width)))
    return made


def is_picture(panel: dict[str, Any]) -> bool:
    marks = [layer.get("mark") for layer in layers_of(panel)]
    return any((mark.get("type") if isinstance(mark, dict) else mark) == "image" for mark in marks)


def as_wide(spec: dict[str, Any], width: float) -> str:
    most = max((len(part.get("concat", ())) for part in parts_of(spec)), default=1)
    picture = None
    for columns in range(max(1, min(most, 3)), 0, -1):
        picture = fitted(spec, width, columns, ROOMY if columns > 1 else math.inf)
        if picture is not None:
            break
    assert picture is not None  # one panel in a row takes words of any size
    return picture


def fitted(spec: dict[str, Any], width: float, columns: int, largest: float) -> str | None:
    """With at most so many panels in a row; None where its words would have more than `largest` pixels.

    Larger words make a wider chart, which is shrunk more. Its width grows about evenly with the words, so the secant of
    two drawings says where both agree; larger words only ever need still larger ones, so the first may end it.
    """
    tried: list[tuple[float, float]] = []
    font = START
    for _ in range(8):
        picture = vl_convert.vegalite_to_svg(dressed(spec, font, columns), allowed_base_urls=[])
        match = SIZE.search(picture)
        assert match is not None
        needed = LEAST_POINTS * float(match[2]) / (width * POINTS)
        if needed <= font <= needed * 1.08:
            return picture if font <= largest else None
        if font == START and needed > largest:
            return None
        tried.append((font, needed))
        font = 1.03 * needed
        if len(tried) > 1:
            (one, need), (other, more) = tried[-2:]
            slope = (more - need) / (other - one) if other != one else 0.0
            if 0 <= slope < 0.9:
                font = 1.03 * (more - slope * other) / (1 - slope)
    raise UsageError(f"A figure does not fit into {width:g} mm with words of {LEAST_POINTS:g} points; give a --width.")


def dressed(spec: dict[str, Any], font: float, columns: int) -> dict[str, Any]:
    """The specification with words of this many pixels, black, legends below, and few panels in a row."""
    made = copy.deepcopy(spec)
    made["config"] = enlarged(in_inks(INKS), font)
    below = {"anchor": "start", "direction": "vertical"}  # several legends one below the other
    made["config"]["legend"]["symbolSize"] *= (font / START) ** 2
    made["config"]["legend"] |= {"orient": "bottom", "columns": 2, "layout": {"bottom": below}}
    made["config"]["concat"] = {"spacing": round(1.6 * font)}
    made["config"]["axisXQuantitative"]["tickCount"] = 4
    made["config"]["axis"]["titlePadding"] = round(0.8 * font)
    room = columns * max(map(width_of, parts_of(made)))
    for part in parts_of(made):
        if "concat" in part:  # as many small panels as lie beside each other in the room of large ones
            beside = int(room // (max(width_of(panel) for panel in part["concat"]) + 3 * font))
            part["columns"] = max(1, min(part.get("columns", len(part["concat"])), max(columns, beside)))
        enlarged(part, font, inside=False)
    wrap_titles(made, font / TITLE)  # a title is as large as all words here
    thin_names(made, font / START)
    fit_references(made, font / START)
    return made


def enlarged(part: Any, font: float, *, inside: bool = True) -> Any:
    """Every size of words in a part of a specification set to `font`; with `inside`, in what it holds too."""
    if isinstance(part, list):
        for each in part:
            enlarged(each, font, inside=inside)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key in FONT_SIZES and isinstance(value, int | float):
                part[key] = font
            elif key in LIMITS and isinstance(value, int | float):
                part[key] = value * font / 11
            elif key in ("config", "datasets") and not inside:
                continue
            elif isinstance(value, dict | list) and key not in ("datasets", "concat", "layer"):
                enlarged(value, font, inside=inside)
    return part


def width_of(part: dict[str, Any]) -> float:
    """Pixels of the widest panel in a part, where they are stated."""
    inner = [width_of(each) for key in ("concat", "layer") for each in part.get(key, ())]
    own = part.get("width")
    return max([float(own) if isinstance(own, int | float) else 0.0, *inner])


def parts_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """A specification and all panels and layers in it."""
    found = [spec]
    for key in ("concat", "layer", "hconcat", "vconcat"):
        for part in spec.get(key, ()):
            found += parts_of(part)
    if isinstance(spec.get("spec"), dict):
        found += parts_of(spec["spec"])
    return found
