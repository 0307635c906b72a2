"""Writing files so that a killed process leaves whole ones or none; reading them within limits; claiming a file."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from eyechart.errors import RunFolderError, UsageError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]


HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<process>\d+)-\w{8}(\.\w+)?")
"""The name of a file that is being written says for whom, on which machine and by which process."""
FORGOTTEN = 86_400
"""Seconds after which a temporary file whose process cannot be asked, of another machine or on Windows, is nobody's."""

PATIENCE = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between attempts to move a file into place on Windows, which refuses while anybody has one of the two open: a
reader, an indexer, a scanner for viruses."""
NO_NAME = re.compile(r"""[\\/:*?"<>|\x00-\x1f]|[. ]$|^\.|^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)""", re.IGNORECASE)
"""What a file cannot be called on one system or another."""

FAR_BEHIND = (1 << 31) - 2
"""The byte that Windows locks. Its `_locking` reads the place as a 32-bit `long` and fails behind that: at 1 << 40 it
locked nothing, and `claim` took it for a file system without locks."""
LARGEST_TEXT = 16 << 20
"""Bytes of a text that a user names (a mapping of classes, a card, claims): 16 MiB is the names of 200,000 classes."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file in the same folder, flush it to the disk, then move it into place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{path.name}.{HOST}-{os.getpid()}-"
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)  # mkstemp's 0600 would keep a colleague from reading a shared run
            move_into_place(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except Exception as error:
        # safetensors and netCDF report a full disk with exceptions of their own; nothing else can fail in here.
        raise cannot_write(path, error) from error
    return path


def move_into_place(made: Path, path: Path) -> None:
    """Move a file, or a folder to where none is, with patience where the system needs it."""
    for wait in PATIENCE if os.name == "nt" else ():
        try:
            os.replace(made, path)
        except PermissionError:
            time.sleep(wait)
        else:
            return
    os.replace(made, path)


def is_file_name(text: str) -> bool:
    """Whether files of every system can be called so.

    >>> [is_file_name(text) for text in ("vit-seed0", "a/b", "a\\\\b", "C:vit", "nul", "vit.", "console")]
    [True, False, False, False, False, False, True]
    """
    return bool(text) and not NO_NAME.search(text)


def is_temporary(path: Path, of: str | None = None) -> bool:
    """Whether a file is one that `write_atomically` was filling, for a file called `of` or for any."""
    match = TEMPORARY.fullmatch(path.name)
    return match is not None and of in (None, match["name"]) and stat.S_ISREG(path.lstat().st_mode)


def sweep(folder: Path) -> None:
    """Remove what killed processes were writing into a folder; what a living one is writing stays."""
    for path in folder.glob(".*") if folder.is_dir() else ():
        try:
            if is_temporary(path) and _abandoned(path):
                path.unlink()
        except OSError:
            continue  # another process was quicker, or the folder may not be changed


def _abandoned(path: Path) -> bool:
    match = TEMPORARY.fullmatch(path.name)
    assert match is not None
    if match["host"] != HOST or os.name != "posix":  # elsewhere signal 0 would end the process
        return time.time() - path.stat().st_mtime > FORGOTTEN
    if int(match["process"]) == os.getpid():
        return False
    try:
        os.kill(int(match["process"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


def cannot_write(path: Path, error: Exception) -> RunFolderError:
    reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
    return RunFolderError(
        f"{path} cannot be written ({reason}); what was finished before is kept: free some space or choose "
        "another folder with --out, then run the same command again."
    )


def write_bytes(path: Path, content: bytes) -> Path:
    return write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> Path:
    # Half a character, which a name may hold and UTF-8 cannot, is written out as JSON does it.
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, data: object) -> Path:
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def read_text(path: str | Path, what: str) -> str:
    """A file that a user named, or one sentence about it."""
    try:
        return read_bytes(Path(path).expanduser(), LARGEST_TEXT).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} takes a text file; {path} cannot be read (it is not UTF-8 text).") from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~NOBODY has no home
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{what} takes a text file; {path} cannot be read ({reason}).") from error


def open_regular(path: str | Path, most: int) -> BinaryIO:
    """A plain file of at most `most` bytes, to be read. A pipe or a device, which may never end, is refused unread."""
    # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):
        file.close()
        raise ValueError("it is not a plain file")
    if about.st_size > most:
        file.close()
        raise ValueError(f"it has {about.st_size:,} bytes, more than the {most:,} that are read")
    return file


def read_bytes(path: str | Path, most: int) -> bytes:
    """What is in a plain file of at most `most` bytes; ValueError says what is wrong with another one."""
    with open_regular(path, most) as file:
        return file.read(most)


def json_of(text: str | bytes) -> Any:
    """What a JSON text says; all that may be wrong with it, its depth included, is a ValueError.

    >>> json_of("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def sha256_of(path: Path, most: int) -> str:
    """The hash of a plain file of at most `most` bytes, which is not held in memory."""
    with open_regular(path, most) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # a real file has readinto


def read_json_lines(path: Path, *, strict: bool = True) -> list[dict[str, Any]]:
    """The lines of a file of records; none where there is no file. A last line that a kill cut short is left out.

    Any other line that is no JSON is refused, or, if not `strict`, ends what is read.
    """
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"The record {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    records: list[dict[str, Any]] = []
    for line_number, line in enumerate(lines, 1):
        try:
            records.append(json_of(line))
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
    file.seek(FAR_BEHIND)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except PermissionError as error:  # what Windows says of a byte that somebody else has locked
        raise BlockingIOError(*error.args) from error
    finally:
        file.seek(position)
