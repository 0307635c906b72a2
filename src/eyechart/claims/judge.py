"""Does a claim hold? The protocol: a claim is judged by where its whole 95 % interval lies against a fixed margin.

    holds          the whole interval satisfies what the claim asks for
    fails          no point of the interval does
    undecided      the interval straddles the margin (and it is said how many images would decide), a number is missing,
                   or a gate failed
    not tested     no given subject can settle it (and it is said what would)

A claim of several parts holds if all hold and fails if one fails; one that asks for two of three tests holds if two
hold and fails if two fail. Of several parts the verdict shows the decisive one: of a failed claim the part that fails
most clearly, of one that holds the part nearest to failing, where not all are asked for the last of those that were
needed; of an undecided one the part with which more images would decide it, if all effects stay as they are; of
definitions that disagree the clearest. Clearness is the distance from the margin in half-widths of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eyechart.claims.gates import Facts
from eyechart.claims.multiplicity import holm, p_value, stands
from eyechart.claims.parts import ClaimTest, Decision, Part
from eyechart.claims.table import CLAIMS, STUDIES, Claim
from eyechart.claims.verdict import PartVerdict, Subjects, Verdict
from eyechart.claims.wording import (
    IN_QUESTION,
    THESE_WEIGHTS,
    begin,
    by_numbers,
    count_parts,
    counts_few,
    scope_words,
    sentences,
    still_moves,
    what_would_decide,
)
from eyechart.errors import EyechartError
from eyechart.quantity import quantities_in

if TYPE_CHECKING:
    import xarray

LEAST_IMAGES = 128
"""With fewer nothing is decided, however narrow an interval looks. Eight in each of sixteen folds: of 95 % intervals of
64 images those of accuracies hold the truth in .88–.90 of the exams and those of low CKA cells in .895; from 128 images
on .94–.96."""


@dataclass(frozen=True)
class Measured:
    """A quantity of one tuple of subjects, as a finding has it."""

    value: float
    low: float
    high: float
    images: int
    measure: str
    smooth: bool = True
    of_weights: bool = False
    """Read off the weights: no image was drawn, and none would decide it."""
    folds: int = 16
    """Of the images; where none were drawn, what its interval from random draws is read with; of a study, one more than
    its interval has degrees of freedom."""
    half: float = math.nan
    """Its value on halves of the images, for a quantity that moves with their number."""
    of_few: bool = False
    """Its interval is as wide as the few things it counts make it: more images would not narrow it."""
    unit: str = ""
    """What `images` counts, where its interval is over something else: "arms" of a study."""
    without: str = ""
    """Why it has no interval, or none that is narrow, where more of them alone would not give it one."""

    @property
    def moves(self) -> bool:
        """Whether what it still moves makes up a good part of its interval: it widens it by five times the drift."""
        return abs(self.value - self.half) > (self.high - self.low) / 20


def judge(
    tests: Sequence[ClaimTest],
    findings: Mapping[str, xarray.Dataset],
    facts: Mapping[str, Facts],
    *,
    left_out: Mapping[str, str] | None = None,
) -> list[Verdict]:
    """One verdict for each claim and each tuple of subjects that qualifies, and one "not tested" for every other claim.

    Tuples qualify by having a number in every part. `facts` are told by subject; `left_out` says why a measure that was
    asked for did not run. Studies, whose intervals are over seeds, call `decide` themselves.
    """
    decided: list[tuple[ClaimTest, Verdict]] = []
    for test in sorted(tests, key=lambda test: test.claim):
        by_part = [read(findings, part.quantity) for part in test.parts]
        for subjects in by_part[0]:
            if all(subjects in by_subjects for by_subjects in by_part):
                own = [by_subjects[subjects] for by_subjects in by_part]
                decided.append((test, decide(test, subjects, own, [facts[subject] for subject in subjects])))
    verdicts = corrected(decided)
    judged = {verdict.claim for verdict in verdicts}
    tested = {test.claim for test in tests}
    verdicts += [
        not_tested(claim, tried=claim.id in tested, measures=findings.keys(), left_out=left_out or {})
        for claim in CLAIMS.values()
        if claim.id not in judged
    ]
    return sorted(verdicts, key=lambda verdict: verdict.claim)


def corrected(decided: Sequence[tuple[ClaimTest, Verdict]]) -> list[Verdict]:
    """The verdicts, each decided one with whether it stays so under Holm's correction over all of their intervals."""
    stays = iter(holm([part.p for _, verdict in decided for part in verdict.parts]))
    verdicts = []
    for test, verdict in decided:
        own = [next(stays) for _ in verdict.parts]
        is_decided = verdict.verdict in ("holds", "fails")
        verdicts.append(replace(verdict, stands=stands(test, verdict, own)) if is_decided else verdict)
    return verdicts


