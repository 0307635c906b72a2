"""Processes that read pictures give the bytes that threads give, whatever becomes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import eyechart
from eyechart import helper_processes
from eyechart.engines import picture_readers
from eyechart.engines.picture_readers import CHUNK, PictureReaders, Way
from eyechart.engines.prepared import Prepared
from eyechart.errors import ImagesError
from eyechart.helper_processes import pickled, started
from eyechart.images import Images, common_crop, open_images
from eyechart.images.picture import resized
from eyechart.scene import Batch
from tests.small_exam import subject

WAYS: list[Way] = [((16, 16), "bicubic"), ((20, 12), "bilinear")]
COUNT = 9 * CHUNK + 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    for index in range(COUNT):
        path = tmp_path / f"class-{index % 2}" / f"{index:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (24 + index % 5, 30, 3), np.uint8)).save(path)
    return tmp_path


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)


def batches_of(count: int, size: int) -> list[Batch]:
    order = np.random.default_rng(1).permutation(count)
    parts = [order[start : start + size] for start in range(0, count, size)]
    return [
        Batch(index, index * size, part, None, 0, np.zeros(len(part), np.int64), whole=len(part) == size)
        for index, part in enumerate(parts)
    ]


def expected(images: Images, batch: Batch) -> list[np.ndarray]:
    crops = [common_crop(images.picture(int(index))) for index in batch.images]
    return [np.stack([np.asarray(resized(crop, *way)).transpose(2, 0, 1) for crop in crops]) for way in WAYS]


def assert_same(readers: PictureReaders, images: Images, batches: list[Batch]) -> None:
    seen = 0
    for batch, pixels in readers.read(batches):
        assert batch is batches[seen]
        for mine, theirs in zip(pixels, expected(images, batch), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        seen += 1
    assert seen == len(batches)


def test_processes_read_what_threads_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = open_images(folder)
    batches = batches_of(COUNT, 2 * CHUNK - 1)
    assert len(batches) > picture_readers.AHEAD + 1  # places are used again
    with picture_readers.picture_readers(images, WAYS, 2 * CHUNK - 1) as readers:
        assert readers is not None
        monkeypatch.setattr(picture_readers, "read_into", None)  # nothing is read here
        for _ in range(2):
            assert_same(readers, images, batches)


def test_reading_may_be_given_up_and_begun_anew(folder: Path) -> None:
    images, batches = open_images(folder), batches_of(COUNT, CHUNK)
    with picture_readers.picture_readers(images, WAYS, CHUNK) as readers:
        assert readers is not None
        for _ in range(3):
            first = readers.read(batches[::-1])
            next(first)
            first.close()
            assert_same(readers, images, batches)


@pytest.mark.parametrize("killed", [1, 2])
def test_what_killed_processes_do_not_deliver_is_read_by_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    processes: list[subprocess.Popen[str]] = []

    def kept(module: str, folder: Path) -> subprocess.Popen[str]:
        processes.append(started(module, folder))
        return processes[-1]

    monkeypatch.setattr(picture_readers, "started", kept)
    images, batches = open_images(folder), batches_of(COUNT, CHUNK)
    with picture_readers.picture_readers(images, WAYS, CHUNK) as readers:
        assert readers is not None
        assert len(processes) == 2
        assert_same(readers, images, batches[:2])
        for process in processes[:killed]:
            process.kill()
        assert_same(readers, images, batches)
        assert len(readers._threads) >= 2 - killed


@pytest.mark.posix
def test_processes_that_cannot_begin_are_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for last_words in ("exit 1", "echo ready; read line; exit 1"):
        dying = tmp_path / "dying"
        dying.write_text(f"#!/bin/sh\n{last_words}\n")
        dying.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(dying))
        images, batches = open_images(folder), batches_of(COUNT, CHUNK)
        with picture_readers.picture_readers(images, WAYS, CHUNK) as readers:
            assert readers is not None
            assert_same(readers, images, batches)


def test_a_picture_that_cannot_be_read_any_more_is_named(folder: Path) -> None:
    images, batches = open_images(folder), batches_of(COUNT, CHUNK)
    gone = images.origin(int(batches[2].images[3]))
    (folder / gone).write_bytes(b"no picture")
    with picture_readers.picture_readers(images, WAYS, CHUNK) as readers:
        assert readers is not None
        with pytest.raises(ImagesError, match=gone):
            list(readers.read(batches))


def test_a_reader_imports_nothing_of_torch() -> None:
    code = (
        "import sys, eyechart.engines.picture_readers as _; print([n for n in ('torch', 'timm') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_source_that_cannot_be_told_is_read_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = open_images(folder)
    assert pickled(images)
    monkeypatch.setattr(helper_processes, "LARGEST", 100)
    with picture_readers.picture_readers(images, WAYS, CHUNK) as readers:
        assert readers is None


def test_an_exam_on_a_gpu_lets_processes_read(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in: subjects stay on the CPU, and only the question whether they are on a GPU is answered otherwise."""
    batches: list[Batch] = []
    read = PictureReaders.read

    def watched(readers: PictureReaders, wanted: list[Batch]) -> Iterator[tuple[Batch, list[np.ndarray]]]:
        for batch, pixels in read(readers, wanted):
            batches.append(batch)
            yield batch, pixels

    monkeypatch.setattr(PictureReaders, "read", watched)
    findings = []
    for gpu, enough in ((False, 1), (True, COUNT + 1), (True, 1)):
        monkeypatch.setattr(Prepared, "on_gpu", gpu)
        monkeypatch.setattr(picture_readers, "WORTH", enough)
        out = tmp_path / f"{gpu}-{enough}"
        run = eyechart.exam(subject(), folder, "feature_variance,cka", out=out, page=False, progress=False)
        findings.append([(run.path / "findings" / f"{name}.nc").read_bytes() for name in ("feature_variance", "cka")])
        assert bool(batches) == (gpu and enough == 1)
    assert findings[0] == findings[1] == findings[2]
    assert sum(len(batch.images) for batch in batches) == COUNT
