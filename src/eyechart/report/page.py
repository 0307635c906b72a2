"""The report: one HTML file made from a run folder alone, which no network is needed to read."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from eyechart.charts import theme
from eyechart.charts.numbers import count
from eyechart.claims.summary import summarise
from eyechart.measure import CHAPTERS
from eyechart.report.anatomy_drawing import drawings
from eyechart.report.embed import data_uri, deflated_javascript, javascript
from eyechart.report.explorer import explorer
from eyechart.report.highlights import highlights
from eyechart.report.precision import fewer_bits
from eyechart.report.provenance import provenance
from eyechart.report.sections import LARGEST_TABLE, section, tables
from eyechart.report.subject_rows import subject_row
from eyechart.report.tour import NOTES, tour
from eyechart.report.verdict_rows import references, rows
from eyechart.report.verdict_summary import of_weights, verdict_context
from eyechart.report.words import Language, Words, chart_words, language_of, script_words, translator

if TYPE_CHECKING:
    from eyechart.report.embed import EmbeddedChart
    from eyechart.run import Run

LARGEST = 10_000_000  # bytes of the page: what mail servers still take
MOST_PROBLEMS = 200
HERE = files("eyechart.report")
STYLES = ("page.css", "exam.css")
SCRIPTS = (
    *(
        "store.js",
        "languages.js",
        "few.js",
        "tooltips.js",
        "page.js",
        "clear_names.js",
        "looking.js",
        "fingers.js",
        "tour.js",
        "folds.js",
        "reading.js",
        "stills.js",
        "strips.js",
    ),
)
"""In the order in which they run: what the page knows, its language, whom its charts show, what these tell the pointer,
the charts, where names stand in them, what is marked in them, what a finger does to them, and how it is read."""
EXPLORER_SCRIPTS = ("likeness.js", "attention_rows.js", "attention_words.js", "attention_drawing.js", "explorer.js")


def write_report(
    run: Run,
    tour_first: bool = False,
    lang: str = "en",
    largest: int = LARGEST,
    drawn: Mapping[str, EmbeddedChart] = MappingProxyType({}),
) -> Path:
    """Draw the page of a run into its folder; with `tour_first` it opens as a tour of the papers, in `lang`.

    Charts that are `drawn` already, in that language, are taken as they are.
    """
    from eyechart.files import write_text

    language = language_of(lang)
    undrawn: list[str] = []
    path = write_text(run.path / "report.html", render(run, undrawn, tour_first, language, largest, drawn))
    for sentence in undrawn:
        run.notice(sentence)
    return path


def render(
    run: Run,
    undrawn: list[str] | None = None,
    tour_first: bool = False,
    language: Language = "en",
    largest: int = LARGEST,
    drawn: Mapping[str, EmbeddedChart] = MappingProxyType({}),
) -> str:
    """The page as HTML; one of more than `largest` bytes goes without second pictures, then without its largest tables,
    then all of them, then most of its explorer, then its live charts.

    A figure that cannot be drawn does not stop the others: it is named where it would stand, in the notices and, for
    the terminal, in `undrawn`.
    """
    plan, subjects = run.plan, run.scene.subjects

    def subject_label(name: str) -> dict[str, str]:
        return {"name": name, "colour": theme.subject_colour(name, subjects)}

    sections = [
        section(run, name, run.measures[name], subject_label, language, drawn.get(name)) for name in run.findings
    ]
    undrawn = [] if undrawn is None else undrawn
    undrawn += [
        f"The figure of {made['name']} could not be drawn ({made['undrawn']}); its numbers are on the page."
        for made in sections
        if made["undrawn"]
    ]
    verdict_rows = rows(run.verdicts, subject_label, list(run.findings))
    maps = explorer_context(run)
    scripts = [*map(text_of, SCRIPTS), *([maps["script"]] if maps else [])]
    shown = [made["chart"] for made in sections if made["chart"]]
    spoken = chart_words([part for chart in shown for part in (chart.spec, chart.written)], subjects)
    spoken |= script_words([*scripts, str(maps["data"]) if maps else ""])
    images = plan["images"]
    context = {
        "policy": content_policy([javascript(), *scripts]),
        "version": plan["eyechart"],
        "title": f"Eye exam of {', '.join(subjects)}",
        "icon": icon(),
        "subjects": [subject_label(entry["name"]) | subject_row(entry, run) for entry in plan["subjects"]],
        "images": images,
        "made": made_on(plan),
        "highlights": highlights(run, subject_label),
        "tour": tour(verdict_rows, list(run.findings)),
        "tour_first": tour_first,
        "notes_read": NOTES,
        "anatomy": drawings(run.scene.anatomies, subject_label),
        "chapters": chapters(sections, verdict_rows),
        "papers": papers_on_the_page(sections, verdict_rows),
        **verdict_context(verdict_rows, summarise(run.verdicts), of_weights(run)),
        "notices": [*plan["notices"], *fewer_bits(plan["settings"]["dtype"], run.findings), *undrawn],
        "problems": images["problems"][:MOST_PROBLEMS],
        "problem_count": len(images["problems"]),
        "references": references(
            run.verdicts, [source.paper for name in run.findings for source in run.measures[name].sources]
        ),
        "provenance": provenance(plan),
        "css": Markup("".join(map(text_of, STYLES)) + (maps["css"] if maps else "")),
        "explorer": maps,
        "charts": json_in_html(charts_data(sections) | {"words": spoken}),
        "pictures_in_both": True,
        "scripts": [Markup(script) for script in scripts],
    }
    say = translator([run.measures[name] for name in run.findings], subjects)

    def page(**other: Any) -> str:
        return filled(context | other, words=Words(say, language))

    def too_large(html: str) -> bool:
        return len(html.encode()) > largest

    html = page()
    if too_large(html):
        for made in sections:
            made["dark"] = None  # only seen on dark paper without JavaScript, where the light one lies on white
        context["charts"] = json_in_html(charts_data(sections) | {"words": spoken, "others": {}})  # the page says so
        context["pictures_in_both"] = False
        html = page()
    for largest_table in (LARGEST_TABLE // 10, LARGEST_TABLE // 50, 0):
        if too_large(html):
            for made in sections:
                made["files"] = tables(made["name"], run.findings[made["name"]], largest_table)
            html = page()
    if too_large(html) and maps:
        fits = len(maps["data"]) - (len(html.encode()) - largest)
        context["explorer"] = explorer_context(run, largest=fits)  # fewer pictures, at least one
        html = page()
    if too_large(html):
        html = page(charts=json_in_html(charts_data([]) | {"words": spoken}))  # pictures only, in one language
    return html


def text_of(name: str) -> str:
    return HERE.joinpath(name).read_text(encoding="utf-8")


def chapters(sections: Sequence[dict[str, Any]], verdict_rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sections under the questions they answer; each knows the kinds of verdicts that rest on it."""
    for made in sections:
        kinds = [row["kind"].slug for row in verdict_rows if row["section"] == made["id"]]
        made["kinds"] = list(dict.fromkeys(kinds))
    told = [
        {"id": f"chapter-{key}", "title": title, "sections": [made for made in sections if made["chapter"] == key]}
        for key, title in CHAPTERS.items()
    ]
    return [chapter for chapter in told if chapter["sections"]]


