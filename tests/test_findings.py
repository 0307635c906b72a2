"""Findings made by several processes are those that one makes, whatever becomes of the helpers."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

import eyechart
from eyechart.findings import make_finding, make_findings
from eyechart.run import Run
from tests.small_exam import subject

pytestmark = pytest.mark.all_draws

MEASURES = ("skip_ratio", "feature_variance", "shift", "band_noise", "patch_filters", "cka", "fourier", "skip_removal")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("findings") / "run"
    eyechart.exam(subject(), measures=MEASURES, limit=16, out=out, keep_shards=True, page=False, progress=False)
    return Run(out)


@pytest.fixture
def unfinished(alone: Run, tmp_path: Path) -> Run:
    copy = shutil.copytree(alone.path, tmp_path / "copy")
    shutil.rmtree(copy / "findings")
    return Run(copy)


def same_as(alone: Run, run: Run) -> bool:
    names = [path.name for path in (alone.path / "findings").iterdir()]
    assert len(names) == len(MEASURES)
    return all((alone.path / "findings" / n).read_bytes() == (run.path / "findings" / n).read_bytes() for n in names)


def test_two_processes_make_the_same_findings(alone: Run, unfinished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    by_this_process: list[str] = []
    folder, deadline = unfinished.path / "findings", time.monotonic() + 120

    def make(run: Run, name: str) -> None:
        make_finding(run, name)
        by_this_process.append(name)
        while len(list(folder.glob("*.nc"))) == len(by_this_process) and time.monotonic() < deadline:
            time.sleep(0.05)  # the helper is still importing

    monkeypatch.setattr("eyechart.findings.make_finding", make)
    told: list[str] = []
    make_findings(unfinished, processes=2, told=told.append)
    assert same_as(alone, unfinished)
    assert sorted(told) == sorted(MEASURES)
    assert 0 < len(by_this_process) < len(MEASURES)


def test_what_a_helper_does_not_deliver_is_made_here(
    alone: Run, unfinished: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho ready; read name; exit 1\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    told: list[str] = []
    make_findings(unfinished, processes=2, told=told.append)
    assert same_as(alone, unfinished)
    assert sorted(told) == sorted(MEASURES)
    assert "A helper process ended early" in " ".join(unfinished.notices)
