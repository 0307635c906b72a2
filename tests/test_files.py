"""Claiming a file, where there is fcntl and where there is Windows' msvcrt; writing one whole or not at all."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from eyechart import files
from eyechart.errors import RunFolderError


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
