"""Every reason that a verdict may give is said in Korean: all claims, with every kind of number and of subject."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from eyechart.claims.gates import Facts
from eyechart.claims.judge import Measured, decide
from eyechart.claims.parts import ClaimTest
from eyechart.claims.table import CLAIMS
from eyechart.measures import choose_measures
from eyechart.report import words
from eyechart.report.translation import Translator

TESTS = [test for claim in CLAIMS.values() if claim.settled_by == "exam" for test in claim.tests]
SUBJECTS = ("zoo:vit", "zoo:resnet")

NUMBER = Measured(0.3123, 0.2911, 0.3335, images=1000, measure="cka")
NUMBERS = {
    "a number": NUMBER,
    "a wide one": replace(NUMBER, low=-40.0, high=40.0),
    "none": replace(NUMBER, value=math.nan, low=math.nan, high=math.nan),
    "no interval": replace(NUMBER, low=math.nan, high=math.nan),
    "few images": replace(NUMBER, images=8),
    "of weights": replace(NUMBER, low=-40.0, high=40.0, of_weights=True),
    "not smooth": replace(NUMBER, low=-40.0, high=40.0, smooth=False),
    "still moving": replace(NUMBER, low=-40.0, high=40.0, half=9.0),
    "of few": replace(NUMBER, low=-40.0, high=40.0, of_few=True),
}

TRAINED: dict[str, Any] = {
    "architecture": "transformer", "trained": True, "images": "sample", "accuracy": (0.92, 0.9, 0.94), "recipe": "ours",
    "settings": {}, "training_images": 50_000, "grid": (8, 8), "last_grid": (8, 8), "heads": (8,) * 9, "classes": 10,
    "pooling": "cls",
}  # fmt: skip
FACTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "untrained": ({"trained": False, "recipe": None}, {"trained": False, "recipe": None}),
    "unknown": (
        {"trained": None, "accuracy": None, "grid": None, "last_grid": None, "pooling": None},
        {"recipe": None},
    ),
    "poor": ({"accuracy": (0.4, 0.38, 0.42), "training_images": None}, {"accuracy": (0.1, 0.08, 0.12)}),
    "unlike": ({"recipe": "theirs", "heads": (1,), "grid": (2, 2), "last_grid": (1, 1)}, {"pooling": "gap"}),
    "set otherwise": ({"settings": {"epochs": 3}}, {"settings": {"epochs": 4}, "training_images": 300_000_000}),
}


@pytest.fixture(scope="module")
def say() -> Translator:
    return words.translator(choose_measures(None, None), SUBJECTS)


def untold(say: Translator, test: ClaimTest, reading: Measured, changes: tuple[dict[str, Any], ...]) -> set[str]:
    facts = [Facts(name, **(TRAINED | change)) for name, change in zip(SUBJECTS, changes, strict=True)]
    verdict = decide(test, SUBJECTS, [reading] * len(test.parts), facts)
    return {text for text in (verdict.reason, verdict.remarks) if text and say(text) is None}


@pytest.mark.parametrize("kind", NUMBERS)
def test_of_every_number(say: Translator, kind: str) -> None:
    assert {text for test in TESTS for text in untold(say, test, NUMBERS[kind], ({}, {}))} == set()


@pytest.mark.parametrize("kind", FACTS)
def test_of_all_subjects(say: Translator, kind: str) -> None:
    assert {text for test in TESTS for text in untold(say, test, NUMBER, FACTS[kind])} == set()
