"""Memory that was freed is kept, where the C library can be asked for that."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from eyechart.memory import LARGEST, MMAP_THRESHOLD, TRIM_THRESHOLD, keep_freed_memory

FAULTS = """
import resource, numpy
from eyechart.memory import keep_freed_memory
print({asked} and keep_freed_memory())
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        numpy.ones(6_000_000)  # 48 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def page_faults(asked: bool) -> tuple[bool, int]:
    said = subprocess.run(
        [sys.executable, "-c", FAULTS.format(asked=asked)], capture_output=True, text=True, check=True
    )
    kept, count = said.stdout.split()
    return kept == "True", int(count)


@pytest.mark.posix
def test_freed_blocks_are_used_again() -> None:
    """In processes of their own: it cannot be taken back."""
    plain, (kept, few) = page_faults(False)[1], page_faults(True)
    if not kept:
        pytest.skip("this C library cannot be asked")
    assert few < plain / 4


def test_a_limit_that_is_refused_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def refusing(option: int, value: int) -> int:
        asked.append((option, value))
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=refusing))
    assert not keep_freed_memory()
    assert asked == [(MMAP_THRESHOLD, LARGEST)]
    assert TRIM_THRESHOLD not in dict(asked)


@pytest.mark.parametrize("library", [SimpleNamespace(), OSError("no such library"), TypeError("a name is needed")])
def test_another_c_library_is_left_alone(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: object) -> Any:
        if isinstance(library, Exception):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", opened)
    assert not keep_freed_memory()
