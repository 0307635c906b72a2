"""What the measures cost over the bare forward passes they share: time and peak memory.

    python benchmarks/shared_passes.py [--images 256] [--repeats 3]      time, ViT-tiny + ResNet-18 at 224 px
    python benchmarks/shared_passes.py --growth                          memory on 1,000 and on 8,000 images

Random weights, one thread. Each mode runs in a process of its own, so that its peak memory is its own; bare and other
runs alternate, so that a busy neighbour disturbs both alike. Images are prepared beforehand: reading them is not part
of either. Probes are stated on their own; measures with passes of their own (experiments) are not part of this.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

SUBJECTS = ("timm:vit_tiny_patch16_224@random", "timm:resnet18@random")
SMALL = ("zoo:vit", "zoo:resnet")
FIRST = ("cka", "attention_distance", "skip_ratio", "feature_variance")
LIMITS = {"first": 1.25, "shared": 1.4, "probes": float("inf")}
"""Times the bare passes: the first four measures; all that share the pass but the probes; the probes alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="peak memory on 1,000 and on 8,000 images instead")
    parser.add_argument("--small", action="store_true", help="the bundled pair at 32 px instead")
    parser.add_argument("--mode", choices=["bare", *LIMITS], help=argparse.SUPPRESS)
    parser.add_argument("--block", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.mode:
        print(json.dumps(run(asked.mode, asked.images, SMALL if asked.small else SUBJECTS, asked.block)))
    elif asked.growth:
        growth()
    else:
        times(asked.images, asked.repeats, asked.small)


def times(images: int, repeats: int, small: bool) -> None:
    seen: dict[str, list[dict[str, float]]] = {mode: [] for mode in ("bare", *LIMITS)}
    for _ in range(repeats):
        for mode, results in seen.items():
            results.append(in_own_process(mode, images, small))
            print(f"{mode:9} {results[-1]['seconds']:7.2f} s  {results[-1]['megabytes']:7.0f} MB", flush=True)
    print(f"{images} images, {' + '.join(SMALL if small else SUBJECTS)}; shared: {', '.join(measures_of('shared'))}")
    for mode, limit in LIMITS.items():
        ratios = {
            key: statistics.median(result[key] for result in seen[mode])
            / statistics.median(result[key] for result in seen["bare"])
            for key in ("seconds", "megabytes")
        }
        told = f" (at most {limit})" if limit < float("inf") else ""
        print(f"{mode:7} {ratios['seconds']:.2f} times the bare passes{told}, memory {ratios['megabytes']:.2f} times")


def growth() -> None:
    """By default a block grows with the images until it has 256 of them; in blocks of one size nothing may grow."""
    for block in (None, 62, 256):
        for images in (1_000, 8_000):
            found = in_own_process("shared", images, small=True, block=block)
            told = f"blocks of {block}" if block else "blocks by default"
            print(
                f"{images:5} images of 32 px, {told}: {found['megabytes']:.0f} MB, {found['seconds']:.0f} s", flush=True
            )


def in_own_process(mode: str, images: int, small: bool, block: int | None = None) -> dict[str, float]:
    command = [sys.executable, __file__, "--mode", mode, "--images", str(images), *(["--small"] if small else [])]
    command += ["--block", str(block)] if block else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measures_of(mode: str) -> list[str]:
    from eyechart.measure import Experiment
    from eyechart.measures import measures

    shared = [name for name, measure in measures().items() if not isinstance(measure, Experiment) and name != "probes"]
    return {"bare": list(FIRST), "first": list(FIRST), "shared": shared, "probes": ["probes"]}[mode]


def run(mode: str, count: int, names: tuple[str, ...], block: int | None) -> dict[str, float]:
    import numpy as np
    import torch

    from eyechart.engines.plan import scene_of, write_plan
    from eyechart.engines.shard import TappedSubject
    from eyechart.images import open_images
    from eyechart.images.plan import plan_order
    from eyechart.measure import Views
    from eyechart.measures import choose_measures
    from eyechart.subjects import load_subjects
    from eyechart.subjects.anatomy import anatomy_of

    torch.set_num_threads(1)
    images = open_images("sample")
    plan = plan_order(np.arange(count) % 10, count, "benchmark", block=block)
    subjects = load_subjects(names)
    sizes = [subject.input_size for subject in subjects]
    anatomies = [
        anatomy_of(subject.name, subject.module, torch.randn(2, 3, *size), call=subject.call)
        for subject, size in zip(subjects, sizes, strict=True)
    ]
    labels: dict[str, tuple[tuple[int, ...] | None, str]] = {
        subject.name: (tuple(range(10)), "benchmark") for subject in subjects
    }
    settings = {"dtype": "float32", "seed": 0, "limit": None, "effort": "normal", "asked_for": True}
    asked = choose_measures(measures_of(mode))
    written = write_plan(subjects, anatomies, images, plan, asked, label_maps=labels, settings=settings)
    left_out = {entry["measure"] for entry in written["left_out"]}
    measures, scene = [measure for measure in asked if measure.name not in left_out], scene_of(written)
    tapped = [TappedSubject(subject, anatomy, measures) for subject, anatomy in zip(subjects, anatomies, strict=True)]
    tallies = {measure.name: measure.tally(scene) for measure in measures}
    ready = {size: torch.randn(plan.block, 3, *size) for size in sizes}
    with torch.no_grad():
        for subject, size in zip(subjects, sizes, strict=True):
            subject.call(ready[size])
    started = time.perf_counter()
    for shard in range(len(plan.shards)):
        for batch in plan.batches(shard):
            parts = [ready[size][: len(batch.images)] for size in sizes]
            if mode == "bare":
                with torch.no_grad():
                    for subject, part in zip(subjects, parts, strict=True):
                        subject.call(part)
                continue
            seen = {s.subject.name: s.look(part, batch) for s, part in zip(tapped, parts, strict=True)}
            for measure in measures:
                measure.update(tallies[measure.name], batch, Views(seen), scene)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    main()
