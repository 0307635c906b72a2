"""Verdicts as rows of the page, with the geometry of each small picture: interval against margin."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from eyechart.charts.numbers import is_number, number, with_span
from eyechart.claims.parts import exactly
from eyechart.claims.table import CLAIMS, SOURCES
from eyechart.claims.wording import IN_QUESTION

if TYPE_CHECKING:
    from eyechart.claims.table import Claim
    from eyechart.claims.verdict import PartVerdict, Verdict

WIDTH = 240.0
CLEAREST = 1e6  # what an interval without width sorts as
LETTER = 6.0  # about the width of a digit under the scale, to keep labels apart


@dataclass(frozen=True)
class Kind:
    word: str
    slug: str
    sign: str


KINDS = {
    "holds": Kind("holds", "holds", "✓"),
    "fails": Kind("fails", "fails", "✕"),
    "undecided": Kind("undecided", "undecided", "?"),
    "not tested": Kind("not tested", "not-tested", "–"),
}

WHERE = {
    "holds": "The whole interval lies where the claim says.",
    "fails": "No part of the interval lies where the claim says.",
}


def rows(
    verdicts: Sequence[Verdict], label_of: Callable[[str], Any], measures: Collection[str]
) -> list[dict[str, Any]]:
    """Each verdict with the claim's sentence, its source, its subjects and its pictures."""
    made = []
    met: dict[str, int] = {}
    for verdict in verdicts:
        claim = CLAIMS[verdict.claim]
        met[verdict.claim] = met.get(verdict.claim, 0) + 1
        made.append(
            {
                "id": f"verdict-{re.sub(r'[^A-Za-z0-9]+', '-', verdict.claim)}-{met[verdict.claim]}",
                "claim": verdict.claim,
                "sentence": verdict.sentence,
                "source": claim.figure,
                "papers": papers_of(claim),
                "subjects": [label_of(subject) for subject in verdict.subjects],
                "kind": KINDS[verdict.verdict],
                "scope": verdict.scope,
                "proxy": verdict.proxy,
                "corrected_away": verdict.stands is False,
                "barred": any(gate.outcome == "failed" for gate in verdict.gates),
                "changed": claim.changed,
                "reason": why(verdict),
                "section": f"measure-{verdict.measure}" if verdict.measure in measures else None,
                "parts": [picture(part) for part in verdict.parts],
                "clearness": min(verdict.shown.clearness, CLEAREST) if verdict.shown else "",
            }
        )
    return made


