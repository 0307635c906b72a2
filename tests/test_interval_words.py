"""Intervals are written by the common formatters, which never print [x, x] and tell the ends apart."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray

from eyechart.charts.numbers import in_words
from eyechart.claims.gates import Facts, named
from eyechart.measures import find_measure
from tests.charts.findings import finding_of

HERE = Path(__file__).parents[1]
OWN = re.compile(r"\[\{[^{}]*\}(?: ?%)?, \{[^{}]*\}(?: ?%)?\]")
"""Two places of an f-string in brackets: "[{low:.3f}, {high:.3f}]"."""


def test_nobody_writes_an_interval_by_hand() -> None:
    """Recognition, probes, calibration, a gate and five examples did."""
    files = [*(HERE / "src/eyechart").rglob("*.py"), *(HERE / "examples").glob("*.py")]
    lines = [(path, line.strip()) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    said = [(path.name, line) for path, line in lines if OWN.search(line) and not line.startswith(">>>")]
    assert len(files) > 200
    assert said == []


def still(measure: str) -> xarray.Dataset:
    """A finding in which no fold moved any number."""
    finding = finding_of(measure).copy(deep=True)
    if measure == "calibration":  # its chart does not read all that its sentence does
        for more in ("signed_ece", "temperature"):
            finding = finding.assign({f"{more}{end}": ("subject", [0.1, -0.1]) for end in ("", "_low", "_high")})
        finding.attrs["guessing"] = 0.1
    for name in finding.data_vars:
        if f"{name}_low" in finding:
            finding[f"{name}_low"] = finding[f"{name}_high"] = finding[name]
    return finding


@pytest.mark.parametrize("measure", ["recognition", "probes", "calibration"])
def test_sentences_of_numbers_that_no_fold_moved(measure: str) -> None:
    finding = still(measure)
    said = find_measure(measure).sentence(finding)
    assert "[the same in all folds]" in said
    assert not re.search(r"\[[^\],]*\d[^\],]*,", said), said


def test_a_gate_says_a_certain_accuracy() -> None:
    facts = Facts("a", "cnn", True, accuracy=(1.0, 1.0, 1.0))
    assert named(facts) == "a classifies 100.0 % correctly [± 0]"
    assert named(Facts("a", "cnn", True, accuracy=(0.871, 0.85, 0.89))) == "a classifies 87.1 % correctly [85.0, 89.0]"


def test_a_number_of_32_bits_is_one() -> None:
    assert in_words(np.float32(0.5), np.float32(0.25), np.float32(0.75)) == "0.50 [0.25, 0.75]"  # type: ignore[arg-type]
