"""Ten classes told by colour and by which half is bright: learnt in a few steps; a ViT of 30,000 parameters; and a
worker that is no process of its own.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from eyechart.training.progress import Report
from eyechart.training.recipes import find_recipe
from eyechart.training.run import TrainingRun
from eyechart.training.workers import Ended, Job

TINY = {"width": 32, "depth": 2, "heads": 4}
SHORT = find_recipe("weak").changed(
    epochs=2, warmup_epochs=1, batch_size=32, learning_rate=2e-3, drop_path=0.0, label_smoothing=0.0
)


def write_toys(path: Path, train: int = 192, test: int = 68, side: int = 16) -> str:
    draw = np.random.default_rng(0)
    labels = np.arange(train + test) % 10
    images = draw.integers(0, 60, (train + test, side, side, 3))
    for image, label in zip(images, labels, strict=True):
        half = image[: side // 2] if label >= 5 else image[side // 2 :]
        half[..., label % 3] += 60 + 30 * (label % 5)
    x, y = images.clip(0, 255).astype(np.uint8), labels.astype(np.uint8)
    np.savez(path, x_train=x[:train], y_train=y[:train], x_test=x[train:], y_test=y[train:])
    return str(path)


def toy_run(data: str, out: Path, **changes: Any) -> TrainingRun:
    return TrainingRun(**{"model": "vit", "data": data, "recipe": SHORT, "out": str(out), "switches": TINY, **changes})


def record(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{name}.records.jsonl").read_text().splitlines()]


class WorkerHere:
    """In place of a process of its own (`LocalWorker`), whose start takes longer than these trainings.

    One at a time: trainings share the random numbers of their process.
    """

    def __init__(self, module: str) -> None:
        self.module = importlib.import_module(module)

    def ask(self, job: Job, say: Report) -> Ended:
        code, result = self.module.work(
            json.loads(json.dumps(job.task)), lambda event: say({"run": job.label, **event})
        )
        return Ended(job, code, json.loads(json.dumps(result)))

    def close(self) -> None: ...

    def kill(self) -> None: ...
