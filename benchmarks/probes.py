"""Linear probes at 24 sites beside scikit-learn on stored features: time, peak memory and accuracy.

    python benchmarks/probes.py --out benchmarks/results/cpu.json

Three bundled models (zoo:resnet, zoo:resnet@warmup, zoo:swin: 24 blocks) on 1,000 bundled pictures of ten classes. At
every block there is one probe for the mean over positions, one for the first position and one for each of 16 positions:
432 probes, each asked about a quarter of the pictures after it was fitted on the others. scikit-learn gets the outputs
of all blocks, stored by hooks, and does the same by RidgeClassifierCV; and, as most people do, one LogisticRegression
for each block's mean alone. Every way runs in a process of its own, in turn, on one thread.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from machine import facts, floor, in_rounds, medians, metered, operations_of, rates, write
from passes import Passes
from torch import Tensor, nn

from eyechart.images import open_images
from eyechart.scene import Batch
from eyechart.sites import Site
from eyechart.subjects import load_subjects
from eyechart.tracing.readouts import spread_out

SUBJECTS = ("zoo:resnet", "zoo:resnet@warmup", "zoo:swin")
BATCH = 50
PARTS = 4
POSITIONS = 4
PENALTIES = 10.0 ** np.arange(-4, 2.5, 0.5)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", help="the file of results")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    if asked.way:
        print(json.dumps(one_way(asked.way, asked.images)))
        return
    at_best, begun = rates(torch.device("cpu")), facts(("scikit-learn",))
    seen = in_rounds(__file__, list(WAYS), ["--images", str(asked.images)], asked.repeats)
    found = {
        "machine": begun,
        "load_after": facts()["load"],
        "rates": at_best,
        "subjects": list(SUBJECTS),
        "images": asked.images,
        "floor": {"passes": floor(operations(asked.images), 0, at_best)},
        "ways": {
            way: medians(results) | {key: results[0][key] for key in ("accuracy", "probes") if key in results[0]}
            for way, results in seen.items()
        },
    }
    if asked.out:
        write(asked.out, "probes", found)


def one_way(way: str, count: int) -> dict[str, Any]:
    exam = Exam(count)
    WAYS[way](Exam(10 * PARTS))  # libraries load; as few as there can be, so that little memory is kept
    with metered(torch.device("cpu")) as taken:
        accuracy, probes = WAYS[way](exam)
    return {**taken, "accuracy": accuracy, "probes": probes}


class Exam:
    """Subjects, prepared pictures and their classes, in the order of the plan; at most the bundled sample."""

    def __init__(self, count: int) -> None:
        source = open_images("sample")
        assert source.labels is not None
        self.subjects = load_subjects(list(SUBJECTS))
        self.passes = Passes(self.subjects, ["probes"], count, block=BATCH, labels=np.asarray(source.labels)[:count])
        pictures = [source.picture(index) for index in self.passes.plan.order]
        self.images = [subject.prepare(pictures) for subject in self.subjects]
        self.labels = np.asarray(source.labels)[list(self.passes.plan.order)]
        self.parts = np.arange(count) % self.passes.plan.folds % PARTS

    def feed(self, batch: Batch) -> list[Tensor]:
        here = slice(batch.start, batch.start + len(batch.images))
        return [images[here] for images in self.images]


def bare(exam: Exam) -> tuple[float | None, int]:
    exam.passes.bare(exam.feed)
    return None, 0


def eyechart(exam: Exam) -> tuple[float, int]:
    """Mean accuracy of the probes of means, over sites."""
    exam.passes.take(exam.feed)
    accuracy = exam.passes.estimate("probes").accuracy
    groups = exam.passes.scene.sites(lambda anatomy: anatomy.pick("block"))
    return float(accuracy.sel(readout="gap").mean()), len(groups) * (2 + POSITIONS**2)


def ridge_of_all(exam: Exam) -> tuple[float, int]:
    """The same probes: each standardised, its penalty chosen by itself."""
    from sklearn.linear_model import RidgeClassifierCV

    def probe() -> Any:
        return RidgeClassifierCV(alphas=PENALTIES * len(exam.labels) * (PARTS - 1) / PARTS)

    scores, probes = [], 0
    for stored in features(exam):
        cells = at_some_places(stored)
        scores.append(held_out(probe, stored.mean((1, 2)), exam))
        for place in [stored[:, 0, 0], *cells]:
            held_out(probe, place, exam)
        probes += 2 + len(cells)
    return float(np.mean(scores)), probes


def logistic_of_means(exam: Exam) -> tuple[float, int]:
    from sklearn.linear_model import LogisticRegression

    scores = [
        held_out(lambda: LogisticRegression(max_iter=1000), stored.mean((1, 2)), exam) for stored in features(exam)
    ]
    return float(np.mean(scores)), len(scores)


def held_out(probe: Callable[[], Any], given: np.ndarray, exam: Exam) -> float:
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), probe())
    answers = cross_val_predict(pipeline, given, exam.labels, cv=PredefinedSplit(exam.parts))
    return float(np.mean(answers == exam.labels))


def at_some_places(stored: np.ndarray) -> list[np.ndarray]:
    rows, columns = (spread_out(size, POSITIONS) for size in stored.shape[1:3])
    return [stored[:, y, x] for y in rows for x in columns]


def features(exam: Exam) -> list[np.ndarray]:
    """The outputs of all blocks on all pictures, (image, y, x, channel), as hooks see them."""
    found = []
    for subject, images, anatomy in zip(exam.subjects, exam.images, exam.passes.scene.anatomies, strict=True):
        sites = anatomy.pick("block")
        parts: dict[str, list[Tensor]] = {site.path: [] for site in sites}
        hooks = [subject.module.get_submodule(site.path).register_forward_hook(keeper(site, parts)) for site in sites]
        with torch.no_grad():
            for batch in images.split(BATCH):
                subject.module(batch)
        for hook in hooks:
            hook.remove()
        found += [torch.cat(parts.pop(site.path)).numpy() for site in sites]
    return found


def keeper(site: Site, parts: dict[str, list[Tensor]]) -> Callable[[nn.Module, object, Tensor], None]:
    def keep(module: nn.Module, given: object, output: Tensor) -> None:
        last = output.permute(0, 2, 3, 1) if site.layout.axes == "NCYX" else output
        parts[site.path].append(last.clone(memory_format=torch.contiguous_format))

    return keep


def operations(count: int) -> float:
    exam = Exam(PARTS * BATCH)
    return operations_of(lambda: exam.passes.bare(exam.feed)) * count / (PARTS * BATCH)


WAYS: dict[str, Callable[[Exam], tuple[float | None, int]]] = {
    "bare passes": bare,
    "eyechart": eyechart,
    "scikit-learn, ridge": ridge_of_all,
    "scikit-learn, logistic": logistic_of_means,
}


if __name__ == "__main__":
    main()
