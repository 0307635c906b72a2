"""Claiming a file, where there is fcntl and where there is Windows' msvcrt; writing one whole or not at all."""

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
        temporary.write_text("ne")
        raise OSError("gone")

    with pytest.raises(RunFolderError):
        files.write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
