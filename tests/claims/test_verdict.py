"""The verdict protocol, branch by branch, on intervals whose verdicts can be read off by hand."""

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
import xarray

from eyechart.claims.gates import GATES, Facts
from eyechart.claims.judge import Measured, decide, judge, read
from eyechart.claims.parts import ClaimTest, Decision, Part, Side
from eyechart.claims.summary import summarise
from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import PartVerdict, Verdict
from eyechart.errors import EyechartError

GAP = Part("uniformity_gap", "above", 0.1, "uniformity of {0} above that of {1}", inclusive=True)
NEAR = Part("near", "below", 0.5, "nearest heads of {0}")
FAR = Part("far", "above", 0.8, "farthest heads of {0}")
FACTS = {
    "vit": Facts("vit", "transformer", True, "sample", (0.9, 0.88, 0.92), "strong", grid=(8, 8), heads=(6,) * 9),
    "cnn": Facts("cnn", "cnn", True, "sample", (0.93, 0.91, 0.95), "strong", grid=(32, 32)),
    "random": Facts("random", "cnn", False, "sample", (0.1, 0.08, 0.12), None, grid=(32, 32)),
}


def over_seeds(test: ClaimTest, findings: dict[str, xarray.Dataset], seeds: int) -> Verdict:
    """As a study judges it."""
    by_part = [read(findings, part.quantity) for part in test.parts]
    (subjects,) = by_part[0]
    return decide(test, subjects, [part[subjects] for part in by_part], [FACTS[name] for name in subjects], seeds)


def of_table(claim: str, parts: tuple[Part, ...], **more: Any) -> ClaimTest:
    """A test of a claim with the gates that the table gives it."""
    return ClaimTest(claim, parts, **{"gates": tuple(GATES[key] for key in CLAIMS[claim].gates), **more})


def finding(*rows: tuple[str, str, float, float, float], images: int = 1000) -> xarray.Dataset:
    names, subjects, values, lows, highs = zip(*rows, strict=True)
    return xarray.Dataset(
        {
            "quantity_value": ("quantity_row", list(values)),
            "quantity_low": ("quantity_row", list(lows)),
            "quantity_high": ("quantity_row", list(highs)),
        },
        coords={
            "quantity": ("quantity_row", list(names)),
            "quantity_subjects": ("quantity_row", list(subjects)),
            "quantity_unit": ("quantity_row", [""] * len(names)),
        },
        attrs={"images": images, "folds": 16},
    )


def of(claim: str, verdicts: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.claim == claim]


def gap_verdict(value: float, low: float, high: float, pair: str = "vit | cnn", **options: Any) -> Verdict:
    found = {"cka": finding(("uniformity_gap", pair, value, low, high))}
    [verdict] = of("C13", judge([of_table("C13", (GAP,))], found, FACTS, **options))
    return verdict


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


C09 = of_table("C09", (NEAR, FAR))


def compound(near: tuple[float, float, float], far: tuple[float, float, float], test: ClaimTest = C09) -> Verdict:
    names = [part.quantity for part in test.parts]
    found = {"attention_distance": finding((names[0], "vit", *near), (names[1], "vit", *far))}
    [verdict] = of(test.claim, judge([test], found, FACTS))
    return verdict


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
    assert "would decide it" in open_yet.remarks


CLEAR, OPEN, WRONG = (0.3, 0.2, 0.4), (0.1, -0.1, 0.3), (-0.2, -0.3, -0.1)


