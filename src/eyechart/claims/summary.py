"""How many verdicts there are of each kind, and how many of the intervals behind them miss by chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eyechart.phrases import count

if TYPE_CHECKING:
    from eyechart.claims.verdict import PartVerdict, Verdict


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
    stand: int | None = None
    """Verdicts that stay decided under Holm's correction over all intervals; None where that is not known."""

    @property
    def decided(self) -> int:
        return self.holds + self.fails

    @property
    def expected_misses(self) -> float:
        return 0.05 * self.intervals

    @property
    def expected(self) -> str:
        """`expected_misses` in digits that do not round one interval's 0.05 up to 0.1."""
        below_one = 0 < self.intervals < 20
        return f"{self.expected_misses:.2f}".rstrip("0") if below_one else f"{self.expected_misses:.1f}"

    @property
    def correction(self) -> str:
        """What a correction for so many intervals leaves; nothing where no verdict was decided or it is not known."""
        if not self.decided or self.stand is None:
            return ""
        stay = "stays" if 1 in (self.stand, self.decided) else "stay"
        return (
            f"With Holm's correction for all {count(self.intervals, 'interval')}, {self.stand} of "
            f"{count(self.decided, 'decided verdict')} {stay} decided."
        )

    def __str__(self) -> str:
        hold, fail = ("holds" if self.holds == 1 else "hold"), ("fails" if self.fails == 1 else "fail")
        text = (
            f"{count(self.decided, 'verdict')} decided ({self.holds} {hold}, {self.fails} {fail}) and {self.undecided} "
            f"undecided, on {count(self.claims, 'claim')}; {count(self.not_tested, 'claim')} not tested."
        )
        if self.intervals:
            one = self.intervals == 1
            behind = "Behind them is 1 interval, and" if one else f"Of the {self.intervals:,} intervals behind them"
            text += f" {behind} about one in twenty misses: expect {self.expected}."
        if self.correction:
            text += f" {self.correction}"
        return text


def summarise(verdicts: Sequence[Verdict]) -> Summary:
    counts = {"holds": 0, "fails": 0, "undecided": 0, "not tested": 0}
    for verdict in verdicts:
        counts[verdict.verdict] += 1
    summary = Summary(counts["holds"], counts["fails"], counts["undecided"], counts["not tested"])
    tested = {verdict.claim for verdict in verdicts if verdict.verdict != "not tested"}
    intervals = sum(math.isfinite(part.low) and math.isfinite(part.high) for part in _parts(verdicts))
    standings = [verdict.stands for verdict in verdicts if verdict.verdict in ("holds", "fails")]
    stand = None if None in standings else sum(map(bool, standings))  # a run of an older version does not tell
    return replace(summary, claims=len(tested), intervals=intervals, stand=stand)


def _parts(verdicts: Sequence[Verdict]) -> Iterator[PartVerdict]:
    for verdict in verdicts:
        yield from verdict.parts
