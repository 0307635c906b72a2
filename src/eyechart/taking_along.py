"""Taking results along: figures for a paper, tables, and what to cite."""

from __future__ import annotations

from pathlib import Path

import click

from eyechart.command_line import say
from eyechart.errors import UsageError
from eyechart.files import write_text
from eyechart.given_run import open_run, plugin_option, run_argument


@click.command()
@run_argument
@click.option(
    "--format",
    "format_",
    type=click.Choice(["png", "svg", "pdf"]),
    default="png",
    show_default=True,
    help="What kind of file.",
)
@click.option(
    "--style",
    type=click.Choice(["page", "paper"]),
    default="page",
    show_default=True,
    help="paper: black words of at least 7 points, panels below one another where they need it.",
)
@click.option("--width", help="With --style paper: how wide it is printed, such as 84mm (the default), 17cm, 3.3in.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder; by default RUN/figures.")
@plugin_option
def figures(
    run: Path, format_: str, style: str, width: str | None, out: Path | None, plugins: tuple[Path, ...]
) -> None:
    """Save every figure of a run folder for a paper or a talk."""
    from eyechart.charts.paper import millimetres

    if width is not None and style != "paper":
        raise UsageError("--width goes with --style paper: figures of the page have the size of the page.")
    exact = millimetres(width or "84mm") if style == "paper" else None
    for path in open_run(run, plugins).figures(format_, out, width=exact):
        say(path)


@click.command()
@run_argument
@click.option(
    "--format",
    "format_",
    type=click.Choice(["latex", "markdown", "csv"]),
    default="markdown",
    show_default=True,
    help="latex needs booktabs and longtable.",
)
@click.option(
    "--of",
    "what",
    type=click.Choice(["verdicts", "quantities"]),
    default="verdicts",
    show_default=True,
    help="What the rows are.",
)
@click.option("--measure", help="With --of quantities: those of one measure only.")
@click.option("--out", type=click.Path(path_type=Path), help="A file; by default it is printed.")
@plugin_option
def table(run: Path, format_: str, what: str, measure: str | None, out: Path | None, plugins: tuple[Path, ...]) -> None:
    """Print the verdicts or the quantities of a run folder as a table."""
    from eyechart.report.paper_tables import formatted, quantity_table, verdict_table

    if measure is not None and what != "quantities":
        raise UsageError("--measure goes with --of quantities: verdicts are of claims, not of measures.")
    opened = open_run(run, plugins)
    made = verdict_table(opened) if what == "verdicts" else quantity_table(opened, measure)
    subjects, images = ", ".join(opened.scene.subjects), opened.plan["images"]
    caption = f"{what.capitalize()} of {subjects} on {images['used']:,} images of {images['name']}."
    text = formatted(made, format_, caption).rstrip("\n")
    if out is None:
        click.echo(text)  # every cell is printable already
    else:
        say(write_text(out, text + "\n"))


@click.command()
@click.argument("measures", nargs=-1)
@plugin_option
def cite(measures: tuple[str, ...], plugins: tuple[Path, ...]) -> None:
    """Print BibTeX for the papers that MEASURES come from (all by default), and for eyechart."""
    from eyechart.measures import choose_measures, load_plugin
    from eyechart.report.citations import bibliography

    for plugin in plugins:
        load_plugin(plugin)
    say(bibliography(choose_measures(list(measures) or None, None)))
