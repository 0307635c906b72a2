"""Training throughput, and the share of a step spent outside the model: training_throughput.py [NAME…] [--repeats N].

Random images of CIFAR-10's size and number; the `zoo` recipe. "Outside" is everything but forward and backward:
augmentation, clipping, the optimiser, copies. The model's own time is that of the same step with an optimiser that does
nothing and no clipping. On a CPU, `--images 64 --batch-size 32 --repeats 1` shows that it runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from eyechart.training.loop import Training
from eyechart.training.optimisers import make_optimiser
from eyechart.training.recipes import find_recipe
from eyechart.training.run import TrainingRun
from eyechart.training.step import Step

WARM_STEPS = 8  # compilation and capture


def timed(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of some repeats, the device's queue emptied before and after."""

    def wait() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    seconds = []
    for _ in range(repeats):
        began = wait()
        work()
        seconds.append(wait() - began)
    return min(seconds)


def measure(name: str, data: str, batch_size: int | None, repeats: int, folder: str) -> None:
    recipe = find_recipe("zoo").changed(batch_size=batch_size)
    training = Training(TrainingRun(name, data, recipe, out=folder))
    steps = training.steps_per_epoch
    began = time.perf_counter()
    training._epoch(1)
    first = time.perf_counter() - began
    epoch = timed(lambda: training._epoch(2), repeats)
    augmentation = timed(lambda: list(training._batches(steps)), repeats)

    inputs, targets = next(training._batches(steps))
    plain = recipe.changed(clip=0.0)
    optimiser = make_optimiser(training.module, plain)
    optimiser.step = lambda closure=None: None  # type: ignore[method-assign,assignment]
    step = training.step
    alone = Step(
        training.module, optimiser, plain, bfloat16=step.bfloat16, compiled=step.compiled, captured=step.captured
    )
    for _ in range(WARM_STEPS if torch.cuda.is_available() else 1):
        alone(inputs, targets)
    model = timed(lambda: [alone(inputs, targets) for _ in range(steps)], repeats)
    print(
        f"{name:8} {steps * training.batch / epoch:9,.0f} images/s  epoch {epoch:.3f} s (first {first:.1f} s)  "
        f"step {1e3 * epoch / steps:.2f} ms  augmentation {augmentation / epoch:.1%}  outside the model "
        f"{1 - model / epoch:.1%}  ({step.mode})",
        *step.notices,
        flush=True,
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["vit", "resnet"], metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3, help="of each timing; the fastest counts")
    parser.add_argument("--images", type=int, default=50_000, help="fewer for a CPU")
    parser.add_argument("--batch-size", type=int, help="instead of the recipe's")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        draw = np.random.default_rng(0)
        path = Path(folder) / "random.npz"
        x = draw.integers(0, 256, (arguments.images, 32, 32, 3), dtype=np.uint8)
        y = (np.arange(arguments.images) % 10).astype(np.uint8)
        np.savez(path, x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
        for name in arguments.names:
            measure(name, str(path), arguments.batch_size, arguments.repeats, folder)


if __name__ == "__main__":
    main()
