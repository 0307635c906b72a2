"""Where the name of a level dashed line stands in a small panel: at an end of it, above or below, clear of the curves.

All small panels of a figure had it at one place, where the curves of some subjects ran through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

LETTER, HIGH = 6.0, 11.0  # pixels of a letter of the name, and of its height
AWAY, BESIDE = 4, 2  # from its line, and from the end of the panel
POINT, STROKE = 5.0, 1.0  # half of a mark, and of a curve
STEPS = 20  # places on a piece of a curve that are looked at

Spot = tuple[float, float]
Layer = tuple[dict[str, Any], Sequence[Mapping[str, Any]]]


def stand_clear(panel: Mapping[str, Any], layers: Sequence[Layer], ratio: float = 1.0, *, or_not: bool = False) -> None:
    """Move the names of the level lines of a panel; `layers` are its marks, each with the rows that it draws.

    Words are `ratio` times as large as on the page. Where none of the places is clear, one has the fewest marks; or,
    if there may be no name (`or_not`), it is left out.
    """
    width, height = panel.get("width"), panel.get("height")
    if not isinstance(width, (int, float)) or not isinstance(height, (int, float)):
        return
    across, up = _pixels(layers, "x", width), _pixels(layers, "y", height)
    if across is None or up is None:
        return  # axes that Vega chooses
    curves = [(across(x), height - up(y), wide) for x, y, wide in _spots(layers)]
    for layer, rows in layers:
        if not rows or not _names_a_level_line(layer):
            continue
        mark = layer["mark"]
        line, long = height - up(rows[0]["reference"]), ratio * LETTER * len(str(rows[0]["text"]))

        def hidden(place: tuple[bool, bool], line: float = line, long: float = long) -> float:
            at_end, under = place
            left = width - BESIDE - long if at_end else BESIDE
            high = ratio * HIGH
            top = line + AWAY if under else line - AWAY - high
            if top < 0 or top + high > height:
                return math.inf
            return sum(
                STEPS if wide == POINT else 1  # a mark that is hidden is worse than a piece of a curve
                for x, y, wide in curves
                if -wide < x - left < long + wide and -wide < y - top < high + wide
            )

        own_end, own_under = mark["align"] == "right", mark["baseline"] == "top"
        places = product(
            (own_end, not own_end), (own_under, not own_under)
        )  # of equal ones where it stood is the first
        at_end, under = min(places, key=hidden)
        if or_not and hidden((at_end, under)):
            layer["encoding"]["text"] = {"value": ""}
        mark |= {"align": "right", "dx": -BESIDE} if at_end else {"align": "left", "dx": BESIDE}
        mark |= {"baseline": "top", "dy": AWAY} if under else {"baseline": "bottom", "dy": -AWAY}
        layer["encoding"]["x"] = {"value": "width" if at_end else 0}


def _names_a_level_line(layer: Mapping[str, Any]) -> bool:
    mark, at = layer.get("mark"), layer.get("encoding", {}).get("x", {}).get("value")
    if not isinstance(mark, dict) or mark.get("type") != "text" or at not in ("width", 0):
        return False
    beside = mark.get("baseline") in ("top", "bottom")  # in the middle: it stands beyond the panel
    return beside and str(mark.get("style", "")).startswith("reference")


def _pixels(layers: Sequence[Layer], axis: str, length: float) -> Callable[[float], float] | None:
    """Where a number lies on an axis whose ends are given."""
    scales = [layer.get("encoding", {}).get(axis, {}).get("scale") or {} for layer, _ in layers]
    scale: dict[str, Any] = next((each for each in scales if each.get("domain")), {})
    if len(scale.get("domain", ())) != 2 or scale.get("type", "linear") not in ("linear", "log"):
        return None
    bent: Callable[[float], float] = math.log if scale.get("type") == "log" else float
    low, high = (bent(end) for end in scale["domain"])
    padding = scale.get("padding", 0)
    return lambda value: padding + (bent(value) - low) / (high - low) * (length - 2 * padding)


def _spots(layers: Sequence[Layer]) -> Iterator[tuple[float, float, float]]:
    """Marks and places on the curves of a panel, in the numbers of its axes, and how far each reaches."""
    for layer, rows in layers:
        mark, encoding = layer.get("mark"), layer.get("encoding", {})
        x, y = (encoding.get(axis, {}).get("field") for axis in ("x", "y"))
        if (mark.get("type") if isinstance(mark, dict) else mark) not in ("line", "point") or not x or not y:
            continue
        apart = [
            place["field"] for name, place in encoding.items() if name in ("detail", "strokeDash") and "field" in place
        ]
        curves: dict[tuple[Any, ...], list[Spot]] = {}
        for row in rows:
            if isinstance(row.get(x), (int, float)) and isinstance(row.get(y), (int, float)):
                curves.setdefault(tuple(row.get(field) for field in apart), []).append((row[x], row[y]))
        for curve in curves.values():
            yield from ((*spot, POINT) for spot in curve)
            for one, other in pairwise(sorted(curve)):
                yield from ((*_between(one, other, step / STEPS), STROKE) for step in range(1, STEPS))


def _between(one: Spot, other: Spot, share: float) -> Spot:
    return one[0] + share * (other[0] - one[0]), one[1] + share * (other[1] - one[1])
