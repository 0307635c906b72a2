"""`eyechart train NAME…`: click only; torch is imported by the worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from eyechart import zoo
from eyechart.errors import EyechartError, UsageError
from eyechart.training.recipes import RECIPES, find_recipe
from eyechart.training.run import SNAPSHOTS, Run


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@click.option("--data", default="cifar10", show_default=True, help="cifar10, cifar100, a .npz or a folder of sheets.")
@click.option("--recipe", default="strong", show_default=True, help=f"One of {', '.join(RECIPES)}.")
@click.option(
    "--out", default="runs/train", show_default=True, type=click.Path(file_okay=False), help="Where to write."
)
@click.option("--epochs", type=int, help="Instead of the recipe's; the warm-up is counted.")
@click.option("--warmup-epochs", type=int, help="Instead of the recipe's.")
@click.option("--batch-size", type=int, help="Instead of the recipe's.")
@click.option("--learning-rate", type=float, help="Instead of the recipe's.")
@click.option("--fraction", default=1.0, show_default=True, help="Stratified part of the training images.")
@click.option("--seed", default=0, show_default=True, help="Of the first weights, the order and the augmentation.")
@click.option("--snapshots", default=",".join(SNAPSHOTS), show_default=True, help="Which to keep beside the end.")
@click.option("--evaluate-every", default=1, show_default=True, metavar="EPOCHS", help="Test each so many epochs.")
@click.option("--parallel", default=1, show_default=True, metavar="N", help="So many trainings side by side.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="End early, with everything written.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--compile/--no-compile", "compiled", default=None, help="torch.compile; default: on a GPU.")
@click.option("--capture/--no-capture", "captured", default=None, help="One CUDA graph a step; default: on a GPU.")
def train(
    names: tuple[str, ...],
    data: str,
    recipe: str,
    out: str,
    epochs: int | None,
    warmup_epochs: int | None,
    batch_size: int | None,
    learning_rate: float | None,
    fraction: float,
    seed: int,
    snapshots: str,
    evaluate_every: int,
    parallel: int,
    time_limit: float | None,
    device: str,
    compiled: bool | None,
    captured: bool | None,
) -> None:
    """Train models of the zoo and write their weights, records and cards."""
    try:
        kept = tuple(part for part in snapshots.split(",") if part)
        unknown = [part for part in kept if part not in SNAPSHOTS]
        if unknown:
            raise UsageError(f"Snapshots are {', '.join(SNAPSHOTS)}; {unknown[0]!r} came.")
        if evaluate_every < 1 or parallel < 1:
            raise UsageError("--evaluate-every and --parallel are at least 1.")
        runs = [
            Run(
                model=zoo.find(name).name,
                data=data,
                recipe=find_recipe(recipe).changed(
                    epochs=epochs, warmup_epochs=warmup_epochs, batch_size=batch_size, learning_rate=learning_rate
                ),
                out=out,
                seed=seed,
                fraction=fraction,
                evaluate_every=evaluate_every,
                snapshots=kept,
                device=device,
                compiled=compiled,
                captured=captured,
                time_limit=time_limit,
            )
            for name in names
        ]
        failed = run_side_by_side(runs, parallel)
    except EyechartError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    for run in runs:
        if run not in failed:
            click.echo(str(Path(run.out) / f"{run.model}.safetensors"))
    if failed:
        click.echo(
            f"error: {len(failed)} of {len(runs)} trainings failed: {', '.join(run.model for run in failed)}", err=True
        )
        sys.exit(1 if len(failed) == len(runs) else 3)


def run_side_by_side(runs: Sequence[Run], parallel: int) -> list[Run]:
    """Each run in a process of its own, at most `parallel` at a time; returns those that failed."""
    waiting = list(runs)
    going: dict[subprocess.Popen[bytes], Run] = {}
    failed: list[Run] = []
    source = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])}
    try:
        while waiting or going:
            while waiting and len(going) < parallel:
                run = waiting.pop(0)
                command = [sys.executable, "-m", "eyechart.training.worker", run.as_json()]
                going[subprocess.Popen(command, env=environment)] = run
            time.sleep(0.1)
            for process in [process for process in going if process.poll() is not None]:
                run = going.pop(process)
                if process.returncode:
                    failed.append(run)
    finally:
        for process in going:
            process.terminate()
    return failed
