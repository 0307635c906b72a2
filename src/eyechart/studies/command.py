"""`eyechart study`: what there is, what is recorded, and running what is missing. Click only; workers import torch."""

from __future__ import annotations

import fnmatch
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eyechart.command_line import lang_option
from eyechart.errors import PARTLY, Interrupted, UsageError

if TYPE_CHECKING:
    from eyechart.studies.records import Records
    from eyechart.studies.study import Arm, Study

START_UP, STEPS = 5, 195
"""For estimates: what starting takes, in epochs, and the steps of an epoch of 50,000 images in batches of 256."""


@click.command()
@click.argument("name", required=False)
@click.option("--rows", help="All studies of these rows of the run list, such as 3,4, one after the other.")
@click.option("--arms", help="Only these arms, separated by commas; * stands for anything.")
@click.option("--seeds", help="Only these seeds, separated by commas.")
@click.option("--exams", help="Only these exams, separated by commas; the others stay missing.")
@click.option(
    "--data",
    multiple=True,
    metavar="[NAME=]PATH",
    help="The study's data: an .npz or a folder of sheets; further data of its arms as NAME=PATH.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for new records; by default those of the package.",
)
@click.option("--fresh", is_flag=True, help="Ignore what is recorded, to see whether a record can be repeated.")
@click.option(
    "--work", default="runs/study", show_default=True, type=click.Path(path_type=Path), help="Folder for weights."
)
@click.option("--parallel", default=1, show_default=True, metavar="N", help="How many workers run at the same time.")
@click.option(
    "--engine",
    default="processes",
    show_default=True,
    help="Who works: processes here, or ray, ray:auto, ray://ADDRESS.",
)
@click.option("--minutes", type=float, help="Begin no training after so many minutes; what is trained is examined.")
@click.option("--dry-run", is_flag=True, help="Show what would run and how long it may take.")
@click.option("--verdicts", is_flag=True, help="Show what the records decide; nothing runs.")
@click.option("--report", is_flag=True, help="Write docs/reproduction.md and the page from all records; nothing runs.")
@click.option(
    "--exam",
    "exam_runs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="With --report: a run of the bundled models to add to those beside the records; may be given again.",
)
@click.option("--out", default="docs", show_default=True, type=click.Path(path_type=Path), help="Folder of --report.")
@lang_option
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def study(
    name: str | None,
    rows: str | None,
    minutes: float | None,
    json_: bool,
    report: bool,
    exam_runs: tuple[Path, ...],
    out: Path,
    lang: str | None,
    **options: Any,
) -> None:
    """Train, examine and judge over seeds: a study NAME, or those of --rows; the list of studies without either.

    What is recorded is not run again; a stopped study continues when the same command is run again.
    """
    try:
        if report:
            _report(out, exam_runs, lang or "en")
            return
        if name is None and rows is None:
            _list(json_)
            return
        began = time.monotonic()
        complete = True
        chosen = [name] if name is not None else _of_rows(rows or "")
        refuse_unknown_data(options["data"], chosen)
        for each in chosen:
            left_over = None if minutes is None else minutes - (time.monotonic() - began) / 60
            complete &= _one(each, json_, minutes=left_over, **options)
        if not complete:
            sys.exit(PARTLY)
    except KeyboardInterrupt:
        raise Interrupted("interrupted, what ended is recorded; run the same command again to continue.") from None


def _report(out: Path, exam_runs: Sequence[Path], lang: str) -> None:
    from eyechart.files import write_text
    from eyechart.run import Run
    from eyechart.studies.bundled_exams import BundledExams
    from eyechart.studies.claim_answers import all_records, answers
    from eyechart.studies.markdown import markdown
    from eyechart.studies.page import page
    from eyechart.studies.questions import questions
    from eyechart.studies.records import records_folder
    from eyechart.studies.repeats import in_words, repeats

    if exam_runs:
        BundledExams.read().with_newer(BundledExams.of([Run.open(path) for path in exam_runs])).write()
    records, exams = all_records(), BundledExams.read()
    claims = answers(records, exams.verdicts)
    asked = questions(records, claims, exams)
    again = in_words(repeats(records, records_folder()))
    click.echo(write_text(out / "reproduction.md", markdown(claims, records, asked, exams, again)))
    click.echo(write_text(out / "reproduction.html", page(claims, records, asked, exams, lang, again)))


