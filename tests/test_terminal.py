"""What a person sees in a terminal of a given width."""

import re
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.table import Table

from eyechart.claims.judge import judge
from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import Verdict
from eyechart.run import Run
from eyechart.terminal import print_findings, print_verdicts, show, table, wrapped
from tests.claims.by_hand import FACTS, GAP, finding, of_table


def names_and_numbers() -> Table:
    rows = table("measure", "quantity", "value")
    rows.add_row("attention_distance", "early_farthest_head", "[0.9113, 0.9158]")
    rows.add_row("cka", "uniformity", "")
    return rows


@pytest.mark.parametrize("columns", ["48", "100"])
def test_words_of_a_table_are_not_broken(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 60 letters `show` printed "recognitio" above "n", and `subjects` "2,803," above "850"."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(names_and_numbers(), stack=True)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    if columns == "100":
        assert lines[1] == ["attention_distance", "early_farthest_head", "[0.9113,", "0.9158]"]
    else:
        assert lines[2:] == [
            ["attention_distance"],
            ["early_farthest_head", "[0.9113,", "0.9158]"],
            ["cka"],
            ["uniformity"],
        ]


def test_a_pair_of_subjects_stands_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 82 letters "vit | resnet" stood on two lines, though no word of the table was too long."""
    monkeypatch.setenv("COLUMNS", "82")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = {"measure": "attention_distance", "quantity": "early_farthest_head", "subjects": "vit | resnet"}
    numbers = {"value": -0.54, "low": -0.5762, "high": -0.5051, "unit": "log ratio"}
    print_findings(cast(Run, SimpleNamespace(quantities=lambda: [row | numbers])))
    told = capsys.readouterr().out
    for whole in ("vit | resnet", "−0.540 log ratio", "[−0.576, −0.505]"):
        assert whole in told


def said_of(verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]) -> str:
    print_verdicts(cast(Any, SimpleNamespace(verdicts=verdicts, measures={})))
    return " ".join(capsys.readouterr().out.split())


def verdicts_of(subjects: str, *claims: str) -> list[Verdict]:
    tests = [of_table(claim, (GAP,)) for claim in claims]
    found = {"cka": finding(("uniformity_gap", subjects, 0.3, 0.2, 0.4))}
    return [verdict for verdict in judge(tests, found, FACTS) if verdict.verdict != "not tested"]


COMPARING = [claim.id for claim in CLAIMS.values() if claim.settled_by == "exam" and claim.gates == ("g1", "g4")]
FAILED, UNKNOWN = "random has untrained weights", "The training recipe of random is not known."


def test_a_reason_that_many_verdicts_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Of untrained subjects 38 verdicts took 300 lines, each with the same failed gate."""
    claims = COMPARING[:4]
    told = said_of(verdicts_of("vit | random", *claims), capsys)
    assert f"(a) Leaves 4 verdicts undecided, on {', '.join(claims)}: accuracy (g1): {FAILED}." in told
    assert f"(b) Said of 4 verdicts, on {', '.join(claims)}: {UNKNOWN}" in told
    assert told.count(FAILED) == told.count(UNKNOWN) == 1
    assert len(re.findall(r"Undecided: Gate failed, see \(a\)\..*? See \(b\)\.", told)) == 4


def test_a_reason_of_few_verdicts_stays_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = verdicts_of("vit | random", *COMPARING[:3])
    told = said_of(verdicts, capsys)
    assert told.count(FAILED) == 3
    for verdict in verdicts:
        assert verdict.remarks in told


@pytest.mark.parametrize("columns", range(24, 60))
def test_no_line_ends_within_a_number(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """ "classifies 0.0" and below it "% correctly [0.0," stood in the verdicts of two photographs' subjects."""
    monkeypatch.setenv("COLUMNS", str(columns))
    said = "accuracy: efficientnet_lite0 classifies 0.0 % correctly [0.0, 2.8], and 8 % [0 %, −17 %] of it [see above]"
    lines = wrapped(said, hang=4).splitlines()
    assert " ".join(line.strip() for line in lines) == said
    assert not any(line.lstrip().startswith("%") or line.endswith(("[0.0,", "[0", "%,", "−17")) for line in lines)
