"""What is left when many claims are tested at once: p from an interval, and Holm's correction."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.claims.multiplicity import holm, p_value, stands
from eyechart.claims.parts import ClaimTest, Decision, Part, Side
from eyechart.claims.summary import Summary, summarise
from eyechart.claims.verdict import PartVerdict, Verdict
from tests.claims.nulls.made_up import FOLDS, finding, noisy

GAP = Part("uniformity_gap", "above", 0.1, "gap", inclusive=True)


def p_of(part: Part, value: float, low: float, high: float) -> float:
    return p_value(part, part.decide(low, high), value, low, high, FOLDS)


def test_p_is_that_of_the_t_test_behind_the_interval() -> None:
    images = np.random.default_rng(0).normal(0.4, 0.8, size=FOLDS)
    low, high = stats.t.interval(0.95, FOLDS - 1, loc=images.mean(), scale=stats.sem(images))
    expected = stats.ttest_1samp(images, 0.1).pvalue
    assert p_of(GAP, images.mean(), low, high) == pytest.approx(max(expected, 0.05 * (low < 0.1 < high)))


@pytest.mark.parametrize("side", ["above", "below", "within", "outside"])
def test_p_is_below_five_percent_exactly_where_the_interval_decides(side: Side) -> None:
    part, generator = Part("q", side, 0.1, "q"), np.random.default_rng(1)
    for _ in range(300):
        value = generator.normal(0, 0.2)
        low, high = value - generator.exponential(0.1), value + generator.exponential(0.1)
        assert (p_of(part, value, low, high) < 0.05) == (part.decide(low, high) != "undecided")


def test_p_where_the_interval_is_odd() -> None:
    assert math.isnan(p_of(GAP, 0.3, math.nan, math.nan))
    assert p_of(GAP, 0.3, 0.3, 0.3) == 0, "read off the weights: nothing was drawn"
    assert p_of(GAP, 0.1, 0.1, 0.1) == 0, "at least 0.1 is met by 0.1"
    assert p_of(GAP, 0.3, -math.inf, math.inf) == 1
    assert p_of(GAP, math.inf, math.inf, math.inf) == 0
    signs = Part("z", "above", 1.645, "z", fails_at=0.0)
    assert p_of(signs, -0.5, -1.0, -0.1) < 0.05, "it fails by its own margin"
    assert p_of(signs, 0.8, 0.7, 0.9) >= 0.05, "between the two nothing is decided"


def test_an_interval_of_weights_has_a_p_too() -> None:
    found = finding({("uniformity_gap", "vit | cnn"): (0.3, 0.28, 0.32)}).assign_attrs(folds=0, of_weights=1)
    facts = {name: Facts(name, "transformer", trained=True) for name in ("vit", "cnn")}
    verdicts = judge([ClaimTest("C13", (GAP,), gates=())], {"cka": found}, facts)
    [verdict] = [verdict for verdict in verdicts if verdict.claim == "C13"]
    assert verdict.stands
    assert verdict.parts[0].p < 1e-6


def test_holm_by_hand() -> None:
    assert holm([0.04]) == [True]
    assert holm([0.04, 0.04]) == [False, False]
    assert holm([0.04, 0.02]) == [True, True]  # .02 ≤ .05 / 2, then .04 ≤ .05 / 1
    assert holm([0.3, 0.012, 0.001, 0.02]) == [False, True, True, True]
    assert holm([0.3, 0.018, 0.001, 0.02]) == [False, False, True, False]
    assert holm([]) == []


def part_verdict(verdict: Decision) -> PartVerdict:
    return PartVerdict("q", "q", "above", 0.0, False, None, 0.0, 0.0, 0.0, verdict, 1.0, None)


@pytest.mark.parametrize(
    ("disagreement", "word", "parts", "stays", "expected"),
    [
        ("two of three", "holds", ["holds", "holds", "holds"], [True, False, True], True),
        ("two of three", "holds", ["holds", "holds", "fails"], [True, False, True], False),
        ("two of three", "fails", ["fails", "holds", "fails"], [True, False, True], True),
        ("fails", "holds", ["holds", "holds"], [True, True], True),
        ("fails", "holds", ["holds", "holds"], [True, False], False),
        ("fails", "fails", ["holds", "fails"], [False, True], True),
        ("fails", "fails", ["holds", "fails"], [True, False], False),
        ("fails", "fails", ["fails", "fails"], [True, False], True),
        ("undecided", "fails", ["fails", "fails"], [True, False], False),
    ],
)
def test_a_verdict_stands_on_the_parts_that_carry_it(
    disagreement: str, word: Decision, parts: list[Decision], stays: list[bool], expected: bool
) -> None:
    how: dict[str, Any] = {"least": 2} if disagreement == "two of three" else {"disagreement": disagreement}
    test = ClaimTest("C13", (GAP,) * len(parts), **how)
    verdict = Verdict("C13", ("a",), "", word, None, None, None, "", tuple(map(part_verdict, parts)))
    assert stands(test, verdict, stays) is expected


def all_pairs(seed: int, subjects: int = 6) -> list[Verdict]:
    """Every pair among subjects that are all alike, tested for a gap that lies exactly on its margin."""
    generator = np.random.default_rng(seed)
    names = [f"subject {place}" for place in range(subjects)]
    rows = {
        ("uniformity_gap", f"{one} | {two}"): noisy(0.1, 0.05, generator)
        for one, two in itertools.combinations(names, 2)
    }
    facts = {name: Facts(name, "transformer", trained=True) for name in names}
    verdicts = judge([ClaimTest("C13", (GAP,), gates=())], {"cka": finding(rows)}, facts)
    return [verdict for verdict in verdicts if verdict.claim == "C13"]


def test_of_all_pairs_among_six_alike_subjects_nearly_nothing_is_left() -> None:
    runs = [summarise(all_pairs(seed)) for seed in range(100)]
    assert all(run.intervals == 15 for run in runs)
    assert sum(run.decided > 0 for run in runs) > 40, "by chance, in about half of the runs"
    stand = [run.stand for run in runs if run.stand is not None]
    assert len(stand) == len(runs)
    assert sum(count > 0 for count in stand) <= 11, "in 5 %, and what chance adds to 100 runs"


def test_what_is_clear_stays_among_many() -> None:
    facts = {name: Facts(name, "transformer", trained=True) for name in ("vit", "cnn", "other")}
    clear, barely = (0.3, 0.28, 0.32), (0.3, 0.11, 0.49)
    rows = {("uniformity_gap", "vit | cnn"): clear, ("uniformity_gap", "vit | other"): barely}
    verdicts = judge([ClaimTest("C13", (GAP,), gates=())], {"cka": finding(rows)}, facts)
    first, second = (verdict for verdict in verdicts if verdict.claim == "C13")
    assert (first.verdict, first.stands, second.verdict, second.stands) == ("holds", True, "holds", True)
    rows |= {("uniformity_gap", f"vit | {name}"): (0.1, 0.0, 0.2) for name in ("vit", "vit and cnn")}
    facts |= {name: Facts(name, "cnn", trained=True) for name in ("vit and cnn",)}
    verdicts = judge([ClaimTest("C13", (GAP,), gates=())], {"cka": finding(rows)}, facts)
    told = {verdict.subjects[1]: verdict for verdict in verdicts if verdict.claim == "C13"}
    assert (told["cnn"].stands, told["other"].stands, told["vit"].stands) == (True, False, None)
    assert Verdict.from_json(told["other"].as_json()) == told["other"]
    assert "1 of 2 decided verdicts stays decided" in str(summarise(verdicts))
    assert Summary(holds=1, intervals=3, stand=0).correction.endswith(" 0 of 1 decided verdict stays decided.")