def papers_on_the_page(sections: Sequence[Mapping[str, Any]], verdict_rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that several things on the page come from: what a reader may want to see by itself."""
    named = [paper for made in (*sections, *verdict_rows) for paper in made["papers"]]
    return sorted({paper for paper in named if named.count(paper) > 1})


def explorer_context(run: Run, largest: int | None = None) -> dict[str, Any] | None:
    """The explorer's data, script and looks; None where no subject has attention maps."""
    data = explorer(run, largest)
    if data is None:
        return None
    css, script = text_of("explorer.css"), "".join(map(text_of, EXPLORER_SCRIPTS))
    return {"data": json_in_html(data), "images": data["images"], "script": script, "css": css}


def filled(context: Mapping[str, Any], template: str = "page.html", words: Words | None = None) -> str:
    """A template of this folder with everything in it escaped, unless it is marked as made here."""
    words = words or Words()
    loader = jinja2.FunctionLoader(text_of)
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, loader=loader)
    env.filters |= {"count": count, "both": words.both, "whole_options": whole_options}
    env.filters |= {"breaking": lambda name: Markup(breaking(str(escape(name))))}
    env.globals |= {"words": words, "attribute": words.attribute, "content": words.content}
    html = env.get_template(template).render(context)
    return html.encode("utf-8", "backslashreplace").decode("utf-8")  # half a character of a name is written out


