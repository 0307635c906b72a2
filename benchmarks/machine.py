"""The machine: its facts, what it can do at best, and what a piece of work took of it."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

MEGA = 2**20
LIMIT = 1500
"""Seconds after which a way is stopped, and shown as stopped."""


@contextmanager
def metered(device: torch.device) -> Iterator[dict[str, float]]:
    """What happens inside: `seconds`, `wall` and `megabytes` at the peak above what was there before.

    On a CPU `seconds` are those of this process alone, which a busy neighbour lengthens little; on an accelerator they
    are the wall's, since the device is nobody else's. Memory is the device's, and on a CPU that of the process.
    """
    taken: dict[str, float] = {}
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = resident_peak(anew=True)
    wall, own = time.perf_counter(), time.process_time()
    yield taken
    if cuda:
        torch.cuda.synchronize()
    taken["wall"] = time.perf_counter() - wall
    taken["seconds"] = taken["wall"] if cuda else time.process_time() - own
    after = torch.cuda.max_memory_allocated() if cuda else resident_peak()
    taken["megabytes"] = (after - before) / MEGA


def resident_peak(*, anew: bool = False) -> int:
    """The most bytes of memory this process has held; `anew` begins to count from what it holds now."""
    try:
        if anew:
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux: the peak of the whole process
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def facts(packages: Sequence[str] = ()) -> dict[str, Any]:
    """What a reader must know to compare: the machine, the day, its load and the versions."""
    found: dict[str, Any] = {
        "day": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load": [round(load, 1) for load in os.getloadavg()],
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: installed for name in ("torch", "timm", *packages) if (installed := version_of(name))},
    }
    if torch.cuda.is_available():
        found["accelerator"] = torch.cuda.get_device_name()
    return found


def version_of(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def rates(device: torch.device, small: bool = False) -> dict[str, float]:
    """The best of several rounds: operations a second of a matrix product, bytes a second of a copy."""
    cuda = device.type == "cuda"
    size = 256 if small else 8192 if cuda else 1536
    found = {}
    for dtype in (torch.float32, torch.bfloat16) if cuda else (torch.float32,):
        one, two = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        seconds = quickest(lambda one=one, two=two: one @ two, device)
        found[f"{str(dtype).removeprefix('torch.')} operations"] = 2 * size**3 / seconds
    source = torch.ones(MEGA if small else 256 * MEGA if cuda else 64 * MEGA, device=device)
    target = torch.empty_like(source)
    found["bytes"] = 2 * source.nbytes / quickest(lambda: target.copy_(source), device)  # read and written
    return found


def quickest(work: Callable[[], Any], device: torch.device, rounds: int = 7) -> float:
    taken = []
    for _ in range(rounds):
        with metered(device) as one:
            work()
        taken.append(one["seconds"])
    return min(taken)


def floor(operations: float, moved: float, at_best: dict[str, float], dtype: str = "float32") -> float:
    """Seconds below which this work cannot be done here: so many operations, so many bytes moved."""
    return max(operations / at_best[f"{dtype} operations"], moved / at_best["bytes"])


def operations_of(work: Callable[[], Any]) -> int:
    """Floating-point operations of the matrix products and convolutions in a piece of work, counted by torch."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def in_rounds(script: str, ways: Sequence[str], words: Sequence[str], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Each way in a process of its own, in turn, `repeats` times: its memory is its own, and a busy neighbour disturbs
    all alike. A way that failed once, or was too slow, is not tried again."""
    seen: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, results in seen.items():
            if not any("failed" in result for result in results):
                results.append(in_own_process([script, "--way", way, *words]))
                print(f"{Path(script).stem} {' '.join(words)} {way:20} {summary(results[-1])}", flush=True)
    return seen


def in_own_process(command: Sequence[str]) -> dict[str, Any]:
    """What the script's last line says; a failure is a result too, in the words of the last line of its error."""
    try:
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not finished after {LIMIT} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"failed": said[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def summary(result: dict[str, Any]) -> str:
    if "failed" in result:
        return str(result["failed"])
    return f"{result['seconds']:8.2f} s ({result['wall']:.2f} by the clock) {result['megabytes']:7.0f} MB"


def medians(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several rounds; a failure stays a failure."""
    failed = [result["failed"] for result in results if "failed" in result]
    if failed:
        return {"failed": failed[0]}
    keys = ("seconds", "wall", "megabytes")
    return {key: statistics.median(result[key] for result in results) for key in keys} | {"rounds": len(results)}


def write(path: str | Path, part: str, found: dict[str, Any]) -> None:
    """One part of a file of results, beside those that are there."""
    place = Path(path)
    known = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    known[part] = found
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
