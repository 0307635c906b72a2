"""Writing files so that a killed process leaves whole ones or none, and claiming a file for one process."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from eyechart.errors import RunFolderError, UsageError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file in the same folder, flush it to the disk, then move it into place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)  # mkstemp's 0600 would keep a colleague from reading a shared run
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except Exception as error:
        # safetensors and netCDF report a full disk with exceptions of their own; nothing else can fail in here.
        raise cannot_write(path, error) from error
    return path


def cannot_write(path: Path, error: Exception) -> RunFolderError:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return RunFolderError(
        f"{path} cannot be written ({reason}); what was finished before is kept: free some space or choose "
        "another folder with --out, then run the same command again."
    )


def write_bytes(path: Path, content: bytes) -> Path:
    return write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> Path:
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, data: object) -> Path:
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def read_text(path: str | Path, what: str) -> str:
    """A file that a user named, or one sentence about it."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"{what} takes a text file; {path} cannot be read ({reason}).") from error


def read_json_lines(path: Path, *, strict: bool = True) -> list[dict[str, Any]]:
    """The lines of a file of records; none where there is no file. A last line that a kill cut short is left out.

    Any other line that is no JSON is refused, or, if not `strict`, ends what is read.
    """
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(
            f"The record {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    records: list[dict[str, Any]] = []
    for line_number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            if line_number == len(lines) or not strict:
                break
            raise RunFolderError(f"{path}, line {line_number}, is not a record ({error}); restore the file.") from error
    return records


def claim(file: BinaryIO) -> bool:
    """Lock an open file for this process until it is closed; False where another process holds it.

    A file system without locks refuses nobody: nothing can be claimed there.
    """
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _claim_on_windows(file)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _claim_on_windows(file: BinaryIO) -> None:
    """Lock one byte far behind the end, so that others may still read the file."""
    import msvcrt

    position = file.tell()
    file.seek(1 << 40)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except PermissionError as error:  # what Windows says of a byte that somebody else has locked
        raise BlockingIOError(*error.args) from error
    finally:
        file.seek(position)
