"""`eyechart compare RUN RUN…`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eyechart.command_line import as_json, lang_option, say
from eyechart.errors import UsageError
from eyechart.given_run import plugin_option

if TYPE_CHECKING:
    from eyechart.comparison.comparison import Comparison

MOST_ROWS = 25


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN…")
@click.option("--out", type=click.Path(path_type=Path), help="The page; else comparison.html beside the last run.")
@lang_option
@plugin_option
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def compare(runs: tuple[str, ...], out: Path | None, lang: str | None, plugins: tuple[Path, ...], json_: bool) -> None:
    """Compare RUN folders over the same images: checkpoints, seeds, before and after. The first is the reference.

    LABEL=RUN says what a run is called. Subjects belong together by their labels, or by their places.
    """
    from eyechart.comparison.comparison import compare as comparison_of
    from eyechart.measures import load_plugin

    for plugin in plugins:
        load_plugin(plugin)
    made = comparison_of(*(named(text) for text in runs))
    if json_:
        as_json(contents(made))
        return
    print_comparison(made)
    page = out or made.runs[-1].path.parent / "comparison.html"
    if page.is_dir():
        raise UsageError(f"The page of a comparison is a file, but {page} is a folder; give --out FILE.html.")
    say(f"page: {made.report(page, lang or 'en')}")


def named(text: str) -> Any:
    """A run folder, or LABEL=FOLDER."""
    label, sign, path = text.partition("=")
    return {label: path} if sign and not Path(text).exists() else text


def contents(comparison: Comparison) -> dict[str, Any]:
    rows = comparison.table.to_dict("records")
    return {
        "runs": {label: str(run.path) for label, run in zip(comparison.labels, comparison.runs, strict=True)},
        "subjects": [list(names) for names in comparison.subjects],
        "changes": [
            {key: None if isinstance(cell, float) and math.isnan(cell) else cell for key, cell in row.items()}
            for row in rows
        ],
        "verdicts": [
            {"claim": line.claim, "subjects": list(line.subjects), "verdicts": list(line.words)}
            for line in comparison.verdicts
        ],
        "left_out": comparison.left_out,
    }


def how_many(clear: int, exact: int, every: int) -> str:
    """How many differences are clear of zero; those without an interval are counted by themselves.

    >>> how_many(14, 2, 57)
    '14 of 57 differences have a 95 % interval that does not hold zero, 2 more are read off the weights, without one'
    >>> how_many(1, 0, 3)
    '1 of 3 differences has a 95 % interval that does not hold zero'
    """
    from eyechart.phrases import count

    has = "has" if clear == 1 or every == 1 else "have"
    words = f"{clear} of {count(every, 'difference')} {has} a 95 % interval that does not hold zero"
    return words + (
        f", {exact} more {'is' if exact == 1 else 'are'} read off the weights, without one" if exact else ""
    )


def print_comparison(comparison: Comparison) -> None:
    from eyechart.charts.numbers import with_span
    from eyechart.comparison.differences import clearness, rank
    from eyechart.comparison.page import by_reason, from_to
    from eyechart.phrases import count
    from eyechart.terminal import escape, show, table, wrapped

    labels = comparison.labels
    for words in comparison.notices:
        show(escape(wrapped(words)))
    changed = [
        (clearness(change), each, place)
        for each in comparison.differences
        for place, change in enumerate(each.changes)
        if clearness(change) > 1
    ]
    changed.sort(key=lambda row: -rank(row[0]))
    rows = table("quantity", "of", labels[0], *(["run"] if len(labels) > 2 else []), "changed to", "by", "", "")
    for _, each, place in changed[:MOST_ROWS]:
        before, after = from_to(each.values[0], each.values[place + 1])
        by, span = with_span(*(getattr(each.changes[place], part) for part in ("value", "low", "high")))
        which = [labels[place + 1]] if len(labels) > 2 else []
        cells = (
            f"{each.measure} {each.quantity}",
            ", ".join(comparison.shown[name] for name in each.subjects),
            before,
            *which,
            after,
            by,
        )
        rows.add_row(
            *map(escape, cells), f"\\[{span}]" if span and each.hows[place] != "exact" else "", each.hows[place]
        )
    if changed:
        show(rows)
    more = f"; {len(changed) - MOST_ROWS} of these are on the page alone" if len(changed) > MOST_ROWS else ""
    every = sum(len(each.changes) for each in comparison.differences)
    exact = sum(each.hows[place] == "exact" for _, each, place in changed)
    show(escape(wrapped(f"{how_many(len(changed) - exact, exact, every)}{more}.")))
    for line in comparison.verdicts:
        if line.differs:
            words = ", ".join(f"{word} in {label}" for word, label in zip(line.words, labels, strict=True))
            names = ", ".join(comparison.shown[name] for name in line.subjects)
            show(escape(wrapped(f"{line.claim}  {words}: {names}. {line.sentence}", hang=5)))
    same = sum(line.compared and not line.differs for line in comparison.verdicts)
    alone = sum(not line.compared for line in comparison.verdicts)
    others = f"; {alone} more {'was' if alone == 1 else 'were'} not tested in all of them" if alone else ""
    show(f"{count(same, 'verdict')} {'is' if same == 1 else 'are'} the same in all runs{others}.")
    for why, things in by_reason(comparison.left_out).items():
        listed = ", ".join(things[:6]) + (f" and {len(things) - 6} more" if len(things) > 6 else "")
        show(escape(wrapped(f"left out ({why}): {listed}", hang=4)))
