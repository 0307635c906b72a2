"""Titles of axes and panels in as many lines as they need where words have become large or panels small."""

from __future__ import annotations

import math
import re
from typing import Any

#: Widths of letters in ems, about those of DejaVu Sans, the widest of usual fonts: what fits in it fits in all.
NARROW, WIDE, CAPITAL = set("iljtfr.,:;|!'()[] "), set("mwMW%@"), re.compile("[A-Z0-9]")
#: Words are measured in Helvetica and shown in what the reader has. In DejaVu Sans, the widest of usual fonts, they are
#: this much longer: names ran under the titles of their axes, and into the next name of a legend.
WIDEST = 1.16
TITLE, AXIS, SMALL = 13.0, 12.0, 11.0
"""Pixels of their words on the page."""


def ems(words: str) -> float:
    """About how wide words are, in sizes of their font.

    >>> ems("block 3") < ems("depth (input)") < ems("블록블록블록블록블록")
    True
    """
    return sum(map(em, words))


def em(letter: str) -> float:
    if letter in NARROW:
        return 0.36
    if letter in WIDE or (letter > "\u1100" and letter.isalpha()):
        return 0.95
    return 0.66 if CAPITAL.match(letter) else 0.6


def lines_of(words: Any, font: float, room: float) -> Any:
    """The same words, in even lines that fit into so many pixels where they can.

    >>> lines_of("length of skip / length of branch", 12, 130)
    ['length of skip /', 'length of branch']
    >>> lines_of("depth", 12, 130)
    'depth'
    """
    if isinstance(words, list):
        split = [lines_of(line, font, room) for line in words]
        return [line for each in split for line in (each if isinstance(each, list) else [each])]
    if not isinstance(words, str) or ems(words) * font <= room:
        return words
    lines = broken(words, font, room)
    for fewer in range(99, 0, -3):  # evenly: the last word would stand alone
        even = broken(words, font, room * fewer / 100)
        if len(even) > len(lines) or max(ems(line) for line in even) * font > room:
            break
        lines = even
    return lines if len(lines) > 1 else words


def in_one_if_it_fits(lines: list[str], room: float, font: float = TITLE) -> list[str]:
    """Lines of a title as one, where that is no wider than so many pixels.

    >>> in_one_if_it_fits(["vit", "× resnet"], 250), in_one_if_it_fits(["a" * 40, "× resnet"], 250)[1:]
    (['vit × resnet'], ['× resnet'])
    """
    whole = " ".join(lines)
    return [whole] if ems(whole) * font <= room else lines


def broken(words: str, font: float, room: float) -> list[str]:
    lines: list[str] = []
    for word in re.split("(?<!×) ", words):  # a line begins with the sign between two subjects, and ends with none
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and ems(longer) * font <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def wrap_titles(part: dict[str, Any], ratio: float) -> None:
    """Every title in a specification whose words are `ratio` times as large as on the page, in place."""
    for each in panels_of(part):
        width, height = (side if isinstance(side := each.get(name), int | float) else 0 for name in ("width", "height"))
        if width:
            wrap_heading(each, ratio, width)
        for layer in layers_of(each):
            for channel, room in (("x", width + 24), ("y", height)):
                place = layer.get("encoding", {}).get(channel, {})
                for named in (place, place.get("axis") or {}):
                    if named.get("title") and room > 24:
                        named["title"] = lines_of(named["title"], AXIS * ratio, max(room, 60))
                        named.pop("titleLimit", None)


def wrap_heading(panel: dict[str, Any], ratio: float, width: float) -> None:
    title, room = panel.get("title"), max(width + 20, 100)
    if isinstance(title, str | list):
        panel["title"] = lines_of(title, TITLE * ratio, room)
    elif isinstance(title, dict):
        wrapped = {**title, "text": lines_of(title.get("text"), TITLE * ratio, room)}
        under = title.get("subtitle")
        if under:
            wrapped["subtitle"] = lines_of([under] if isinstance(under, str) else under, SMALL * ratio, room)
        panel["title"] = wrapped


def thin_names(part: dict[str, Any], ratio: float) -> None:
    """Along a map whose names are told to stand at every cell, only as many as fit once words are larger, in place."""
    for each in panels_of(part):
        for layer in layers_of(each):
            for channel, side, needed in (("x", "width", 24.0), ("y", "height", 14.0)):
                place, room = layer.get("encoding", {}).get(channel, {}), each.get(side)
                axis, domain = place.get("axis") or {}, (place.get("scale") or {}).get("domain")
                if isinstance(domain, dict):  # as far as another run reaches
                    domain = domain.get("unionWith")
                values = axis.get("values") or []
                slanted = channel == "y" or axis.get("labelAngle")
                if axis.get("labelOverlap") is not False or not domain or len(values) < 2 or not slanted:
                    continue
                if not isinstance(room, int | float) or axis.get("orient") == "top":
                    continue
                apart = room * (values[1] - values[0]) / (domain[-1] - domain[0])
                every = math.ceil(needed * ratio / apart) if apart > 0 else 1
                axis["values"] = values[::every]


def fit_references(spec: dict[str, Any], ratio: float) -> None:
    """The name of a dashed line is left out, in place, where it would cross its panel; how to read it says it too."""
    tables = spec.get("datasets", {})
    pending: list[tuple[dict[str, Any], str | None, float]] = [(spec, None, 0.0)]
    while pending:
        part, table, width = pending.pop()
        table = (part.get("data") or {}).get("name", table)
        width = float(part["width"]) if isinstance(part.get("width"), int | float) else width
        pending += [(each, table, width) for key in ("concat", "layer") for each in part.get(key, ())]
        mark = part.get("mark")
        if not isinstance(mark, dict) or not str(mark.get("style")).startswith("reference-"):
            continue
        longest = max((ems(str(row.get("text", ""))) for row in tables.get(table or "", ())), default=0.0)
        room = (0.55 if "field" in part["encoding"].get("x", {}) else 0.75) * width
        if mark.get("baseline") != "middle" and width and longest * SMALL * ratio > room:
            part["encoding"] = {**part["encoding"], "text": {"value": ""}}


def panels_of(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels in a specification that hold no others."""
    inner = [panel for each in part.get("concat", ()) for panel in panels_of(each)]
    return inner if "concat" in part else [part]


def layers_of(panel: dict[str, Any]) -> list[dict[str, Any]]:
    return [layer for each in panel["layer"] for layer in layers_of(each)] if "layer" in panel else [panel]
