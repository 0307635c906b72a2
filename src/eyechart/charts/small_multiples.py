"""Curves of more than three subjects, each in a small panel of its own: six in one plot are a hairball.

Works on the Vega-Lite specification of any chart, so that no measure has to think of it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from eyechart.charts.clear_names import stand_clear

MOST_TOGETHER = 3  # subjects whose curves are told apart in one panel
WIDTH = 190  # pixels of a small panel
LEAST_HEIGHT = 150
COLUMNS = 3
SUBJECT_FIELDS = ("subject", "each_subject")
LETTER = 5.5  # pixels of a letter, about
NOTHING = "nothing"  # in place of a mark that is left out
LEGENDS = ("color", "fill", "shape", "stroke", "strokeDash", "size")


def apart(spec: dict[str, Any]) -> dict[str, Any]:
    """The same chart with every panel of many subjects' lines drawn as one small panel a subject, on common axes."""
    datasets = spec.get("datasets", {})
    inner = _walk({key: value for key, value in spec.items() if key not in ("datasets", "config", "$schema")}, datasets)
    return inner | {key: spec[key] for key in ("datasets", "config", "$schema") if key in spec}


def _walk(part: dict[str, Any], datasets: Mapping[str, Any], table: str | None = None) -> dict[str, Any]:
    table = (part.get("data") or {}).get("name", table)
    if "concat" not in part:
        field, subjects = _subjects_of_lines(part, table, datasets)
        return part if len(subjects) <= MOST_TOGETHER else _multiplied(part, field, subjects, table, datasets)
    inner = [_walk(each, datasets, table) for each in part["concat"]]
    changed = any("concat" in new and "concat" not in old for new, old in zip(inner, part["concat"], strict=True))
    if not changed:
        apart_inside = inner != part["concat"] and any(
            _is_coloured_by_subject(each, table, named=False) for each in inner
        )
        own = apart_inside and any(_is_coloured_by_subject(each, table) for each in inner)
        return {**part, "concat": inner} | ({"resolve": _with_own_colours(part.get("resolve", {}))} if own else {})
    # What fewer subjects have (a class token) gets panels of the same size: two of one row had different heights.
    for at, each in enumerate(inner):
        field, subjects = _subjects_of_lines(each, table, datasets) if "concat" not in each else ("", [])
        inner[at] = _multiplied(each, field, subjects, table, datasets) if subjects else each
    # Small panels need no legend; where panels of points share it with them, they would lose theirs.
    own = any("concat" not in each and _is_coloured_by_subject(each, table) for each in inner)
    resolve = {"resolve": _with_own_colours(part.get("resolve", {}))} if own else {}
    return {**part, "concat": inner, "columns": 1, **resolve}


def _is_coloured_by_subject(part: dict[str, Any], table: str | None, named: bool = True) -> bool:
    """Whether a panel, or one inside, tells subjects by colour and a legend names them; or, not `named`, none does."""
    if "concat" in part:
        return any(_is_coloured_by_subject(each, table, named) for each in part["concat"])
    colours = [layer.get("encoding", {}).get("color", {}) for layer, _ in _layers(part, table)]
    subjects = [each for each in colours if each.get("field") in SUBJECT_FIELDS]
    return any((each.get("legend", True) is not None) == named for each in subjects)


def _with_own_colours(resolve: Mapping[str, Any]) -> dict[str, Any]:
    return {**resolve, "scale": {**resolve.get("scale", {}), "color": "independent"}}


def _layers(part: dict[str, Any], table: str | None) -> list[tuple[dict[str, Any], str | None]]:
    """The marks of a panel, each with the name of the table it draws: its own, or that of what is around it."""
    table = (part.get("data") or {}).get("name", table)
    return [inner for each in part["layer"] for inner in _layers(each, table)] if "layer" in part else [(part, table)]


