"""Many claims are tested at once: which verdicts stay decided when that is taken into account?

Among six subjects that are all alike there are 15 pairs, and of 15 intervals of 95 % one is clear of its margin by
chance in more than half of such exams. Each part of a verdict gets a number p, the smaller the clearer it is of its
margin, and Holm's correction over all intervals of the run says which of them stay:

    p₍₁₎ ≤ … ≤ p₍ₘ₎;   the i-th stays if all before it do and p₍ᵢ₎ ≤ 0.05 / (m − i + 1)

Then one that is false stays in at most 5 % of the runs, whatever depends on what.

All intervals of the run count, those that decide nothing too: to count the decided ones only would correct for less
than was tried. p comes from the interval, by Student's t with (folds − 1) degrees of freedom: the distance of the
effect from the margin in standard errors, of which the interval reaches t(.975) towards the margin. So it is below .05
exactly where the interval is clear of the margin. For an interval from a bootstrap it is an approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtr, stdtrit

if TYPE_CHECKING:
    from eyechart.claims.parts import ClaimTest, Decision, Part
    from eyechart.claims.verdict import Verdict

LEVEL = 0.05


def p_value(part: Part, decision: Decision, value: float, low: float, high: float, folds: int) -> float:
    """How easily the effect is this far from the margin by chance; NaN without an interval.

    >>> from eyechart.claims.parts import Part
    >>> gap = Part("gap", "above", 0.1, "gap")
    >>> [round(p_value(gap, "holds", 0.3, low, 0.5, folds=16), 4) for low in (0.1, 0.2, 0.28)]
    [0.05, 0.0007, 0.0]
    """
    if any(map(math.isnan, (value, low, high))) or folds < 2:
        return math.nan

    def clear_of(margin: float) -> float:
        """Two-sided p of one margin, from the end of the interval that faces it."""
        distance, end = abs(value - margin), low if value > margin else high
        reach = 0.0 if end == value else abs(value - end)
        if reach == 0:
            return 0.0  # nothing was drawn, so nothing came by chance
        if math.isinf(reach):
            return 1.0
        return float(2 * stdtr(folds - 1, -stdtrit(folds - 1, 1 - LEVEL / 2) * distance / reach))

    if part.side in ("above", "below"):
        p = clear_of(part.margin if decision != "fails" or part.fails_at is None else part.fails_at)
    else:
        inside = abs(value) <= abs(part.margin)
        # Inside, the interval must be clear of both margins; outside, of the one it lies beyond.
        p = (
            max(clear_of(part.margin), clear_of(-part.margin))
            if inside
            else clear_of(math.copysign(part.margin, value))
        )
    return max(p, LEVEL) if decision == "undecided" else p


def holm(numbers: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of these p stay below the level when all of them are tested. NaN was not tested, and does not stay.

    >>> holm([0.001, 0.02, 0.03, 0.5, math.nan])
    [True, False, False, False, False]
    """
    p = np.asarray(numbers, dtype=float)
    tested = int(np.isfinite(p).sum())
    stays = np.zeros(len(p), dtype=bool)
    for rank, which in enumerate(np.argsort(p)[:tested]):
        if p[which] > level / (tested - rank):
            break
        stays[which] = True
    return stays.tolist()


def stands(test: ClaimTest, verdict: Verdict, stays: Sequence[bool]) -> bool:
    """Whether a decided verdict is the same when the parts that do not stay count as undecided."""
    left: list[Decision] = [
        part.verdict if stay else "undecided" for part, stay in zip(verdict.parts, stays, strict=True)
    ]
    return test.combine(left) == verdict.verdict
