"""`eyechart export RUN`: its numbers for other tools, as one JSON text or an offline run of Weights & Biases.

Arrays stay in findings/*.nc, which any netCDF reader opens; here go the quantities and verdicts made from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eyechart.command_line import as_json, say
from eyechart.errors import UsageError
from eyechart.files import write_json
from eyechart.given_run import open_run, plugin_option, run_argument

if TYPE_CHECKING:
    from eyechart.run import Run

PROJECT = "eyechart"
COLUMNS = ("claim", "verdict", "subjects", "effect", "low", "high", "reason")


@click.command()
@run_argument
@click.option(
    "--format",
    "format_",
    type=click.Choice(["json", "wandb"]),
    default="json",
    show_default=True,
    help="JSON, or an offline run of Weights & Biases (`wandb sync` uploads it).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File for the JSON, which is printed by default; folder for the offline run, by default RUN.",
)
@plugin_option
def export(run: Path, format_: str, out: Path | None, plugins: tuple[Path, ...]) -> None:
    """Hand the plan, quantities and verdicts of a run folder to other tools."""
    opened = open_run(run, plugins)
    if format_ == "wandb":
        say(log_to_wandb(opened, out or run))
    elif out is None:
        as_json(plain_export(opened))
    else:
        say(write_json(out, plain_export(opened)))


def plain_export(run: Run) -> dict[str, Any]:
    """Plan, quantities and verdicts of a run, with null where there is no number: strict JSON."""
    verdicts = [verdict.as_json() for verdict in run.verdicts]
    exported = {"run": run.path.name, "plan": run.plan, "quantities": list(run.quantities()), "verdicts": verdicts}
    return dict(_without_nan(exported))


def _without_nan(data: Any) -> Any:
    """
    >>> _without_nan({"low": float("nan"), "high": [1.0, float("inf")]})
    {'low': None, 'high': [1.0, None]}
    """
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _without_nan(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_without_nan(value) for value in data]
    return data


def log_to_wandb(run: Run, folder: Path) -> Path:
    """An offline run of Weights & Biases under `folder`: quantities as its summary, verdicts as a table, the page."""
    wandb = _wandb()
    plan = run.plan
    config = {
        "subjects": {entry["name"]: entry["spec"] for entry in plan["subjects"]},
        "images": plan["images"]["name"],
        "used": plan["images"]["used"],
        "question": plan["question"],
        **plan["settings"],
    }
    logged = wandb.init(project=PROJECT, name=run.path.name, dir=str(folder), config=config, mode="offline")
    for row in run.quantities():
        name = f"{row['measure']}/{row['quantity']}/{row['subjects']}"
        logged.summary.update({name: row["value"], f"{name}_low": row["low"], f"{name}_high": row["high"]})
    rows = [_verdict_row(verdict.as_json()) for verdict in run.verdicts]
    page = (run.path / "report.html" if (run.path / "report.html").exists() else run.report()).read_text(
        encoding="utf-8"
    )
    logged.log({"verdicts": wandb.Table(columns=list(COLUMNS), data=rows), "page": wandb.Html(page, inject=False)})
    where = Path(logged.dir).parent
    logged.finish()
    return where


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise UsageError(
            "--format wandb needs the library wandb, which is not installed; pip install wandb, or use --format json."
        ) from error
    return wandb


def _verdict_row(verdict: Mapping[str, Any]) -> list[Any]:
    return [" | ".join(verdict[name]) if name == "subjects" else verdict[name] for name in COLUMNS]