TAG_OR_LONG_NAME = re.compile(r"<[^>]*>|[^\s<>]*[_@][^\s<>]{12,}|[^\s<>]{12,}[_@][^\s<>]*")


def whole_names(said: Markup) -> Markup:
    """Words in which a long name begins a line of its own where it does not fit, and breaks at its signs if it must.

    >>> whole_names(Markup("nearness in timm:vit_small_patch16_224@random; more"))
    Markup('nearness in <span class="name">timm:vit_<wbr>small_<wbr>patch16_<wbr>224<wbr>@random;</span> more')
    >>> whole_names(Markup('<bdi lang="en">of zoo:vit-gap and `a_b`</bdi>'))
    Markup('<bdi lang="en">of zoo:vit-gap and `a_b`</bdi>')
    >>> whole_names(Markup('<a href="#measure-attention_distance">there</a>'))
    Markup('<a href="#measure-attention_distance">there</a>')
    """

    def whole(met: re.Match[str]) -> str:
        return met[0] if met[0].startswith("<") else f'<span class="name">{breaking(met[0])}</span>'

    return Markup(TAG_OR_LONG_NAME.sub(whole, str(said)))


def breaking(name: str) -> str:
    """The HTML of a name that may be broken at its signs."""
    return name.replace("@", "<wbr>@").replace("_", "_<wbr>")


BRACKET_BEFORE_PARTICLE = re.compile(r"(?<=[\])%])(?=[가-힣])")
BOUND = re.compile(
    r"\b(than|least|most) (?=[−\d])|(?<=\d) (?=%|초과|이상|미만|이하)|(?<=\w) (?== \d)|(?<==) (?=\d)"
    r"|(?<=R²) (?=[−\d])|(?<=\d분의) (?=\d)|(?<=[\d\]]) (?=px\b)|\b(block|head|블록|헤드) (?=\d+(?!\.?\d))"
    r"|\b(Figures?|Figs?\.|Tables?|그림|표) (?=(?:[A-H]\.)?\d)"
)
INTERVAL = re.compile(r"\[([−+\d.,%\s]+), ([−+\d.,%\s]+)\]")
FORMULA = re.compile(r"\b(?:cos|softmax)\((?:[^()<>]|\([^()<>]*\))+\)|\|\w − \w\|²")
MINUS = re.compile(r"(?<=\S) − (?=\S)")
UNBROKEN = re.compile(
    r"--[a-z][\w-]*(?: (?:[a-z][\w=]{,23}|[A-Z]+)\b)?|\b(?=[\w:-]{,24}(?![\w:-]))[a-z]+:\w+-[\w-]+|softmax\([^\s()]+\)"
    r"|\b\d-D\b|\bg\d-[a-z][a-z-]*|(?<![\w.])(?:[A-H]\.)?\d[\d.]*–(?:[A-H]\.)?\d(?:[\d.]*\d)?(?:\u00a0%)?"
)
"""An option with its value; a softmax; the name of a subject with a hyphen, unless it is longer than a narrow line;
2-D; a gate; a range."""


