"""The sentences of a verdict, made from its numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from eyechart.phrases import count, span_of

THESE_WEIGHTS = "these weights"


def scope_words(seeds: int | None) -> str:
    """An exam speaks of the weights it was given, a study of an architecture under a recipe."""
    return THESE_WEIGHTS if seeds is None else f"this architecture, over {count(seeds, 'seed')}"


def sentences(texts: Sequence[str]) -> str:
    """
    >>> sentences(["It holds", "All of it"]), sentences([])
    ('It holds. All of it.', '')
    """
    return ". ".join(texts) + "." if texts else ""


def begin(sentence: str, subjects: tuple[str, ...]) -> str:
    """With a capital, unless it begins with the name of a subject.

    >>> begin("the recipes differ", ("zoo:vit",)), begin("zoo:vit has no heads", ("zoo:vit",))
    ('The recipes differ', 'zoo:vit has no heads')
    """
    return sentence if sentence.startswith(subjects) else sentence[:1].upper() + sentence[1:]


def interval_words(value: float, low: float, high: float) -> str:
    """
    >>> interval_words(0.3123, 0.2911, 0.3335), interval_words(0.5, math.nan, math.nan)
    ('0.312 [0.291, 0.334]', '0.50 (no interval)')
    >>> interval_words(0.2214, 0.2214, 0.2214), interval_words(1.0, 0.9999999, 1.0)
    ('0.22 [± 0]', '1.000000 [± < 0.000001]')
    """
    half = (high - low) / 2
    # Two digits of the half-width; an exact or unknown width says nothing about digits.
    digits = 1 - math.floor(math.log10(half)) if half > 0 else 2
    digits = min(max(digits, 2), 6)
    shown = [f"{x:.{digits}f}".replace("-", "−") for x in (value, low, high)]
    return shown[0] + (" (no interval)" if math.isnan(half) else f" [{span_of(shown[1], shown[2], digits, half)}]")


BOTH = {
    "holds": "Both of its parts hold",
    "fails": "Both of its parts fail",
    "undecided": "Both of its parts are undecided",
}


def count_parts(decisions: Sequence[str], least: int = 0) -> str:
    """
    >>> count_parts(["holds", "fails", "holds"])
    'Of its 3 parts 2 hold, 1 fails'
    >>> count_parts(["holds", "undecided", "undecided"], least=2)
    'Of its 3 parts 1 holds, 2 are undecided; 2 must hold'
    >>> count_parts(["holds", "holds"]), count_parts(["fails"] * 3, least=2)
    ('Both of its parts hold', 'All of its 3 parts fail; 2 must hold')
    """
    forms = {"holds": "holds hold", "fails": "fails fail", "undecided": "is_undecided are_undecided"}
    counts = []
    for decision, verbs in forms.items():
        times = decisions.count(decision)
        if times:
            counts.append(f"{times} {verbs.split()[times > 1].replace('_', ' ')}")
    of_them = f"Of its {len(decisions)} parts {', '.join(counts)}"
    if len(counts) == 1 and len(decisions) > 1:  # "Of its 2 parts 2 hold" reads as one number
        everyone = f"All of its {len(decisions)} parts {counts[0].partition(' ')[2]}"
        of_them = BOTH[decisions[0]] if len(decisions) == 2 else everyone
    return of_them + (f"; {least} must hold" if least else "")


def by_numbers(counted: str) -> str:
    """Of a verdict that a gate keeps undecided: that parts hold is not said of the subject.

    >>> by_numbers("Both of its parts hold"), by_numbers("Both of its parts fail")
    ('By the numbers alone, both of its parts hold', 'By the numbers alone, both of its parts fail')
    >>> by_numbers("All of its 3 parts are undecided")
    'All of its 3 parts are undecided'
    """
    decided = re.search(r"\b(holds?|fails?)\b", counted.partition(";")[0])
    return f"By the numbers alone, {counted[:1].lower()}{counted[1:]}" if decided else counted


MOST_SEEDS = 100
"""Beyond that a forecast only says that the effect is next to nothing: nobody trains so many."""


def what_would_decide(
    effect: float, width: float, needed: int | None, used: int, unit: str, smooth: bool = True
) -> str:
    """Why an interval does not decide, and how many images or seeds would.

    >>> what_would_decide(0.12, 0.08, needed=4001, used=1000, unit="images")
    'About 4,100 images would decide it (1,000 were used), if the effect stays'
    """
    if math.isnan(effect):
        return "Without a number nothing is decided"
    if math.isnan(width):
        return f"There is no interval: too few {unit}"
    if not smooth:
        return f"More {unit} may decide it" if width > 0 else "It lies between what holds and what fails"
    if needed is None:
        return f"The effect lies on the margin or between two, so no number of {unit} would decide it"
    if unit == "seeds" and needed > MOST_SEEDS:
        return f"More than {MOST_SEEDS:,} seeds would be needed ({used:,} were used), if the effect stays"
    return f"About {round_up(needed):,} {unit} would decide it ({used:,} were used), if the effect stays"


IN_QUESTION = "The part in question"
"""Of several: the one whose number is told."""


def counts_few(it: str, unit: str) -> str:
    """Of an interval as wide as what is counted makes it, and not as its images do."""
    return f"{it} counts few blocks or sub-layers, so more {unit} would hardly decide it"


def still_moves(it: str, value: float, half: float) -> str:
    """
    >>> still_moves("It", 0.97, 0.52)
    'It still moves with the number of images: 0.52 at half of them, 0.97 at all'
    """
    shown = [f"{x:.2f}".replace("-", "−") for x in (half, value)]
    return f"{it} still moves with the number of images: {shown[0]} at half of them, {shown[1]} at all"


def round_up(number: int) -> int:
    """To two digits: such a forecast is worth no more.

    >>> round_up(4001), round_up(17)
    (4100, 17)
    """
    step = int(10 ** max(0, len(str(number)) - 2))
    return -(-number // step) * step
