"""Charts as Vega-Lite JSON, and as pictures for papers and slides: PNG, SVG or PDF, drawn without a browser."""

from __future__ import annotations

import io
import re
from typing import Any

import altair as alt
import vl_convert
from PIL import Image

from eyechart.charts.paper import FONT_SIZES, LIMITS
from eyechart.charts.small_multiples import apart
from eyechart.charts.whole_names import with_whole_names
from eyechart.charts.wrapping import WIDEST
from eyechart.errors import UsageError
from eyechart.phrases import UNPRINTABLE, printable

FORMATS = ("png", "svg", "pdf")
FONT_SIZE = re.compile(r'(?<= font-size=")[\d.]+(?=px")')


def specification(chart: Any, validate: bool = True) -> dict[str, Any]:
    """A chart as Vega-Lite JSON, however long its tables are, with the data beside the marks."""
    with alt.data_transformers.enable("default", max_rows=None, consolidate_datasets=True):
        spec: dict[str, Any] = without_controls(chart.to_dict(validate=validate))
    return apart(spec)


def without_controls(thing: Any) -> Any:
    """The same with every text printable: a control character in a name makes vl-convert end the whole process."""
    if isinstance(thing, str):
        return printable(thing) if UNPRINTABLE.search(thing) else thing
    if isinstance(thing, dict):
        return {key: without_controls(value) for key, value in thing.items()}
    return [without_controls(value) for value in thing] if isinstance(thing, list) else thing


def picture_of(spec: dict[str, Any], format: str = "png", scale: float = 2) -> bytes:
    """A specification as a file of this format; `scale` multiplies a PNG's pixels."""
    if format != "svg":
        spec = with_whole_names(spec)
    if format == "png":
        return smaller_png(vl_convert.vegalite_to_png(spec, scale=scale, ppi=72, allowed_base_urls=[]), scale)
    if format == "svg":
        return svg_with_room(spec).encode()
    if format == "pdf":
        return vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    raise UsageError(f"Figures can be {', '.join(FORMATS)}; got {format!r}.")


def svg_with_room(spec: dict[str, Any]) -> str:
    """An SVG, whose words whoever looks at it sees in a font of theirs."""
    sizes: dict[str, str] = {}
    drawn = vl_convert.vegalite_to_svg(measured_wide(with_whole_names(spec), sizes), allowed_base_urls=[])
    return FONT_SIZE.sub(lambda size: sizes.get(size.group(), size.group()), drawn)


def measured_wide(part: Any, sizes: dict[str, str]) -> Any:
    """The chart with words of the widest font's room; `sizes` gets what they are to be drawn in.

    >>> sizes = {}
    >>> measured_wide({"title": {"text": "CKA", "fontSize": 13, "limit": 100}, "datasets": {"fontSize": 1}}, sizes)
    {'title': {'text': 'CKA', 'fontSize': 15.08, 'limit': 116.0}, 'datasets': {'fontSize': 1}}
    >>> sizes
    {'15.08': '13'}
    """
    if isinstance(part, list):
        return [measured_wide(each, sizes) for each in part]
    if not isinstance(part, dict):
        return part
    made = {}
    for key, value in part.items():
        if key in LIMITS and isinstance(value, int | float):  # no more words are cut than would be in Helvetica
            made[key] = round(value * WIDEST, 2)
        elif key in FONT_SIZES and isinstance(value, int | float):
            made[key] = round(value * WIDEST, 2)
            sizes[f"{made[key]:g}"] = f"{value:g}"
        else:
            made[key] = value if key == "datasets" else measured_wide(value, sizes)
    return made


def smaller_png(png: bytes, scale: float) -> bytes:
    """The same picture in a third of the bytes, with its true size on paper: vl-convert packs loosely."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").save(file, "PNG", optimize=True, dpi=(72 * scale, 72 * scale))
    return file.getvalue()
