"""The anatomy of each subject as a drawing: its stages with their grids, the blocks in them, what each block adds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from eyechart.charts.theme import KIND_MARKS

if TYPE_CHECKING:
    from eyechart.sites import Anatomy, Site

WORDS = {"mlp": "MLP", "conv": "convolution", "mixer": "mixer", "pool": "pooling"}
#: Marks of the charts, as outlines in a square of 10.
OUTLINES = {
    "circle": "M5 1.5a3.5 3.5 0 1 0 .01 0z",
    "square": "M2 2h6v6h-6z",
    "diamond": "M5 .8 9.2 5 5 9.2.8 5z",
    "triangle-up": "M5 1 9 8.5H1z",
    "triangle-down": "M5 9 1 1.5h8z",
    "cross": "M3.7 1h2.6v2.7H9v2.6H6.3V9H3.7V6.3H1V3.7h2.7z",
}


def drawings(anatomies: Iterable[Anatomy], label_of: Callable[[str], Mapping[str, str]]) -> dict[str, Any]:
    """All that the template draws: a row a subject, and a key to the marks that occur."""
    rows: list[dict[str, Any]] = [
        {"subject": label_of(anatomy.subject), "stages": stages(anatomy)} for anatomy in anatomies
    ]
    boxes = [box for row in rows for stage in row["stages"] for box in stage["layers"]]
    met = {mark["kind"] for box in boxes for mark in box["marks"]}
    key = [mark_of(kind) for kind in KIND_MARKS if kind in met]
    bare = any(not box["marks"] and box["short"] != "stem" for box in boxes)
    return {"rows": [row for row in rows if row["stages"]], "key": key, "bare": bare}


def stages(anatomy: Anatomy) -> list[dict[str, Any]]:
    """Stem and blocks, those of one grid together."""
    places = [*anatomy.pick("stem"), *anatomy.pick("block")]
    return [
        {"grid": f"{grid[0]}×{grid[1]}" if grid else "no grid", "layers": [layer(anatomy, place) for place in together]}
        for (_, grid), together in itertools.groupby(places, key=lambda place: (place.stage, place.grid))
    ]


def layer(anatomy: Anatomy, place: Site) -> dict[str, Any]:
    """A block with what its junctions add, lowest first; what a pointer and a screen reader are told of it."""
    name = anatomy.words(place)
    if place.role == "stem":
        return {"name": name, "short": "stem", "marks": [], "said": f"{name}, {place.channels} channels"}
    inside = [site for site in anatomy.sites if site.block == place.block]
    added = [site.kind for site in inside if site.role == "junction"]
    looks = [attention_words(site) for site in inside if site.role == "attention"]
    words = [WORDS.get(kind, kind) for kind in added if kind != "attention" or not looks]
    said = f"{name}: {', then '.join([*looks, *words]) or 'no residual addition'}; {place.channels} channels"
    number = name.removeprefix("block ")
    short = number if number.isdigit() else ""
    return {"name": name, "short": short, "marks": [mark_of(kind) for kind in added], "said": said}


def attention_words(site: Site) -> str:
    heads = f" of {site.heads} heads" if site.heads else ""
    window = site.attention.window if site.attention is not None else None
    reach = f" in windows of {window[0]}×{window[1]}" if window else ""
    return f"attention{heads}{reach}"


def mark_of(kind: str) -> dict[str, str]:
    fill, shape = KIND_MARKS.get(kind, KIND_MARKS["other"])
    return {"kind": kind, "words": WORDS.get(kind, kind), "fill": fill, "outline": OUTLINES[shape]}
