"""Runs in other people's tools: plain xarray, pandas, R, JSON, Weights & Biases."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray
from click.testing import CliRunner

import eyechart
from eyechart import Run
from eyechart.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return eyechart.exam("zoo:resnet", measures="recognition", limit=32, out=tmp_path_factory.mktemp("runs") / "run")


def call(*words: Any) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_finding_opens_in_plain_xarray(run: Run) -> None:
    with xarray.open_dataset(run.path / "findings" / "recognition.nc") as finding:
        assert {"subject", "quantity", "quantity_subjects"} <= set(finding.coords)
        numbers = [str(name) for name in finding.data_vars if f"{name}_low" in finding]
        assert numbers
        for name in numbers:
            known = finding[name].notnull() & finding[f"{name}_low"].notnull()
            assert bool(known.any())
            assert bool((finding[f"{name}_low"] <= finding[name]).where(known, True).all())
        xarray.testing.assert_identical(finding.load(), run.findings["recognition"])


def test_the_table_opens_in_pandas(run: Run) -> None:
    table = pd.read_csv(run.path / "summary.csv")
    rows = list(run.quantities())
    assert list(table.columns) == list(rows[0])
    assert len(table) == len(rows)
    for name in ("value", "low", "high"):
        assert table[name].dtype == np.float64
        np.testing.assert_array_equal(table[name], [row[name] for row in rows])


def test_the_table_keeps_to_the_rules_of_read_csv(run: Run) -> None:
    """R is not here; its manual is: header of syntactic names, equal fields, numbers as type.convert reads them."""
    text = (run.path / "summary.csv").read_bytes().decode("utf-8")
    assert not text.startswith("\ufeff"), "it would be part of the first name"
    head, *rows = csv.reader(text.splitlines(), doublequote=True)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9._]*", name) for name in head)
    assert {len(row) for row in rows} == {len(head)}
    number = r"|-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:nan|-?inf|na)"
    for row in rows:
        for name in ("value", "low", "high"):
            assert re.fullmatch(number, row[head.index(name)])


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_json_is_strict_and_whole(run: Run, tmp_path: Path) -> None:
    printed = call("export", run.path)
    assert printed.exit_code == 0, printed.output
    exported = json.loads(printed.stdout, parse_constant=refuse)
    assert exported["plan"] == json.loads(json.dumps(run.plan))
    assert len(exported["verdicts"]) == len(run.verdicts)
    for row, expected in zip(exported["quantities"], run.quantities(), strict=True):
        assert row["value"] == (None if np.isnan(expected["value"]) else expected["value"])
    written = call("export", run.path, "--out", tmp_path / "run.json")
    assert written.stdout.strip() == str(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text(), parse_constant=refuse) == exported


def test_without_the_library_wandb_is_refused_in_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    refused = call("export", run.path, "--format", "wandb")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "eyechart: --format wandb needs the library wandb, which is not installed; pip install wandb, or use --format "
        "json.\n"
    )


def test_wandb_gets_quantities_verdicts_and_the_page_offline(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names and arguments are those of wandb 0.31, with which this was tried by hand; here a stand-in listens."""
    heard: dict[str, Any] = {"summary": {}}
    logged = SimpleNamespace(
        summary=heard["summary"],
        dir=str(tmp_path / "wandb" / "offline-run" / "files"),
        log=lambda data: heard.update(log=data),
        finish=lambda: heard.update(finished=True),
    )
    stand_in = SimpleNamespace(
        init=lambda **asked: heard.update(init=asked) or logged,
        Table=lambda columns, data: [dict(zip(columns, row, strict=True)) for row in data],
        Html=lambda text, inject: text,
    )
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    done = call("export", run.path, "--format", "wandb", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(tmp_path / "wandb" / "offline-run")
    assert heard["init"]["mode"] == "offline"
    assert heard["init"]["config"]["question"] == run.plan["question"]
    first = next(run.quantities())
    name = f"{first['measure']}/{first['quantity']}/{first['subjects']}"
    assert heard["summary"][name] == pytest.approx(first["value"], nan_ok=True)
    assert heard["summary"][f"{name}_low"] == pytest.approx(first["low"], nan_ok=True)
    assert [row["claim"] for row in heard["log"]["verdicts"]] == [verdict.claim for verdict in run.verdicts]
    assert heard["log"]["page"].lower().startswith("<!doctype html>")
    assert heard["finished"]
