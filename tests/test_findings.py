"""Findings and charts made by several processes are those that one makes, whatever becomes of the helpers."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eyechart
from eyechart import intervals
from eyechart.drawings import draw_charts
from eyechart.findings import make_finding, make_findings, size_of
from eyechart.helper_processes import Helpers
from eyechart.report.embed import EmbeddedChart, embed
from eyechart.run import Run
from tests.small_exam import subject

if TYPE_CHECKING:
    import xarray

    from eyechart.measure import Measure
    from eyechart.report.words import Language
    from eyechart.scene import Scene
    from eyechart.tally import Tally

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

    def make(run: Run, name: str, cores: int) -> None:
        make_finding(run, name, cores)
        by_this_process.append(name)
        while len(list(folder.glob("*.nc"))) == len(by_this_process) and time.monotonic() < deadline:
            time.sleep(0.05)  # the helper is still importing

    monkeypatch.setattr("eyechart.findings.make_finding", make)
    told: list[str] = []
    make_findings(unfinished, processes=2, told=told.append)
    assert same_as(alone, unfinished)
    assert sorted(told) == sorted(MEASURES)
    assert 0 < len(by_this_process) < len(MEASURES)


def test_what_takes_longest_is_begun_first(unfinished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr("eyechart.findings.make_finding", lambda run, name, cores: begun.append(name))
    monkeypatch.setattr(Run, "read_finding", lambda run, path: path.stem)
    assert list(make_findings(unfinished)) == list(unfinished.measures)
    sizes = [size_of(unfinished.read_tally(0, name)) for name in begun]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 10 * sizes[-1] > 0


def test_large_tallies_get_a_process_each(unfinished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ViT-B and ResNet-50, 12 measures took 94 s in three processes of sixteen."""
    asked: list[int] = []

    @contextmanager
    def helped(module: str, folder: Path, count: int, waiting: deque[str], first: str) -> Iterator[Helpers]:
        asked.append(count + 1)
        yield Helpers(waiting)

    monkeypatch.setattr("eyechart.findings.helped", helped)
    monkeypatch.setattr("eyechart.findings.make_finding", lambda run, name, cores: None)
    monkeypatch.setattr(Run, "read_finding", lambda run, path: path.stem)
    sizes = sorted(size_of(unfinished.read_tally(0, name)) for name in MEASURES)
    for large in (sizes[-1], sizes[-6]):
        monkeypatch.setattr("eyechart.findings.LARGE", large)
        for processes in (1, 2, 16):
            make_findings(unfinished, processes)
    assert asked == [1, 2, 2, 1, 2, 5]


def test_large_tallies_are_resampled_by_several_threads(
    alone: Run, unfinished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 94 s of intervals on a machine of 16 cores, few-shot took most, on one of them. The numbers are the same."""
    threads: dict[str, set[str]] = {}
    estimate = intervals._estimate

    def watched(measure: Measure, tally: Tally, scene: Scene) -> xarray.Dataset:
        threads.setdefault(measure.name, set()).add(threading.current_thread().name)
        time.sleep(0.01)  # or one thread might have done all before the next begins
        return estimate(measure, tally, scene)

    monkeypatch.setattr("eyechart.intervals._estimate", watched)
    sizes = {name: size_of(unfinished.read_tally(0, name)) for name in MEASURES}
    large = sorted(sizes.values())[-4]
    monkeypatch.setattr("eyechart.findings.LARGE", large)
    for name in MEASURES:
        make_finding(unfinished, name, cores=6)
    assert same_as(alone, unfinished)
    drawn_anew = {name for name, seen in threads.items() if len(seen) > 1}
    assert drawn_anew == {name for name in sizes if sizes[name] > large} - {"patch_filters"}  # which asks weights alone
    assert all(len(threads[name]) == 1 + 3 for name in drawn_anew)


@pytest.mark.posix
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


def test_two_processes_draw_the_same_charts(alone: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    by_this_process, told = list[str](), list[str]()
    deadline = time.monotonic() + 120

    def draw(run: Run, name: str, language: Language) -> EmbeddedChart:
        by_this_process.append(name)
        while not list(tmp_path.glob("*/*.json")) and time.monotonic() < deadline:
            time.sleep(0.05)  # the helper is still importing
        return embed(run, name, language)

    monkeypatch.setattr("eyechart.report.embed.embed", draw)
    monkeypatch.setattr("eyechart.drawings.FEWEST", 2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    charts = draw_charts(alone, "ko", processes=2, told=told.append)
    assert sorted(told) == sorted(MEASURES) == sorted(charts)
    assert 0 < len(by_this_process) < len(MEASURES)
    assert all(charts[name] == embed(alone, name, "ko") for name in MEASURES)
    assert charts["cka"].as_json() != embed(alone, "cka", "en").as_json()


def test_a_chart_that_cannot_be_drawn_is_left_to_the_page(alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(run: Run, name: str, language: Language) -> EmbeddedChart:
        if name == "cka":
            raise ValueError("no ink")
        return embed(run, name, language)

    monkeypatch.setattr("eyechart.report.embed.embed", draw)
    told: list[str] = []
    charts = draw_charts(alone, told=told.append)
    assert "cka" in told
    assert sorted([*charts, "cka"]) == sorted(MEASURES)
