"""Checkpoints written by `torch.save`: pickles, which can run code. None does here.

Before torch sees a file its opcodes are read, not run, and one that claims to be larger than it is (a bomb) is refused.
Then torch loads it with `weights_only=True`. What it does not take is called what it is, by what its opcodes name: a
program or a damaged file; torch's own message, which advises to switch the protection off, is not passed on.
"""

from __future__ import annotations

import argparse
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch

from eyechart.errors import SubjectError, UnsafeWeights

LARGEST_PICKLE = 256 << 20
"""Bytes of the description of tensors (not of their numbers): a checkpoint of 10,000 tensors has 2 million."""
MOST_MEMBERS = 1_000_000
LEGACY_PICKLES = 5
"""What torch wrote before zip files: a magic number, a version, the machine, the objects, the keys of storages."""

PLAIN = ("torch._utils.", "torch._tensor.", "collections.OrderedDict", "torch.nn.parameter.Parameter", "argparse.")
PLAIN_ENDS = ("Storage", "torch.Size", "torch.device")


class _Clipped:
    """A file of which a pickle reads no more than there is: one opcode may claim gigabytes."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.size, self.used = file, size, 0

    def read(self, count: int) -> bytes:
        data = self.file.read(max(0, min(count, self.size - self.used)))
        self.used += len(data)
        return data

    def readline(self) -> bytes:
        data = self.file.readline(min(1 << 20, self.size - self.used))
        self.used += len(data)
        return data

    def tell(self) -> int:
        return self.used


def load_pickle(path: Path) -> Any:
    """What is in a file of `torch.save`, tensors and plain data only."""
    called: list[str] = []
    try:
        for name in _names_called(path):
            called += [name]  # one by one: what was seen before the damage counts
        # A training script's options are plain data, and very many checkpoints carry them.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except SubjectError:
        raise
    except Exception as error:  # a damaged pickle fails in any way
        code = [name[:100] for name in dict.fromkeys(called) if not _is_plain(name)]
        if code:
            raise UnsafeWeights(
                f"{path} would run code when loaded ({', '.join(code[:3])}) and was not; save only the model's "
                "state_dict(), best as .safetensors."
            ) from None
        raise SubjectError(f"{path} is damaged or not a checkpoint ({_reason(error)}).") from None


def _reason(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    if "weights_only" in str(error) or text.startswith("Weights only load failed"):
        return "it holds something else than tensors and plain data"
    return text or "it ends too early"


def _names_called(path: Path) -> Iterator[str]:
    """Functions and classes that a file names, found by reading its opcodes, not running them. Refuses bombs."""
    size = path.stat().st_size
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            for _ in range(LEGACY_PICKLES):
                if file.tell() < size:
                    yield from _names_in(_Clipped(file, min(size - file.tell(), LARGEST_PICKLE)))
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS or sum(member.file_size for member in members) > size:
            raise SubjectError(f"{path} would unpack to more than it is, which no checkpoint does (a zip bomb?).")
        if any("/code/" in member.filename for member in members):
            raise UnsafeWeights(
                f"{path} is a TorchScript archive, which holds code; save the model's state_dict() instead."
            )
        for member in members:
            if member.filename.endswith(".pkl"):
                with archive.open(member) as inner:
                    yield from _names_in(_Clipped(inner, min(member.file_size, LARGEST_PICKLE)))


def _names_in(stream: _Clipped) -> Iterator[str]:
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(stream):  # type: ignore[arg-type]
        if isinstance(argument, str) and "UNICODE" in opcode.name:
            strings = [*strings[-1:], argument]
        elif opcode.name in ("GLOBAL", "INST"):
            yield str(argument).replace(" ", ".")
        elif opcode.name == "STACK_GLOBAL":
            yield ".".join(strings)


def _is_plain(name: str) -> bool:
    return name.startswith(PLAIN) or name.endswith(PLAIN_ENDS)