def _list(json_: bool) -> None:
    from eyechart.studies.recorded import decided_by
    from eyechart.studies.records import Records, records_folder
    from eyechart.studies.study import find, names
    from eyechart.terminal import wrapped

    rows: list[dict[str, Any]] = []
    for each in map(find, names()):
        records = Records.of(each, records_folder())
        done = sum(records.recorded(arm.name, seed) for arm, seed in each.runs)
        trained = sum(records.training(arm.name, seed) is not None for arm, seed in each.runs)
        claims = sorted({test.claim for test in each.tests})
        rows.append(
            {
                "study": each.name,
                "row": each.row,
                "title": each.title,
                "arms": len(each.arms),
                "runs": len(each.runs),
                "trained": trained,
                "recorded": done,
                "failed": len(records.failures()),
                "minutes": each.minutes,
                "minutes_left": round(sum(cost for _, _, cost in costs(each, records, left(each, records))) / 60, 1),
                "claims": claims,
                "decides": decided_by(each),
            }
        )
    if json_:
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    piped = not sys.stdout.isatty()
    for row in rows:
        left_now = f"about {row['minutes_left']:.0f} minutes left" if row["minutes_left"] else "nothing left to run"
        for words, indent in (
            (f"{row['study']}  (row {row['row']})  {row['title']}", 0),
            (
                f"{row['trained']} of {row['runs']} trainings recorded ({row['arms']} arms), {row['recorded']} of them "
                f"with all exams, {row['failed']} failed; {left_now} ({row['minutes']:g} planned for its own)",
                4,
            ),
            (row["decides"], 4),
        ):
            click.echo(" " * indent + words if piped else wrapped(words, indent=indent, hang=4 - indent))


def _of_rows(rows: str) -> list[str]:
    """The studies of some rows, in the order of the run list."""
    from eyechart.studies.study import find, names

    by_row: dict[str, list[str]] = {}
    for each in names():
        by_row.setdefault(str(find(each).row), []).append(each)
    wanted = _words(rows, by_row, "row", "The run list")
    return [name for row, studies in by_row.items() if row in wanted for name in studies]


def _one(
    name: str,
    json_: bool,
    *,
    arms: str | None,
    seeds: str | None,
    exams: str | None,
    data: Sequence[str],
    records: Path | None,
    fresh: bool,
    work: Path,
    parallel: int,
    engine: str,
    minutes: float | None,
    dry_run: bool,
    verdicts: bool,
) -> bool:
    """One study; whether nothing of what was asked for is missing any more."""
    from eyechart.studies.records import Records, missing, records_folder
    from eyechart.studies.study import find

    chosen = find(name)
    home = records or records_folder()
    folders = [home] if fresh else list(dict.fromkeys([records_folder(), home]))
    recorded = Records.of(chosen, *folders)
    if verdicts:
        _show(recorded, json_)
        return True
    if parallel < 1:
        raise UsageError(f"--parallel must be at least 1; got {parallel}.")
    wanted = _words(arms, chosen.arms, "arm") if arms else list(chosen.arms)
    numbers = [int(word) for word in _words(seeds, map(str, all_seeds(chosen)), "seed")] if seeds else None
    asked_for = missing(chosen, recorded, wanted, numbers)
    todo = chosen.with_sources(asked_for)
    paths = data_paths(chosen, data)
    if dry_run:
        _plan(chosen, recorded, todo, json_)
        return True
    if not todo:
        click.echo(f"Nothing is missing: {chosen.name} is recorded.")
        return True
    from eyechart.studies.run import Schedule, run_study

    for name in dict.fromkeys(chosen.data_of(chosen.arms[arm]) for arm, _ in todo):
        if name not in paths:
            raise UsageError(f"{chosen.name} trains on {name} too; say where it lies with --data {name}=PATH.")
    with _progress(len(todo)) as (tell, report):
        schedule = Schedule(chosen, recorded, home / f"{chosen.name}.jsonl", paths, work, parallel, tell)
        schedule.only_exams = tuple(_words(exams, (exam.name for exam in chosen.exams), "exam")) if exams else ()
        run_study(schedule, todo, report, minutes, engine)
    still = missing(chosen, recorded, wanted, numbers)
    trained = sum(recorded.training(arm, seed) is not None for arm, seed in asked_for)
    whole = f"{len(asked_for) - len(still)} of them with all exams"
    click.echo(f"{home / f'{chosen.name}.jsonl'}: {trained} of {len(asked_for)} trainings recorded, {whole}")
    if still:
        click.echo("eyechart: something is still missing; run the same command again to continue.", err=True)
    return not still


def data_paths(chosen: Study, given: Sequence[str]) -> dict[str, str]:
    """Where each of the study's data lies: its own by its name where nothing is said, further ones as NAME=PATH."""
    paths = {chosen.data: chosen.data}
    for words in given:
        name, path = _named_data(words)
        paths[name or chosen.data] = path
    return paths


def refuse_unknown_data(given: Sequence[str], studies: Sequence[str]) -> None:
    """One sentence where NAME=PATH names what none of these studies is trained on."""
    from eyechart.studies.study import find

    known = dict.fromkeys(name for each in studies for name in find(each).data_names)
    for words in given:
        name, _ = _named_data(words)
        if name and name not in known:
            raise UsageError(f"{', '.join(studies)} has no data called {name!r}; there is {', '.join(known)}.")


