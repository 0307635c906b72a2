"""Verdicts as rows of the page: what each says, and where interval, margin and claimed side lie in its picture."""

import re
from dataclasses import replace
from typing import Any

import pytest

from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import Verdict
from eyechart.report import verdict_rows

from .synthetic import part, synthetic_verdicts


def test_a_claim_of_several_subjects_is_told_once() -> None:
    def row(claim: str, sentence: str, word: str = "holds") -> dict[str, Any]:
        return {"claim": claim, "sentence": sentence, "kind": verdict_rows.KINDS[word]}

    near, top = CLAIMS["C03"].sentence, CLAIMS["C15"].sentence
    told = [row("C03", near), row("C03", near), row("C15", top), row("C15", f"{top} Read so.", "fails")]
    assert [one["span"] for one in verdict_rows.claim_spans([*told, row("C03", near, "fails")])] == [2, 0, 1, 1, 1]
    lines = verdict_rows.at_a_glance([*told, row("C03", near, "fails"), row("C01", "d", "not tested")])
    assert [(line["claim"], line["sentence"], len(line["rows"])) for line in lines] == [
        ("C03", near, 3),
        ("C15", top, 1),
        ("C15", "Read so.", 1),
    ]
    assert [line["whole"] for line in lines] == ["", "", f"{top} Read so."]  # for whoever filters the first away


def test_picture_of_a_verdict_shows_margin_and_side() -> None:
    above = verdict_rows.picture(part("C13", 0, "gap", 0.3, 0.2, 0.4, "holds"))  # at least 0.1
    margin = next(tick for tick in above["ticks"] if tick["kind"] == "margin")
    assert margin["text"] == "0.1"
    assert margin["x"] < above["low"] < above["middle"] < above["high"] < 240
    (zone,) = above["zones"]
    assert zone["x"] == margin["x"]
    assert zone["x"] + zone["width"] == pytest.approx(240)

    below = verdict_rows.picture(part("C09", 0, "near", 0.6, 0.55, 0.65, "fails"))  # less than 0.5
    (zone,) = below["zones"]
    assert zone["x"] == 0
    assert zone["width"] < below["low"]

    within = verdict_rows.picture(part("C02", 0, "gap", 0.0, -0.02, 0.02, "undecided"))  # within ±0.01
    (zone,) = within["zones"]
    assert within["low"] < zone["x"] < within["middle"] < zone["x"] + zone["width"] < within["high"]


def test_a_margin_has_all_its_digits_in_the_picture_as_in_the_words() -> None:
    shown = replace(part("C71", 0, "tightness_z", -1.0, -2.5, 0.4, "undecided"), margin=-1.645, side="below")
    assert [tick["text"] for tick in verdict_rows.picture(shown)["ticks"] if tick["kind"] == "margin"] == ["−1.645"]


def test_where_a_claim_fails_is_drawn_where_that_is_not_its_margin() -> None:
    """C22's 0.46 [0.451, 0.47] lay wholly beside the shaded side, and was undecided for no reason that was seen."""
    shown = replace(part("C22", 0, "share", 0.46, 0.451, 0.47, "undecided"), margin=0.5, side="above", fails_at=0.45)
    assert shown.asks == "more than 0.5 (0.45 or less fails)"
    lines = {tick["kind"]: tick for tick in verdict_rows.picture(shown)["ticks"]}
    assert lines["failing"]["text"] == "0.45"
    assert lines["failing"]["x"] < verdict_rows.picture(shown)["low"]
    near = verdict_rows.ticks([("margin", 0.5, 100.0), ("failing", 0.49, 105.0), ("zero", 0.0, 3.0)], -1, 1)
    assert [tick["text"] for tick in near] == ["0.5", "0.49", "0"]
    assert [tick["anchor"] for tick in near] == ["end", "start", "start"]  # on the outer sides of both


def test_a_number_beside_its_picture_is_not_told_again() -> None:
    holds = part("C13", 0, "gap", 0.3, 0.2, 0.4, "holds")
    fails = part("C13", 0, "gap", 0.0, -0.1, 0.05, "fails")
    unsure = part("C13", 0, "gap", 0.1, 0.0, 0.2, "undecided")

    def told(verdict: Any, remarks: str, shown: Any, *others: Any) -> str:
        numbers, parts = (shown.effect, shown.low, shown.high), (*others, shown)
        return verdict_rows.why(
            Verdict("C13", ("a", "b"), "these weights", verdict, *numbers, "all of it", parts, remarks=remarks)
        )

    assert told("holds", "", holds) == "The whole interval lies where the claim says."
    assert told("undecided", "Gate failed: x.", holds) == "Gate failed: x."
    assert told("undecided", "More images may decide it.", unsure) == "More images may decide it."
    moving = "Both of its parts are undecided. The part in question counts few blocks."
    assert told("undecided", moving, unsure, unsure) == f"The part in question: gap. {moving}"
    counted = "Of its 2 parts 1 holds, 1 fails."
    assert told("fails", counted, fails, holds) == f"The failing part: gap. {counted}"
    both = "Both of its parts fail."
    assert told("fails", both, fails, fails) == f"One of the failing parts: gap. {both}"
    nothing = Verdict("C13", (), "these weights", "not tested", None, None, None, "Needs a study.")
    assert verdict_rows.why(nothing) == "Needs a study."


def test_part_without_number_has_no_picture() -> None:
    verdict = next(verdict for verdict in synthetic_verdicts("a", "b") if verdict.claim == "C58")
    drawn = verdict_rows.picture(verdict.parts[1])
    assert (drawn["effect"], drawn["middle"]) == ("n/a", None)


def test_no_source_of_a_claim_needs_a_key() -> None:
    for claim in CLAIMS.values():
        assert not re.search(r"(?<!\w)(?:[VRP],? [A-Za-z]|N\d|M\d|notes?\b|slides\b)", claim.figure), claim.figure
