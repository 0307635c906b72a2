"""What the measures cost over the bare forward passes they share: time and peak memory.

    python benchmarks/shared_passes.py [--images 256] [--repeats 3]      time, ViT-tiny + ResNet-18 at 224 px
    python benchmarks/shared_passes.py --images 128 --block 64           the same in batches of 64
    python benchmarks/shared_passes.py --growth                          memory on 1,000 and on 8,000 images

Random weights, one thread; seconds are those of the process, which a busy neighbour lengthens less than the clock's.
Each mode runs in a process of its own, so that its peak memory is its own; bare and other runs alternate, so that a
busy neighbour disturbs both alike. Images are prepared beforehand: reading them is not part of either. Probes are
stated on their own; measures with passes of their own (experiments) are not part of this.
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
    parser.add_argument("--block", type=int, help="images of a batch; by default as in an exam of so many images")
    asked = parser.parse_args()
    if asked.mode:
        print(json.dumps(run(asked.mode, asked.images, SMALL if asked.small else SUBJECTS, asked.block)))
    elif asked.growth:
        growth()
    else:
        times(asked.images, asked.repeats, asked.small, asked.block)


def times(images: int, repeats: int, small: bool, block: int | None) -> None:
    seen: dict[str, list[dict[str, float]]] = {mode: [] for mode in ("bare", *LIMITS)}
    for _ in range(repeats):
        for mode, results in seen.items():
            results.append(in_own_process(mode, images, small, block))
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
    from passes import shared_measures

    return {"bare": list(FIRST), "first": list(FIRST), "shared": shared_measures(), "probes": ["probes"]}[mode]


def run(mode: str, count: int, names: tuple[str, ...], block: int | None) -> dict[str, float]:
    import torch
    from passes import Passes

    from eyechart.subjects import load_subjects

    torch.set_num_threads(1)
    passes = Passes(load_subjects(list(names)), measures_of(mode), count, block=block)
    feed = passes.noise()
    with torch.no_grad():
        for subject, images in zip(passes.subjects, feed(passes.batches[0]), strict=True):
            subject.call(images)
    started = time.process_time()
    (passes.bare if mode == "bare" else passes.take)(feed)
    seconds = time.process_time() - started
    return {"seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    main()
