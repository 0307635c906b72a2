"""Claiming a file, where there is fcntl and where there is Windows' msvcrt; writing one whole or not at all."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from eyechart import files, phrases
from eyechart.errors import RunFolderError, UsageError
from eyechart.training.recipes import find_recipe
from eyechart.training.run import TrainingRun


def test_a_claimed_file_is_refused_to_others_until_it_is_closed(tmp_path: Path) -> None:
    first = (tmp_path / "lines").open("ab")
    assert files.claim(first)
    with (tmp_path / "lines").open("ab") as second:
        assert not files.claim(second)
        first.close()
        assert files.claim(second)


def test_windows_locks_a_byte_behind_the_end_and_leaves_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: set[int] = set()

    def locking(descriptor: int, mode: int, count: int) -> None:
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        if place + count > 2**31 - 1:  # as the C library has it: the place is a 32-bit long
            raise OSError(22, "Invalid argument")
        assert place > 1_000_000_000
        if locked:
            raise PermissionError(13, "Permission denied")
        locked.add(descriptor)

    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    with (tmp_path / "lines").open("ab") as file, (tmp_path / "lines").open("ab") as other:
        file.write(b"{}\n")
        assert files.claim(file)
        assert file.tell() == 3
        assert not files.claim(other)
    assert (tmp_path / "lines").read_bytes() == b"{}\n"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne", encoding="utf-8")
        raise OSError("gone")

    with pytest.raises(RunFolderError):
        files.write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("system", "refusals", "is_moved"), [("nt", 3, True), ("nt", 99, False), ("posix", 1, False)])
def test_a_file_that_somebody_has_open_is_waited_for_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, refusals: int, is_moved: bool
) -> None:
    """There a reader, an indexer or a scanner that looks at a file keeps it from being replaced for a moment."""
    left = [refusals]
    waited: list[float] = []

    def replace(made: Path, path: Path) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise PermissionError(13, "used by another process")
        os.replace(made, path)

    monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(os), "name": system, "replace": replace}))
    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=waited.append))
    (tmp_path / "a").write_text("old")
    if is_moved:
        files.write_text(tmp_path / "a", "new")
    else:
        with pytest.raises(RunFolderError, match="used by another process"):
            files.write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == ("new" if is_moved else "old")
    assert waited == list(files.PATIENCE[: refusals if system == "nt" else 0])
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


@pytest.mark.parametrize(
    "name", ["a/b", "a\\b", "C:vit", "nul", "COM1.txt", "vit.", ".vit", "vit ", "what?", 'a"b', "a\nb"]
)
def test_names_that_one_system_refuses_are_refused_by_all(name: str) -> None:
    assert not files.is_file_name(name)
    with pytest.raises(UsageError, match="--name is the name of the files"):
        TrainingRun("vit", "toys", find_recipe("zoo"), "runs", name=name).checked()


def test_names_that_every_system_takes() -> None:
    assert all(map(files.is_file_name, ("vit", "vit-gap-rate-0.0003-seed2", "console", "비전", "a b")))


@pytest.mark.parametrize(("windows", "typed"), [(False, "eyechart show 'my run'"), (True, 'eyechart show "my run"')])
def test_commands_that_are_suggested_can_be_typed(monkeypatch: pytest.MonkeyPatch, windows: bool, typed: str) -> None:
    monkeypatch.setattr(phrases, "WINDOWS", windows)
    assert phrases.quoted("eyechart", "show", "my run") == typed


@pytest.mark.parametrize(("age", "is_swept"), [(0, False), (2 * files.FORGOTTEN, True)])
def test_where_processes_cannot_be_asked_a_day_is_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int, is_swept: bool
) -> None:
    """On Windows what a killed exam was writing stayed for ever."""
    monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(os), "name": "nt"}))
    left = tmp_path / f".plan.json.{files.HOST}-4242-abcdefgh.json"
    left.write_text("half")
    os.utime(left, (time.time() - age, time.time() - age))
    files.sweep(tmp_path)
    assert left.exists() is not is_swept


@pytest.mark.parametrize(("system", "is_swept"), [("posix", True), ("nt", False)])
def test_what_a_dead_process_was_writing_is_swept_where_processes_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, is_swept: bool
) -> None:
    asked: list[int] = []

    def kill(process: int, signal: int) -> None:
        asked.append(process)
        raise ProcessLookupError

    monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(os), "name": system, "kill": kill}))
    left = tmp_path / f".plan.json.{files.HOST}-4242-abcdefgh.json"
    left.write_text("half")
    files.sweep(tmp_path)
    assert left.exists() is not is_swept
    assert asked == ([4242] if is_swept else []), "on Windows signal 0 would end the process"


@pytest.mark.parametrize("has_nonblock", [True, False])
def test_a_plain_file_is_opened_with_the_flags_that_a_system_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_nonblock: bool
) -> None:
    if not has_nonblock:  # Windows
        monkeypatch.delattr(os, "O_NONBLOCK", raising=False)
    (tmp_path / "a").write_bytes(b"whole\r\n")
    assert files.read_bytes(tmp_path / "a", 10) == b"whole\r\n"
