"""What an exam of 1.28 million pictures × 100 subjects × all measures costs on 1, 8 and 64 GPUs: docs/scale.md.

    python scripts/scale.py                 about three minutes on one core
    python scripts/scale.py --no-memory     without the peaks of memory

Costs are measured here where one CPU core can measure them, and taken from figures of the repository where a GPU is
needed; each stands with its source. The formula is then compared with a simulated schedule: shards of unequal length,
taken by workers as the engines take them.
"""

# ruff: noqa: E501 - a row of a Markdown table is one line

from __future__ import annotations

import argparse
import datetime
import heapq
import io
import math
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from eyechart.images import common_crop
from eyechart.images.plan import LARGEST_BLOCK, SHARDS
from eyechart.measures import measures
from eyechart.methods.hsic import hsic_table
from eyechart.subjects.preprocessing import Preprocessing

IMAGES, SUBJECTS, SITES = 1_281_167, 100, 24
GPUS = (1, 8, 64)
CORES = 16  # CPU cores beside each GPU

BARE = 770  # pairs of forward passes a second
SHARED, PROBES = 2.45, 0.9
GPU_SOURCE = (
    "measured on an H200 in float32 (TF32 off): ViT-B/16 + ResNet-50 at 224 px run bare on 770 images/s; all measures of the "
    "shared pass take 2.3–2.6 times as long (1.5 since tallies stay on the device: not counted here), probes 0.8–1.0 times "
    "more"
)
EXPERIMENTS = (81 / 8, 213 / 8)
EXPERIMENTS_SOURCE = (
    "benchmarks/README.md: every measure on 24 architectures took 81 to 213 s each with eight at a time on one GPU, so "
    "10 to 27 s of a GPU a subject, on 128 images"
)
LOADING = 1.5  # seconds a subject: building it and its dry run
NOISE = 0.15  # standard deviation of the logarithm of a shard's time in the simulation
DRAWS = 50  # simulated exams, of which the mean is shown


@dataclass(frozen=True)
class Costs:
    """Seconds, measured on one core of this machine."""

    decoding: float
    """An image of 500×375 from JPEG to the common crop."""
    feeding: float
    """Its resize and normalisation for one subject."""
    comparing: float
    """The CKA table of a block of 256 images, for each pair of sites."""


def seconds(work: object, least: float = 1.0) -> float:
    """A call's processor time: what others do on this machine is not counted."""
    assert callable(work)
    work()
    began, calls = time.process_time(), 0
    while time.process_time() - began < least:
        work()
        calls += 1
    return (time.process_time() - began) / calls


def measured() -> Costs:
    noise = np.random.default_rng(0).normal(size=(24, 32, 3))
    smooth = Image.fromarray(np.uint8(np.clip(128 + 60 * noise, 0, 255))).resize((500, 375), Image.Resampling.BICUBIC)
    packed = io.BytesIO()
    smooth.save(packed, "JPEG", quality=90)
    crop = common_crop(smooth)
    way = Preprocessing((224, 224), (0.5,) * 3, (0.2,) * 3)
    grams = torch.randn(8 * SITES, LARGEST_BLOCK, LARGEST_BLOCK)
    table = seconds(lambda: hsic_table(grams, grams), 3.0)
    return Costs(
        decoding=seconds(lambda: common_crop(Image.open(io.BytesIO(packed.getvalue())).convert("RGB"))),
        feeding=seconds(lambda: way([crop])),
        comparing=table / len(grams) ** 2,
    )


@dataclass(frozen=True)
class Work:
    """What a shard of the exam takes of one GPU with its cores, and what only the first one takes."""

    shard: float
    first: float
    start: float

    @property
    def whole(self) -> float:
        return self.shard + self.first


def work(costs: Costs, shards: int) -> Work:
    """Passes on the GPU, pictures and pairs on the cores beside it; the slower of the two is what it takes."""
    images = IMAGES / shards
    passes = images * SUBJECTS * (SHARED + PROBES) / (2 * BARE)
    pictures = images * (costs.decoding + SUBJECTS * costs.feeding) / CORES
    pairs = images / LARGEST_BLOCK * costs.comparing * (SUBJECTS * SITES) ** 2  # one core: tallies are updated in turn
    return Work(max(passes, pictures) + pairs, SUBJECTS * sum(EXPERIMENTS) / 2, SUBJECTS * LOADING)


def formula(costs: Costs, shards: int, workers: int) -> float:
    """The first shard begins at once; the others share what the workers have left."""
    one = work(costs, shards)
    rounds = math.ceil(shards / workers) * one.shard
    return one.start + max(one.whole, rounds, (shards * one.shard + one.first) / workers)