def read(findings: Mapping[str, xarray.Dataset], quantity: str) -> dict[Subjects, Measured]:
    """A quantity of every tuple of subjects that has it. Its name must mean one thing in all findings."""
    result: dict[Subjects, Measured] = {}
    for measure, finding in findings.items():
        for row in quantities_in(finding):
            if row["quantity"] != quantity:
                continue
            subjects = tuple(row["quantity_subjects"].split(" | "))
            if subjects in result:
                raise EyechartError(
                    f"{quantity!r} is a quantity of both {result[subjects].measure} and {measure}; rename one of them."
                )
            value, low, high = (row[f"quantity_{name}"] for name in ("value", "low", "high"))
            smooth, few = bool(row.get("quantity_smooth", True)), bool(row.get("quantity_of_few", False))
            images, of_weights = int(finding.attrs.get("images", 0)), bool(finding.attrs.get("of_weights", False))
            half = row.get("quantity_half_value", math.nan)
            folds = int(finding.attrs.get("folds", 0)) or Measured.folds  # 0: of weights
            result[subjects] = Measured(value, low, high, images, measure, smooth, of_weights, folds, half, few)
    return result


def decide(
    test: ClaimTest, subjects: Subjects, readings: Sequence[Measured], facts: Sequence[Facts], seeds: int | None = None
) -> Verdict:
    """The verdict of one claim on one tuple of subjects."""
    parts = tuple(
        decide_part(part, subjects, reading, seeds) for part, reading in zip(test.parts, readings, strict=True)
    )
    verdict = test.combine([part.verdict for part in parts])
    stuck = test.stuck([part.verdict for part in parts])
    if stuck:  # a forecast of one part would pass for one of the claim
        parts = tuple(replace(part, needed=None) for part in parts)
    shown = decisive(test, parts, verdict, stuck)
    gates = tuple(gate.check(facts) for gate in test.gates)
    failed = [gate for gate in gates if gate.outcome == "failed"]
    few = seeds is None and any(not reading.of_weights and reading.images < LEAST_IMAGES for reading in readings)
    first: list[str] = []
    it = "It" if len(parts) == 1 else IN_QUESTION
    reasons = [count_parts([part.verdict for part in parts], test.least)] if len(parts) > 1 else []
    agree = test.disagreement == "undecided" and not (test.least or stuck or failed or few)
    if agree and verdict == "undecided" and any(part.verdict == "fails" for part in parts):
        reasons.append("All of them must agree")  # beside a claim that fails by one part, three that fail look decided
    if failed:
        failures = "; ".join(f"{gate.title} ({gate.gate}): {gate.words}" for gate in failed)
        first = [f"Gate failed, so nothing is decided: {failures}"]
        reasons = [by_numbers(counted) for counted in reasons] if seeds is None else reasons
    elif few:
        first = [f"Fewer than {LEAST_IMAGES} images, so nothing is decided"]
        reasons = [by_numbers(counted) for counted in reasons]
    elif stuck:
        reasons.append(
            f"The definitions disagree, so more {'images' if seeds is None else 'seeds'} would not decide it"
        )
    elif verdict == "undecided" and readings[parts.index(shown)].of_weights:
        reasons.append(f"{it} is read off the weights, so more images would not decide it")
    elif verdict == "undecided":
        reading = readings[parts.index(shown)]
        used, unit = (seeds, "seeds") if seeds and not reading.unit else (reading.images, reading.unit or "images")
        smooth = reading.smooth and not reading.moves
        reasons += [still_moves(it, reading.value, reading.half)] if reading.moves else []
        of_few = reading.of_few and not reading.moves
        decides = what_would_decide(shown.effect, shown.high - shown.low, shown.needed, used, unit, smooth)
        if shown.needed is not None and foreseen(test, parts)[1] == "undecided":
            decides = f"If the effects stay, the definitions disagree, so more {unit} would not decide it"
        reasons.append(reading.without or (counts_few(it, unit) if of_few else decides))
    reasons += [begin(gate.words, subjects) for gate in gates if gate.outcome in ("unknown", "proxy")]
    has_effect = not math.isnan(shown.effect)
    reason = sentences([*first, begin(shown.sentence, subjects), *reasons])
    return Verdict(
        claim=test.claim,
        subjects=subjects,
        scope=scope_words(seeds),
        verdict="undecided" if failed or few else verdict,
        effect=shown.effect if has_effect else None,
        low=shown.low if has_effect else None,
        high=shown.high if has_effect else None,
        reason=reason,
        remarks=sentences([*first, *reasons]) if has_effect else reason,
        parts=parts,
        proxy=test.proxy or any(gate.outcome == "proxy" for gate in gates),
        measure=readings[0].measure,
        gates=gates,
        reading=test.reading,
    )


