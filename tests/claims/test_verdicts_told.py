"""Verdicts beyond the intervals: gates, scope, what is not tested, and how all that is told."""

import json
import math
from dataclasses import asdict, replace

import pytest

from eyechart.claims.gates import Facts
from eyechart.claims.judge import Measured, decide, judge
from eyechart.claims.parts import ClaimTest, Decision, Part, Side
from eyechart.claims.summary import summarise
from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import PartVerdict, Verdict
from eyechart.errors import EyechartError
from tests.claims.by_hand import C09, FACTS, GAP, finding, gap_verdict, of, of_table, over_seeds


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
    assert "Behind them is 1 interval, and about one in twenty misses: expect 0.05." in str(
        replace(summary, intervals=1)
    )
    assert replace(summary, intervals=97).expected == "4.9"


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
    assert part.asks == "more than 1.645 (0 or less fails)"
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


def test_definitions_that_must_agree_say_so() -> None:
    """C56: three of four parts fail and one is open, which is undecided; C58 fails by one of three."""
    part = Part("gap", "above", 0.0, "gap of {0}")
    readings = [Measured(-0.5, -0.6, -0.4, 1000, "x"), Measured(-0.1, -0.3, 0.1, 1000, "x")]
    told = [
        decide(ClaimTest("C13", (part, replace(part, quantity="other")), disagreement=way), ("a",), readings, [])
        for way in ("undecided", "fails")
    ]
    assert [verdict.verdict for verdict in told] == ["undecided", "fails"]
    assert ["All of them must agree" in verdict.reason for verdict in told] == [True, False]


def test_of_several_parts_the_one_that_still_moves_is_named() -> None:
    table = finding(("uniformity_gap", "vit | cnn", 0.3, 0.05, 0.9), ("other_gap", "vit | cnn", 0.5, 0.4, 0.6))
    table = table.assign_coords(quantity_half_value=("quantity_row", [0.21, 0.5]))
    [verdict] = of("C13", judge([of_table("C13", (GAP, replace(GAP, quantity="other_gap")))], {"cka": table}, FACTS))
    assert verdict.effect == 0.3
    assert "1 holds" in verdict.reason
    assert (
        "The part in question still moves with the number of images: 0.21 at half of them, 0.30 at all"
        in verdict.reason
    )


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
