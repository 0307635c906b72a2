"""Where the numbers of a watch go beside its table: TensorBoard, Weights & Biases, MLflow, or a function of yours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from eyechart.errors import UsageError

Log = Callable[[int, Mapping[str, float]], None]
"""Takes the step and its numbers by name."""


def open_log(given: Any, folder: Path) -> Log:
    """A log by its name, a `SummaryWriter` that is open already, or a function (step, numbers)."""
    if isinstance(given, str) and given in NAMED:
        return NAMED[given](folder)
    if hasattr(given, "add_scalar"):
        return _to_writer(given)
    if callable(given):
        return given  # type: ignore[no-any-return]
    raise UsageError(
        f"A log of a watch is one of {', '.join(NAMED)}, a SummaryWriter, or a function (step, numbers); got {given!r}."
    )


def _tensorboard(folder: Path) -> Log:
    return _to_writer(_library("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard")))


def _to_writer(writer: Any) -> Log:
    def log(step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()  # a training that dies leaves what was seen

    return log


def _wandb(folder: Path) -> Log:
    wandb = _library("wandb", "wandb")

    def log(step: int, numbers: Mapping[str, float]) -> None:
        if wandb.run is None:
            raise UsageError("The log wandb needs a run; call wandb.init() before the first step that is watched.")
        # An axis of its own: a run's steps may only grow, and the training counts them by batches.
        wandb.run.define_metric("eyechart/step")
        wandb.run.define_metric("eyechart/*", step_metric="eyechart/step")
        wandb.run.log({"eyechart/step": step, **numbers})

    return log


def _mlflow(folder: Path) -> Log:
    mlflow = _library("mlflow", "mlflow")
    return lambda step, numbers: mlflow.log_metrics(dict(numbers), step=step)


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"The log {package} needs the library {package}, which is not installed; pip install {package}, or leave "
            "it out of log=."
        ) from error


NAMED: Mapping[str, Callable[[Path], Log]] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}