def simulated(costs: Costs, shards: int, workers: int, *, by_rank: bool, seed: int) -> float:
    """The end of the last shard: workers take the next one when they are free (Ray), or every n-th (ranks)."""
    one, draw = work(costs, shards), np.random.default_rng(seed)
    lengths = one.shard * np.exp(draw.normal(-(NOISE**2) / 2, NOISE, shards))
    lengths[0] += one.first
    if by_rank:
        return one.start + max(lengths[rank::workers].sum() for rank in range(min(workers, shards)))
    free = [one.start] * workers
    for length in lengths:
        heapq.heappush(free, heapq.heappop(free) + length)
    return max(free)


MEMORY = """
import importlib, resource, sys
from eyechart.subjects import parking
torch = importlib.import_module("torch")
torch.set_num_threads(1)
count, parking.ROOM = int(sys.argv[1]), int(sys.argv[2])
exam = importlib.import_module("eyechart.exam")
from eyechart.engines.plan import scene_of
from eyechart.measures import planned_measures
specs = [f"n{number}=timm:vit_small_patch16_224@random" for number in range(count)]
told = dict(options=None, effort="quick", limit=16, seed=0, classes=None, device="cpu", dtype="float32")
prepared = exam.prepare(specs, "sample", ["cka", "skip_ratio"], **told, plugins=(), claims=None)
prepared.compute(0, planned_measures(prepared.plan["measures"]), scene_of(prepared.plan))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak(subjects: int, room: int) -> int:
    """MiB at most of a process that prepares so many ViT-S/16 (88 MB each) and computes a shard."""
    command = [sys.executable, "-c", MEMORY, str(subjects), str(room)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout.split()[-1])


def hours(value: float) -> str:
    return f"{value / 3600:.1f} h" if value >= 3600 else f"{value / 60:.0f} min"


def report(costs: Costs, memory: dict[int, tuple[int, int]]) -> str:
    one = work(costs, SHARDS)
    rows = []
    for gpus in GPUS:
        for shards in dict.fromkeys((SHARDS, max(SHARDS, 8 * gpus))):
            ray, ranks = (
                sum(simulated(costs, shards, gpus, by_rank=by_rank, seed=seed) for seed in range(DRAWS)) / DRAWS
                for by_rank in (False, True)
            )
            said = formula(costs, shards, gpus)
            rows.append(
                f"| {gpus} | {shards} | {hours(said)} | {hours(ray)} ({ray / said - 1:+.0%}) | "
                f"{hours(ranks)} ({ranks / said - 1:+.0%}) |"
            )
    peaks = "\n".join(f"| {count} | {plain:,} | {parked:,} |" for count, (plain, parked) in memory.items())
    each = [(memory[8][kind] - memory[2][kind]) / 6 for kind in range(2)] if memory else [0.0, 0.0]
    whole = SHARDS * one.shard
    pairs = IMAGES / LARGEST_BLOCK * costs.comparing * (SUBJECTS * SITES) ** 2
    pictures = IMAGES * (costs.decoding + SUBJECTS * costs.feeding) / CORES
    passes = IMAGES * SUBJECTS * (SHARED + PROBES) / (2 * BARE)
    table = "\n".join(rows)
    memory_part = f"""
## Memory

Subjects that wait for their turn are in a file, not in memory, once the first ones have taken
2 GiB (`subjects/parking.py`; on the CPU). Peak of a process with so many ViT-S/16 of 88 MB, in MiB (`getrusage`):

| subjects | all in memory | parked (no room kept) |
|---|---|---|
{peaks}

A further subject raises the peak by {each[0]:.0f} MiB, and by {each[1]:.0f} where it is parked. Of these 3 stay with it (its Python
objects and its anatomy); the others come and go while the next is built. Before, it was about 80: the dry run left
circles of references to 57 MiB, which Python frees only when it comes to look for them, and the C allocator kept the
holes where a subject's weights had been.

What measures are given of a batch (views) is kept for all subjects until the batch is added up, for measures compare
subjects: 0.16 to 0.37 MB for each image and subject with all measures of the shared pass. On 62 images that is 38 MiB for
ViT-S/16 and ResNet-50 at 224 pixels, whose passes raise the memory of the process by 1,700 MiB meanwhile, and 77 MiB for
eight subjects of the zoo, whose passes raise it by 850. So views are small beside the activations of one subject until
there are dozens of subjects: those of a batch that go beyond 1 GiB (about 13 subjects at 256 images) wait in a file too
(`ViewParking`), from which the same bytes are read again when they are added up.

