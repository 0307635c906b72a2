"""Which tests of claims an exam asks, given its measures and their options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from eyechart.claims.parts import ClaimTest
from eyechart.claims.table import CLAIMS, Claim


class Offers(Protocol):
    """What is asked of a measure here: its name, its options, and how these make claims read."""

    @property
    def name(self) -> str: ...
    @property
    def reading(self) -> str | None: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


def asked_of(measures: Iterable[Offers], claims: Mapping[str, Claim] = CLAIMS) -> list[ClaimTest]:
    """Every test of every claim that is asked of one of these measures."""
    return [test for measure in measures for claim in claims.values() for test in of_claim(claim, measure)]


def of_claim(claim: Claim, measure: Offers) -> Sequence[ClaimTest]:
    if measure.reading is None:
        return ()
    fitting = (test for test in claim.tests if test.measure == measure.name and fits(test, measure))
    return [read_as(test, measure.reading) for test in fitting]


def fits(test: ClaimTest, measure: Offers) -> bool:
    options = measure.options
    wanted = all(options[name] == value for name, value in test.when.items())
    return wanted and not any(options[name] == value for name, value in test.unless.items())


def read_as(test: ClaimTest, reading: str) -> ClaimTest:
    """The test, with how the options of its measure make it read behind its own reading."""
    both = ", ".join(words for words in (test.reading, reading) if words)
    return replace(test, reading=both)


def quantities_asked(measures: Iterable[str], claims: Mapping[str, Claim] = CLAIMS) -> set[str]:
    """Quantities that some test of these measures reads."""
    names = set(measures)
    tests = (test for claim in claims.values() for test in claim.tests if test.measure in names)
    return {part.quantity for test in tests for part in test.parts}
