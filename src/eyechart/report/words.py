"""The words of the page in the languages it speaks: English, and what the catalogues say in Korean.

The page carries both and shows one: `<html lang>` decides, page.css hides the other, languages.js switches. Fixed words
are in `ko/`; a measure's words are in its room (`ko.toml` beside measure.py), those of claims beside the claim table.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from markupsafe import Markup, escape

from eyechart.claims.table import CLAIMS
from eyechart.errors import UsageError
from eyechart.report.translation import Translator

if TYPE_CHECKING:
    from eyechart.measure import Measure

Language = Literal["en", "ko"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
PAGES = ("page", "verdicts", "gates", "tour", "provenance", "comparison", "studies")
"""Files of `ko/` with the words of the templates and of the sentences made by this folder and by claims."""


def language_of(name: str) -> Language:
    for language in LANGUAGES:
        if language == name:
            return language
    raise UsageError(f"The page can open in {' or '.join(LANGUAGES)}; got {name!r}.")


def page_language(page: Path) -> str:
    """The language in which a page opens."""
    with page.open(encoding="utf-8") as file:
        match = re.search(r'<html lang="(\w+)"', file.read(1000))
    return match[1] if match else ""


def read(package: str, file: str) -> dict[str, Any]:
    found = files(package).joinpath(file)
    return tomllib.loads(found.read_text(encoding="utf-8")) if found.is_file() else {}


@cache
def page_words() -> dict[str, str]:
    """What every page may say, English to Korean."""
    said = {english: korean for name in PAGES for english, korean in read("eyechart.report", f"ko/{name}.toml").items()}
    said |= read("eyechart.claims", "ko.toml")
    return said | {claim.sentence: claim.korean for claim in CLAIMS.values() if claim.korean}


def room_words(measure: Measure) -> dict[str, str]:
    """What the section of a measure says; only its titles where its room has no ko.toml."""
    room = room_of(measure)
    explained = {quantity.name: quantity.explain for quantity in measure.quantities}
    said = {measure.title: measure.title_ko, measure.how_to_read: measure.how_to_read_ko}
    said |= {measure.method: room["method"]} if "method" in room else {}
    said |= {explained[name]: korean for name, korean in room.get("quantities", {}).items() if name in explained}
    return said | dict(room.get("sentences", {}))


def room_of(measure: Measure) -> dict[str, Any]:
    package = type(measure).__module__.rpartition(".")[0]
    return read(package, "ko.toml") if package.startswith("eyechart.measures.") else {}


@cache
def all_script_words() -> dict[str, str]:
    return {str(english): str(korean) for english, korean in read("eyechart.report", "ko/scripts.toml").items()}


def script_words(texts: Iterable[str]) -> dict[str, str]:
    """What the scripts of a page say, found in their texts."""
    together = "\n".join(texts)
    return {english: korean for english, korean in all_script_words().items() if english in together}


SPEAKING = ("title", "subtitle", "text")
"""Keys of a chart, and of the rows it draws words from, whose values are words."""


NAMES = re.compile(r"(\[.*\])(\[\w+\(datum\.value\)\])", re.DOTALL)
"""An expression that names places from a list: `["stem", "block 1"][floor(datum.value)]`; names may have two lines."""


def titles(spec: object) -> Iterator[str]:
    """What a chart says of itself: titles of panels, axes and tooltips, words in it, and what its legends name."""
    for key, value in spec.items() if isinstance(spec, dict) else enumerate(spec) if isinstance(spec, list) else ():
        if key in SPEAKING and isinstance(value, str | list):
            yield from [value] if isinstance(value, str) else map(str, value)
        elif key in ("domain", "sort") and isinstance(value, list):
            yield from (label for label in value if isinstance(label, str))
        elif key == "labelExpr" and (listed := NAMES.fullmatch(value)):
            yield from (word for name in json.loads(listed[1]) for word in ([name] if isinstance(name, str) else name))
        else:
            yield from titles(value)


def retitled(spec: Any, words: Mapping[str, str]) -> Any:
    """The chart in other words; page.js does the same to the live one."""
    if isinstance(spec, list):
        return [retitled(each, words) for each in spec]
    if not isinstance(spec, dict):
        return spec
    made: dict[str, Any] = {
        key: with_words(value, words) if key == "datasets" else retitled(value, words) for key, value in spec.items()
    }
    for key in set(SPEAKING) & set(made):
        value = made[key]
        if isinstance(value, str):
            made[key] = words.get(value, value)
        elif isinstance(value, list):
            made[key] = [words.get(line, line) if isinstance(line, str) else line for line in value]
    if listed := NAMES.fullmatch(str(made.get("labelExpr", ""))):
        made["labelExpr"] = json.dumps(renamed(json.loads(listed[1]), words)).replace("<", "\\u003c") + listed[2]
    if isinstance(made.get("scale"), dict):
        relabelled(made, made["scale"].get("domain"), "legend", words)
    for channel in {"x", "y"} & set(made.get("encoding", ())):
        place = made["encoding"][channel]
        relabelled(place, place.get("sort"), "axis", words)
    return made


def renamed(name: Any, words: Mapping[str, str]) -> Any:
    return [renamed(each, words) for each in name] if isinstance(name, list) else words.get(name, name)


def relabelled(place: dict[str, Any], labels: object, guide: str, words: Mapping[str, str]) -> None:
    """What the legend or the axis of an encoding names, in other words."""
    from eyechart.charts.theme import A_LINE_A_WORD

    said = {label: words[label] for label in labels if label in words} if isinstance(labels, list) else {}
    if said and place.get(guide, {}) is not None:
        otherwise = place.get(guide, {}).get("labelExpr", "datum.label")
        spelled = f"{json.dumps(said, ensure_ascii=False)}[datum.label]"
        said_so = f"{spelled} || ({otherwise})"
        if otherwise == A_LINE_A_WORD:  # of the other language, too
            said_so = A_LINE_A_WORD.replace("datum.label", f"{spelled} || datum.label")
        place[guide] = {**place.get(guide, {}), "labelExpr": said_so}


def with_words(datasets: Mapping[str, list[Any]], words: Mapping[str, str]) -> dict[str, list[Any]]:
    """The tables of a chart; of those whose rows hold words, with other ones. Tables of numbers may be long."""
    return {name: retitled(rows, words) if rows and "text" in rows[0] else rows for name, rows in datasets.items()}


def chart_words(specs: Iterable[object], names: Sequence[str]) -> dict[str, str]:
    """The titles that charts have, English to Korean; `names` of subjects and runs stay, whatever words they are."""
    say = Translator(read("eyechart.report", "ko/charts.toml"), names)
    said = {title: say(title) for spec in specs for title in titles(spec) if title not in names}
    return {title: korean for title, korean in said.items() if korean}


def translator(measures: Iterable[Measure], subjects: Sequence[str]) -> Translator:
    said: dict[str, str] = {}
    for measure in measures:
        said |= room_words(measure)
    return Translator(said | page_words(), subjects)


PER_CENT = re.compile(r"(?<=\d) %(?!\.?\w)")


def per_cent(text: Any) -> Any:
    """No line of a page ends before a per cent sign.

    >>> per_cent("95 % interval"), per_cent("vit@at 50 %.pth")
    ('95\\xa0% interval', 'vit@at 50 %.pth')
    """
    return PER_CENT.sub("\u00a0%", text) if type(text) is str else text


class Words:
    """What a template says with: `both` for text, `attribute` for what is read aloud, `content` where only text may be.

    Without a translator the page speaks English alone, as those of comparisons and studies do.
    """

    def __init__(self, say: Translator | None = None, language: Language = "en") -> None:
        self.say, self.language = say, language
        self.missing: dict[str, None] = {}
        """What is shown in English whatever the language, in the order of the page."""

    def korean(self, text: object) -> str | None:
        english = str(text)
        said = self.say(english) if self.say and any(map(str.isalpha, english)) else None
        if self.say and said is None and any(map(str.isalpha, english)):
            self.missing[english] = None
        return said

    def both(self, text: object) -> Markup:
        """Text in both languages, of which the page shows one."""
        said = self.korean(text)
        text, said = per_cent(text), said and per_cent(said)
        if said is None:
            return Markup('<bdi lang="en">{}</bdi>').format(text) if self.say and str(text) else escape(text)
        return Markup('<span lang="en">{}</span><span lang="ko">{}</span>').format(text, said)

    def chosen(self, text: object) -> tuple[str, str]:
        """The text in the language of the page, and in the other."""
        english, said = str(text), self.korean(text) or str(text)
        return (said, english) if self.language == "ko" else (english, said)

    def attribute(self, name: str, text: object) -> Markup:
        """An attribute; languages.js exchanges it with the other language's."""
        shown, other = self.chosen(text)
        if shown == other:
            return Markup('{}="{}"').format(name, shown)
        return Markup('{}="{}" data-other-{}="{}"').format(name, shown, name, other)

    def content(self, text: object) -> Markup:
        """The rest of a tag and the text in it, of an element that holds text alone: `<option{{ content("all") }}`."""
        shown, other = self.chosen(text)
        said = Markup(">{}").format(shown)
        return said if shown == other else Markup(' data-other-text="{}"').format(other) + said
