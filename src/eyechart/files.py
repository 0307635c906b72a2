"""Writing files so that a killed process leaves whole ones or none."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from eyechart.errors import RunFolderError


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file in the same folder, then move it into place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            temporary.chmod(0o644)  # mkstemp's 0600 would keep a colleague from reading a shared run
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except Exception as error:
        # safetensors and netCDF report a full disk with exceptions of their own; nothing else can fail in here.
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise RunFolderError(
            f"{path} could not be written ({reason}); what was finished before is kept: "
            "make room or choose another folder with --out, then run the same command again."
        ) from error
    return path


def write_text(path: Path, text: str) -> Path:
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, data: object) -> Path:
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=True) + "\n")
