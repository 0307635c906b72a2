"""What the four measures cost over the bare forward passes they share: time and peak memory, in one run.

    python benchmarks/shared_passes.py [--images 256] [--repeats 3]

ViT-tiny and ResNet-18, 224 px, random weights, one thread. Each mode runs in a process of its own, so that its peak
memory is its own; bare and measured runs alternate, so that a busy neighbour disturbs both alike. Images are prepared
beforehand: reading them is not part of either.
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
MEASURES = ("cka", "attention_distance", "skip_ratio", "feature_variance")
LIMITS = {"time": 1.25, "memory": 1.3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mode", choices=["bare", "measured", "imports"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.mode:
        print(json.dumps(run(asked.mode, asked.images)))
        return
    seen: dict[str, list[dict[str, float]]] = {"bare": [], "measured": []}
    for _ in range(asked.repeats):
        for mode, results in seen.items():
            command = [sys.executable, __file__, "--mode", mode, "--images", str(asked.images)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            results.append(json.loads(done.stdout))
            print(f"{mode:9} {results[-1]['seconds']:7.2f} s  {results[-1]['megabytes']:7.0f} MB", flush=True)
    print(f"{asked.images} images, {' + '.join(SUBJECTS)}, {', '.join(MEASURES)}")
    for what, key in (("time", "seconds"), ("memory", "megabytes")):
        medians = {mode: statistics.median(result[key] for result in results) for mode, results in seen.items()}
        ratio = medians["measured"] / medians["bare"]
        print(f"{what:6} {ratio:.2f} times the bare forward passes (at most {LIMITS[what]})")


def run(mode: str, count: int) -> dict[str, float]:
    import torch

    from eyechart.engines.plan import scene_of, write_plan
    from eyechart.engines.shard import Station
    from eyechart.images import open_images, plan_batches
    from eyechart.measures.measure import Views, choose_measures
    from eyechart.subjects import load_subjects
    from eyechart.subjects.anatomy import anatomy_of

    torch.set_num_threads(1)
    images = open_images("sample")
    plan = plan_batches(images, limit=count)
    subjects = load_subjects(SUBJECTS)
    measures = choose_measures(MEASURES)
    noise = torch.randn(2, 3, 224, 224)
    anatomies = [anatomy_of(subject.name, subject.module, noise, call=subject.call) for subject in subjects]
    maps: dict[str, tuple[tuple[int, ...] | None, str]] = {subject.name: (None, "benchmark") for subject in subjects}
    settings = {"dtype": "float32", "seed": 0}
    scene = scene_of(write_plan(subjects, anatomies, images, plan, measures, label_maps=maps, settings=settings))
    stations = [Station(subject, anatomy, measures) for subject, anatomy in zip(subjects, anatomies, strict=True)]
    tallies = {measure.name: measure.tally(scene) for measure in measures}
    batches = [batch for shard in range(len(plan.shards)) for batch in plan.batches(shard)]
    ready = torch.randn(plan.block, 3, 224, 224)
    with torch.no_grad():
        subjects[0].call(ready), subjects[1].call(ready)
    started = time.perf_counter()
    for batch in batches:
        part = ready[: len(batch.images)]
        if mode == "bare":
            with torch.no_grad():
                for subject in subjects:
                    subject.call(part)
            continue
        seen = {(s.subject.name, condition): views for s in stations for condition, views in s.look(part).items()}
        for measure in measures:
            measure.update(tallies[measure.name], batch, Views(seen), scene)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    main()