def whole_options(said: Markup) -> Markup:
    """Words of the page in which no line ends within an option, the name of a subject, an interval, a range or a
    formula, beside the minus of a difference (at the beginning of a line it reads as a sign), before a per cent sign or
    pixels, between a bound, a block or a figure and its number or between a bracket and its Korean particle; commands
    look like commands.

    >>> whole_options(Markup("try --effort full, or `eyechart train`"))
    Markup('try <span class="option">--effort full</span>, or <code>eyechart train</code>')
    >>> whole_options(Markup("in zoo:vit-gap"))
    Markup('in <span class="option">zoo:vit-gap</span>')
    >>> whole_options(Markup("31 % [29 %, 33 %], and so on"))
    Markup('31\\xa0% [29\\xa0%,\\xa033\\xa0%], and so on')
    >>> whole_options(Markup("claimed: more than 0"))
    Markup('claimed: more than\\xa00')
    >>> whole_options(Markup("under PGD with ε = 1/255"))
    Markup('under PGD with ε\\xa0=\\xa01/255')
    >>> whole_options(Markup("with R² −0.08"))
    Markup('with R²\\xa0−0.08')
    >>> whole_options(Markup("거리(균등 = 1)"))
    Markup('거리(균등\\xa0=\\xa01)')
    >>> whole_options(Markup("head 2 of block 3 (12 [11, 13] px), block 0.45"))
    Markup('head\\xa02 of block\\xa03 (12 [11,\\xa013]\\xa0px), block 0.45')
    >>> whole_options(Markup("Figs. 7, E.1; Figures B.2; 그림 2"))
    Markup('Figs.\\xa07, E.1; Figures\\xa0B.2; 그림\\xa02')
    >>> whole_options(Markup("[0.1, 0.2]이다"))
    Markup('[0.1,\\xa00.2]\\u2060이다')
    >>> whole_options(Markup("by cos(z, z + f) there"))
    Markup('by cos(z,\\xa0z\\xa0+\\xa0f) there')
    >>> whole_options(Markup("softmax(X Xᵀ / √d)"))
    Markup('softmax(X\\xa0Xᵀ\\xa0/\\xa0√d)')
    >>> whole_options(Markup("1 − Σ|a − b|²"))
    Markup('1\\xa0−\\xa0Σ|a\\xa0−\\xa0b|\\u2060²')
    >>> for said in ("--measures NAME", "2-D", "zoo:a − zoo:b", "(g3-large)", "0.74–0.84보다", "D.1–D.3", "57–58 %"):
    ...     print(repr(str(whole_options(Markup(said)))))
    '<span class="option">--measures NAME</span>'
    '<span class="option">2-D</span>'
    'zoo:a\\xa0−\\xa0zoo:b'
    '(<span class="option">g3-large</span>)'
    '<span class="option">0.74–0.84</span>보다'
    '<span class="option">D.1–D.3</span>'
    '<span class="option">57–58\\xa0%</span>'
    >>> whole_options(Markup("in resnet18@random as well: swin_tiny_window7"))
    Markup('in resnet18@random as well: <span class="name">swin_<wbr>tiny_<wbr>window7</span>')
    """
    whole = INTERVAL.sub("[\\1,\u00a0\\2]", str(said))
    whole = FORMULA.sub(lambda match: match[0].replace(" ", "\u00a0").replace("|²", "|\u2060²"), whole)
    whole = BOUND.sub(lambda match: f"{match[1] or match[2] or match[3] or ''}\u00a0", whole)
    whole = MINUS.sub("\u00a0−\u00a0", whole)
    with_code = re.sub(r"`([^`<>]+)`", r"<code>\1</code>", whole)
    with_particles = BRACKET_BEFORE_PARTICLE.sub("\u2060", with_code)  # a word joiner, which has no width
    return whole_names(Markup(UNBROKEN.sub(r'<span class="option">\g<0></span>', with_particles)))


def content_policy(scripts: Sequence[str]) -> str:
    """Nothing may be fetched, and only these very scripts may run, whatever a subject or a file is called."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_in_html(data: object) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def icon() -> str:
    return data_uri(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 7 7"><rect x="-1" y="-1" width="7" height="7" rx="1.2" '
        'fill="#fff"/><path d="M0 0h5v1H1v1h4v1H1v1h4v1H0z" fill="#1f2328"/></svg>',
        "image/svg+xml",
    )


def made_on(plan: Mapping[str, Any]) -> dict[str, str]:
    moment = datetime.datetime.fromisoformat(plan["provenance"]["made"])
    return {"iso": moment.isoformat(), "words": f"{moment.day} {moment:%B %Y}"}


def charts_data(sections: list[dict[str, Any]]) -> dict[str, Any]:
    drawn = [made for made in sections if made["chart"] is not None]
    charts = {made["name"]: made["chart"].deflated for made in drawn}
    config = {"light": theme.configuration(), "dark": theme.configuration(dark=True)}
    others = {made["name"]: made["chart"].other for made in drawn if made["chart"].other}
    return {"charts": charts, "others": others, "config": config, "vega": deflated_javascript() if charts else ""}
