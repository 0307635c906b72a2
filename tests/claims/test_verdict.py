"""The verdict protocol, branch by branch, on intervals whose verdicts can be read off by hand."""

import math

import pytest

from eyechart.claims.judge import Measured, decide, judge
from eyechart.claims.parts import Decision, Part, Side
from eyechart.errors import EyechartError
from tests.claims.by_hand import C09, FACTS, GAP, compound, finding, gap_verdict, of, of_table


@pytest.mark.parametrize(
    ("side", "inclusive", "margin", "low", "high", "decision"),
    [
        ("above", False, 0.1, 0.11, 0.2, "holds"),
        ("above", False, 0.1, 0.1, 0.2, "undecided"),
        ("above", False, 0.1, 0.1, 0.1, "fails"),
        ("above", False, 0.1, 0.05, 0.2, "undecided"),
        ("above", False, 0.1, -0.2, 0.1, "fails"),
        ("above", True, 0.1, 0.1, 0.2, "holds"),
        ("above", True, 0.1, -0.2, 0.1, "undecided"),
        ("above", True, 0.1, -0.2, 0.09, "fails"),
        ("below", False, 0.5, 0.3, 0.49, "holds"),
        ("below", False, 0.5, 0.3, 0.5, "undecided"),
        ("below", False, 0.5, 0.5, 0.6, "fails"),
        ("below", True, 0.5, 0.5, 0.5, "holds"),
        ("below", False, -0.5, -0.6, -0.4, "undecided"),
        ("below", False, -0.5, -0.8, -0.6, "holds"),
        ("below", False, -0.5, -0.2, 0.2, "fails"),
        ("within", False, 0.01, -0.009, 0.009, "holds"),
        ("within", False, 0.01, -0.02, 0.005, "undecided"),
        ("within", False, 0.01, -0.02, 0.02, "undecided"),
        ("within", False, 0.01, 0.011, 0.02, "fails"),
        ("within", False, 0.01, -0.03, -0.011, "fails"),
        ("within", False, 0.01, 0.01, 0.01, "fails"),
        ("within", True, 0.01, 0.01, 0.01, "holds"),
        ("outside", False, 0.01, 0.011, 0.02, "holds"),
        ("outside", False, 0.01, -0.03, -0.011, "holds"),
        ("outside", False, 0.01, 0.0, 0.02, "undecided"),
        ("outside", False, 0.01, -0.009, 0.009, "fails"),
        ("outside", False, 0.01, 0.01, 0.01, "fails"),
        ("outside", True, 0.01, -0.01, -0.01, "holds"),
        ("above", False, 0.1, math.nan, 0.2, "undecided"),
        ("within", False, 0.1, math.nan, math.nan, "undecided"),
    ],
)
def test_where_the_whole_interval_lies(
    side: Side, inclusive: bool, margin: float, low: float, high: float, decision: Decision
) -> None:
    assert Part("q", side, margin, "", inclusive).decide(low, high) == decision


def test_a_directional_claim_that_holds_says_so_in_one_sentence() -> None:
    verdict = gap_verdict(0.3123, 0.2911, 0.3335)
    assert (verdict.verdict, verdict.subjects, verdict.scope) == ("holds", ("vit", "cnn"), "these weights")
    assert (verdict.effect, verdict.low, verdict.high, verdict.measure) == (0.3123, 0.2911, 0.3335, "cka")
    assert (
        verdict.reason == "Uniformity of vit above that of cnn: 0.312 [0.291, 0.334]; the claim asks for at least 0.1."
    )
    assert verdict.words == "holds on these weights"


def test_a_directional_claim_fails_and_is_undecided() -> None:
    assert gap_verdict(0.05, 0.02, 0.08).verdict == "fails"
    undecided = gap_verdict(0.12, 0.08, 0.16)
    # Half-width 0.04 must shrink below the distance 0.02: four times the images, and one more.
    assert undecided.verdict == "undecided"
    assert undecided.parts[0].needed == 4001
    assert "About 4,100 images would decide it (1,000 were used)" in undecided.reason


def test_a_value_on_the_margin_cannot_be_decided_by_more_images() -> None:
    said = gap_verdict(0.1, 0.05, 0.15).reason
    assert "lies on the margin or between two, so no number of images would decide it" in said
    between = Part("gap", "above", 0.1, "gap of {0}", fails_at=0)
    assert between.decide(0.02, 0.04) == "undecided"
    assert between.nearest_margin(0.03) == 0.03


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_missing_number_is_undecided_with_a_reason(value: float) -> None:
    verdict = gap_verdict(value, 0.2, 0.3)
    assert (verdict.verdict, verdict.effect, verdict.low, verdict.high) == ("undecided", None, None, None)
    assert "not a number on these subjects and images" in verdict.reason


