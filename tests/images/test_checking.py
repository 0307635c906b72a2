"""Files checked by processes come out as files checked by threads, whatever becomes of the processes."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from eyechart import helper_processes
from eyechart.helper_processes import Helpers, helped
from eyechart.images import Images, checking, open_images, source

COUNT = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    photos = tmp_path / "photos"
    for index in range(COUNT):
        path = photos / f"class-{index % 2}" / f"{index:03}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        Image.fromarray(chance.integers(0, 256, (24, 30, 3), np.uint8)).save(path)
    (photos / "class-1" / "011.jpg").write_bytes(b"no picture")
    whole = (photos / "class-0" / "020.jpg").read_bytes()
    (photos / "class-0" / "020.jpg").write_bytes(whole[: len(whole) // 2])
    return photos


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(checking, "PIECE", 4)


def opened(folder: Path, many: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Images, list[tuple[int, int]]]:
    monkeypatch.setattr(source, "MANY", many)
    told: list[tuple[int, int]] = []
    return open_images(folder, progress=lambda done, total: told.append((done, total))), told


def assert_same(mine: Images, theirs: Images) -> None:
    assert mine.fingerprint == theirs.fingerprint
    assert mine.problems == theirs.problems
    assert {problem.path for problem in mine.problems} == {"class-0/020.jpg", "class-1/011.jpg"}
    assert [mine.origin(index) for index in range(len(mine))] == [theirs.origin(index) for index in range(len(theirs))]


def test_processes_find_what_threads_find(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, _ = opened(folder, COUNT + 1, monkeypatch)
    here: list[str] = []
    folders: list[Path] = []
    outcomes = checking._outcomes

    def watched(images: Any, entries: Any, full: bool, piece: str) -> list[Any]:
        here.append(piece)
        while len(here) == 1 and not list(folders[0].glob("*-*")):
            time.sleep(0.01)  # the helpers are still importing
        return outcomes(images, entries, full, piece)

    def noted(module: str, where: Path, count: int, waiting: deque[str]) -> AbstractContextManager[Helpers]:
        folders.append(where)
        assert count == 2
        return helped(module, where, count, waiting)

    monkeypatch.setattr(checking, "_outcomes", watched)
    monkeypatch.setattr(checking, "helped", noted)
    mine, progress = opened(folder, COUNT, monkeypatch)
    assert_same(mine, theirs)
    assert 0 < len(here) < COUNT // 4
    assert progress == [(done, COUNT) for done in range(4, COUNT + 1, 4)]
    assert not folders[0].exists()


@pytest.mark.posix
def test_what_a_process_does_not_deliver_is_checked_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    theirs, _ = opened(folder, COUNT + 1, monkeypatch)
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho ready; read line; exit 1\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    mine, _ = opened(folder, COUNT, monkeypatch)
    assert_same(mine, theirs)


def test_a_source_that_cannot_be_told_is_checked_by_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, _ = opened(folder, COUNT + 1, monkeypatch)
    monkeypatch.setattr(helper_processes, "LARGEST", 100)
    monkeypatch.setattr(checking, "_checked", None)
    mine, _ = opened(folder, COUNT, monkeypatch)
    assert_same(mine, theirs)
