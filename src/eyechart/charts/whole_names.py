"""Names are shown whole: where a legend, an axis or a title would cut one with "…", it takes more lines.

Works on the Vega-Lite specification of any chart, once its words are in their language. page.js does it for the room
and the font of the reader.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from eyechart.charts.wrapping import WIDEST, ems

LEGEND_ROOM, AXIS_ROOM = 220, 150  # pixels, as palette.configuration has them
AXIS_TITLE = 13.5  # pixels of their type, and some: the reader's may be wide
LETTER = 0.53  # of the size of the type: the width of a letter of a name, about
LEGENDS = ("color", "fill", "shape", "stroke", "strokeDash")
SIGNS = re.compile(r"(?<=[-_/:. ])|(?=@)")


def with_whole_names(spec: dict[str, Any]) -> dict[str, Any]:
    """The same chart, with its data shared."""
    rows = spec.get("datasets", {})
    made: dict[str, Any] = copy.deepcopy({key: value for key, value in spec.items() if key != "datasets"})
    _walk(made, rows, None)
    return made | {"datasets": rows} if rows else made


def in_lines(name: str, letters: int) -> list[str]:
    """A name in lines of so many letters, broken at its signs; within a word that is longer by itself.

    >>> in_lines("vit_small_patch16_224@random", 12), in_lines("abcdefgh", 5)
    (['vit_small_', 'patch16_224', '@random'], ['abcde', 'fgh'])
    """
    pieces = [piece for piece in SIGNS.split(name) if piece]
    parts = [piece[at : at + letters] for piece in pieces for at in range(0, len(piece), letters)]
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > letters:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _walk(
    part: dict[str, Any], datasets: Mapping[str, Any], table: str | None, without: Collection[str] = frozenset()
) -> None:
    """`without`: the channels of which a layer of this panel wants no legend, so that no other may ask for one."""
    table = (part.get("data") or {}).get("name", table)
    without = {*without, *_without_legend(part)}
    title = part.get("title")
    if isinstance(title, dict) and "limit" in title:
        title["text"] = whole_title(title["text"], title["limit"], title.get("fontSize", 13))
        if title.get("subtitle"):
            title["subtitle"] = whole_title(title["subtitle"], title["limit"], 11)
    encoding = part.get("encoding", {})
    for channel, place in ((channel, encoding[channel]) for channel in ("x", "y", *LEGENDS) if channel in encoding):
        if channel in ("x", "y") and "titleLimit" in (axis := place.get("axis") or {}):
            axis["title"] = whole_title(axis.get("title") or "", axis["titleLimit"], AXIS_TITLE) or None
        if channel in LEGENDS and channel not in without:
            _name(place, "legend", (place.get("scale") or {}).get("domain"), LEGEND_ROOM)
        elif channel in ("x", "y") and place.get("type") == "nominal" and place.get("axis", {}) is not None:
            rows = datasets.get(table or "", [])
            _name(place, "axis", dict.fromkeys(row.get(place.get("field")) for row in rows), AXIS_ROOM)
    for each in part.get("concat", ()):
        _walk(each, datasets, table)
    for each in part.get("layer", ()):
        _walk(each, datasets, table, without)


def _without_legend(part: Mapping[str, Any]) -> set[str]:
    encoding = part.get("encoding", {})
    own = {channel for channel in LEGENDS if encoding.get(channel, {}).get("legend", {}) is None}
    return own.union(*map(_without_legend, part.get("layer", ())))


def whole_title(text: Any, limit: float, size: float) -> Any:
    """A title in as many lines as show it whole in so many pixels.

    >>> whole_title("zoo:vit", 160, 12), whole_title("a_model_with_a_name_of_forty_letters", 160, 12)
    ('zoo:vit', ['a_model_with_a_name_of_', 'forty_letters'])
    """
    letters = int(limit / (LETTER * size))
    lines = [text] if isinstance(text, str) else list(text)
    fit = {line: len(line) <= letters or ems(line) * size <= WIDEST * limit for line in lines}
    made = [piece for line in lines for piece in ([line] if fit[line] else in_lines(line, letters))]
    return text if made == lines else made


def _name(place: dict[str, Any], guide: str, names: Iterable[Any] | None, room: float) -> None:
    """Give the legend or the axis an expression that breaks its long names."""
    own: Mapping[str, Any] = place.get(guide) or {}
    letters = int(own.get("labelLimit", room) / (LETTER * own.get("labelFontSize", 11)))
    words: Sequence[str] = [name for name in names or () if isinstance(name, str)]
    long = {name: in_lines(name, letters) for name in words if len(name) > letters}
    if long and "labelExpr" not in own:
        spelled = json.dumps(long).replace("<", "\\u003c")
        place[guide] = {**own, "labelExpr": f"{spelled}[datum.label] || datum.label"}
