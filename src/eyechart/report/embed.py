"""What the page carries of each chart: a picture for paper and for readers without JavaScript, and the live chart.

The picture is laid out for a sheet (`charts/sheet.py`), in the language in which the page opens; a second one, in the
other language, takes its place once a reader has switched.

The live chart's tables travel as base64 columns, not as JSON rows: a CKA map of 130 sites is 0.2 MB instead of 2.7 MB.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import vl_convert
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from eyechart.charts import sheet, theme
from eyechart.charts.export import specification, svg_with_room
from eyechart.charts.palette import DARK, LIGHT, PALE_ON_DARK, PALE_ON_LIGHT, STAND_IN_PALENESS, STAND_INS, in_inks
from eyechart.report.words import chart_words, retitled

if TYPE_CHECKING:
    from eyechart.report.words import Language
    from eyechart.run import Run

#: Above this many rows single precision is enough for pixels and tooltips; below it, 0.1 may stay 0.1.
EXACT_ROWS = 2000

#: What Vega writes into an SVG for screen readers and pointers, which an image on a page has no use for.
SPARE = re.compile(
    r' (?:(?:class|role|aria-\w+|pointer-events)="[^"]*"'
    r'|(?:opacity="1"|text-anchor="start"|transform="translate\(0,0\)"|stroke-width="1")(?=[ />]))'
)
UNSTROKED = re.compile(r'(?<=^<path)(?!.* stroke=)(.*) stroke-width="[^"]*"')
RGB = re.compile(r'"rgb\((\d+), (\d+), (\d+)\)"')
EMPTY = re.compile(r'<path d="(?:M0,0h[\d.]+v[\d.]+h-?[\d.]+Z)?"(?: display="none")?/>')  # a panel's, without an ink
FONT, LETTERS = re.compile(r' font-family="[^"]*"'), re.compile(r' font-size="[^"]*"')
ROOM = {"left": 6, "top": 6, "right": 24, "bottom": 6}
BARE = {"aria": False, "background": "transparent", "padding": ROOM}
STOOD_IN = re.compile(rf'\b(fill|stroke)="({"|".join(STAND_INS)})"')
TAG = re.compile(r"""<\w+(?: [\w:-]+="[^"']*")*/?>""")
NUMBERED = re.compile(r'( id="|url\(#)(clip|gradient_)(\d+)')
PICTURE = re.compile(r'data:image/(?!svg)[^"\']+')
FINE = re.compile(r"(\d+\.\d\d)\d+(?![\de])")


@dataclass(frozen=True)
class EmbeddedChart:
    spec: dict[str, Any]
    """Vega-Lite without data and configuration: page.js adds both, light or dark."""
    tables: dict[str, dict[str, Any]]
    light: str
    dark: str
    """SVG pictures of the same chart, heat-maps as images."""
    width: int
    height: int
    subjects: frozenset[str] = frozenset()
    """Those whom it tells apart, by a column of its tables or by a panel of their own."""
    words: float = 1.0
    """How many times larger the words of its pictures are than those of the live chart."""
    paper: float = 0.0
    """Millimetres that the picture is wide on paper."""
    other: dict[str, Any] | None = None
    """The picture in the other language, deflated, with its sides and its width on paper."""

    def as_json(self) -> str:
        return json.dumps({**vars(self), "subjects": sorted(self.subjects)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> EmbeddedChart:
        read = json.loads(text)
        return cls(**{**read, "subjects": frozenset(read["subjects"])})

    @property
    def written(self) -> dict[str, list[str]]:
        """Words that it writes from its tables, and those that it tells the pointer."""
        names = {"text", *told_columns(self.spec)}
        columns = [table["columns"][name] for table in self.tables.values() for name in names & set(table["columns"])]
        return {"text": [word for column in columns for word in column.get("words", column.get("values", ())) if word]}

    @property
    def deflated(self) -> str:
        """The live chart as base64 of a zlib stream, a third of its JSON: page.js opens it when it is looked at."""
        chart = json.dumps({"spec": self.spec, "tables": self.tables}, separators=(",", ":"), allow_nan=False)
        return base64.b64encode(zlib.compress(chart.encode(), 9)).decode()


@contextmanager
def unchecked() -> Iterator[None]:
    """Altair neither checks every piece of every chart against a schema (a fifth of the page's time; the tests check
    each chart) nor copies what it will not change, and knows its own classes.
    """
    with debug_mode(False), theme.sharing_fixed_parts(), theme.classes_hashed_once():
        yield


def embed(run: Run, name: str, language: Language = "en") -> EmbeddedChart:
    """The picture speaks the language in which the page opens; the live chart is retitled by page.js."""
    subjects = run.scene.subjects
    with theme.drawing(subjects=subjects, for_export=True) as on_paper, unchecked():
        still = specification(run.chart(name), validate=False)
    words = chart_words([still], subjects)
    pair = [still, retitled(still, words)] if words else [still, still]
    shown, other = pair if language == "en" else reversed(pair)
    layout, picture = fitted_picture(shown)
    light, dark = with_inks(picture, LIGHT), with_inks(picture, DARK, PALE_ON_DARK)
    width, height = size_of(light)
    live = copy.deepcopy(still)
    if on_paper.heatmaps:
        with theme.drawing(subjects=subjects, for_export=False), unchecked():
            live = specification(run.chart(name), validate=False)
    for key in ("config", "$schema"):
        live.pop(key, None)
    tables = {key: packed(rows) for key, rows in live.pop("datasets", {}).items()}
    share_pictures(tables, light)
    of = told_apart(live, tables) & set(subjects)
    paper = layout.millimetres(width)
    in_other = in_the_other_language(other, layout, light) if words else None
    return EmbeddedChart(live, tables, light, dark, width, height, of, layout.words, paper, in_other)


def fitted_picture(spec: dict[str, Any]) -> tuple[sheet.Layout, str]:
    """How a chart is laid out on a sheet, and its picture so, in inks that stand in for those of light and dark."""
    drawn = [""]

    def width_drawn(part: dict[str, Any], layout: sheet.Layout) -> float:
        drawn[0] = svg_with_room(in_stand_ins(part, layout))
        return size_of(drawn[0])[0]

    layout = sheet.fitted(spec, width_drawn)
    return layout, smaller(drawn[0])


def in_the_other_language(spec: dict[str, Any], layout: sheet.Layout, still: str) -> dict[str, Any]:
    """The picture that stills.js puts in place of the still one, whose pictures it takes by their numbers there."""
    svg = svg_with_room(in_stand_ins(sheet.laid_out(spec, layout), layout))
    numbers = {uri: f"picture:{at}." for at, uri in enumerate(dict.fromkeys(PICTURE.findall(still)))}
    light = PICTURE.sub(lambda uri: numbers.get(uri[0], uri[0]), with_inks(smaller(svg), LIGHT))
    width, height = size_of(light)
    text = base64.b64encode(zlib.compress(light.encode(), 9)).decode()
    return {"svg": text, "width": width, "height": height, "paper": layout.millimetres(width)}


def share_pictures(tables: Mapping[str, dict[str, Any]], still: str) -> None:
    """What a live chart draws as pictures is in the still one, too: there page.js finds it, by its number.

    Half a megabyte of six subjects: maps of attention, fields and filters do not become smaller by any packing.

    >>> tables = {"maps": packed([{"url": "data:image/png;base64,AA=="}, {"url": "data:image/png;base64,BB=="}])}
    >>> share_pictures(tables, '<image href="data:image/png;base64,BB=="/>')
    >>> tables["maps"]["columns"]["url"]["words"]
    ['data:image/png;base64,AA==', 'picture:0']
    """
    numbers = {uri: f"picture:{at}" for at, uri in enumerate(dict.fromkeys(PICTURE.findall(still)))}
    for column in (table["columns"].get("url", {}) for table in tables.values()):
        for kind in {"words", "values"} & set(column):
            column[kind] = [numbers.get(uri, uri) for uri in column[kind]]


def told_apart(part: Any, tables: Mapping[str, Any]) -> frozenset[str]:
    """Names in the columns that page.js picks subjects by, and those that panels are marked with."""
    columns = [
        column
        for table in tables.values()
        for name, column in table["columns"].items()
        if name == "who" or name.endswith("subject")
    ]
    named = {word for column in columns for word in column.get("words", column.get("values", ())) if word}
    pending = [part]
    while pending:
        each = pending.pop()
        pending += each.get("concat", ())
        named.add(each.get("description"))
    return frozenset(map(str, named))


def told_columns(part: Any) -> Iterator[str]:
    """The columns of words in the tooltips of a chart."""
    if isinstance(part, dict) and isinstance(part.get("tooltip"), list):
        yield from (each["field"] for each in part["tooltip"] if each.get("type") == "nominal")
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from told_columns(inner)


def on_both_papers(spec: Mapping[str, Any]) -> tuple[str, str]:
    """The picture of a chart on light and on dark paper, drawn once: they differ in their inks only.

    Without marks' labels for screen readers: on the page the sentence beside it speaks.
    """
    picture = smaller(svg_with_room(in_stand_ins(spec)))
    return with_inks(picture, LIGHT), with_inks(picture, DARK, PALE_ON_DARK)


def in_stand_ins(spec: Mapping[str, Any], layout: sheet.Layout = sheet.AS_IT_IS) -> dict[str, Any]:
    return {**spec, "config": sheet.configured(in_inks(STAND_INS, STAND_IN_PALENESS), layout) | BARE}


def picture(spec: dict[str, Any], subjects: Sequence[str] = ()) -> dict[str, Any]:
    """A chart as pictures on light and dark paper, and laid out for a sheet where its words would be too small there;
    in Korean too where its words are known in it."""
    words = chart_words([spec], subjects)
    in_both = {"en": spec} | ({"ko": retitled(spec, words)} if words else {})
    made: dict[str, Any] = {"languages": {}}
    for language, each in in_both.items():
        papers = on_both_papers(each)
        uris = {paper: data_uri(svg, "image/svg+xml") for paper, svg in zip(("light", "dark"), papers, strict=True)}
        width, height = size_of(papers[0])
        layout, on_sheet = fitted_picture(each)
        fits = layout == sheet.AS_IT_IS
        uris["sheet"] = "" if fits else data_uri(with_inks(on_sheet, LIGHT), "image/svg+xml")
        paper = layout.millimetres(size_of(on_sheet)[0])
        made["languages"][language] = {**uris, "width": width, "height": height, "paper": paper}
    return made


def size_of(svg: str) -> tuple[int, int]:
    width, height = re.findall(r'<svg[^>]*? width="([\d.]+)" height="([\d.]+)"', svg)[0]
    return round(float(width)), round(float(height))


def with_inks(picture: str, inks: Sequence[str], paleness: Sequence[float] = PALE_ON_LIGHT) -> str:
    """
    >>> with_inks('<text fill="#01f203">#01f203</text><path opacity="0.181"/>', ["red"] * 5)
    '<text fill="red">#01f203</text><path opacity="0.18"/>'
    """
    put = dict(zip(STAND_INS, inks, strict=True))
    for stand_in, opacity in zip(STAND_IN_PALENESS, paleness, strict=True):
        picture = picture.replace(f' opacity="{stand_in}"', "" if opacity == 1 else f' opacity="{opacity}"')
    return STOOD_IN.sub(lambda match: f'{match[1]}="{put[match[2]]}"', picture)


def smaller(picture: str) -> str:
    """The same picture in half the bytes: no roles and classes, no thousandths of a pixel, the font named once.

    What it refers to is counted from 0, not on from the pictures that this process has drawn before.

    >>> smaller('<svg><path class="background" aria-hidden="true" d="M0.12345,-7h1.5" opacity="1"/></svg>')
    '<svg><path d="M0.12,-7h1.5"/></svg>'
    >>> smaller('<clipPath id="clip7"/><g clip-path="url(#clip7)"/>')
    '<clipPath id="clip0"/><g clip-path="url(#clip0)"/>'
    """
    fonts, letters = sorted(set(FONT.findall(picture))), LETTERS.findall(picture)
    named_once = len(fonts) == 1
    usual = max(sorted(set(letters)), key=letters.count, default="")  # of nearly all words
    numbers_here: dict[str, int] = {}

    def renumbered(name: re.Match[str]) -> str:
        return f"{name[1]}{name[2]}{numbers_here.setdefault(name[2] + name[3], len(numbers_here))}"

    def tag(match: re.Match[str]) -> str:
        kept = SPARE.sub("", match.group())
        kept = FONT.sub("", kept).replace(usual, "") if named_once else kept
        kept = re.sub(r' [xy]2="0"(?=[ />])', "", kept) if kept.startswith("<line ") else kept  # no gradient
        kept = UNSTROKED.sub(r"\1", kept)
        kept = NUMBERED.sub(renumbered, kept)
        kept = RGB.sub(lambda inks: '"#{:02x}{:02x}{:02x}"'.format(*map(int, inks.groups())), kept)
        return re.sub(r' (?:d|transform)="[^"]*"', lambda numbers: FINE.sub(r"\1", numbers.group()), kept)

    tidied = EMPTY.sub("", re.sub(r"<[a-z][^>]*>", tag, picture))  # tags only: words between them are the reader's
    return tidied.replace("<svg", f"<svg{fonts[0]}{usual}", 1) if named_once else tidied


def packed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as columns: numbers and codes of repeated words as base64 arrays in little-endian order.

    >>> packed([{"depth": 0, "kind": "conv"}, {"depth": 1, "kind": "conv"}])
    {'rows': 2, 'columns': {'depth': {'u1': 'AAE='}, 'kind': {'u1': 'AAA=', 'words': ['conv']}}}
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"rows": len(rows), "columns": {name: column([row.get(name) for row in rows]) for name in names}}


def column(values: Sequence[Any]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    if kinds <= {int}:
        return array(np.array(values, dtype=np.int64))
    if kinds <= {int, float, type(None)} and kinds != {type(None)}:
        numbers = np.array([np.nan if value is None else value for value in values], dtype=float)
        return array(numbers.astype("<f8" if len(numbers) <= EXACT_ROWS else "<f4"))
    if kinds <= {str}:
        words = {word: code for code, word in enumerate(dict.fromkeys(values))}
        return {**array(np.array([words[value] for value in values], dtype=np.int64)), "words": list(words)}
    return {"values": list(values)}


def array(numbers: np.ndarray) -> dict[str, str]:
    """{kind: base64}, the kind being the narrowest of page.js's that holds the numbers."""
    if numbers.dtype.kind == "i":
        low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
        fits = [kind for kind in ("<u1", "<u2", "<i4") if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
        numbers = numbers.astype(fits[0] if fits else "<f8")
    return {numbers.dtype.str.lstrip("<|"): base64.b64encode(numbers.tobytes()).decode()}


@cache
def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that defines `eyechartVega` and nothing else."""
    bundle = vl_convert.javascript_bundle("window.eyechartVega = { embed: vegaEmbed };")
    return "(() => {" + bundle + "})();"  # the bundle declares a thousand one-letter globals


@cache
def deflated_javascript() -> str:
    """The same as base64 of a zlib stream, less than half of it: page.js runs it when the first chart is near."""
    return base64.b64encode(zlib.compress(javascript().encode(), 9)).decode()


def svg_uri(picture: str) -> Markup:
    """A picture as the `src` of an image, a quarter smaller than as base64: only what would end the address or the
    attribute is written in another way. (A `srcset` ends at a space, so this is none.)

    >>> svg_uri('<text fill="#333">5 % of "a" &amp; b</text>')
    Markup("data:image/svg+xml,<text fill='%23333'>5 %25 of %22a%22 %26amp; b</text>")
    """
    single = TAG.sub(lambda tag: tag.group().replace('"', "'"), picture)
    return Markup("data:image/svg+xml,{}").format(Markup(re.sub(r'[%#"&\s]', in_address, single)))


def in_address(sign: re.Match[str]) -> str:
    return sign.group() if sign.group() == " " else "".join(f"%{byte:02X}" for byte in sign.group().encode())


def data_uri(content: str | bytes, kind: str) -> str:
    content = content.encode() if isinstance(content, str) else content
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