def test_a_number_without_an_interval_is_undecided_but_shown() -> None:
    verdict = gap_verdict(0.3, math.nan, math.nan)
    assert verdict.verdict == "undecided"
    assert verdict.effect == 0.3
    assert verdict.low is not None
    assert math.isnan(verdict.low)
    assert "There is no interval: too few images" in verdict.reason


def test_equivalence_needs_the_nearer_edge() -> None:
    part = Part("gap", "within", 0.02, "gap of {0} and {1}")
    found = {"recognition": finding(("gap", "vit | cnn", -0.015, -0.025, -0.005))}
    [verdict] = of("C67", judge([of_table("C67", (part,))], found, FACTS))
    # The nearer edge is −0.02: a half-width of 0.01 must shrink below 0.005.
    assert verdict.verdict == "undecided"
    assert verdict.parts[0].needed == 4001
    assert "asks for within ±0.02" in verdict.reason


def test_a_compound_claim_holds_iff_all_parts_hold_and_shows_the_least_clear() -> None:
    # near: 0.3 ± 0.1 is 2 half-widths away from 0.5; far: 0.9 ± 0.02 is 5 away from 0.8.
    verdict = compound((0.3, 0.2, 0.4), (0.9, 0.88, 0.92))
    assert (verdict.verdict, verdict.effect) == ("holds", 0.3)
    assert [part.clearness for part in verdict.parts] == pytest.approx([2, 5])
    assert "Both of its parts hold." in verdict.reason


def test_a_compound_claim_fails_iff_one_part_fails_and_shows_it() -> None:
    verdict = compound((0.3, 0.2, 0.4), (0.7, 0.69, 0.71))
    assert (verdict.verdict, verdict.effect) == ("fails", 0.7)
    assert [part.verdict for part in verdict.parts] == ["holds", "fails"]
    assert "Of its 2 parts 1 holds, 1 fails." in verdict.reason
    assert verdict.remarks == "Of its 2 parts 1 holds, 1 fails."
    assert verdict.shown == verdict.parts[1]
    # one failing part is enough, even beside an undecided one
    assert compound((0.5, 0.4, 0.6), (0.7, 0.69, 0.71)).verdict == "fails"
    # of two failing parts the clearer one is shown: 0.6 ± 0.05 is 2 half-widths off, 0.7 ± 0.01 ten
    assert compound((0.6, 0.55, 0.65), (0.7, 0.69, 0.71)).effect == 0.7


def test_a_compound_claim_is_otherwise_undecided_and_shows_what_takes_longest() -> None:
    verdict = compound((0.45, 0.35, 0.55), (0.81, 0.75, 0.87))
    assert verdict.verdict == "undecided"
    assert [part.needed for part in verdict.parts] == [4001, 36001]
    assert verdict.effect == 0.81
    assert compound((0.3, 0.2, 0.4), (0.81, 0.75, 0.87)).verdict == "undecided"


def test_a_missing_part_keeps_a_compound_claim_from_holding_but_not_from_failing() -> None:
    nothing = (math.nan, math.nan, math.nan)
    assert compound((0.3, 0.2, 0.4), nothing).verdict == "undecided"
    unknown = compound((0.3, 0.2, 0.4), nothing)
    assert unknown.effect is None
    assert unknown.shown is None
    assert unknown.remarks == unknown.reason  # no number stands beside it
    assert compound(nothing, (0.7, 0.69, 0.71)).verdict == "fails"


def test_definitions_that_disagree_are_undecided() -> None:
    parts = tuple(Part(name, "above", 0, f"{name} of {{0}}") for name in ("sum", "branch"))
    test = of_table("C23", parts, disagreement="undecided")
    assert compound((0.2, 0.1, 0.3), (0.5, 0.4, 0.6), test).verdict == "holds"
    assert compound((-0.2, -0.3, -0.1), (-0.5, -0.6, -0.4), test).verdict == "fails"
    split = compound((0.2, 0.1, 0.3), (-0.5, -0.6, -0.4), test)
    assert (split.verdict, split.effect) == ("undecided", -0.5)
    assert "The definitions disagree" in split.reason
    half = compound((0.0, -0.1, 0.1), (-0.5, -0.6, -0.4), test)
    assert (half.verdict, half.effect) == ("undecided", 0.0)


