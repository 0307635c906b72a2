"""Charts laid out for a sheet of paper, where the words of all figures have one size.

A chart of the page is as wide as its panels: shrunk to a sheet, words of a wide one were 4 points high. So the words of
its picture are larger, its legends stand below or fewer panels stand in a row, until they can be read.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eyechart.charts import small_multiples
from eyechart.charts.clear_names import stand_clear
from eyechart.charts.paper import FONT_SIZES, LIMITS, POINTS, START, parts_of, width_of
from eyechart.charts.whole_names import whole_title
from eyechart.charts.wrapping import fit_references, layers_of, panels_of, thin_names, wrap_titles

SHEET = 186.0  # millimetres between the margins of A4, as page.css sets them
TYPE, LEAST = 6.6, 6.2  # points of the smallest words of a figure: as they should be, and as they may
ROOM = SHEET * POINTS * START / TYPE  # pixels of a sheet, where words have START of them
AXIS = 70  # pixels that an axis takes beside its panel, about
SMALL_AXIS = 48  # the same of a small panel, whose upright axis has no title


@dataclass(frozen=True)
class Layout:
    words: float = 1.0
    """How many times larger they are than on the page."""
    columns: int | None = None
    """Panels in a row at most."""
    below: bool = False
    """Whether legends of symbols stand under the panels."""
    one_more: bool = False
    """Whether small panels are narrower, so that one more stands in a row where that saves a row."""

    def millimetres(self, width: float) -> float:
        """How wide a picture of so many pixels is printed."""
        return min(SHEET, width * TYPE / (START * self.words) / POINTS)


AS_IT_IS = Layout()


def fitted(spec: dict[str, Any], width_drawn: Callable[[dict[str, Any], Layout], float]) -> Layout:
    """How a chart is laid out; `width_drawn` draws it, with words so many times larger, and says how wide that is."""
    rows = [part for part in parts_of(spec) if "concat" in part]
    one_more = any(map(saves_a_row, rows))
    spec = arranged(spec, Layout(one_more=one_more))
    rows = [part for part in parts_of(spec) if "concat" in part]
    widest = max((min(part.get("columns", len(part["concat"])), len(part["concat"])) for part in rows), default=1)
    ways: list[tuple[int | None, bool, float]] = [(None, False, 1.3), (None, True, 1.5)]
    ways += [(columns, True, 1.5 if columns > 1 else math.inf) for columns in range(widest - 1, 0, -1)]
    for columns, below, largest in ways:
        plots, words = row_width(arranged(spec, Layout(1.0, columns, below))), 1.0
        if plots + AXIS * widest > ROOM:
            words = min(largest, max(1.0, (plots + AXIS * widest) / ROOM))
        for _ in range(5):
            layout = Layout(words, columns, below, one_more)
            width = width_drawn(laid_out(spec, layout), layout)
            if TYPE * words * ROOM / width >= LEAST and words <= max(1.0, 1.12 * width / ROOM):
                if words <= largest:
                    return layout
                break
            around = (width - plots) / words  # axes and legends are as wide as their words are large
            words = max(1.0, 1.01 * plots / (ROOM - around)) if around < 0.9 * ROOM else math.inf
            if words > largest:
                break
    return layout


def laid_out(spec: dict[str, Any], layout: Layout) -> dict[str, Any]:
    made = arranged(spec, layout)
    wrap_titles(made, layout.words)
    thin_names(made, layout.words)
    fit_references(made, layout.words)
    clear_names(made, layout.words)
    level_titles(made)
    larger: dict[str, Any] = scaled(made, layout.words)
    return larger


def clear_names(spec: dict[str, Any], ratio: float) -> None:
    """Names of level lines in small panels, clear of the curves once words are larger; left out where no place is."""
    tables = spec.get("datasets", {})

    def drawn(part: dict[str, Any], table: str | None) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        table = (part.get("data") or {}).get("name", table)
        if "layer" in part:
            return [mark for each in part["layer"] for mark in drawn(each, table)]
        asked = [each["filter"] for each in part.get("transform", ()) if isinstance(each.get("filter"), dict)]
        rows = tables.get(table or "", [])
        return [(part, [row for row in rows if all(row.get(each["field"]) == each.get("equal") for each in asked)])]

    def walk(part: dict[str, Any], table: str | None) -> None:
        table = (part.get("data") or {}).get("name", table)
        for each in part.get("concat", ()):
            walk(each, table)
        width = part.get("width")
        if "layer" in part and isinstance(width, int | float) and width <= small_multiples.WIDTH:
            stand_clear(part, drawn(part, table), ratio, or_not=True)

    walk(spec, None)


#: Not seen: a mark over the frame lifted the title of its panel above those beside it, so all have one there.
HEADROOM: dict[str, Any] = {
    "data": {"values": [{}]},
    "mark": {"type": "point", "size": 1, "opacity": 0, "aria": False},
    "encoding": {"x": {"value": 0}, "y": {"value": -8}},
}


def level_titles(spec: dict[str, Any]) -> None:
    """Titles of panels in a row at one height, as page.js has them."""
    for panel in panels_of(spec):
        if panel.get("title") and "layer" in panel:
            panel["layer"] = [*panel["layer"], HEADROOM]


def saves_a_row(part: dict[str, Any]) -> bool:
    """Whether small panels, three in a row, take a row less with four: the fourth of four subjects stood alone there,
    and every second page of a figure was half empty."""
    panels = part["concat"]
    if part.get("columns") != small_multiples.COLUMNS or any(
        each.get("width") != small_multiples.WIDTH for each in panels
    ):
        return False
    return math.ceil(len(panels) / (small_multiples.COLUMNS + 1)) < math.ceil(len(panels) / small_multiples.COLUMNS)


def with_one_more(part: dict[str, Any]) -> None:
    """Small panels made narrower, in place, so that one more stands in a row."""
    part["columns"] = small_multiples.COLUMNS + 1
    width = round(ROOM / part["columns"] - SMALL_AXIS)
    for panel in part["concat"]:
        panel["width"] = width
        if isinstance(panel.get("title"), dict):
            limit = width + SMALL_AXIS - 8
            panel["title"] |= {"text": whole_title(panel["title"]["text"], limit, 12), "limit": limit}


def arranged(spec: dict[str, Any], layout: Layout) -> dict[str, Any]:
    made = {key: value if key == "datasets" else copy.deepcopy(value) for key, value in spec.items()}
    if layout.one_more:
        for part in parts_of(made):
            if "concat" in part and saves_a_row(part):
                with_one_more(part)
    if layout.columns is not None:
        room = ROOM
        for part in parts_of(made):
            if "concat" in part:  # as many small panels as lie beside each other in the room of large ones
                beside = int(room // (max(map(row_width, part["concat"])) + AXIS))
                own = part.get("columns", len(part["concat"]))
                part["columns"] = max(1, min(own, max(layout.columns, beside)))
    if layout.below:
        for panel in panels_of(made):
            for layer in layers_of(panel):
                for channel in layer.get("encoding", {}).values():
                    bar = isinstance(channel, dict) and channel.get("type") == "quantitative"
                    if bar and channel.get("legend", 0) is not None and isinstance(channel.get("legend"), dict):
                        channel["legend"] = {"orient": "right", "direction": "vertical", **channel["legend"]}
    return made


def row_width(part: dict[str, Any]) -> float:
    """Pixels of the panels in the widest row, without their axes."""
    if "concat" not in part:
        return width_of(part) or 200.0
    widths = [row_width(each) for each in part["concat"]]
    many = min(part.get("columns", len(widths)), len(widths))
    return max(sum(widths[at : at + many]) for at in range(0, len(widths), many))


def scaled(part: Any, ratio: float) -> Any:
    """A specification or a configuration with all words so many times larger."""
    if isinstance(part, list):
        return [scaled(each, ratio) for each in part]
    if not isinstance(part, dict):
        return part
    made = {}
    for key, value in part.items():
        if key in FONT_SIZES | LIMITS and isinstance(value, int | float):
            made[key] = round(value * ratio, 2)
        else:
            made[key] = value if key == "datasets" else scaled(value, ratio)
    return made


def configured(config: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """The configuration of a chart with this layout."""
    made: dict[str, Any] = scaled(config, layout.words)
    made["legend"]["symbolSize"] *= layout.words**2
    if layout.below:
        under = {"anchor": "start", "direction": "vertical", "margin": 10}
        made["legend"] |= {"orient": "bottom", "direction": "horizontal", "columns": 4, "layout": {"bottom": under}}
    return made
