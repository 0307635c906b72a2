"""`eyechart train NAME…` and `eyechart train --list RUNS.toml`: click only; the worker processes import torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from eyechart import zoo
from eyechart.errors import PARTLY, Interrupted, UsageError
from eyechart.phrases import quoted
from eyechart.subjects.catalogue import parse_spec
from eyechart.training.progress import board
from eyechart.training.recipes import RECIPES
from eyechart.training.run import FREEZE, HEADS, SNAPSHOTS, STOPS, TrainingRun
from eyechart.training.settings import make_run, parse_pairs, read_list, refuse_clashes
from eyechart.training.side_by_side import run_side_by_side


@click.command()
@click.argument("names", nargs=-1, metavar="NAME…")
@click.option("--list", "list_", type=click.Path(path_type=Path), help="A TOML file of runs; NAMEs pick some of them.")
@click.option("--data", default="cifar10", show_default=True, help="cifar10, cifar100, a .npz, a folder of pictures.")
@click.option("--image-size", type=int, help="Resize the images to this size; required for a folder of pictures.")
@click.option("--classes", help="Only these classes, separated by commas, numbered in this order.")
@click.option("--class-count", type=int, metavar="N", help="Only N classes, drawn by the seed.")
@click.option("--validation", default=0, metavar="N", help="Hold out the last N training images and score on them.")
@click.option(
    "--imbalance", default=1.0, metavar="F", help="Long tail: the first class has F times the images of the last."
)
@click.option("--shots", type=int, help="Use this many images of each class.")
@click.option("--fraction", default=1.0, show_default=True, help="Stratified part of the training images.")
@click.option("--label-noise", default=0.0, metavar="SHARE", help="Train on wrong labels for this share of the images.")
@click.option("--shuffle-patches", default=0, metavar="SIDE", help="Shuffle patches of SIDE pixels of training images.")
@click.option("--steps", type=int, help="Gradient steps in total, whatever the fraction; the epochs divide them.")
@click.option("--recipe", default="strong", show_default=True, help=f"One of {', '.join(RECIPES)}.")
@click.option("--epochs", type=int, help="Replaces the recipe's value; includes the warm-up.")
@click.option("--warmup-epochs", type=int, help="Replaces the recipe's value.")
@click.option("--batch-size", type=int, help="Replaces the recipe's value.")
@click.option("--learning-rate", type=float, help="Replaces the recipe's value.")
@click.option("--set", "set_", multiple=True, metavar="SETTING=VALUE", help="Any other setting of the recipe.")
@click.option(
    "--switch",
    "switches",
    multiple=True,
    metavar="NAME=VALUE",
    help="A switch of the model: patch=2, position=2d; `eyechart subjects NAME` lists them.",
)
@click.option("--from", "from_", metavar="SUBJECT", help="Start from the weights of a subject or a checkpoint.")
@click.option("--head", default="new", show_default=True, help=f"With --from: {' or '.join(HEADS)}.")
@click.option("--freeze", default="none", show_default=True, help=f"With --from: {', '.join(FREEZE)}.")
@click.option(
    "--backbone-lr-scale", default=1.0, show_default=True, help="With --from: learning-rate factor of all but the head."
)
@click.option("--seed", default=0, show_default=True, help="Seed of first weights, order and augmentation.")
@click.option("--out", default="runs/train", show_default=True, type=click.Path(file_okay=False), help="Folder.")
@click.option("--name", help="Name of the files; by default NAME.")
@click.option("--overwrite", is_flag=True, help="Start again where a training exists already.")
@click.option("--snapshots", default=",".join(SNAPSHOTS), show_default=True, help="Which to keep besides the end.")
@click.option(
    "--evaluate-every", default=1, show_default=True, metavar="EPOCHS", help="Epochs from one score to the next."
)
@click.option("--save-seconds", default=60.0, show_default=True, help="Seconds between saved states, about.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="Stop after this time, with everything written.")
@click.option(
    "--stop-after", default="end", show_default=True, help=f"One of {', '.join(STOPS)}; the schedule is not changed."
)
@click.option("--parallel", default=1, show_default=True, metavar="N", help="How many trainings run at the same time.")
@click.option(
    "--engine",
    default="processes",
    show_default=True,
    help="Who trains: processes here, or ray, ray:auto, ray://ADDRESS.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--bfloat16/--no-bfloat16", default=None, help="Steps and scores during training; default: on a GPU.")
@click.option("--compile/--no-compile", "compiled", default=None, help="torch.compile; default: on a GPU.")
@click.option(
    "--capture/--no-capture", "captured", default=None, help="Each step as one CUDA graph; default: on a GPU."
)
@click.option(
    "--own-kernels/--no-own-kernels", default=None, help="Attention of a small ViT as one kernel; default: on a GPU."
)
@click.pass_context
def train(
    ctx: click.Context, /, names: tuple[str, ...], list_: Path | None, parallel: int, engine: str, **options: Any
) -> None:
    """Train models of the zoo, or a subject further, and write weights, records and cards.

    A stopped training continues when the same command is run again.
    """
    runs: list[TrainingRun] = []
    try:
        runs = _runs(ctx, names, list_, options)
        if parallel < 1:
            raise UsageError(f"--parallel must be at least 1; got {parallel}.")
        with board([run.label for run in runs]) as report:
            codes = run_side_by_side(runs, parallel, report, engine)
    except KeyboardInterrupt:
        again = max((run.again for run in runs), key=len, default="the same command")
        raise Interrupted(f"interrupted; {again} continues from the last states.") from None
    failed = [name for name, code in codes.items() if code]
    made: list[str] = []
    for run in runs:
        if run.label not in failed:
            weights = Path(run.out) / f"{run.label}.safetensors"
            click.echo(str(weights))
            made += [f"{architecture(run)}@{weights}"] if weights.is_file() else []
    if made:
        click.echo(f"next: {quoted('eyechart', 'exam', *made)}", err=True)
    if failed and len(runs) > 1:
        click.echo(f"eyechart: {len(failed)} of {len(runs)} trainings failed: {', '.join(failed)}", err=True)
    if failed:
        sys.exit(PARTLY if len(failed) < len(runs) else max(1, codes[failed[0]]) if len(runs) == 1 else 1)


def architecture(run: TrainingRun) -> str:
    """What the weights of a training are loaded as, `source:name`."""
    return f"zoo:{run.model}" if run.begin_from is None else parse_spec(run.begin_from).model


def _runs(ctx: click.Context, names: tuple[str, ...], list_: Path | None, options: dict[str, Any]) -> list[TrainingRun]:
    given = {
        key.removesuffix("_"): value
        for key, value in options.items()
        if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE
    }
    switches = given.pop("switches", ())
    given |= parse_pairs("--set", given.pop("set", ()))
    if list_ is not None:
        if switches:
            raise UsageError("--switch needs a NAME; in a list, switches are given for each run.")
        runs = read_list(list_, given, names)
    elif not names:
        raise UsageError("There is nothing to train: give a NAME of the zoo, or --list RUNS.toml.")
    elif "from" in given and len(names) > 1:
        raise UsageError(f"--from makes one training, so it takes one NAME; got {len(names)}.")
    else:
        runs = [make_run({**given, "model": name, "switches": _switches(name, switches)}) for name in names]
    refuse_clashes(runs)
    return runs


def _switches(name: str, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Read as the model says where it is the zoo's; a name that `--from` only writes under takes plain values."""
    return zoo.switches_from(name, pairs) if name in zoo.names() else parse_pairs("--switch", pairs)
