"""A page of numbers with fewer bits says what is known of them, in both languages."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from eyechart.report.precision import fewer_bits
from eyechart.report.words import translator

FOUND = {"bfloat16": {"cka": [2, 15], "probes": [0, 10]}}


def test_of_full_numbers_nothing_is_said() -> None:
    assert fewer_bits("float32", ["cka"]) == fewer_bits("float64", ["cka"]) == []


def test_what_was_found_is_said_and_what_was_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precision.json").write_text(json.dumps(FOUND))
    monkeypatch.setattr("eyechart.report.precision.files", lambda package: tmp_path)
    told = [*fewer_bits("bfloat16", ["cka", "probes", "hessian"]), *fewer_bits("float16", ["cka"])]
    assert [sentence.partition(":")[2] for sentence in told] == [
        " on the bundled pair, 2 of 25 numbers of such an exam lie outside the intervals that they have in float32.",
        "",
        " hessian.",
        "",
    ]
    assert told[1] == "Those are of cka."
    assert told[3] == "No exam in float16 has been compared with float32 yet."
    assert all(translator([], [])(sentence) for sentence in told)


def test_the_package_knows_of_bfloat16() -> None:
    kept = json.loads(files("eyechart.report").joinpath("precision.json").read_text())
    assert kept["bfloat16"]["cka"][1] > 0
    assert "Not compared" not in " ".join(fewer_bits("bfloat16", kept["bfloat16"]))
