"""How close a training that was killed and resumed ends to one that was not: resume.py [NAME…] [--images N].

The `zoo` recipe over four epochs of coloured noise, on a GPU with the compiled and captured step. One training is
killed with SIGKILL in the middle of its third epoch and goes on; two others run through, and their difference is what
the device itself leaves open. The numbers of the record are compared as written, the weights after float16.
On a CPU, `--images 512 --batch-size 64` shows that it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from eyechart.training.recipes import find_recipe
from eyechart.training.run import TrainingRun

EPOCHS, KILLED_AFTER = 4, 2
INTO_THE_NEXT = 0.3  # seconds between the state's writing and the kill


def start(run: TrainingRun) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "eyechart.training.worker", run.as_json()]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def kill_in_the_middle(run: TrainingRun) -> None:
    """Wait for the state of an epoch, then kill a little into the next."""
    child = start(run)
    state = Path(run.out) / f"{run.model}.state" / f"{KILLED_AFTER:06d}"
    while not state.is_dir():
        if child.poll() is not None:
            raise SystemExit(f"{run.model} ended before it could be killed.")
        time.sleep(0.01)
    time.sleep(INTO_THE_NEXT)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    lines = [line for line in read_record(run) if "epoch" in line]
    if len(lines) >= EPOCHS or (Path(run.out) / f"{run.model}.safetensors").exists():
        raise SystemExit(f"{run.model} was done before the kill; give more --images.")


def read_record(run: TrainingRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(run.out) / f"{run.model}.records.jsonl").read_text().splitlines()]


def compare(one: TrainingRun, other: TrainingRun) -> str:
    """In words: the largest difference of any weight, of how many weights, and of the numbers of the records."""
    a, b = (load_file(Path(run.out) / f"{run.model}.safetensors") for run in (one, other))
    gaps = [np.abs(a[name].astype(np.float64) - b[name].astype(np.float64)).ravel() for name in a]
    gap, size = np.concatenate(gaps), np.concatenate([np.abs(a[name].astype(np.float64)).ravel() for name in a])
    timed = ("epoch", "steps", "seconds", "elapsed")
    numbers = [
        [
            (line["epoch"], key, line[key])
            for line in read_record(run)
            if "epoch" in line
            for key in line
            if key not in timed
        ]
        for run in (one, other)
    ]
    worst = max((abs(x - y), key, epoch) for (epoch, key, x), (_, _, y) in zip(*numbers, strict=True))
    return (
        f"{(gap > 0).sum():,} of {len(gap):,} weights differ, by {gap.max():.2e} at most (root mean square "
        f"{np.sqrt((gap**2).mean()):.2e} of {np.sqrt((size**2).mean()):.2e}); the record by {worst[0]:.2e} at most "
        f"({worst[1]}, epoch {worst[2]})"
    )


def check(name: str, data: str, batch_size: int | None, folder: Path) -> None:
    recipe = find_recipe("zoo").changed(epochs=EPOCHS, warmup_epochs=1, batch_size=batch_size)
    whole, again, parted = (
        TrainingRun(name, data, recipe, out=str(folder / name / word), snapshots=(), save_seconds=0.0)
        for word in ("whole", "again", "parted")
    )
    through = [start(run) for run in (whole, again)]
    kill_in_the_middle(parted)
    codes = [child.wait() for child in (*through, start(parted))]
    if any(codes):
        raise SystemExit(f"A training of {name} failed.")
    card = json.loads((Path(parted.out) / f"{name}.json").read_text())
    print(f"{name}: {card['step']}, {card['device']}, resumed after epochs {card['resumed_after_epochs']}")
    print(f"  killed and resumed against run through: {compare(whole, parted)}")
    print(f"  run through twice:                      {compare(whole, again)}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["vit", "resnet"], metavar="NAME")
    parser.add_argument("--images", type=int, default=50_000, help="fewer for a CPU")
    parser.add_argument("--batch-size", type=int, help="instead of the recipe's")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        draw = np.random.default_rng(0)
        y = np.arange(arguments.images) % 10
        x = draw.integers(0, 160, (arguments.images, 32, 32, 3))
        x += 9 * (y[:, None, None, None] * np.array([1, 3, 7]) % 10)  # a colour for each class
        path = Path(folder) / "noise.npz"
        part = max(100, arguments.images // 50)
        x, y = x.astype(np.uint8), y.astype(np.uint8)
        np.savez(path, x_train=x, y_train=y, x_test=x[:part], y_test=y[:part])
        for name in arguments.names:
            check(name, str(path), arguments.batch_size, Path(folder))


if __name__ == "__main__":
    main()
