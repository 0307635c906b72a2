"""Files that are there whole or not at all, and that say in one sentence why they could not be written."""

from __future__ import annotations

import os
from pathlib import Path

from eyechart.errors import RunFolderError


def write_whole(path: Path, content: bytes) -> Path:
    """Write beside, flush to the disk, move into place: a kill or a full disk leaves what was there before."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


def cannot_write(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"{path} cannot be written ({error.strerror or error}); what was written before is kept: make room or mend the "
        "folder, then give the same command again."
    )
