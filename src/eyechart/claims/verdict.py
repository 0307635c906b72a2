"""What came of testing a claim: verdicts, as they are written and read back. `judge.py` has the protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from eyechart.claims.gates import GateResult
from eyechart.claims.parts import Decision, Side, asked, with_failing
from eyechart.claims.table import CLAIMS
from eyechart.claims.wording import THESE_WEIGHTS, interval_words

Subjects = tuple[str, ...]
NUMBERS = ("effect", "low", "high", "clearness", "p")
"""Of a part: NaN where there is none."""


@dataclass(frozen=True)
class PartVerdict:
    """One part of a claim with its own effect, interval and verdict. Numbers are NaN where there is none."""

    quantity: str
    words: str
    side: Side
    margin: float
    inclusive: bool
    fails_at: float | None
    effect: float
    low: float
    high: float
    verdict: Decision
    clearness: float
    """Distance of the effect from the margin in half-widths of the interval; infinite where it has no width."""
    needed: int | None
    """Images (in a study: seeds) that would decide an undecided part; None where no number would."""
    p: float = math.nan
    """How easily it is this far from its margin by chance: see `multiplicity.py`."""

    @property
    def asks(self) -> str:
        return with_failing(asked(self.side, self.margin, self.inclusive), self.side, self.fails_at)

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
    remarks: str = ""
    """The reason without the sentence of the part that is `shown`, for where its number stands beside; all of it where
    none is."""
    stands: bool | None = None
    """Whether it stays decided under Holm's correction over all intervals of the run; None: it is not decided."""

    @property
    def sentence(self) -> str:
        """The claim in one sentence, and how it was read where there are several readings."""
        claimed = CLAIMS[self.claim].sentence
        return f"{claimed} Read {self.reading}." if self.reading else claimed

    @property
    def shown(self) -> PartVerdict | None:
        """The part whose effect and interval stand in `effect`, `low` and `high`."""
        numbers = (self.effect, self.low, self.high)
        same = [part for part in self.parts if (part.effect, part.low, part.high) == numbers]
        # Two parts may ask for two sides of one number: the one that made the verdict is shown.
        return next((part for part in same if part.verdict == self.verdict), same[0] if same else None)

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
                PartVerdict(**{**part, **{key: number(part.get(key)) for key in NUMBERS}})
                for part in data.get("parts", ())
            ),
            proxy=data.get("proxy", False),
            measure=data.get("measure", ""),
            gates=tuple(GateResult(**gate) for gate in data.get("gates", ())),
            reading=data.get("reading", ""),
            remarks=data.get("remarks", ""),
            stands=data.get("stands"),
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
