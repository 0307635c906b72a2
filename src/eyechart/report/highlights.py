"""How the subjects differ, in three to five sentences at the top of the page, chosen by the numbers alone.

A candidate is a quantity that several subjects have, told by the two that are farthest apart. Its *clearness* is their
difference in half-widths of its interval (those of both, added as independent errors: the pictures are the same, so
that is more often too wide than too narrow). What else could make that number large, and what is done about it:

- *Nothing but many pictures.* 0.98 against 0.99 is clear of any interval once it is narrow enough, and not worth a
  sentence. So clearness counts up to `CLEAR` only, and is multiplied by the *size* of the difference: in shares of what
  the quantity can be where it has limits (an accuracy, a correlation), of both values together where it has none.
- *No images*: a number read off the weights, exactly or through a sketch, says nothing of what another training would
  give. It is no candidate.
- *Guessing.* What labels say of a subject that does no better than guessing is no property of it, and no candidate.
- *Looking at many numbers.* The farthest two of six subjects, in the best of a hundred quantities, are apart by chance.
  So a candidate must be clear of the interval that Bonferroni's correction over all pairs looked at would give.
- *Telling one thing five times.* Accuracy, likelihood and calibration rise and fall together, and so do the quantities
  of one measure. At most one sentence for each chapter of the page.

What it cannot know is which difference matters to the reader: the sentence says what is large and sure, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scipy import stats

from eyechart.charts.numbers import is_number, number, with_span
from eyechart.claims.facts import facts_of
from eyechart.claims.gates import better_than_guessing
from eyechart.quantity import quantities_in
from eyechart.report.sentences import typeset
from eyechart.report.verdict_rows import picture

if TYPE_CHECKING:
    import xarray

    from eyechart.measure import Measure
    from eyechart.quantity import Quantity
    from eyechart.run import Run

MOST = 5
CLEAR = 10.0  # half-widths beyond which nobody doubts a difference, and only its size counts
WIDTH, EDGE = 300.0, 8.0  # pixels of a small chart, and around it
ROW, LOW_ROW = 13.0, 9.0  # pixels of a subject's row in it; of one among four or more
METHOD = (
    "Of every quantity that several subjects have, the two farthest apart are compared: how many half-widths of its "
    "interval the difference is wide (up to 10), times its share of what the quantity can be. Shown are the largest, "
    "one for each question below, that stay clear of chance among all those compared. Being large and sure does not "
    "make a difference important."
)
METHOD_ALONE = "Shown are the decided verdicts farthest from their margins, in half-widths of the interval."
Ends = tuple[float, float, float]
"""A value with the low and the high end of its interval."""


@dataclass(frozen=True)
class Contrast:
    """A quantity of several subjects, and the two of them that are farthest apart."""

    measure: str
    chapter: str
    explain: str
    unit: str
    values: Mapping[str, Ends]
    size: float
    """The difference as a share of what it could be, 0 to 1."""

    @property
    def most(self) -> str:
        return max(self.values, key=lambda subject: self.values[subject][0])

    @property
    def least(self) -> str:
        return min(self.values, key=lambda subject: self.values[subject][0])

    @property
    def pairs(self) -> int:
        return math.comb(len(self.values), 2)

    @property
    def clearness(self) -> float:
        most, least = self.values[self.most], self.values[self.least]
        half = math.hypot(most[0] - most[1], least[2] - least[0])
        apart = most[0] - least[0]
        return apart / half if half else math.inf if apart else 0.0

    @property
    def rank(self) -> float:
        return min(self.clearness, CLEAR) / CLEAR * self.size


def share_of_possible(one: float, other: float, limits: tuple[float | None, float | None]) -> float:
    """A difference in units of the largest number it could be made of.

    >>> share_of_possible(0.5, 0.25, (-1, 1)), share_of_possible(30.0, 10.0, (0, None))
    (0.25, 0.5)
    >>> share_of_possible(0.03, -0.01, (None, None)), share_of_possible(3.0, -1.0, (None, None))
    (0.04, 1.0)
    """
    low, high = limits
    apart = abs(one - other)
    possible = max(abs(low), abs(high)) if low is not None and high is not None else abs(one) + abs(other)
    share = min(1.0, apart / possible) if possible else 0.0
    return min(share, apart) if low is None else share


def contrasts(name: str, measure: Measure, finding: xarray.Dataset, guessing: Collection[str] = ()) -> list[Contrast]:
    """The quantities of a finding that at least two subjects have, with an interval."""
    if finding.attrs.get("of_weights"):
        return []
    silent = guessing if measure.labels == "subjects" and name != "recognition" else ()
    known: dict[str, Quantity] = {quantity.name: quantity for quantity in measure.quantities}
    values: dict[str, dict[str, Ends]] = {}
    units: dict[str, str] = {}
    for row in quantities_in(finding):
        key, subject = row["quantity"], row["quantity_subjects"]
        value, low, high = (row[f"quantity_{part}"] for part in ("value", "low", "high"))
        own = " | " not in subject and subject not in silent and key in known and not known[key].reference
        if own and all(map(is_number, (value, low, high))) and low < high:
            values.setdefault(key, {})[subject] = value, low, high
            units[key] = row["quantity_unit"]
    made = []
    for key, each in values.items():
        numbers = [ends[0] for ends in each.values()]
        size = share_of_possible(max(numbers), min(numbers), known[key].limits)
        made.append(Contrast(name, measure.chapter, known[key].explain, units[key], each, size))
    return [one for one in made if len(one.values) > 1]


def chosen(candidates: Sequence[Contrast]) -> list[Contrast]:
    """The clear ones, largest rank first, one a chapter, `MOST` at most."""
    looked_at = sum(candidate.pairs for candidate in candidates)
    needed = stats.norm.isf(0.025 / looked_at) / stats.norm.isf(0.025) if looked_at else math.inf
    best: dict[str, Contrast] = {}
    for candidate in sorted(candidates, key=lambda one: one.rank, reverse=True):
        if candidate.clearness > needed:
            best.setdefault(candidate.chapter, candidate)
    return list(best.values())[:MOST]


def highlights(run: Run, label_of: Callable[[str], Any]) -> dict[str, Any]:
    """What the page opens with: how the subjects differ; of one subject alone, its clearest verdicts."""
    if len(run.scene.subjects) == 1:
        rows = clearest_verdicts(run)
        return {"heading": "What stands out", "rows": rows, "none": "No claim was decided.", "method": METHOD_ALONE}
    facts = facts_of(run.plan, run.findings)
    guessing = [name for name, fact in facts.items() if not better_than_guessing(fact)]
    candidates = [
        one for name, finding in run.findings.items() for one in contrasts(name, run.measures[name], finding, guessing)
    ]
    rows = [
        {
            "measure": one.measure,
            "question": run.measures[one.measure].title,
            "sentence": typeset(sentence(one), run.scene.subjects),
            "chart": chart(one, label_of, run.scene.subjects),
            "part": None,
        }
        for one in chosen(candidates)
    ]
    looked_at = sum(len(candidate.values) > 1 for candidate in candidates)
    none = f"Of {looked_at} quantities that several subjects have, none differs clearly on these images."
    return {"heading": "How they differ most", "rows": rows, "none": none, "method": METHOD}


def clearest_verdicts(run: Run) -> list[dict[str, Any]]:
    """Of the decided parts of decided verdicts the clearest, one a measure: a gate may keep a verdict from it."""
    decided = [verdict for verdict in run.verdicts if verdict.verdict in ("holds", "fails")]
    told = [(part, verdict) for verdict in decided for part in verdict.parts if part.verdict in ("holds", "fails")]
    told.sort(key=lambda each: -min(each[0].clearness, CLEAR))
    best: dict[str, dict[str, Any]] = {}
    for part, verdict in told:
        value, span = with_span(part.effect, part.low, part.high)
        words = (
            f"{part.words[:1].upper()}{part.words[1:]}: {value}{f' [{span}]' if span else ''}; {part.asks} is claimed."
        )
        row = {"measure": verdict.measure, "sentence": words, "chart": None, "part": picture(part)}
        if verdict.measure in run.findings:
            best.setdefault(verdict.measure, row | {"question": run.measures[verdict.measure].title})
    return list(best.values())[:MOST]


def sentence(one: Contrast) -> str:
    def told(subject: str) -> str:
        value, span = with_span(*one.values[subject])
        unit = f" {one.unit}" if one.unit else ""
        return f"{value}{unit} [{span}]"

    most, least, others = one.most, one.least, len(one.values) - 2
    # Others may have the very value of an end: they are not "between".
    between = f", {others} {'other' if others == 1 else 'others'} in that range" if others else ""
    what = f"{one.explain[:1].upper()}{one.explain[1:]}"
    return f"{what}: {told(most)} in {most} against {told(least)} in {least}{between}."


def chart(one: Contrast, label_of: Callable[[str], Any], subjects: Sequence[str]) -> dict[str, Any]:
    """Where the dots and intervals of a small chart lie, a row a subject, on a scale that shows 0 if it is near."""
    ends = [value for values in one.values.values() for value in values]
    low, high = min(ends), max(ends)
    low = 0.0 if 0 < low < high - low else low
    high = 0.0 if low - high < high < 0 else high
    span = high - low or abs(high) or 1.0

    def at(value: float) -> float:
        return round(EDGE + (WIDTH - 2 * EDGE) * (value - low) / span, 1)

    row = ROW if len(one.values) <= 3 else LOW_ROW
    rows = []
    for place, subject in enumerate(each for each in subjects if each in one.values):
        value, start, end = one.values[subject]
        shown, interval = with_span(value, start, end)
        rows.append(
            {
                "subject": label_of(subject),
                "y": 8 + row * place,
                "x": at(value),
                "low": at(start),
                "high": at(end),
                "said": f"{subject}: {shown}{f' [{interval}]' if interval else ''}",
            }
        )
    ticks = [
        {"x": at(value), "text": number(value), "anchor": anchor} for value, anchor in ((low, "start"), (high, "end"))
    ]
    zero = at(0.0) if low <= 0 <= high else None
    return {
        "rows": rows,
        "ticks": ticks,
        "zero": zero,
        "height": 8 + row * len(rows),
        "width": WIDTH,
        "radius": row / 3,
    }
