"""What the measures cost on an accelerator, where the time goes, the default exam by phase, and peers on the same work.

    python benchmarks/on_gpu.py --out benchmarks/results/gpu.json [--peers build/peers-gpu]     five minutes on an H200
    python benchmarks/on_gpu.py --device cpu --small --out FILE                                 that it runs; seconds

Nothing is downloaded: weights are random or bundled. Images are on the device before anything is timed. Parts run in
the order of PARTS until `--budget` seconds are gone; what was left out is in the results. TF32 is off, as in an exam.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from machine import facts, floor, medians, metered, operations_of, rates, write
from passes import Passes, shared_measures

from eyechart.device import allow_tf32, choose_device
from eyechart.subjects import load_subjects
from eyechart.subjects.subject import Subject

LARGE = ("timm:vit_base_patch16_224@random", "timm:resnet50@random")
ZOO = ("zoo:vit", "zoo:resnet")


@dataclass(frozen=True)
class Size:
    """How much of everything: for a GPU, or just enough to see that it runs."""

    pairs: tuple[tuple[tuple[str, ...], str, int, int], ...]
    """Subjects, dtype, images and block of each row of ratios."""
    single: tuple[str, ...]
    """Measures that are taken one by one, before all of them at once."""
    repeats: int
    exam: dict[str, Any]
    cka: tuple[tuple[str, ...], int]
    eight: int
    """Images of all pairs among eight models; 0: only two of them, on 8."""
    minibatches: int


GPU = Size(
    pairs=((LARGE, "float32", 512, 64), (LARGE, "bfloat16", 1024, 64), (ZOO, "float32", 4096, 256)),
    single=("cka", "attention_distance", "skip_ratio", "feature_variance", "localisation", "calibration"),
    repeats=3,
    exam={},
    cka=(LARGE, 512),
    eight=512,
    minibatches=32,
)
SMALL = Size(
    pairs=((ZOO[:1], "float32", 40, 20),),
    single=("cka",),
    repeats=1,
    exam={"measures": "recognition", "limit": 40, "page": False},
    cka=(ZOO, 8),
    eight=0,
    minibatches=0,
)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", required=True, help="the file of results")
    parser.add_argument("--peers", help="a folder with the peers' packages (`make peers-gpu`)")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--budget", type=float, default=280.0, help="seconds after which no further part begins")
    asked = parser.parse_args(words)
    if asked.peers:
        sys.path.append(asked.peers)  # behind this environment's own torch and numpy
    began = time.monotonic()
    allow_tf32(False)
    device = choose_device(asked.device)
    at_best = rates(device, small=asked.small)
    write(asked.out, "machine", facts(PACKAGES) | {"rates": at_best})
    left_out = []
    for name in asked.parts:
        if time.monotonic() - began > asked.budget:
            left_out.append(name)
            continue
        started = time.monotonic()
        try:
            found = PARTS[name](SMALL if asked.small else GPU, device, at_best)
        except Exception as error:  # the parts after it are still wanted
            found = {"failed": f"{type(error).__name__}: {error}"[:500]}
            print(f"{name} failed: {found['failed']}", file=sys.stderr, flush=True)
        write(asked.out, name, found)
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
    write(asked.out, "left_out", {"parts": left_out, "seconds": time.monotonic() - began})


# --- what the measures cost over the bare passes ----------------------------------------------------------------------


def ratios(size: Size, device: torch.device, at_best: dict[str, float]) -> dict[str, Any]:
    """Seconds of each measure over those of the bare passes, which it takes turns with."""
    rows = []
    for names, dtype, count, block in size.pairs:
        subjects = subjects_on(names, dtype, device)
        sets = {name: [name] for name in size.single} | {"all shared": shared_measures(), "probes": ["probes"]}
        row: dict[str, Any] = {"subjects": list(names), "dtype": dtype, "images": count, "block": block, "measures": {}}
        for told, measures in sets.items():
            found = over_bare(Passes(subjects, measures, count, block=block), size.repeats, device)
            row["measures"][told] = found
            print(f"{' + '.join(names)} {dtype} {told:20} {found['ratio']:.2f} × bare", flush=True)
        passes = Passes(subjects, ["cka"], count, block=block).of_one_batch()
        feed = passes.noise()
        operations = operations_of(lambda passes=passes, feed=feed: passes.bare(feed)) / block
        row["floor"] = floor(operations * count, 0, at_best, dtype if f"{dtype} operations" in at_best else "float32")
        row["images_a_second"] = count / min(found["bare"]["seconds"] for found in row["measures"].values())
        rows.append(row)
    return {"rows": rows}


def subjects_on(names: Sequence[str], dtype: str, device: torch.device) -> list[Subject]:
    from eyechart.device import choose_dtype

    loaded = load_subjects(list(names))
    return [subject.in_numbers(choose_dtype(dtype), device, borrowed=False) for subject in loaded]


def over_bare(passes: Passes, repeats: int, device: torch.device) -> dict[str, Any]:
    feed = passes.noise()
    rounds: dict[str, list[dict[str, Any]]] = {"bare": [], "measured": []}
    passes.bare(feed)
    passes.take(feed)  # kernels are chosen, memory is taken, passes are captured where that gains
    for _ in range(repeats):
        for way, work in (("bare", passes.bare), ("measured", passes.take)):
            with metered(device) as taken:
                work(feed)
            rounds[way].append(taken)
    found: dict[str, Any] = {way: medians(results) for way, results in rounds.items()}
    found["ratio"] = found["measured"]["seconds"] / found["bare"]["seconds"]
    return found


# --- where the time of one batch goes ---------------------------------------------------------------------------------


def profile(size: Size, device: torch.device, at_best: dict[str, float]) -> dict[str, Any]:
    """One batch of all shared measures under torch.profiler: kernels, launches, copies, waits and the host's rest."""
    found = []
    for names, dtype, _, block in size.pairs:
        subjects = subjects_on(names, dtype, device)
        passes = Passes(subjects, shared_measures(), 16 * block, block=block).of_one_batch()
        found.append({"subjects": list(names), "dtype": dtype, "block": block} | profiled(passes, device))
    return {"rows": found}


