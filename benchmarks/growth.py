"""How time and memory grow with images, subjects and sites, with the exponents.

    python benchmarks/growth.py --out benchmarks/results/cpu.json

All measures that share the plain pass, on bundled models at 32 px, in blocks of 62 images, one thread. Images: 250,
1,000 and 4,000 of the bundled pair. Subjects: 2, 4 and 8 bundled models on 250 images. Sites: CKA of ViTs with 4, 8
and 16 blocks on 250 images. An exponent is the slope of the logarithms: 1 is linear, 0 is flat.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from layer_cka import EIGHT
from machine import facts, floor, in_rounds, medians, metered, operations_of, rates, write
from passes import Passes, shared_measures

from eyechart import zoo
from eyechart.subjects import load_subject, load_subjects
from eyechart.subjects.subject import Subject

BLOCK = 62
STEPS = {"images": (250, 1000, 4000), "subjects": (2, 4, 8), "blocks": (4, 8, 16)}
SMALL = {"images": (64, 128), "subjects": (1, 2), "blocks": (1, 2)}
IMAGES = 250


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", help="the file of results")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    if asked.way:
        kind, size, looking = asked.way.split()
        print(json.dumps(one_way(kind, int(size), looking == "measured", 64 if asked.small else IMAGES)))
        return
    begun, at_best, found = facts(), rates(torch.device("cpu"), small=asked.small), {}
    for kind, sizes in (SMALL if asked.small else STEPS).items():
        ways = [f"{kind} {size} {looking}" for size in sizes for looking in ("bare", "measured")]
        seen = in_rounds(__file__, ways, ["--small"] if asked.small else [], asked.repeats)
        found[kind] = grown(kind, sizes, {way: medians(results) for way, results in seen.items()})
        images = 64 if asked.small else IMAGES
        found[kind]["floor"] = [floor(operations(kind, size, images), 0, at_best) for size in sizes]
    if asked.out:
        told = {"machine": begun, "load_after": facts()["load"], "rates": at_best, "block": BLOCK}
        write(asked.out, "growth", told | found)


def one_way(kind: str, size: int, measured: bool, images: int) -> dict[str, Any]:
    names = ["cka"] if kind == "blocks" else shared_measures()
    subjects = subjects_of(kind, size)
    passes = Passes(subjects, names, size if kind == "images" else images, block=min(BLOCK, images))
    feed = passes.noise()
    Passes(subjects, names, 64, block=4).of_one_batch().take(feed)  # libraries load
    with metered(torch.device("cpu")) as taken:
        (passes.take if measured else passes.bare)(feed)
    return {**taken}


def operations(kind: str, size: int, images: int) -> float:
    """Of the bare passes."""
    passes = Passes(subjects_of(kind, size), ["cka"], 64, block=4).of_one_batch()
    feed = passes.noise()
    return operations_of(lambda: passes.bare(feed)) / 4 * (size if kind == "images" else images)


def subjects_of(kind: str, size: int) -> list[Subject]:
    if kind != "blocks":
        return load_subjects(list(EIGHT[:size] if kind == "subjects" else ("zoo:vit", "zoo:resnet")))
    torch.manual_seed(0)
    return [load_subject(zoo.build("vit", depth=size), input_size=32, label="vit")]


def grown(kind: str, sizes: Sequence[int], taken: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Seconds bare and measured, megabytes, and the exponents of what is measured."""
    bare, measured = ([taken[f"{kind} {size} {way}"] for size in sizes] for way in ("bare", "measured"))
    seconds = [result["seconds"] for result in measured]
    megabytes = [result["megabytes"] for result in measured]
    return {
        "sizes": list(sizes),
        "bare": [result["seconds"] for result in bare],
        "seconds": seconds,
        "megabytes": megabytes,
        "exponent": exponent(sizes, seconds),
        "memory_exponent": exponent(sizes, megabytes),
    }


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of log value over log size; memory below a megabyte counts as one."""
    values = np.maximum(values, 1).tolist() if min(values) <= 0 else values
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


if __name__ == "__main__":
    main()