Findings are made one measure at a time: the peak there is that of the largest measure, not of their sum. On a GPU all
weights of a process stay on the device, and the tallies of a shard are those of all subjects. With `--engine ray` a
process has the weights of one group (2 GiB, or one subject that has more): a task looks at a shard with a group, and a
task without a GPU adds up what all groups saw (`engines/ray_cluster.py`).
"""
    return f"""# What a large exam costs: {IMAGES:,} pictures × {SUBJECTS} subjects × {len(measures())} measures

Made by `scripts/scale.py` on {datetime.date.today()} ({platform.system()} {platform.machine()}, torch {torch.__version__}); do not edit by
hand. A model on paper, from the costs below: no exam of this size was run.

## Costs and where they come from

| what | cost | source |
|---|---|---|
| shared pass with probes | {(SHARED + PROBES) / (2 * BARE) * 1e3:.2f} ms of a GPU for each image and subject | {GPU_SOURCE} |
| experiments, whose number of images does not grow | {EXPERIMENTS[0]:.0f} to {EXPERIMENTS[1]:.0f} s of a GPU for each subject | {EXPERIMENTS_SOURCE} |
| decoding a JPEG of 500×375 to the common crop | {costs.decoding * 1e3:.2f} ms of a core for each image | measured by this script |
| resize and normalisation to 224 px | {costs.feeding * 1e3:.2f} ms of a core for each image and subject | measured by this script |
| CKA of all pairs of sites | {costs.comparing * 1e6:.2f} µs of a core for each block of {LARGEST_BLOCK} and pair of sites | measured by this script with {8 * SITES} sites |
| loading a subject and its dry run | {LOADING} s, in each worker | assumed |

## The whole work on one GPU with {CORES} cores

| part | time | grows with |
|---|---|---|
| shared passes (GPU) | {hours(passes)} | images × subjects |
| pictures ({CORES} cores, beside the passes) | {hours(pictures)} | images × subjects |
| pairs of sites (one core; {SITES} sites a subject) | {hours(pairs)} | images × subjects² |
| experiments (GPU) | {hours(one.first)} | subjects |
| together | {hours(whole + one.first)} | |

M subjects cost M forward passes and M² comparisons of small matrices: {pairs / passes:.1%} of the passes at {SUBJECTS} subjects.

## On 1, 8 and 64 GPUs

A worker is a GPU with {CORES} cores. The formula is start + max(first shard, ⌈shards ÷ workers⌉ × shard, all work ÷ workers).
The simulation draws the length of each shard (log-normal, {NOISE:.0%}; mean of {DRAWS} draws) and lets workers take the next one when they are free
(`--engine ray`), or every n-th (`--engine ranks`).

| GPUs | shards | formula | simulated, Ray | simulated, ranks |
|---|---|---|---|---|
{table}

What it shows:
- {SHARDS} shards, the default, keep at most {SHARDS} workers busy; `--shards 512` is for 64.
- Experiments use the first images of an exam, so they are all in the first shard: {hours(one.first)} that no further worker
  shortens. It begins first, and so costs nothing until workers are so many that a shard's other work takes less.
- Uneven shards cost the more the fewer of them a worker has, and ranks, whose share is fixed, cost more than Ray.
- Pairs are updated by one core while the GPU waits: at this many subjects that costs as much as the passes, and it is the
  first thing to move to the GPU. So it is with ranks, and with Ray while all subjects are one group. Where they are
  several, as they would be here, Ray adds up in tasks of their own beside the GPU's, which its column does not count in
  its favour; but every group decodes the pictures again, and its worker loads it again when it had another.
{memory_part if memory else ""}
## Assumptions

- Half of the subjects cost as ViT-B/16 and half as ResNet-50, at 224 px in float32; one block has {LARGEST_BLOCK} images.
- Pictures are read from a disk as fast as they are decoded; shards go to one file system or through Ray.
- Experiments cost what they cost on 128 images; `--effort full` takes more of them.
- Merging, intervals and the page come after the last shard, on one core, and are not in the table: their time grows with
  pairs of subjects (measure and claim by claim), not with images.
- A measure whose tally would take more than 2 GiB is left out with a sentence (`engines/plan.py`): at {SUBJECTS} subjects of this
  size that may concern those with large tables for each site. Examine fewer subjects at a time for them.
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("docs/scale.md"))
    options.add_argument("--no-memory", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    memory = {} if chosen.no_memory else {count: (peak(count, 1 << 40), peak(count, 0)) for count in (2, 4, 8)}
    chosen.out.write_text(report(measured(), memory), encoding="utf-8")
    print(chosen.out)


if __name__ == "__main__":
    main()