def _named_data(words: str) -> tuple[str, str]:
    """
    >>> _named_data("hangul=data/hangul.npz"), _named_data("cifar100.npz")
    (('hangul', 'data/hangul.npz'), ('', 'cifar100.npz'))
    """
    name, equals, path = words.partition("=")
    return (name, path) if equals and not Path(words).exists() else ("", words)


def all_seeds(chosen: Study) -> list[int]:
    return sorted({seed for arm in chosen.arms.values() for seed in arm.seeds})


def left(chosen: Study, records: Records) -> list[tuple[str, int]]:
    from eyechart.studies.records import missing

    return missing(chosen, records, chosen.arms, None)


def costs(chosen: Study, records: Records, todo: Sequence[tuple[str, int]]) -> list[tuple[str, int, float]]:
    """Seconds of a GPU each training may take: what the same arm took with another seed, or its part of the estimate.

    Workers share the GPU, so a training took its time divided by their number. Older records do not tell it.
    """
    whole = sum(length_of(arm) for arm, _ in chosen.needed_runs)
    seconds_of = []
    for arm, seed in todo:
        lines = [line for other in chosen.arms[arm].seeds if (line := records.training(arm, other)) is not None]
        seconds = [
            float(line["seconds"]) / line["workers"] for line in lines if "seconds" in line and "workers" in line
        ]
        guess = 60 * chosen.minutes * length_of(chosen.arms[arm]) / whole
        seconds_of.append((arm, seed, sum(seconds) / len(seconds) if seconds else guess))
    return seconds_of


def length_of(arm: Arm) -> float:
    """How long a training is, in epochs of all images; whatever its model takes for one."""
    from eyechart.training.settings import make_run

    run = make_run({**arm.settings, **({"from": "zoo:vit"} if arm.source else {})})
    share = run.last_epoch / run.recipe.epochs
    return START_UP + (share * run.steps / STEPS if run.steps else run.last_epoch * run.fraction)


def _words(text: str, allowed: Iterable[str], what: str, whose: str = "The study") -> list[str]:
    names = list(allowed)
    if text in names:  # one whose name has a comma
        return [text]
    chosen: list[str] = []
    for word in (word.strip() for word in text.split(",") if word.strip()):
        matching = [word] if word in names else fnmatch.filter(names, word)
        if not matching:
            raise UsageError(f"{whose} has no {what} {word!r}; it has {', '.join(names)}.")
        chosen += matching
    return list(dict.fromkeys(chosen))


def _plan(chosen: Study, records: Records, todo: Sequence[tuple[str, int]], json_: bool) -> None:
    lines = costs(chosen, records, todo)
    total = sum(cost for _, _, cost in lines) / 60
    if json_:
        rows = [{"arm": arm, "seed": seed, "seconds": round(cost, 1)} for arm, seed, cost in lines]
        click.echo(json.dumps({"runs": rows, "minutes": round(total, 1)}, indent=2))
        return
    for arm in dict.fromkeys(arm for arm, _, _ in lines):
        mine = [(seed, cost) for name, seed, cost in lines if name == arm]
        seeds = ", ".join(str(seed) for seed, _ in mine)
        click.echo(f"{arm:32} seeds {seeds:12} about {sum(cost for _, cost in mine):4.0f} s")
    click.echo(f"{len(lines)} trainings, about {total:.0f} GPU-minutes one after the other; less with --parallel.")


def _show(records: Records, json_: bool) -> None:
    from eyechart.studies.verdicts import verdicts_of

    study_verdicts = verdicts_of(records)
    if json_:
        rows = [
            {**each.verdict.as_json(), "registered": each.registered, "seeds": each.seeds} for each in study_verdicts
        ]
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for each in study_verdicts:
        verdict = each.verdict
        reading = f" ({verdict.reading})" if verdict.reading else ""
        click.echo(f"{verdict.claim} {verdict.words}{reading}: {', '.join(verdict.subjects)}")
        for part, interval in zip(verdict.parts, each.intervals, strict=True):
            click.echo(f"    {part.verdict}: {part.sentence}; {interval.words}")
        click.echo(f"    registered {each.registered}. {verdict.remarks}".rstrip())


@contextmanager
def _progress(count: int) -> Iterator[tuple[Any, Any]]:
    """Where sentences and reports go: one bar over all trainings on a terminal, plain lines elsewhere."""
    from rich.console import Console

    errors = Console(stderr=True)

    def error_line(event: Mapping[str, Any]) -> None:
        if "error" in event:
            print(f"eyechart: {event['run']}: {event['error']}", file=sys.stderr, flush=True)

    if not errors.is_terminal:
        yield (lambda words, training: print(words, file=sys.stderr, flush=True)), error_line
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=errors) as bars:
        task = bars.add_task("", total=count, now="")

        def tell(words: str, training: bool) -> None:
            bars.console.print(words, markup=False, highlight=False)
            bars.advance(task, int(training))

        def report(event: Mapping[str, Any]) -> None:
            if "steps" in event:
                bars.update(task, now=f"{event['run']} {event['steps']}/{event['total']}")
            error_line(event)

        yield tell, report