def at_a_glance(verdict_rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each tested claim once, with all its verdicts: the whole table where it can be seen in one look.

    Of a claim's second reading only the words that tell it apart from the first; the whole of it is there for whoever
    filters the first away.
    """
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    met: set[str] = set()
    for row in verdict_rows:
        claim, sentence = row["claim"], row["sentence"]
        if row["kind"].word != "not tested":
            if (claim, sentence) not in lines:
                words = sentence.removeprefix(CLAIMS[claim].sentence).strip() if claim in met else ""
                lines[claim, sentence] = {
                    "claim": claim,
                    "sentence": words or sentence,
                    "whole": sentence if words else "",
                    "again": claim in met,
                    "rows": [],
                }
                met.add(claim)
            lines[claim, sentence]["rows"].append(row)
    return list(lines.values())


def claim_spans(verdict_rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each with how many rows from there on are of its claim: 0 where an earlier row has told the claim."""
    made: list[dict[str, Any]] = []
    for _, same in itertools.groupby(verdict_rows, key=lambda row: (row["claim"], row["sentence"])):
        rows_of_claim = list(same)
        spans = [len(rows_of_claim), *[0] * (len(rows_of_claim) - 1)]
        made += [{**row, "span": span} for row, span in zip(rows_of_claim, spans, strict=True)]
    return made


def why(verdict: Verdict) -> str:
    """The reason without the number that stands beside it, which would be read twice."""
    shown = verdict.shown
    if shown is None:
        return verdict.reason
    instead = ""
    if len(verdict.parts) > 1 and verdict.verdict == "fails":
        several = sum(part.verdict == "fails" for part in verdict.parts) > 1
        instead = f"{'One of the failing parts' if several else 'The failing part'}: {shown.words}."
    elif IN_QUESTION in verdict.remarks:
        instead = f"{IN_QUESTION}: {shown.words}."
    elif len(verdict.parts) == 1:
        instead = WHERE.get(verdict.verdict, "")
    return f"{instead} {verdict.remarks}".strip()


#: Papers behind claims by the name that measures cite them by.
BEHIND_CLAIMS = {
    "Dosovitskiy et al. 2020": "V",
    "Raghu et al. 2021": "R",
    "Park & Kim 2022": "P",
    "Kolesnikov et al. 2020": "BiT",
    "Park & Kim 2022b (Blurs Behave Like Ensembles)": "Blur",
    "Yu et al. 2022": "MetaFormer",
}


NO_PAPER = ("said", "own")  # sources of claims that nobody published


@cache
def paper_names() -> dict[str, str]:
    """The name that measures cite a paper by, for its key in the claim table."""
    return {key: name for name, key in BEHIND_CLAIMS.items()}


def papers_of(claim: Claim) -> list[str]:
    """The papers behind a claim, as they are cited."""
    return [paper_names().get(key, key) for key in claim.sources if key not in NO_PAPER]


@cache
def papers() -> dict[str, str]:
    """What measures cite, in full, by the name they cite it by."""
    listed = tomllib.loads(files("eyechart.report").joinpath("papers.toml").read_text(encoding="utf-8"))
    return listed | {name: SOURCES[key] for name, key in BEHIND_CLAIMS.items()}


def references(verdicts: Sequence[Verdict], cited: Iterable[str] = ()) -> list[dict[str, str]]:
    """The papers behind the claims of the page and those its measures cite, in full, each with its address."""
    keys = dict.fromkeys(key for verdict in verdicts for key in CLAIMS[verdict.claim].sources)
    listed = {SOURCES[key] for key in keys if "arXiv" in SOURCES[key]}
    listed |= {papers()[name] for name in cited if name in papers()}
    return [{"text": text, "link": link_of(text)} for text in sorted(listed)]


def link_of(reference: str) -> str:
    """
    >>> link_of("Snell, Swersky & Zemel, Prototypical Networks. NeurIPS 2017, arXiv:1703.05175")
    'https://arxiv.org/abs/1703.05175'
    """
    number = re.search(r"arXiv:([\d.]+)", reference)
    return f"https://arxiv.org/abs/{number[1]}" if number else ""


def picture(part: PartVerdict, seeds: Mapping[int, float] = MappingProxyType({})) -> dict[str, Any]:
    """Where interval, margin, the claimed side and each seed lie on a scale of 240 pixels, and the same in words."""
    effect, span = with_span(part.effect, part.low, part.high)
    drawn: dict[str, Any] = {
        "words": part.words,
        "effect": effect,
        "span": span,
        "asks": part.asks,
        "kind": KINDS[part.verdict],
        "said": f"{part.sentence}: {part.verdict}",
    }
    margins = (-part.margin, part.margin) if part.side in ("within", "outside") else (part.margin,)
    ends = part.effect, part.low, part.high
    return drawn | interval_drawing(ends, part.side, margins, seeds, fails_at=part.fails_at)


def interval_drawing(
    interval: tuple[float, float, float],
    side: str,
    margins: Sequence[float],
    seeds: Mapping[int, float],
    neutral: float = 0.0,
    fails_at: float | None = None,
) -> dict[str, Any]:
    """The geometry alone; `middle` is None where there is nothing to draw. Without margins nothing is claimed.
    `neutral` is what no difference would give: 1 for a ratio. Between what holds and `fails_at` nothing is decided."""
    failing: tuple[float, ...] = () if fails_at is None else (fails_at,)
    if not is_number(interval[0]):
        return {"middle": None}
    effect, *ends = interval
    spread = all(map(is_number, ends))
    dots = {seed: value for seed, value in seeds.items() if is_number(value)}
    needed = [effect, *(margins or [neutral]), *failing, *(ends if spread else []), *dots.values()]
    low, high = min(needed), max(needed)
    width = (high - low) or abs(high) or 1.0
    if low > 0 and low < 0.6 * width:
        low = 0.0
    if high < 0 and -high < 0.6 * width:
        high = 0.0
    start, end = low - 0.12 * (high - low or width), high + 0.12 * (high - low or width)

    def at(value: float) -> float:
        return round(WIDTH * (min(max(value, start), end) - start) / (end - start), 1)

    claimed = (
        {
            "above": [(margins[-1], end)],
            "below": [(start, margins[0])],
            "within": [(margins[0], margins[-1])],
            "outside": [(start, margins[0]), (margins[-1], end)],
        }[side]
        if margins
        else []
    )
    drawn: dict[str, Any] = {}
    drawn["zones"] = [{"x": at(a), "width": round(at(b) - at(a), 1)} for a, b in claimed]
    wanted = [
        *(("margin", value, at(value)) for value in margins),
        *(("failing", value, at(value)) for value in failing),
    ]
    wanted.append(("zero", neutral, at(neutral)))
    drawn["ticks"] = ticks(wanted, start, end)
    drawn["middle"] = at(effect)
    drawn["low"], drawn["high"] = (at(ends[0]), at(ends[1])) if spread else (None, None)
    drawn["seeds"] = [{"x": at(value), "said": f"seed {seed}: {number(value)}"} for seed, value in dots.items()]
    return drawn


def ticks(wanted: Sequence[tuple[str, float, float]], start: float, end: float) -> list[dict[str, Any]]:
    """Lines with their numbers. Two whose numbers would run into one another have them on their outer sides, or the
    later one has none; zero has no line then."""
    kept: list[dict[str, Any]] = []
    for kind, value, x in wanted:
        text = number(value) if kind == "zero" else exactly(value)
        apart = all(abs(x - other["x"]) > LETTER * (len(text) + len(other["text"])) / 2 + 6 for other in kept)
        if start <= value <= end and (apart or kind != "zero"):
            anchor = "start" if x < 10 else "end" if x > WIDTH - 10 else "middle"
            if kind == "failing" and not apart:
                margin, left = kept[-1], x < kept[-1]["x"]
                room = 40 < x < WIDTH - 40
                margin["anchor"], anchor = ("start", "end") if left else ("end", "start")
                text = text if room else ""
            kept.append({"kind": kind, "x": x, "text": text, "anchor": anchor})
    return kept