@pytest.mark.parametrize(
    ("found", "verdict", "effect"),
    [
        ((CLEAR, CLEAR, WRONG), "holds", 0.3),
        (((0.9, 0.8, 1.0), CLEAR, (0.2, 0.01, 0.39)), "holds", 0.3),  # the second clearest is the one that was needed
        ((CLEAR, OPEN, OPEN), "undecided", 0.1),
        ((CLEAR, OPEN, (0.01, -0.1, 0.12)), "undecided", 0.1),  # the nearer of two to a decision: one more is enough
        ((CLEAR, OPEN, WRONG), "undecided", 0.1),
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


def test_a_failed_gate_leaves_it_undecided_with_the_gate_named_and_the_effect_shown() -> None:
    verdict = gap_verdict(0.3, 0.2, 0.4, "vit | random")
    assert (verdict.verdict, verdict.effect, verdict.low, verdict.high) == ("undecided", 0.3, 0.2, 0.4)
    assert verdict.parts[0].verdict == "holds"
    assert verdict.reason.startswith(
        "Gate failed, so nothing is decided: accuracy (g1): random has untrained weights. "
    )
    assert "uniformity of vit above that of random: 0.30 [0.20, 0.40]" in verdict.reason.lower()
    assert [(gate.gate, gate.outcome) for gate in verdict.gates] == [("g1", "failed"), ("g4", "unknown")]


def test_of_a_subject_that_a_gate_keeps_out_no_part_is_said_to_hold() -> None:
    """ "Nothing is decided. Both of its parts hold." was said of random weights, and of 64 images."""
    parts = (GAP, Part("stage_step", "above", 0, "step"))

    def remarks(subjects: str, images: int) -> str:
        numbers = [(name, subjects, 0.3, 0.2, 0.4) for name in ("uniformity_gap", "stage_step")]
        [verdict] = of("C13", judge([of_table("C13", parts)], {"cka": finding(*numbers, images=images)}, FACTS))
        return verdict.remarks

    assert "Both of its parts hold." in remarks("vit | cnn", 1000)
    for kept_out in (remarks("vit | random", 1000), remarks("vit | cnn", 64)):
        assert "nothing is decided" in kept_out
        assert "By the numbers alone, both of its parts hold." in kept_out


def test_what_a_gate_does_not_know_is_said_and_decides_nothing() -> None:
    unknown = {**FACTS, "cnn": Facts("cnn", "cnn", True, "photos", None, None, grid=(56, 56))}
    found = {"cka": finding(("uniformity_gap", "vit | cnn", 0.3, 0.2, 0.4))}
    [verdict] = of("C13", judge([of_table("C13", (GAP,))], found, unknown))
    assert verdict.verdict == "holds"
    assert "The accuracy of cnn on these images is not known" in verdict.reason
    assert verdict.reason.endswith("The training recipe of cnn is not known.")


def test_a_claim_about_large_scale_data_gets_a_proxy_verdict() -> None:
    part = Part("slope", "above", 0, "slope of {0}")
    found = {"attention_distance": finding(("slope", "vit", 0.3, 0.2, 0.4))}
    verdict = over_seeds(of_table("C16", (part,)), found, 3)
    assert verdict.proxy
    assert verdict.words == "holds over 3 seeds, proxy"
    large = {"vit": Facts("vit", "transformer", True, training_images=14_000_000, grid=(14, 14), heads=(12,) * 12)}
    [native] = of("C16", judge([of_table("C16", (part,))], found, large))
    assert not native.proxy
    [marked] = of("C16", judge([of_table("C16", (part,), proxy=True)], found, large))
    assert marked.proxy


def test_a_study_speaks_of_the_architecture_and_counts_seeds() -> None:
    verdict = over_seeds(
        of_table("C13", (GAP,)), {"cka": finding(("uniformity_gap", "vit | cnn", 0.12, 0.08, 0.16))}, 5
    )
    assert verdict.scope == "this architecture, over 5 seeds"
    assert verdict.words == "undecided over 5 seeds"
    assert "About 21 seeds would decide it (5 were used)" in verdict.reason


def test_every_other_claim_is_listed_with_what_it_would_need() -> None:
    found = {"cka": finding(("uniformity_gap", "vit | cnn", 0.3, 0.2, 0.4))}
    staged = of_table("C60", (Part("staged_block_contrast", "above", 0, "contrast"),))
    did_not_apply = of_table("C59", (Part("attention_stage_contrast", "above", 0, "interaction"),))
    verdicts = judge([of_table("C13", (GAP,)), staged, did_not_apply], found, FACTS)
    assert [verdict.claim for verdict in verdicts] == list(CLAIMS)
    needs = {verdict.claim: verdict.reason for verdict in verdicts if verdict.verdict == "not tested"}
    assert len(needs) == len(CLAIMS) - 1
    alike = "a single-stage ViT that is read out alike (class token or mean)"
    assert needs["C60"] == f"Needs a transformer with stages (PiT, Swin) and {alike}."
    assert needs["C59"] == "Needs a transformer with stages of at least two blocks (PiT, Swin)."
    assert needs["C14"] == "No measure tests it yet; it needs a single-stage ViT and a CNN with stages."
    assert needs["C21"] == "Needs the measure skip_ratio, and a single-stage ViT that classifies from a class token."
    assert needs["C35"].startswith("Needs the measure probes and depth_similarity, and a ViT with a class token")
    assert needs["C43"].startswith("Needs a study: a ViT and a CNN trained on 2, 6, 10, 30 and 100 %")
    told = judge([], found, FACTS, left_out={"skip_ratio": "no subject has skips."})
    assert of("C21", told)[0].reason == (
        "Needs a single-stage ViT that classifies from a class token. skip_ratio was left out: no subject has skips."
    )
    [untested] = of("C60", verdicts)
    assert (untested.subjects, untested.effect, untested.words, untested.measure) == ((), None, "not tested", "cka")


def test_json_is_plain_and_comes_back_the_same() -> None:
    found = {
        "cka": finding(
            ("uniformity_gap", "vit | cnn", 0.3, 0.3, 0.3),
            ("uniformity_gap", "vit | random", math.nan, 0.1, 0.2),
            ("uniformity_gap", "cnn | random", 0.2, math.nan, math.nan),
        )
    }
    verdicts = judge([of_table("C13", (GAP,))], found, FACTS)
    text = json.dumps([verdict.as_json() for verdict in verdicts], allow_nan=False)
    again = [Verdict.from_json(entry) for entry in json.loads(text)]
    assert list(map(repr, map(asdict, again))) == list(map(repr, map(asdict, verdicts))), "NaN is not equal to itself"
    keys = {"claim", "subjects", "scope", "verdict", "effect", "low", "high", "reason"}
    assert all(keys <= entry.keys() for entry in json.loads(text))
    assert {"claim": "C13", "subjects": ["vit", "cnn"], "effect": 0.3, "low": 0.3}.items() <= json.loads(text)[
        12
    ].items()
    bare = {key: value for key, value in json.loads(text)[12].items() if key in keys}
    assert Verdict.from_json(bare).verdict == "holds"


def test_a_second_reading_of_a_claim_says_so() -> None:
    found = {"cka": finding(("uniformity_gap", "vit | cnn", 0.3, 0.3, 0.3))}
    plain, other = (of_table("C13", (GAP,), reading=words) for words in ("", "without the class token"))
    first, second = (verdict for verdict in judge([plain, other], found, FACTS) if verdict.claim == "C13")
    assert second.sentence == f"{first.sentence} Read without the class token."
    assert Verdict.from_json(second.as_json()) == second
    assert Verdict.from_json({key: value for key, value in first.as_json().items() if key != "reading"}) == first


def test_the_summary_counts_verdicts_and_expected_misses() -> None:
    found = {
        "cka": finding(*(("uniformity_gap", f"vit | {name}", 0.3, 0.2, 0.4) for name in ("cnn", "random"))),
        "attention_distance": finding(("near", "vit", 0.3, 0.2, 0.4), ("far", "vit", 0.7, 0.69, 0.71)),
    }
    summary = summarise(judge([of_table("C13", (GAP,)), C09], found, FACTS))
    assert (summary.holds, summary.fails, summary.undecided, summary.not_tested) == (1, 1, 1, len(CLAIMS) - 2)
    assert (summary.decided, summary.claims, summary.intervals) == (2, 2, 4)
    assert summary.expected_misses == pytest.approx(0.2)
    assert str(summary) == (
        f"2 verdicts decided (1 holds, 1 fails) and 1 undecided, on 2 claims; {len(CLAIMS) - 2} claims not tested. "
        "Of the 4 intervals behind them about one in twenty misses: expect 0.2. "
        "With Holm's correction for all 4 intervals, 2 of 2 decided verdicts stay decided."
    )
    assert "one in twenty" not in str(summarise([]))


def test_a_test_without_parts_is_refused() -> None:
    with pytest.raises(EyechartError, match="has no parts"):
        ClaimTest("C13", ())


def test_a_quantity_of_two_measures_is_refused() -> None:
    twice = {name: finding(("uniformity_gap", "vit | cnn", 0.3, 0.2, 0.4)) for name in ("cka", "other")}
    with pytest.raises(EyechartError, match="'uniformity_gap' is a quantity of both cka and other"):
        judge([of_table("C13", (GAP,))], twice, FACTS)


def test_a_sign_test_that_is_not_significant_has_not_failed() -> None:
    part = Part("z", "above", 1.645, "sign test of {0}", fails_at=0)
    assert part.decide(2.0, 2.0) == "holds"
    assert part.decide(0.9, 0.9) == "undecided"
    assert part.decide(-0.67, -0.67) == part.decide(-1, 0) == "fails"
    assert part.asks == "more than 1.645, and fails at 0"
    mirrored = Part("z", "below", -1.645, "sign test of {0}", fails_at=0)
    assert [mirrored.decide(z, z) for z in (-2, -0.9, 0.67)] == ["holds", "undecided", "fails"]


def test_no_number_of_images_is_foretold_for_steps() -> None:
    table = finding(("uniformity_gap", "vit | cnn", 0.12, 0.05, 0.2))
    smooth = judge([of_table("C13", (GAP,))], {"cka": table}, FACTS)
    steps = table.assign_coords(quantity_smooth=("quantity_row", [0]))
    stepped = judge([of_table("C13", (GAP,))], {"cka": steps}, FACTS)
    assert "images would decide it" in next(v for v in smooth if v.claim == "C13").reason
    assert "More images may decide it" in next(v for v in stepped if v.claim == "C13").reason


def test_what_still_moves_with_the_images_is_said() -> None:
    def reason(half: float) -> str:
        table = finding(("uniformity_gap", "vit | cnn", 0.3, 0.05, 0.9))
        table = table.assign_coords(quantity_half_value=("quantity_row", [half]))
        [verdict] = of("C13", judge([of_table("C13", (GAP,))], {"cka": table}, FACTS))
        assert verdict.verdict == "undecided"
        return verdict.reason

    moving = reason(0.21)
    assert "It still moves with the number of images: 0.21 at half of them, 0.30 at all. More images may" in moving
    assert "still moves" not in reason(0.29)
    assert "images would decide it" in reason(math.nan)


def test_few_images_decide_nothing() -> None:
    table = finding(("uniformity_gap", "vit | cnn", 0.3, 0.29, 0.31), images=127)
    verdict = next(v for v in judge([of_table("C13", (GAP,))], {"cka": table}, FACTS) if v.claim == "C13")
    assert verdict.verdict == "undecided"
    assert verdict.reason.startswith("Fewer than 128 images")
    assert verdict.effect == 0.3


def test_what_is_read_off_the_weights_needs_no_images() -> None:
    def verdict(low: float, high: float, of_weights: int) -> Verdict:
        found = {"cka": finding(("uniformity_gap", "vit | cnn", 0.12, low, high), images=16)}
        found["cka"].attrs["of_weights"] = of_weights
        [told] = of("C13", judge([of_table("C13", (GAP,))], found, FACTS))
        return told

    assert verdict(0.11, 0.13, 0).verdict == "undecided"  # 16 images
    assert verdict(0.11, 0.13, 1).verdict == "holds"
    straddling = verdict(0.08, 0.16, 1)
    assert straddling.verdict == "undecided"
    assert "more images would not decide it" in straddling.reason
    assert straddling.parts[0].needed is None


def test_a_claim_of_two_measures_says_which_is_missing() -> None:
    part = Part("probe_divergence", "above", 0.0, "difference of {0} and {1}")
    other = Part("cka_divergence", "above", 0.0, "1 − CKA of {0} and {1}")
    found = {"probes": finding(("probe_divergence", "gap | vit", 0.1, 0.05, 0.15))}
    [told] = of("C35", judge([of_table("C35", (part, other))], found, FACTS))
    assert told.verdict == "not tested"
    assert told.reason.startswith("Needs the measure depth_similarity, and a ViT with a class token")


def test_of_two_sides_of_one_number_the_one_that_decides_is_shown() -> None:
    def part(side: Side, margin: float, verdict: Decision) -> PartVerdict:
        return PartVerdict("depth", "depth", side, margin, False, None, 1.0, 1.0, 1.0, verdict, math.inf, None)

    parts = (part("above", 0.6, "holds"), part("below", 0.85, "fails"))
    verdict = Verdict("C79", ("vit", "cnn"), "these weights", "fails", 1.0, 1.0, 1.0, "", parts)
    assert verdict.shown is parts[1]


def test_what_few_blocks_leave_open_more_images_do_not_decide() -> None:
    """C58 said of three attentions out of five that more images might decide it."""
    test = ClaimTest("C58", (Part("share", "above", 0.5, "share of sub-layers of {0}"),), gates=())
    few = Measured(0.6, 0.19, 0.92, images=1000, measure="feature_variance", smooth=False, of_few=True)
    assert "so more images would hardly decide it" in decide(test, ("zoo:vit",), [few], []).reason
    images = Measured(0.6, 0.19, 0.92, images=1000, measure="feature_variance", smooth=False)
    assert "More images may decide it" in decide(test, ("zoo:vit",), [images], []).reason