def profiled(passes: Passes, device: torch.device) -> dict[str, Any]:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    feed = passes.noise()
    for _ in range(3):  # kernels are chosen, a pass is timed, and captured where that gains
        passes.take(feed)
    with profiler(activities=activities) as seen, metered(device) as watched:
        passes.take(feed)
    events = seen.key_averages()

    def on_device(event: Any) -> float:
        return float(getattr(event, "self_device_time_total", 0.0)) / 1e6 if event.device_type.name != "CPU" else 0.0

    def counted(*starts: str) -> int:
        return sum(event.count for event in events if event.key.startswith(starts))

    copies = sum(on_device(event) for event in events if event.key.startswith(("Memcpy", "Memset")))
    busy = sum(on_device(event) for event in events)
    dearest = sorted(events, key=lambda event: -(on_device(event) or event.self_cpu_time_total / 1e6))[:12]
    return {
        "wall": watched["wall"],
        "kernels": busy - copies,
        "copies": copies,
        "idle": max(0.0, watched["wall"] - busy),
        "launches": counted("cudaLaunchKernel", "cuLaunchKernel"),
        "copy_calls": counted("cudaMemcpyAsync", "cudaMemcpy"),
        "waits": counted("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
        "host_seconds": sum(event.self_cpu_time_total for event in events) / 1e6,
        "dearest": [
            {
                "name": event.key[:80],
                "calls": event.count,
                "device": on_device(event),
                "host": event.self_cpu_time_total / 1e6,
            }
            for event in dearest
        ],
    }


# --- the default exam -------------------------------------------------------------------------------------------------


def exam(size: Size, device: torch.device, at_best: dict[str, float]) -> dict[str, Any]:
    """The bundled pair from the call to the page, with the seconds of each phase as its progress tells them."""
    import eyechart

    phases: dict[str, float] = {}
    last = [time.monotonic(), "loading"]

    def progress(what: str, gone: float, total: float) -> None:
        now = time.monotonic()
        phases[last[1]] = phases.get(last[1], 0.0) + now - last[0]
        last[:] = [now, phase_of(what) or last[1]]

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        eyechart.exam(out=f"{folder}/run", device=str(device), progress=progress, **size.exam)
    progress("", 0, 0)
    return {"seconds": time.monotonic() - began, "phases": phases}


def phase_of(what: str) -> str | None:
    """Which part of an exam a sentence of its progress belongs to; None: it goes on with what it was at.

    >>> phase_of("images 1 to 62 of 1,000: zoo:vit, the shared pass"), phase_of("intervals: 3 of 20 measures")
    ('the shared pass', 'intervals')
    """
    if what.startswith("images ") and ": " in what:
        return what.rpartition(", ")[2]
    if what.startswith(("intervals", "figures")):
        return what.split()[0].rstrip(":")
    return "loading" if "subject" in what or "plan" in what else None


# --- beside the peers -------------------------------------------------------------------------------------------------


def layer_cka(size: Size, device: torch.device, at_best: dict[str, float]) -> dict[str, Any]:
    """Two models, 512 images: seconds, memory and error of each way, in turn in this process."""
    names, count = size.cka
    return beside(names, count, size.repeats, device, at_best)


def pairs(size: Size, device: torch.device, at_best: dict[str, float]) -> dict[str, Any]:
    """All pairs among eight models."""
    from layer_cka import EIGHT

    return beside(EIGHT if size.eight else EIGHT[:2], size.eight or 8, 1, device, at_best)


def beside(
    names: Sequence[str], count: int, repeats: int, device: torch.device, at_best: dict[str, float]
) -> dict[str, Any]:
    from cka_peers import WAYS, WHOLE, brute_force, models_of, ways_here
    from layer_cka import told, work_of

    models = models_of(load_subjects(list(names)), count, device)
    two = len(names) == 2
    truth = {"tables": brute_force(models, models.batch), "whole": brute_force(models, count) if two else []}
    ways = [way for way in ways_here() if two or way not in WHOLE]
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    few = models_of(models.subjects, 4, device)
    for turn in range(repeats):
        for way, results in rounds.items():
            if any("failed" in result for result in results) or (turn and way in WHOLE):
                continue
            try:
                if turn == 0:
                    WAYS[way](few)  # libraries load
                with metered(device) as taken:
                    tables = WAYS[way](models)
                results.append({**taken, "tables": [table.tolist() for table in tables]})
            except Exception as error:  # a peer that fails is a result
                results.append({"failed": f"{type(error).__name__}: {error}"[:300]})
            print(f"{way:14} {results[-1].get('failed') or results[-1]['seconds']}", flush=True)
    work = work_of(models)
    return {
        "subjects": list(names),
        "images": count,
        "batch": models.batch,
        "floor": {
            "passes": floor(work["passes"], 0, at_best),
            "above": floor(work["grams"], work["bytes"], at_best),
        },
        "ways": {way: told(way, results, truth) for way, results in rounds.items()},
    }


def offsets(size: Size, device: torch.device, at_best: dict[str, float]) -> dict[str, Any]:
    """Errors where the features of the first of two models are shifted; nothing is timed."""
    from cka_peers import ways_here
    from layer_cka import by_offset

    names, count = size.cka[0], min(size.cka[1], 64)
    return {"images": count, "ways": by_offset(names, count, ways_here(), str(device))}


def hessian(size: Size, device: torch.device, at_best: dict[str, float]) -> dict[str, Any]:
    """Five eigenvalues of a small ViT by each way, and many minibatches at once beside PyHessian."""
    from hessian import accuracy, throughput
    from hessian_peers import ways_here

    if not size.minibatches:
        return {"one": accuracy(1, 1, str(device), ["eyechart"])}
    return {
        "one": accuracy(150, 2, str(device), ways_here()),
        "many": throughput("vit@warmup", size.minibatches, 32, 1, str(device)),
    }


Part = Callable[[Size, torch.device, dict[str, float]], dict[str, Any]]
PARTS: dict[str, Part] = {
    "ratios": ratios,
    "profile": profile,
    "exam": exam,
    "hessian": hessian,
    "layer_cka": layer_cka,
    "offsets": offsets,
    "pairs": pairs,
}
PACKAGES = (
    "pytorch-cka",
    "torch_cka",
    "cka-pytorch",
    "thingsvision",
    "pyhessian",
    "curvlinops-for-pytorch",
    "hessian-eigenthings",
)


if __name__ == "__main__":
    main()
