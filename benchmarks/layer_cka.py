"""Layer-by-layer CKA beside its peers: time above the bare passes, peak memory, error against float64.

    python benchmarks/layer_cka.py --out benchmarks/results/cpu.json      ViT-tiny × ResNet-18, 512 images
    python benchmarks/layer_cka.py --offsets --images 64 --out …          errors where features are shifted
    python benchmarks/layer_cka.py --pairs --out …                        all pairs among the eight bundled models

Every way runs in a process of its own, in turn; random weights (`--pairs`: the bundled ones), one thread, batches of 64
that one loader hands to everyone. Answers are checked against a brute force in float64 on the same float32 features.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from cka_peers import BATCH, WAYS, WHOLE, brute_force, models_of, ways_here
from machine import facts, floor, in_own_process, in_rounds, medians, metered, operations_of, rates, write

from eyechart.subjects import load_subjects

PAIR = ("timm:vit_tiny_patch16_224@random", "timm:resnet18@random")
LARGE_PAIR = ("timm:vit_base_patch16_224@random", "timm:resnet50@random")
EIGHT = (
    "zoo:vit",
    "zoo:vit-gap",
    "zoo:resnet",
    "zoo:swin",
    "zoo:pit",
    "zoo:alternet",
    "zoo:vit@warmup",
    "zoo:resnet@warmup",
)
OFFSETS = (0.0, 10.0, 1000.0)
NO_NUMBER = "its answer holds NaN or infinity"
PACKAGES = ("pytorch-cka", "torch_cka", "cka-pytorch", "thingsvision")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--pairs", action="store_true", help="all pairs among eight models instead")
    parser.add_argument("--offsets", action="store_true", help="errors where features are shifted; nothing is timed")
    parser.add_argument("--subjects", nargs="+", help="other subjects; the first needs position embeddings")
    parser.add_argument("--ways", nargs="+", help="only these")
    parser.add_argument("--out", help="the file of results")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    subjects = asked.subjects or (EIGHT if asked.pairs else PAIR)
    torch.set_num_threads(1)
    if asked.way:
        print(json.dumps(one_way(asked.way, subjects, asked.images)))
        return
    ways = asked.ways or ways_here()
    if asked.offsets:
        part, found = "offsets", {"images": asked.images, "ways": by_offset(subjects, asked.images, ways)}
    else:
        part, found = "pairs" if asked.pairs else "layer_cka", comparison(subjects, asked.images, asked.repeats, ways)
    if asked.out:
        write(asked.out, part, found)


def one_way(way: str, names: Sequence[str], count: int, device: str = "cpu") -> dict[str, Any]:
    """What one way took and answered; `truth` is the brute force."""
    models = models_of(load_subjects(list(names)), count, torch.device(device))
    if way == "truth":  # of more than two models the features of all images at once would take too much memory
        whole = brute_force(models, count) if len(models.subjects) == 2 else []
        return {
            "tables": as_lists(brute_force(models, models.batch)),
            "whole": as_lists(whole),
            "floor": work_of(models),
        }
    WAYS[way](models_of(models.subjects, 4, models.device))  # libraries load
    with metered(models.device) as taken:
        tables = WAYS[way](models)
    return {**taken, "tables": as_lists(tables)}


def work_of(models: Any) -> dict[str, float]:
    """Operations of the passes, and of the Gram matrices above them with the bytes of features they read once."""
    from cka_peers import features_of

    few = models_of(models.subjects, 2, models.device)
    numbers = sum(layer.shape[1] for place in range(len(few.subjects)) for layer in features_of(few, place))
    count = len(models.images)
    passes = operations_of(lambda: WAYS["bare passes"](few)) * count / 2
    # A Gram matrix is symmetric: half of the products of a batch of n images, n (n + 1) / 2 for each feature.
    return {"passes": passes, "grams": 2.0 * numbers * count * (BATCH + 1) / 2, "bytes": 4.0 * numbers * count}


def as_lists(tables: Sequence[np.ndarray]) -> list[list[list[float]]]:
    return [table.tolist() for table in tables]


def error(answer: dict[str, Any], truth: dict[str, Any], way: str) -> float | str:
    """The largest difference of any two layers."""
    right = truth["whole" if way in WHOLE else "tables"]
    differences = [
        np.abs(np.array(one, float) - np.array(other, float)).max()
        for one, other in zip(answer["tables"], right, strict=True)
    ]
    worst = float(np.max(differences)) if differences else 0.0
    return worst if np.isfinite(worst) else NO_NUMBER


def comparison(names: Sequence[str], count: int, repeats: int, ways: Sequence[str]) -> dict[str, Any]:
    if len(names) > 2:
        ways = [way for way in ways if way not in WHOLE]
    words = ["--subjects", *names]
    at_best = rates(torch.device("cpu"))
    begun = facts(PACKAGES)
    truth = in_own_process([__file__, "--way", "truth", "--images", str(count), *words])
    if "failed" in truth:
        raise SystemExit(f"Nothing is timed, since the brute force failed: {truth['failed']}")
    seen = in_rounds(__file__, ways, ["--images", str(count), *words], repeats)
    found: dict[str, Any] = {
        "machine": begun,
        "load_after": facts()["load"],
        "rates": at_best,
        "subjects": list(names),
        "images": count,
        "batch": BATCH,
        "floor": {
            "passes": floor(truth["floor"]["passes"], 0, at_best),
            "above": floor(truth["floor"]["grams"], truth["floor"]["bytes"], at_best),
        },
        "ways": {way: told(way, results, truth) for way, results in seen.items()},
    }
    return found


def told(way: str, results: Sequence[dict[str, Any]], truth: dict[str, Any]) -> dict[str, Any]:
    found = medians(results)
    if "failed" not in found and way != "bare passes":
        errors = [error(result, truth, way) for result in results]
        found["error"] = NO_NUMBER if NO_NUMBER in errors else max(errors)  # type: ignore[type-var]
    return found


def by_offset(names: Sequence[str], count: int, ways: Sequence[str], device: str = "cpu") -> dict[str, dict[str, Any]]:
    """The error of each way where the features of the first subject are shifted; nothing is timed."""
    found: dict[str, dict[str, Any]] = {way: {} for way in ways if way != "bare passes"}
    for offset in OFFSETS:
        models = models_of(load_subjects(list(names)), count, torch.device(device), offset)
        truth = {"tables": brute_force(models, models.batch), "whole": brute_force(models, count)}
        for way in found:
            try:
                found[way][f"{offset:g}"] = error({"tables": WAYS[way](models)}, truth, way)
            except Exception as failure:  # a peer that fails is a result
                found[way][f"{offset:g}"] = f"{type(failure).__name__}: {failure}"[:300]
            print(f"shifted by {offset:g}: {way:14} {found[way][f'{offset:g}']}", flush=True)
    return found


if __name__ == "__main__":
    main()
