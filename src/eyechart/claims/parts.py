"""How a claim is tested: what it asks of quantities, and how the answers of its parts combine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from eyechart.claims.gates import Gate
from eyechart.errors import EyechartError

Side = Literal["above", "below", "within", "outside"]
Decision = Literal["holds", "fails", "undecided"]


def asked(side: Side, margin: float, inclusive: bool = False) -> str:
    """
    >>> asked("above", 0.1, inclusive=True), asked("below", 0.5), asked("within", 0.02)
    ('at least 0.1', 'less than 0.5', 'within ±0.02')
    """
    words = {"above": ("more than", "at least"), "below": ("less than", "at most")}
    return f"{words[side][inclusive]} {exactly(margin)}" if side in words else f"{side} ±{exactly(margin)}"


def with_failing(text: str, side: Side, fails_at: float | None) -> str:
    """
    >>> with_failing("more than 1.645", "above", 0)
    'more than 1.645 (0 or less fails)'
    """
    beyond = "less" if side == "above" else "more"
    return text if fails_at is None else f"{text} ({exactly(fails_at)} or {beyond} fails)"


def exactly(margin: float) -> str:
    """A margin with all its digits, as the table of claims has it.

    >>> exactly(-1.645)
    '−1.645'
    """
    return f"{margin:g}".replace("-", "−")


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
    measure: str = ""
    """Whose quantity it is, if not that of the test's own measure."""
    plainly: str = ""
    """What a reader is told instead of `words`, where those were registered for studies in a way hard to read."""

    def __post_init__(self) -> None:
        if self.side not in get_args(Side):
            raise EyechartError(f"{self.quantity} is asked to lie {self.side!r}; expected {', '.join(get_args(Side))}.")

    @property
    def told(self) -> str:
        return self.plainly or self.words

    @property
    def asks(self) -> str:
        return with_failing(asked(self.side, self.margin, self.inclusive), self.side, self.fails_at)

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
    """One reading of a claim: what must be true of which quantities, of subjects that pass which gates."""

    claim: str
    parts: tuple[Part, ...]
    gates: tuple[Gate, ...] = ()
    proxy: bool = False
    disagreement: Literal["fails", "undecided"] = "fails"
    """What it means that one part holds and another fails: a compound claim fails, alternative definitions do not."""
    least: int = 0
    """How many of its parts must hold, of several tests that ask the same in other ways; 0: all of them."""
    reading: str = ""
    """How this test reads the claim where several tests do: "without the class token". Shown behind its sentence."""
    measure: str = ""
    """Whose options decide whether it is asked, and whose quantities its parts are unless they say otherwise."""
    when: Mapping[str, Any] = field(default_factory=dict)
    unless: Mapping[str, Any] = field(default_factory=dict)
    """Options of that measure under which alone it is asked, or is not asked."""

    def __post_init__(self) -> None:
        if not self.parts:
            raise EyechartError(f"The test of {self.claim} has no parts; it needs at least one quantity and margin.")
        if not 0 <= self.least <= len(self.parts):
            actual = f"it has {len(self.parts)}"
            raise EyechartError(f"The test of {self.claim} asks that {self.least} parts hold; {actual}.")

    @property
    def needed(self) -> int:
        """How many of its parts must hold."""
        return self.least or len(self.parts)

    @property
    def measures(self) -> tuple[str, ...]:
        """Every measure whose quantities it reads."""
        return tuple(dict.fromkeys([self.measure, *(part.measure or self.measure for part in self.parts)]))

    def combine(self, decisions: Sequence[Decision]) -> Decision:
        """What is decided of the claim where this is decided of its parts."""
        too_many = len(self.parts) - self.needed + 1 if self.disagreement == "fails" else len(self.parts)
        if decisions.count("holds") >= self.needed:
            return "holds"
        return "fails" if decisions.count("fails") >= too_many else "undecided"

    def stuck(self, decisions: Sequence[Decision]) -> bool:
        """Whether nothing is decided however its undecided parts may come out: definitions that disagree stay so.

        >>> parts = tuple(Part(name, "above", 0.0, name) for name in "abc")
        >>> test = ClaimTest("C30", parts, disagreement="undecided")
        >>> test.stuck(["holds", "fails", "undecided"]), test.stuck(["holds", "undecided", "undecided"])
        (True, False)
        """
        ways: tuple[Decision, Decision] = "holds", "fails"
        filled = [[way if each == "undecided" else each for each in decisions] for way in ways]
        return all(self.combine(each) == "undecided" for each in filled)

    def as_json(self) -> dict[str, Any]:
        """What this reading of the claim asks for."""
        return {
            "measure": self.measure,
            "reading": self.reading,
            "parts": [asdict(part) | {"asks": part.asks} for part in self.parts],
            "disagreement": self.disagreement,
            "least": self.needed,
            "gates": [gate.key for gate in self.gates],
        }
