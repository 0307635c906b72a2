"""Does a claim hold? The protocol: a claim is judged by where its whole 95 % interval lies against a fixed margin.

    holds          the whole interval satisfies what the claim asks for
    fails          no point of the interval does
    undecided      the interval straddles the margin (and it is said how many images would decide), a number is missing,
                   or a gate failed
    not tested     no given subject can settle it (and it is said what would)

A claim of several parts holds if all hold and fails if one fails. Of several parts the verdict shows the decisive one:
of a failed claim the part that fails most clearly, of one that holds the part nearest to failing, of an undecided one
the part farthest from a decision. Clearness is the distance from the margin in half-widths of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from eyechart.claims.gates import GATES, Facts, Gate, GateResult
from eyechart.claims.table import CLAIMS, STUDIES, Claim, Side, asked
from eyechart.claims.wording import (
    THESE_WEIGHTS,
    begin,
    count,
    count_parts,
    interval_words,
    scope_words,
    what_would_decide,
)
from eyechart.errors import EyechartError, UsageError

if TYPE_CHECKING:
    import xarray

Decision = Literal["holds", "fails", "undecided"]
Subjects = tuple[str, ...]
LEAST_SEEDS = 3
LEAST_IMAGES = 64  # four a fold: below that nothing is decided, however narrow an interval looks


@dataclass(frozen=True)
class Part:
    """What a claim asks of one quantity. `words` is a noun phrase with {0}, {1} for the subjects of the tuple."""

    quantity: str
    side: Side
    margin: float
    words: str
    inclusive: bool = False
    """Whether the margin itself satisfies the claim: "at least" instead of "more than"."""
    fails_at: float | None = None
    """Where a directional claim fails, if not at the margin: a sign test that is not significant has not failed."""

    @property
    def asks(self) -> str:
        text = asked(self.side, self.margin, self.inclusive)
        return text if self.fails_at is None else f"{text}, and fails at {self.fails_at:g}"

    def decide(self, low: float, high: float) -> Decision:
        """Where the interval from `low` to `high` lies.

        >>> Part("gap", "above", 0.1, "gap").decide(0.05, 0.2)
        'undecided'
        """
        if math.isnan(low) or math.isnan(high):
            return "undecided"
        if self.side in ("above", "below"):
            far, near = (low, high) if self.side == "above" else (-high, -low)
            sign = 1 if self.side == "above" else -1
            short = self.margin if self.fails_at is None else self.fails_at
            holds, fails = self._beyond(far, sign * self.margin), not self._beyond(near, sign * short)
        else:
            size = abs(self.margin)
            # The margin belongs to the side that is asked for if inclusive, and to the other one if not.
            edge_is_inside = (self.side == "within") == self.inclusive
            inside = max(-low, high) <= size if edge_is_inside else max(-low, high) < size
            outside = max(low, -high) > size if edge_is_inside else max(low, -high) >= size
            holds, fails = (inside, outside) if self.side == "within" else (outside, inside)
        return "holds" if holds else "fails" if fails else "undecided"

    def _beyond(self, value: float, margin: float) -> bool:
        return value >= margin if self.inclusive else value > margin

    def nearest_margin(self, value: float) -> float:
        return self.margin if self.side in ("above", "below") else math.copysign(self.margin, value)


@dataclass(frozen=True)
class ClaimTest:
    """How a claim is tested on findings. It stands in the file of the measure that decides it.

    Its margins must be those of the table, so that they are fixed in one place; so are its gates, unless given.
    """

    claim: str
    parts: tuple[Part, ...]
    gates: tuple[Gate, ...] | None = None
    proxy: bool = False
    disagreement: Literal["fails", "undecided"] = "fails"
    """What it means that one part holds and another fails: a compound claim fails, alternative definitions do not."""
    reading: str = ""
    """How this test reads the claim where several tests do: "without the class token". Shown behind its sentence."""

    def __post_init__(self) -> None:
        if self.claim not in CLAIMS:
            raise EyechartError(f"No claim is called {self.claim!r}; they run from C01 to C{len(CLAIMS)}.")
        if not self.parts:
            raise EyechartError(f"The test of {self.claim} has no parts; it needs at least one quantity and margin.")
        fixed = {(margin.side, margin.margin, margin.inclusive) for margin in CLAIMS[self.claim].margins}
        for part in self.parts:
            if (part.side, part.margin, part.inclusive) not in fixed:
                raise EyechartError(
                    f"The test of {self.claim} asks {part.quantity!r} to be {part.asks}, but claims.toml fixes "
                    f"{CLAIMS[self.claim].margin}; change the one or the other."
                )

    @property
    def checks(self) -> tuple[Gate, ...]:
        return tuple(GATES[key] for key in CLAIMS[self.claim].gates) if self.gates is None else self.gates


@dataclass(frozen=True)
class PartVerdict:
    """One part of a claim with its own effect, interval and verdict. Numbers are NaN where there is none."""

    quantity: str
    words: str
    asks: str
    effect: float
    low: float
    high: float
    verdict: Decision
    clearness: float
    """Distance of the effect from the margin in half-widths of the interval; infinite where it has no width."""
    needed: int | None
    """Images (in a study: seeds) that would decide an undecided part; None where no number would."""

    @property
    def sentence(self) -> str:
        """Without a full stop: "uniformity of a above b's: 0.31 [0.29, 0.33]; the claim asks for at least 0.1"."""
        if math.isnan(self.effect):
            return f"{self.words}: not a number on these subjects and images; the claim asks for {self.asks}"
        return f"{self.words}: {interval_words(self.effect, self.low, self.high)}; the claim asks for {self.asks}"


@dataclass(frozen=True)
class Verdict:
    """What is said of one claim on one tuple of subjects."""

    claim: str
    subjects: Subjects
    scope: str
    verdict: Literal["holds", "fails", "undecided", "not tested"]
    effect: float | None
    low: float | None
    high: float | None
    """Effect and interval of the decisive part. No effect: all three are None; an effect without interval: NaN."""
    reason: str
    parts: tuple[PartVerdict, ...] = ()
    proxy: bool = False
    measure: str = ""
    gates: tuple[GateResult, ...] = ()
    reading: str = ""
    """What tells this test of the claim from another one on the same subjects."""

    @property
    def sentence(self) -> str:
        """The claim in one sentence, and how it was read where there are several readings."""
        claimed = CLAIMS[self.claim].sentence
        return f"{claimed} Read {self.reading}." if self.reading else claimed

    @property
    def shown(self) -> PartVerdict | None:
        """The part whose effect and interval stand in `effect`, `low` and `high`."""
        numbers = (self.effect, self.low, self.high)
        return next((part for part in self.parts if (part.effect, part.low, part.high) == numbers), None)

    def __repr__(self) -> str:
        """One line, so that a list of verdicts can be read: <C13 holds on zoo:vit, zoo:resnet: 0.39 [0.37, 0.40]>."""
        subjects = f" on {', '.join(self.subjects)}" if self.subjects else ""
        numbers = (self.effect, self.low, self.high)
        effect = "" if None in numbers else f": {interval_words(*(number(value) for value in numbers))}"
        return f"<{self.claim} {self.verdict}{' (proxy)' if self.proxy else ''}{subjects}{effect}>"

    @property
    def words(self) -> str:
        """ "holds on these weights", "fails over 3 seeds, proxy", "not tested"."""
        if self.verdict == "not tested":
            return self.verdict
        where = f"on {self.scope}" if self.scope == THESE_WEIGHTS else self.scope.partition(", ")[2]
        return f"{self.verdict} {where}" + (", proxy" if self.proxy else "")

    def as_json(self) -> dict[str, Any]:
        data: dict[str, Any] = without_nan(asdict(self))
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        numbers = {key: data[key] for key in ("effect", "low", "high")}
        if numbers["effect"] is not None:
            numbers = {key: number(value) for key, value in numbers.items()}
        return cls(
            claim=data["claim"],
            subjects=tuple(data["subjects"]),
            scope=data["scope"],
            verdict=data["verdict"],
            reason=data["reason"],
            parts=tuple(
                PartVerdict(**{**part, **{key: number(part[key]) for key in ("effect", "low", "high", "clearness")}})
                for part in data.get("parts", ())
            ),
            proxy=data.get("proxy", False),
            measure=data.get("measure", ""),
            gates=tuple(GateResult(**gate) for gate in data.get("gates", ())),
            reading=data.get("reading", ""),
            **numbers,
        )


def without_nan(data: Any) -> Any:
    """JSON knows neither NaN nor infinity: they become null, infinite clearness the text "inf"."""
    if isinstance(data, dict):
        return {key: without_nan(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_nan(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None if math.isnan(data) else str(data)
    return data


def number(data: float | str | None) -> float:
    """A float; every NaN is the one object `math.nan`, so that a verdict read back equals the one written."""
    return math.nan if data is None or math.isnan(float(data)) else float(data)


# --- judging ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """A quantity of one tuple of subjects, as a finding has it."""

    value: float
    low: float
    high: float
    images: int
    measure: str
    smooth: bool = True
    of_weights: bool = False
    """Read off the weights: no image was drawn, and none would decide it."""


def judge(
    tests: Sequence[ClaimTest],
    findings: Mapping[str, xarray.Dataset],
    facts: Mapping[str, Facts],
    *,
    left_out: Mapping[str, str] | None = None,
    seeds: int | None = None,
) -> list[Verdict]:
    """One verdict for each claim and each tuple of subjects that qualifies, and one "not tested" for every other claim.

    Tuples qualify by having a number in every part. `facts` are told by subject; `left_out` says why a measure that was
    asked for did not run; `seeds` makes it a study, whose intervals are over seeds and which speaks of architectures.
    """
    if seeds is not None and seeds < LEAST_SEEDS:
        raise UsageError(f"A study needs at least {LEAST_SEEDS} seeds to speak of an architecture, not {seeds}.")
    verdicts: list[Verdict] = []
    for test in sorted(tests, key=lambda test: test.claim):
        by_part = [read(findings, part.quantity) for part in test.parts]
        for subjects in by_part[0]:
            if all(subjects in there for there in by_part):
                own = [there[subjects] for there in by_part]
                verdicts.append(decide(test, subjects, own, [facts[subject] for subject in subjects], seeds))
    judged = {verdict.claim for verdict in verdicts}
    tested = {test.claim for test in tests}
    verdicts += [
        not_tested(claim, tried=claim.id in tested, measures=findings.keys(), left_out=left_out or {}, seeds=seeds)
        for claim in CLAIMS.values()
        if claim.id not in judged
    ]
    return sorted(verdicts, key=lambda verdict: verdict.claim)


def read(findings: Mapping[str, xarray.Dataset], quantity: str) -> dict[Subjects, Reading]:
    """A quantity of every tuple of subjects that has it. Its name must mean one thing in all findings."""
    result: dict[Subjects, Reading] = {}
    for measure, finding in findings.items():
        if "quantity_row" not in finding.sizes:
            continue
        rows = finding.isel(quantity_row=finding["quantity"].values == quantity)
        for row in range(rows.sizes["quantity_row"]):
            line = rows.isel(quantity_row=row)
            subjects = tuple(str(line["quantity_subjects"].item()).split(" | "))
            if subjects in result:
                raise EyechartError(
                    f"{quantity!r} is a quantity of both {result[subjects].measure} and {measure}; rename one of them."
                )
            value, low, high = (float(line[f"quantity_{name}"]) for name in ("value", "low", "high"))
            smooth = bool(line["quantity_smooth"].item()) if "quantity_smooth" in line.coords else True
            images, of_weights = int(finding.attrs.get("images", 0)), bool(finding.attrs.get("of_weights", False))
            result[subjects] = Reading(value, low, high, images, measure, smooth, of_weights)
    return result


def decide(
    test: ClaimTest, subjects: Subjects, readings: Sequence[Reading], facts: Sequence[Facts], seeds: int | None = None
) -> Verdict:
    """The verdict of one claim on one tuple of subjects."""
    parts = tuple(
        decide_part(part, subjects, reading, seeds or reading.images)
        for part, reading in zip(test.parts, readings, strict=True)
    )
    decisions = {part.verdict for part in parts}
    failing = "fails" in decisions if test.disagreement == "fails" else decisions == {"fails"}
    verdict: Decision = "holds" if decisions == {"holds"} else "fails" if failing else "undecided"
    shown = decisive(parts, verdict)
    gates = tuple(gate.check(facts) for gate in test.checks)
    failed = [gate for gate in gates if gate.outcome == "failed"]
    few = seeds is None and any(not reading.of_weights and reading.images < LEAST_IMAGES for reading in readings)
    reasons = [begin(shown.sentence, subjects)]
    if len(parts) > 1:
        reasons.append(count_parts([part.verdict for part in parts]))
    if failed:
        told = "; ".join(f"{gate.title} ({gate.gate}): {gate.words}" for gate in failed)
        reasons.insert(0, f"Gate failed, so nothing is decided: {told}")
    elif few:
        reasons.insert(0, f"Fewer than {LEAST_IMAGES} images, so nothing is decided")
    elif verdict == "undecided" and shown.verdict != "undecided":
        reasons.append("The definitions disagree, so neither decides")
    elif verdict == "undecided" and readings[parts.index(shown)].of_weights:
        reasons.append("It is read off the weights, so more images would not decide it")
    elif verdict == "undecided":
        used, unit = (seeds, "seeds") if seeds else (readings[parts.index(shown)].images, "images")
        smooth = readings[parts.index(shown)].smooth
        reasons.append(what_would_decide(shown.effect, shown.high - shown.low, shown.needed, used, unit, smooth))
    reasons += [begin(gate.words, subjects) for gate in gates if gate.outcome in ("unknown", "proxy")]
    there = not math.isnan(shown.effect)
    return Verdict(
        claim=test.claim,
        subjects=subjects,
        scope=scope_words(seeds),
        verdict="undecided" if failed or few else verdict,
        effect=shown.effect if there else None,
        low=shown.low if there else None,
        high=shown.high if there else None,
        reason=". ".join(reasons) + ".",
        parts=parts,
        proxy=test.proxy or any(gate.outcome == "proxy" for gate in gates),
        measure=readings[0].measure,
        gates=gates,
        reading=test.reading,
    )


def decide_part(part: Part, subjects: Subjects, reading: Reading, samples: int) -> PartVerdict:
    from eyechart.intervals import images_to_decide  # It imports torch; reading verdicts from a file must not.

    value, low, high = (x if math.isfinite(x) else math.nan for x in (reading.value, reading.low, reading.high))
    if math.isnan(value + low + high):
        low = high = math.nan  # half an interval is none, and a missing value has none
    verdict = part.decide(low, high)
    margin, half = part.nearest_margin(value), (high - low) / 2
    distance = abs(value - margin)
    return PartVerdict(
        quantity=part.quantity,
        words=part.words.format(*subjects),
        asks=part.asks,
        effect=value,
        low=low,
        high=high,
        verdict=verdict,
        clearness=math.nan if math.isnan(half) else distance / half if half > 0 else math.inf,
        # The interval of an argmax does not shrink with the root of the images, so no number is foretold.
        needed=images_to_decide(value, low, high, margin, samples)
        if verdict == "undecided" and reading.smooth and not reading.of_weights
        else None,
    )


def decisive(parts: Sequence[PartVerdict], verdict: Decision) -> PartVerdict:
    """The part whose effect the verdict shows: see the head of this file."""
    alike = [part for part in parts if part.verdict == verdict]
    if verdict == "fails":
        return max(alike, key=lambda part: part.clearness)
    if verdict == "holds":
        return min(alike, key=lambda part: part.clearness)
    if not alike:  # definitions that contradict each other: the clearer one speaks
        return max(parts, key=lambda part: part.clearness)
    return max(alike, key=lambda part: math.inf if part.needed is None else part.needed)


def not_tested(
    claim: Claim, *, tried: bool, measures: Collection[str], left_out: Mapping[str, str], seeds: int | None = None
) -> Verdict:
    """A claim that nothing in this run could settle, with what it would need."""
    missing = [measure for measure in claim.measures if measure not in measures]
    away = [measure for measure in missing if measure in left_out]
    if claim.settled_by != "exam":
        reason = f"Needs the study {claim.settled_by}: {STUDIES[claim.settled_by]}."
    elif tried and len(missing) in (0, len(claim.measures)):  # of a claim of two measures one may have been left out
        reason = f"Needs {claim.wants}."
    elif away:
        reason = f"Needs {claim.wants}. {away[0]} was left out: {left_out[away[0]]}"
    elif missing:
        reason = f"Needs the measure {' and '.join(missing)}, and {claim.wants}."
    else:
        reason = f"No measure tests it yet; it needs {claim.wants}."
    return Verdict(claim.id, (), scope_words(seeds), "not tested", None, None, None, reason, measure=claim.measures[0])


# --- counting ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """How many claims were decided, and how many of the intervals behind them miss by chance."""

    holds: int = 0
    fails: int = 0
    undecided: int = 0
    not_tested: int = 0
    claims: int = 0
    """Claims with at least one verdict."""
    intervals: int = 0

    @property
    def decided(self) -> int:
        return self.holds + self.fails

    @property
    def expected_misses(self) -> float:
        return 0.05 * self.intervals

    def __str__(self) -> str:
        hold, fail = ("holds" if self.holds == 1 else "hold"), ("fails" if self.fails == 1 else "fail")
        text = (
            f"{count(self.decided, 'verdict')} decided ({self.holds} {hold}, {self.fails} {fail}) and {self.undecided} "
            f"undecided, on {count(self.claims, 'claim')}; {count(self.not_tested, 'claim')} not tested."
        )
        if self.intervals:
            text += (
                f" Of the {count(self.intervals, 'interval')} behind them about one in twenty misses: "
                f"expect {self.expected_misses:.1f}."
            )
        return text


def summarise(verdicts: Sequence[Verdict]) -> Summary:
    counts = {"holds": 0, "fails": 0, "undecided": 0, "not tested": 0}
    for verdict in verdicts:
        counts[verdict.verdict] += 1
    summary = Summary(counts["holds"], counts["fails"], counts["undecided"], counts["not tested"])
    tested = {verdict.claim for verdict in verdicts if verdict.verdict != "not tested"}
    intervals = sum(math.isfinite(part.low) and math.isfinite(part.high) for part in _parts(verdicts))
    return replace(summary, claims=len(tested), intervals=intervals)


def _parts(verdicts: Sequence[Verdict]) -> Iterator[PartVerdict]:
    for verdict in verdicts:
        yield from verdict.parts
