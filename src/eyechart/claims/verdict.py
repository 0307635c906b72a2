"""How a claim is tested, and what came of it: tests of parts, and verdicts as they are written and read back.

`judge.py` has the protocol that leads from the one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from eyechart.claims.gates import GATES, Gate, GateResult
from eyechart.claims.table import CLAIMS, Side, asked
from eyechart.claims.wording import THESE_WEIGHTS, interval_words
from eyechart.errors import EyechartError

Decision = Literal["holds", "fails", "undecided"]
Subjects = tuple[str, ...]
NUMBERS = ("effect", "low", "high", "clearness", "p")
"""Of a part: NaN where there is none."""


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
        return text if self.fails_at is None else f"{text}, and fails at {self.fails_at:g}".replace("-", "−")

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
        """Where a decision would begin. Between what holds and what fails that is nowhere: the value itself.

        >>> part = Part("gap", "above", 0.1, "gap", fails_at=0)
        >>> part.nearest_margin(0.3), part.nearest_margin(0.03), part.nearest_margin(-0.2)
        (0.1, 0.03, 0)
        """
        if self.side not in ("above", "below"):
            return math.copysign(self.margin, value)
        if self.fails_at is None or math.isnan(value):
            return self.margin
        return sorted((self.margin, value, self.fails_at))[1]


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
    least: int = 0
    """How many of its parts must hold, of several tests that ask the same in other ways; 0: all of them."""
    reading: str = ""
    """How this test reads the claim where several tests do: "without the class token". Shown behind its sentence."""

    def __post_init__(self) -> None:
        if self.claim not in CLAIMS:
            raise EyechartError(f"No claim is called {self.claim!r}; they run from C01 to {max(CLAIMS)}.")
        if not self.parts:
            raise EyechartError(f"The test of {self.claim} has no parts; it needs at least one quantity and margin.")
        if not 0 <= self.least <= len(self.parts):
            there = f"it has {len(self.parts)}"
            raise EyechartError(f"The test of {self.claim} asks that {self.least} parts hold; {there}.")
        fixed = {(margin.side, margin.margin, margin.inclusive) for margin in CLAIMS[self.claim].margins}
        for part in self.parts:
            if (part.side, part.margin, part.inclusive) not in fixed:
                raise EyechartError(
                    f"The test of {self.claim} asks {part.quantity!r} to be {part.asks}, but claims.toml fixes "
                    f"{CLAIMS[self.claim].margin}; change the one or the other."
                )

    @property
    def needed(self) -> int:
        """How many of its parts must hold."""
        return self.least or len(self.parts)

    def combine(self, decisions: Sequence[Decision]) -> Decision:
        """What is decided of the claim where this is decided of its parts."""
        too_many = len(self.parts) - self.needed + 1 if self.disagreement == "fails" else len(self.parts)
        if decisions.count("holds") >= self.needed:
            return "holds"
        return "fails" if decisions.count("fails") >= too_many else "undecided"

    @property
    def checks(self) -> tuple[Gate, ...]:
        return tuple(GATES[key] for key in CLAIMS[self.claim].gates) if self.gates is None else self.gates

    def as_json(self) -> dict[str, Any]:
        """What this reading of the claim asks for."""
        return {
            "reading": self.reading,
            "parts": [asdict(part) | {"asks": part.asks} for part in self.parts],
            "disagreement": self.disagreement,
            "least": self.needed,
            "gates": [gate.key for gate in self.checks],
        }


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
    p: float = math.nan
    """How easily it is this far from its margin by chance: see `multiplicity.py`."""

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
