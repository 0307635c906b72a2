"""Numbers as a reader should see them: no more digits than the interval supports, a true minus."""

from __future__ import annotations

import math
from numbers import Real

from eyechart.phrases import span_of


def is_number(value: object) -> bool:
    """NumPy's count, too: those of 32 bits are no `float`."""
    return isinstance(value, Real) and math.isfinite(value)


def decimals_for(low: float, high: float) -> int:
    """Two significant digits of the interval's width; of a share or a correlation that could be anything, two decimals.

    >>> decimals_for(0.29, 0.33), decimals_for(10, 90), decimals_for(-0.98, 0.28)
    (3, 0, 2)
    """
    width = abs(high - low)
    return 3 if width == 0 else min(max(1 - math.floor(math.log10(width)), 2 if width < 2 else 0), 6)


def number(value: float | None, decimals: int | None = None) -> str:
    """
    >>> number(-0.0312), number(2692106), number(float("nan")), number(0.5, decimals=3), number(-0.001, decimals=2)
    ('−0.0312', '2,692,106', 'n/a', '0.500', '0.00')
    """
    if value is None or not is_number(value):
        return "n/a"
    if decimals is None:
        digits = 0 if value == 0 else 2 - math.floor(math.log10(abs(value)))
        text = f"{value:.1e}" if digits > 6 else f"{value:,.{max(digits, 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    else:
        text = f"{value:,.{decimals}f}"
    text = text.lstrip("-") if not text.strip("-0.,") else text  # no −0.00
    return text.replace("-", "−")


def with_span(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """The number and its interval, with the same decimals; an empty interval where there is none.

    >>> with_span(0.3111, 0.29, 0.332), with_span(0.06, -0.0021, 0.13)
    (('0.311', '0.290, 0.332'), ('0.060', '−0.002, 0.130'))
    >>> with_span(0.99999925, 0.9999991, 0.9999994), with_span(3.0, 3.0, 3.0)
    (('0.999999', '± < 0.000001'), ('3.000', '± 0'))
    """
    if low is None or high is None or not (is_number(low) and is_number(high)):
        return number(value), ""
    decimals = decimals_for(low, high)
    for end in (low, high):  # on which side of zero an end lies is what it is read for
        decimals += end != 0 and decimals < 6 and round(end, decimals) == 0
    span = span_of(number(low, decimals), number(high, decimals), decimals, high - low)
    return number(value, decimals), span


def in_words(value: float | None, low: float | None, high: float | None, *, without: str = "no interval") -> str:
    """
    >>> in_words(0.3111, 0.29, 0.332), in_words(0.14, math.nan, math.nan)
    ('0.311 [0.290, 0.332]', '0.14 (no interval)')
    """
    shown, span = with_span(value, low, high)
    return f"{shown} [{span}]" if span else f"{shown} ({without})"


def percent(value: float) -> str:
    """
    >>> percent(0.8714)
    '87.1\\xa0%'
    """
    return f"{100 * value:.1f}\u00a0%"


def count(value: int) -> str:
    return f"{value:,}"
