"""Folders: classes, what is skipped, what is refused, fingerprints."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eyechart.errors import ImagesError, UsageError
from eyechart.images import Problem, open_images, plan_batches, source

Write = Callable[[str, int], Path]


def test_subfolders_are_classes(tmp_path: Path, write: Write) -> None:
    for name, seed in [("b/2.png", 0), ("a/deep/1.PNG", 1), ("b/1.png", 2), ("a/.hidden.png", 3), ("a/notes.txt", 4)]:
        write(name, seed)
    (tmp_path / "empty").mkdir()
    images = open_images(tmp_path)
    assert images.classes == ("a", "b")
    assert [images.origin(index) for index in range(3)] == ["a/deep/1.PNG", "b/1.png", "b/2.png"]
    assert images.labels is not None
    assert images.labels.dtype == np.int64
    assert images.labels.tolist() == [0, 1, 1]
    assert images.problems == []
    assert images.name == tmp_path.name
    for index, seed in enumerate([1, 2, 0]):
        expected = np.random.default_rng(seed).integers(0, 256, (16, 24, 3), np.uint8)
        assert np.array_equal(np.asarray(images.picture(index)), expected)
    assert images.array([0]) is None


def test_a_flat_folder_has_no_labels(tmp_path: Path, write: Write) -> None:
    write("1.png", 0)
    write("2.png", 1)
    images = open_images(str(tmp_path))
    assert images.labels is None
    assert images.classes is None
    write("cats/3.png", 2)
    mixed = open_images(tmp_path)
    assert mixed.labels is not None
    assert mixed.labels.tolist() == [-1, -1, 0]
    assert mixed.classes == ("cats",)


@pytest.mark.parametrize("check", ["full", "header"])
def test_bad_files_are_skipped_and_listed(tmp_path: Path, write: Write, check: source.Check) -> None:
    for place in range(5):
        write(f"a/{place}.png", place)
    (tmp_path / "a" / "0.jpg").write_text("I am a text file.")
    (tmp_path / "a" / "00.jpg").write_bytes(b"")
    Image.new("RGB", (1, 1)).save(tmp_path / "a" / "1.jpg")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "no.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "b" / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    images = open_images(tmp_path, check=check)
    assert [images.origin(index) for index in range(len(images))] == [f"a/{place}.png" for place in range(5)]
    assert images.labels is not None
    assert images.labels.tolist() == [0] * 5
    assert images.problems == [
        Problem("a/0.jpg", "not a picture in a known format"),
        Problem("a/00.jpg", "the file is empty"),
        Problem("a/1.jpg", "1×1 pixels, smaller than 8 on a side"),
        Problem("b/no.png", "cannot be opened: No such file or directory"),
        Problem("b/phone.heic", "not a picture in a known format"),
    ]
    assert len(plan_batches(images)) == 5


def test_labels_stay_with_their_pictures_when_one_is_skipped(tmp_path: Path, write: Write) -> None:
    write("a/1.png", 0).write_bytes(b"")
    write("a/2.png", 0)
    write("b/1.png", 0).write_text("x")
    write("b/2.png", 0)
    write("c/1.png", 0)
    images = open_images(tmp_path)
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 2]


def test_a_truncated_jpeg_is_found_at_opening_or_named_at_use(tmp_path: Path, write: Write) -> None:
    Image.open(write("good.png", 0)).resize((200, 200)).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:-3000])
    full = open_images(tmp_path)
    assert len(full) == 1
    assert "truncated" in full.problems[0].reason
    header = open_images(tmp_path, check="header")
    assert len(header) == 2
    with pytest.raises(ImagesError, match=r"cut.jpg in .* cannot be read now \(damaged"):
        header.pictures([1, 0])
    (tmp_path / "good.png").unlink()
    with pytest.raises(ImagesError, match=r"good.png in .* cannot be read now"):
        full.picture(0)


def test_large_sets_are_checked_by_header(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in range(4):
        write(f"{place}.png", place)
    monkeypatch.setattr(source, "DECODED_AT_OPENING", 3)
    monkeypatch.setattr(source, "decode", lambda *_, **__: pytest.fail("decoded"))
    assert len(open_images(tmp_path)) == 4
    monkeypatch.setattr(source, "DECODED_AT_OPENING", 4)
    with pytest.raises(pytest.fail.Exception, match="decoded"):
        open_images(tmp_path)


def test_progress_reports_every_file(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in range(3):
        write(f"{place}.png", place)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(source, "PIECE", 2)
    images = open_images(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 3), (3, 3)]
    assert len(images) == 3


@pytest.mark.parametrize("check", ["full", "header"])
def test_fingerprint_follows_content_labels_and_nothing_else(tmp_path: Path, write: Write, check: source.Check) -> None:
    for name, seed in [("here/a/1.png", 0), ("here/a/2.png", 1), ("here/b/1.png", 2)]:
        write(name, seed)
    here = tmp_path / "here"

    def fingerprint(folder: Path) -> str:
        return open_images(folder, check=check).fingerprint

    first = fingerprint(here)
    shutil.copytree(here, tmp_path / "there" / "elsewhere")
    os.utime(here / "a" / "1.png", (0, 0))
    assert fingerprint(tmp_path / "there" / "elsewhere") == fingerprint(here) == first
    (here / "a" / "broken.png").write_bytes(b"")
    assert fingerprint(here) == first  # what is skipped is not part of the set
    shutil.move(here / "a" / "2.png", here / "b" / "0.png")
    moved = fingerprint(here)
    assert moved != first
    write("here/b/0.png", 5)
    assert fingerprint(here) not in (first, moved)


def test_fingerprint_sees_a_rename_of_a_class(tmp_path: Path, write: Write) -> None:
    write("x/a/1.png", 0)
    write("y/b/1.png", 0)
    assert open_images(tmp_path / "x").fingerprint != open_images(tmp_path / "y").fingerprint


def test_a_header_fingerprint_is_not_taken_for_a_full_one(tmp_path: Path, write: Write) -> None:
    write("1.png", 0)
    assert open_images(tmp_path).fingerprint != open_images(tmp_path, check="header").fingerprint


def test_a_header_fingerprint_sees_the_length_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)).save(path)
    assert path.stat().st_size > source.HEAD
    before = open_images(tmp_path, check="header").fingerprint
    path.write_bytes(path.read_bytes() + b"more")
    assert open_images(tmp_path, check="header").fingerprint != before


def test_one_picture_works(tmp_path: Path, write: Write) -> None:
    path = write("only.png", 0)
    for images in (open_images(path), open_images(tmp_path)):
        plan = plan_batches(images)
        assert (len(images), plan.blocks, plan.left_over, plan.shards) == (1, 0, 1, ((0,),))
        (batch,) = plan.batches(0)
        assert not batch.whole
        assert batch.images.tolist() == [0]


def test_refusals_are_one_clear_sentence(tmp_path: Path, write: Write) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("a")
    write("holiday_photos/1.png", 0)
    write("bad/1.png", 0).write_text("no")
    write("splits/train/a/1.png", 0)
    write("splits/val/a/1.png", 0)
    for place, sentence in {
        "empty": r"holds no pictures \(0 other files\)",
        "words": r"holds no pictures \(1 other files\)",
        "holidy_photos": r"no images at .*; did you mean .*holiday_photos\?$",
        "nowhere/at/all": "the folder .*nowhere/at does not exist either",
        "bad": "None of the 1 files in bad .* for example 1.png: not a picture in a known format",
        "splits": "holds the splits train, val, not classes; give one of them, for example .*val",
        "words/a.txt": "is not a source of images",
        "bad/1.png": "None of the 1 files in 1.png",
    }.items():
        with pytest.raises(ImagesError, match=sentence) as caught:
            open_images(tmp_path / place)
        assert "\n" not in str(caught.value)


def test_a_misspelt_sample_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImagesError, match="did you mean sample"):
        open_images("samples")
    with pytest.raises(UsageError, match="test, train; got 'tset'"):
        open_images("sample:tset")


def test_a_link_in_a_circle_ends(tmp_path: Path, write: Write) -> None:
    write("a/1.png", 0)
    (tmp_path / "a" / "again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b").symlink_to(write("../outside/1.png", 1).parent, target_is_directory=True)
    images = open_images(tmp_path)
    assert [images.origin(index) for index in range(len(images))] == ["a/1.png", "b/1.png"]


def test_folders_can_be_sent_to_a_worker(tmp_path: Path, write: Write) -> None:
    write("a/1.png", 0)
    images = pickle.loads(pickle.dumps(open_images(tmp_path)))
    assert images.picture(0).size == (24, 16)
