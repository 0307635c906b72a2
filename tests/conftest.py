"""Tests run on one thread: two threads beside a busy neighbour were 20 times slower."""

import gc
import importlib
import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from playwright import sync_api

from eyechart.memory import keep_freed_memory
from tests.report.browser import Browser, chromium

gc.disable()  # a third of the time that collecting 5,000 tests takes; on again in pytest_collection_finish

#: These end processes by SIGKILL, fork, or limit what a process may write, which only POSIX systems let them.
collect_ignore = [] if os.name == "posix" else ["test_faults.py", "training/test_resume.py"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()


@pytest.fixture(autouse=True, scope="module")
def few_draws(request: pytest.FixtureRequest) -> Iterator[None]:
    """Intervals are mostly along for the ride, and bootstrap draws are half of a small exam's time.

    A file about intervals, or about verdicts that hang on them, says `pytestmark = pytest.mark.all_draws`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("all_draws"):
            patch.setattr("eyechart.intervals.DRAWS", 24)
            patch.setattr("eyechart.intervals.SMALL_DRAWS", 12)
            patch.setattr("eyechart.halves.SPLITS", 6)
        yield


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which it does not matter what the page looks like: it takes seconds. Forks cannot draw at all: the
    thread that vl-convert draws in is not there."""
    monkeypatch.setattr(importlib.import_module("eyechart.exam"), "draw_charts", lambda *run: {})
    render = "eyechart.report.page.render"
    monkeypatch.setattr(render, lambda run, undrawn, *how: f"<p>the page of {run.plan['question']}</p>")


@pytest.fixture
def workers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which it does not matter that trainings have a process of their own: its imports take 3 s."""
    from tests.training.toys import WorkerHere

    monkeypatch.setattr("eyechart.training.workers.LocalWorker", WorkerHere)


#: From the longest on: the first takes 93 s of CPU, the last 13 (November 2026). A run should end with short files.
SLOW_FILES = (
    "test_nulls.py",
    "test_engines.py",
    "test_exam.py",
    "test_families.py",
    "test_more_families.py",
    "test_odd_families.py",
    "test_page.py",
    "test_sheet.py",
    "test_differences.py",
    "test_whole_names.py",
    "test_cli.py",
    "test_measure_charts.py",
    "test_odd_exams.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: with one of them last, one of the two workers would wait for the other for minutes."""
    for item in items:
        if os.name != "posix" and item.get_closest_marker("posix"):
            item.add_marker(pytest.mark.skip(reason="only POSIX systems have what it needs"))
    items.sort(key=lambda item: SLOW_FILES.index(item.path.name) if item.path.name in SLOW_FILES else len(SLOW_FILES))


def pytest_collection_finish() -> None:
    """What collecting made (700,000 objects) stays until the end: the collector need not look at it again and again."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what is frozen when Python ends is reported as leaked by triton


# --- one Chromium for all tests of a process: starting it takes a second; each test has a window of its own -----------

DESK = (1400, 900)


@pytest.fixture(scope="session")
def chromium_process() -> Iterator[sync_api.Browser]:
    path = chromium()
    with sync_api.sync_playwright() as playwright:
        process = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield process
        process.close()


@pytest.fixture
def browser(request: pytest.FixtureRequest, chromium_process: sync_api.Browser) -> Iterator[Browser]:
    """A window; indirect parameters: its width and height, and what else it is. Nothing may complain or be fetched."""
    width, height, *more = getattr(request, "param", DESK)
    options = more[0] if more else {}
    context = chromium_process.new_context(viewport={"width": width, "height": height}, **options)
    window = Browser(context)
    yield window
    context.close()
    assert window.complaints == []
    assert {address.split(":")[0] for address in window.requests} <= {"file", "data", "about"}
