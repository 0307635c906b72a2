"""A run as commands take it: RUN, and the plugins without which its own measures are not known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from eyechart.run import Run

plugin_option = click.option(
    "--plugin", "plugins", multiple=True, type=click.Path(path_type=Path), help="A Python file with your own measures."
)
run_argument = click.argument("run", type=click.Path(path_type=Path))


def open_run(path: Path, plugins: Sequence[Path]) -> Run:
    from eyechart.measures import load_plugin
    from eyechart.run import Run

    for plugin in plugins:
        load_plugin(plugin)
    return Run.open(path)