def decide_part(part: Part, subjects: Subjects, reading: Measured, seeds: int | None = None) -> PartVerdict:
    from eyechart.intervals import images_to_decide  # It imports torch; reading verdicts from a file must not.

    value, low, high = (x if math.isfinite(x) else math.nan for x in (reading.value, reading.low, reading.high))
    if math.isnan(value + low + high):
        low = high = math.nan  # half an interval is none, and a missing value has none
    verdict = part.decide(low, high)
    margin, half = part.nearest_margin(value), (high - low) / 2
    drawn = None if reading.unit else seeds
    distance = abs(value - margin)
    return PartVerdict(
        quantity=part.quantity,
        words=part.told.format(*subjects),
        side=part.side,
        margin=part.margin,
        inclusive=part.inclusive,
        fails_at=part.fails_at,
        effect=value,
        low=low,
        high=high,
        verdict=verdict,
        clearness=math.nan if math.isnan(half) else distance / half if half > 0 else math.inf,
        # The interval of an argmax, or of what still moves, does not shrink with the root of the images: no forecast.
        needed=images_to_decide(value, low, high, margin, drawn or reading.images)
        if verdict == "undecided" and reading.smooth and not (reading.moves or reading.of_weights or reading.without)
        else None,
        p=p_value(part, verdict, value, low, high, reading.folds),
    )


def decisive(test: ClaimTest, parts: Sequence[PartVerdict], verdict: Decision, stuck: bool) -> PartVerdict:
    """The part whose effect the verdict shows: see the head of this file. `stuck`: some contradict each other, so the
    others decide nothing."""
    alike = sorted((part for part in parts if part.verdict == verdict), key=lambda part: -part.clearness)
    if verdict == "fails":
        return alike[min(len(parts) - test.needed, len(alike) - 1)]
    if verdict == "holds":
        return alike[test.needed - 1]
    if stuck:  # definitions that contradict each other: the clearer one speaks
        return max((part for part in parts if part.verdict != "undecided"), key=lambda part: part.clearness)
    return foreseen(test, parts)[0]


def foreseen(test: ClaimTest, parts: Sequence[PartVerdict]) -> tuple[PartVerdict, Decision]:
    """Of an undecided claim: the part with which more images decide it, if every effect stays, and what they decide.

    An open part will not always hold. One on the side that fails may decide a claim of which all parts must hold, and
    leaves one of two of three tests as open as it was.
    """
    decisions = [part.verdict for part in parts]
    still_open = [place for place, decision in enumerate(decisions) if decision == "undecided"]
    still_open.sort(key=lambda place: (parts[place].needed or math.inf, -parts[place].clearness))
    for place in still_open:
        decisions[place] = test.parts[place].decide(parts[place].effect, parts[place].effect)
        if (comes_out := test.combine(decisions)) != "undecided":
            return parts[place], comes_out
    return parts[still_open[-1]], "undecided"


def not_tested(claim: Claim, *, tried: bool, measures: Collection[str], left_out: Mapping[str, str]) -> Verdict:
    """A claim that nothing in this run could settle, with what it would need."""
    missing = [measure for measure in claim.measures if measure not in measures]
    away = [measure for measure in missing if measure in left_out]
    if claim.settled_by != "exam":
        reason = f"Needs a study: {STUDIES[claim.settled_by]}."
    elif tried and len(missing) in (0, len(claim.measures)):  # of a claim of two measures one may have been left out
        reason = f"Needs {claim.wants}."
    elif away:
        reason = f"Needs {claim.wants}. {away[0]} was left out: {left_out[away[0]]}"
    elif missing:
        reason = f"Needs the measure {' and '.join(missing)}, and {claim.wants}."
    else:
        reason = f"No measure tests it yet; it needs {claim.wants}."
    return Verdict(claim.id, (), THESE_WEIGHTS, "not tested", None, None, None, reason, measure=claim.measures[0])