def test_definitions_that_disagree_have_no_forecast() -> None:
    """ "About 6 seeds would decide it" stood on C30, of which one part holds and another fails: none ever would."""
    parts = tuple(Part(name, "above", 0, f"{name} of {{0}}") for name in ("sum", "branch", "third"))
    test = of_table("C23", parts, disagreement="undecided")
    readings = [Measured(*numbers, 1000, "skip_ratio") for numbers in (CLEAR, OPEN, WRONG)]
    for seeds, unit in ((None, "images"), (5, "seeds")):
        verdict = decide(test, ("vit",), readings, [FACTS["vit"]], seeds)
        assert verdict.remarks.endswith(f"The definitions disagree, so more {unit} would not decide it.")
        assert verdict.effect == 0.3, "a part that is decided; of equals the first"
        assert [part.needed for part in verdict.parts] == [None] * 3
    open_yet = decide(test, ("vit",), [readings[0], readings[1], readings[1]], [FACTS["vit"]])
    assert "images would decide it" in open_yet.remarks
    against = Measured(-0.1, -0.3, 0.1, 1000, "skip_ratio")
    split = decide(test, ("vit",), [readings[0], readings[0], against], [FACTS["vit"]])
    assert split.remarks == (
        "Of its 3 parts 2 hold, 1 is undecided. "
        "If the effects stay, the definitions disagree, so more images would not decide it."
    )


def test_a_forecast_is_of_the_claim() -> None:
    """ "About 5,600 images would decide it" stood on C57, of which one part would fail with 1,000 already."""
    parts = (Part("low", "above", 0, "low of {0}"), Part("high", "above", 0, "high of {0}"))
    readings = [Measured(*numbers, 128, "band_noise") for numbers in ((-0.05, -0.17, 0.07), (0.01, -0.05, 0.07))]
    verdict = decide(of_table("C57", parts), ("vit",), readings, [FACTS["vit"]])
    assert [part.needed for part in verdict.parts] == [738, 4609]
    assert verdict.effect == -0.05
    assert "About 740 images would decide it (128 were used)" in verdict.remarks


CLEAR, OPEN, WRONG = (0.3, 0.2, 0.4), (0.1, -0.1, 0.3), (-0.2, -0.3, -0.1)


@pytest.mark.parametrize(
    ("found", "verdict", "effect"),
    [
        ((CLEAR, CLEAR, WRONG), "holds", 0.3),
        (((0.9, 0.8, 1.0), CLEAR, (0.2, 0.01, 0.39)), "holds", 0.3),  # the second clearest is the one that was needed
        ((CLEAR, OPEN, OPEN), "undecided", 0.1),
        ((CLEAR, OPEN, (0.01, -0.1, 0.12)), "undecided", 0.1),  # the nearer of two to a decision: one more is enough
        ((CLEAR, OPEN, WRONG), "undecided", 0.1),
        # On the side that fails, and nearest to a decision: it leaves the other open, which then decides.
        ((CLEAR, (-0.07, -0.16, 0.02), (0.04, -0.08, 0.16)), "undecided", 0.04),
        ((WRONG, OPEN, WRONG), "fails", -0.2),
        ((CLEAR, WRONG, (-0.9, -1.0, -0.8)), "fails", -0.2),
    ],
)
def test_two_of_three_tests_must_be_clear(
    found: tuple[tuple[float, float, float], ...], verdict: Decision, effect: float
) -> None:
    names = ("one", "two", "three")
    test = of_table("C23", tuple(Part(name, "above", 0, f"{name} of {{0}}") for name in names), least=2)
    rows = [(name, "vit", *ends) for name, ends in zip(names, found, strict=True)]
    [said] = of("C23", judge([test], {"skip_ratio": finding(*rows)}, FACTS))
    assert (said.verdict, said.effect) == (verdict, effect)
    assert "; 2 must hold" in said.reason


def test_no_more_parts_can_be_asked_for_than_there_are() -> None:
    with pytest.raises(EyechartError, match="asks that 2 parts hold; it has 1"):
        of_table("C13", (GAP,), least=2)


def test_one_verdict_for_each_tuple_that_has_every_part() -> None:
    found = {
        "attention_distance": finding(
            ("near", "vit", 0.3, 0.2, 0.4), ("near", "cnn", 0.3, 0.2, 0.4), ("far", "vit", 0.9, 0.88, 0.92)
        )
    }
    assert [verdict.subjects for verdict in of("C09", judge([C09], found, FACTS))] == [("vit",)]
    pairs = {"cka": finding(*(("uniformity_gap", f"vit | {name}", 0.3, 0.2, 0.4) for name in ("cnn", "random")))}
    both = of("C13", judge([of_table("C13", (GAP,))], pairs, FACTS))
    assert [(verdict.subjects, verdict.verdict) for verdict in both] == [
        (("vit", "cnn"), "holds"),
        (("vit", "random"), "undecided"),
    ]