def _subjects_of_lines(part: dict[str, Any], around: str | None, datasets: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The field that tells subjects by colour in the lines of a panel, and the subjects; ("", []) if there are none."""
    for layer, table in _layers(part, around):
        mark = layer.get("mark")
        kind = mark.get("type") if isinstance(mark, dict) else mark
        field, rows = layer.get("encoding", {}).get("color", {}).get("field"), datasets.get(table or "", [])
        if kind == "line" and field in SUBJECT_FIELDS and rows and field in rows[0]:
            return field, list(dict.fromkeys(str(row[field]) for row in rows))
    return "", []


def _multiplied(
    part: dict[str, Any], field: str, subjects: Sequence[str], around: str | None, datasets: Mapping[str, Any]
) -> dict[str, Any]:
    """One copy of a panel for each subject, with that subject's rows, under the title of the panel."""
    panels = []
    up: Any = None
    dashed: list[str] = []
    for subject in subjects:
        panel = copy.deepcopy({key: value for key, value in part.items() if key != "title"})
        ratio = WIDTH / part["width"] if isinstance(part.get("width"), (int, float)) else 1.0
        panel["width"] = WIDTH
        if isinstance(part.get("height"), (int, float)):
            panel["height"] = max(LEAST_HEIGHT, round(part["height"] * min(1.0, ratio)))
        for layer, table in _layers(panel, around):
            rows = datasets.get(table or "", [])
            if rows and field in rows[0]:
                own = {"filter": {"field": field, "equal": subject}}
                layer["transform"] = [own, *layer.get("transform", [])]
            encoding = layer.get("encoding", {})
            if rows and field in rows[0] and not _has_values(encoding, [r for r in rows if str(r[field]) == subject]):
                layer["mark"] = NOTHING  # Vega complains about an axis over no number at all
            if encoding.get("color", {}).get("field") == field:
                encoding["color"]["legend"] = None
            if encoding.get("y", {}).get("title"):
                up = up or encoding["y"]["title"]
                encoding["y"]["title"] = None  # too long for a small panel: it stands above all of them
            if long := _long_names(layer, rows):
                dashed += [name for name in long if name not in dashed]
                layer["mark"] = layer["mark"] if layer["mark"]["style"] == "reference" else NOTHING
        stand_clear(
            panel, [(layer, _rows_of(subject, table, field, datasets)) for layer, table in _layers(panel, around)]
        )
        _prune(panel)
        panel["title"] = {"text": subject, "fontSize": 12, "limit": WIDTH + 40}
        panels.append(panel)
    together = dict.fromkeys(("x", "y", *LEGENDS), "shared")
    made = {"concat": panels, "columns": COLUMNS, "resolve": {"scale": together}}
    return made | _title(part.get("title"), up, [f"dashed: {name}" for name in dashed])


def _rows_of(subject: str, table: str | None, field: str, datasets: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in datasets.get(table or "", []) if str(row.get(field, subject)) == subject]


def _title(own: Any, up: Any, dashed: Sequence[str] = ()) -> dict[str, Any]:
    """The title of all panels, with what their upright axes and their dashed lines show below it."""
    words = own if isinstance(own, dict) else {"text": own}
    more = [*_lines(up), *dashed]
    if not more:
        return {"title": own} if own else {}
    if not words["text"]:
        plain = {"text": more[0], "fontSize": 12, "fontWeight": "normal"}
        return {"title": plain | ({"subtitle": more[1:]} if more[1:] else {})}
    return {"title": {**words, "subtitle": [*_lines(words.get("subtitle")), *more]}}


def _lines(words: Any) -> list[str]:
    return [] if not words else [words] if isinstance(words, str) else list(words)


def _long_names(layer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of reference lines that a small panel has no room for: it keeps the line, whose name stands above."""
    mark = layer.get("mark")
    if not isinstance(mark, dict) or not str(mark.get("style", "")).startswith("reference"):
        return []
    names = [str(row.get("text", "")) for row in rows]
    return [name for name in names if len(name) * LETTER > 0.5 * WIDTH]


def _has_values(encoding: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a subject has any number where a layer wants one."""
    wanted = [encoding.get(channel, {}) for channel in ("x", "y")]
    fields = [each["field"] for each in wanted if each.get("type") == "quantitative" and "field" in each]
    return all(any(row.get(field) is not None for row in rows) for field in fields)


def _prune(part: dict[str, Any]) -> None:
    """Take away the layers that draw nothing."""
    for each in part.get("layer", []):
        _prune(each)
    if "layer" in part:
        part["layer"] = [each for each in part["layer"] if each.get("mark") != NOTHING and each.get("layer") != []]
