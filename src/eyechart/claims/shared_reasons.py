"""Reasons that several verdicts share, each under a letter, so that a list of verdicts says them once.

With untrained subjects one gate fails for every claim: a terminal repeated its sentence 38 times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from typing import TYPE_CHECKING

from eyechart.claims.wording import begin
from eyechart.phrases import count

if TYPE_CHECKING:
    from eyechart.claims.verdict import Verdict

MANY = 4
"""Verdicts that share a reason before it gets a letter; of fewer, looking it up takes longer than reading it again."""
STOPPED = "Gate failed, so nothing is decided: "
FEW_IMAGES = re.compile(r"Fewer than \d+ images, so nothing is decided")


@dataclass(frozen=True)
class Reason:
    """A piece of the remarks of a verdict, as it stands there."""

    words: str
    stops: bool
    """Whether it is why nothing is decided, and not only something that is not known."""
    sentence: bool = True
    """Whether it is a sentence; of several failed gates each is a part of one."""


class SharedReasons:
    """What the undecided among some verdicts have in common."""

    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        self.verdicts = [verdict for verdict in verdicts if verdict.verdict == "undecided"]
        uses = Counter(reason for verdict in self.verdicts for reason in reasons_of(verdict))
        shared = (reason for reason, many in uses.items() if many >= MANY)
        self.letters = dict(zip(shared, letters(), strict=False))

    def lines(self) -> list[str]:
        """Each shared reason with its letter, what it is said of, and its words."""
        return [f"({letter}) {self.said_of(reason)}: {reason.words}." for reason, letter in self.letters.items()]

    def said_of(self, reason: Reason) -> str:
        claims = Counter(verdict.claim for verdict in self.verdicts if reason in reasons_of(verdict))
        listed = ", ".join(f"{claim} ({many}×)" if many > 1 else claim for claim, many in claims.items())
        verdicts = count(claims.total(), "verdict")
        return f"Leaves {verdicts} undecided, on {listed}" if reason.stops else f"Said of {verdicts}, on {listed}"

    def remarks(self, verdict: Verdict) -> str:
        """The remarks of a verdict with a letter in the place of each shared reason."""
        text = verdict.remarks
        for reason in reasons_of(verdict):
            if reason in self.letters:
                letter = f"({self.letters[reason]})"
                text = text.replace(f"{reason.words}.", f"See {letter}.", 1) if reason.sentence else text
                text = text.replace(reason.words, letter, 1)
        return re.sub(rf"^{STOPPED}(\(\w+\)(?:; \(\w+\))*)\.", r"Gate failed, see \1.", text)


def reasons_of(verdict: Verdict) -> list[Reason]:
    """Failed gates, gates that could not be asked and too few images, as its remarks say them."""
    return [reason for reason in possible_reasons(verdict) if reason.words in verdict.remarks]


def possible_reasons(verdict: Verdict) -> Iterator[Reason]:
    few = FEW_IMAGES.match(verdict.remarks)
    if few:
        yield Reason(few[0], stops=True)
    for gate in verdict.gates:
        if gate.outcome == "failed":
            yield Reason(f"{gate.title} ({gate.gate}): {gate.words}", stops=True, sentence=False)
        elif gate.outcome != "passed":
            yield Reason(begin(gate.words, verdict.subjects), stops=False)


def letters() -> Iterator[str]:
    """a to z, then a1 to z1: never too few.

    >>> names = letters()
    >>> [next(names) for _ in range(28)][25:]
    ['z', 'a1', 'b1']
    """
    for turn in count_up():
        for letter in "abcdefghijklmnopqrstuvwxyz":
            yield f"{letter}{turn or ''}"
