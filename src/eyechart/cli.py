"""The command line. Results on stdout, progress on stderr; EXIT_CODES says how it ends.

torch is imported inside the commands that need it, so `--help` answers at once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import eyechart
from eyechart.command_line import GroupWithPlainErrors, as_json, lang_option, say
from eyechart.comparison.command import compare
from eyechart.errors import PARTLY, UsageError
from eyechart.export import export
from eyechart.given_run import open_run, plugin_option, run_argument
from eyechart.memory import keep_freed_memory
from eyechart.phrases import quoted
from eyechart.studies.command import study
from eyechart.taking_along import cite, figures, table
from eyechart.training.command import train

EXIT_CODES = """\b
Exit codes:
  0    done
  1    failed: a model, the images or a run folder cannot be used
  2    the command line is wrong
  3    done in part: image files were skipped, a measure asked for by name
       was left out, or some of several trainings failed
  130  interrupted; run the same command again to continue
"""


@click.group(cls=GroupWithPlainErrors, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(eyechart.__version__, prog_name="eyechart")
def main() -> None:
    """An eye exam for vision models: how each one sees inside, and which published claims hold on it."""
    keep_freed_memory()


json_option = click.option("--json", "json_", is_flag=True, help="Print JSON.")
claims_option = click.option(
    "--claims", "claims_file", type=click.Path(path_type=Path), help="A TOML file with your own claims."
)


def complete_subjects(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from eyechart.zoo import names

    return [f"zoo:{name}" for name in names() if f"zoo:{name}".startswith(incomplete)]


@main.command()
@click.argument("subjects", nargs=-1, shell_complete=complete_subjects)
@click.option(
    "--subjects-from", type=click.Path(path_type=Path), help="A TOML file with a [[subject]] for each: spec, label."
)
@click.option("--images", default="sample", show_default=True, help="A folder, .npz, .tar, hf:NAME[:split], or sample.")
@click.option("--measures", help="Names, separated by commas; all by default. `eyechart measures` lists them.")
@click.option("--set", "options", multiple=True, metavar="MEASURE.OPTION=VALUE", help="Set an option of a measure.")
@click.option(
    "--effort",
    type=click.Choice(["quick", "normal", "full"]),
    default="normal",
    show_default=True,
    help="How many seconds experiments may take; quick leaves out those that need longer.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Use this many images, balanced over classes.")
@click.option("--seed", default=0, show_default=True, help="Seed of the order of images.")
@click.option(
    "--classes",
    type=click.Path(exists=True, path_type=Path),
    help='JSON: {"class of the images": "class of the subjects" or its index}.',
)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder; by default runs/<subjects>-<images>-<hash>.")
@click.option("--overwrite", is_flag=True, help="Replace the run folder if it exists already.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, mps.")
@click.option("--dtype", default="float32", show_default=True, help="float32, tf32, bfloat16, float16, float64.")
@click.option(
    "--engine",
    default="inline",
    show_default=True,
    help="Who computes: inline, ranks (under torchrun or SLURM), ray, ray:auto, ray://ADDRESS.",
)
@lang_option
@click.option(
    "--shards", type=click.IntRange(min=1), help="Parts of the work, and so workers that can help; 16 by default."
)
@click.option("--dry-run", is_flag=True, help="Only say what each measure would cost: minutes, memory and disk.")
@click.option("--keep-shards", is_flag=True, help="Keep the tallies of the finished run, which can be large.")
@plugin_option
@claims_option
def exam(
    subjects: tuple[str, ...],
    subjects_from: Path | None,
    images: str,
    measures: str | None,
    options: tuple[str, ...],
    effort: str,
    limit: int | None,
    seed: int,
    classes: Path | None,
    out: Path | None,
    overwrite: bool,
    device: str,
    dtype: str,
    engine: str,
    lang: str | None,
    shards: int | None,
    dry_run: bool,
    keep_shards: bool,
    plugins: tuple[Path, ...],
    claims_file: Path | None,
) -> None:
    """Examine SUBJECTS (zoo:NAME, timm:NAME, torchvision:NAME, hf:ORG/NAME, each with @random or @PATH) on images.

    LABEL=SPEC says what tables and charts call a subject: mine=timm:vit_small_patch16_224@folder/file.safetensors.
    Without a label a file is called by the name of its model; its path and hash are in the provenance.

    NAME:48px shows a subject pictures of another size than its own, here 48 pixels. Convolutions take it as it is,
    position tables are resized, and a model that cannot be resized is refused.

    Without arguments: the bundled pair on the bundled sample.
    """
    from eyechart.progress import progress
    from eyechart.terminal import print_forecast, print_verdicts, wrapped

    with progress() as report:
        from eyechart.exam import BUNDLED_PAIR, forecast
        from eyechart.exam import exam as examine
        from eyechart.subjects.labels import read_mapping
        from eyechart.subjects.list_file import listed_subjects

        listed = listed_subjects(subjects_from) if subjects_from else []
        question: dict[str, Any] = {
            "options": parse_options(options),
            "effort": effort,
            "limit": limit,
            "seed": seed,
            "classes": read_mapping(classes) if classes else None,
            "device": device,
            "dtype": dtype,
            "plugins": plugins,
            "claims": claims_file,
            "shards": shards,
        }
        asked = ((*subjects, *listed) or BUNDLED_PAIR, images, measures)
        if dry_run:
            cost = forecast(*asked, progress=lambda what: report(what, 0, math.inf), **question)
        else:
            question |= {"out": out, "overwrite": overwrite, "engine": engine, "keep_shards": keep_shards, "lang": lang}
            run = examine(*asked, progress=report, **question)
    if dry_run:
        print_forecast(cost)
        return
    if not run.finished:  # another rank makes the page
        return
    print_verdicts(run)
    for notice in run.plan["notices"]:
        say(wrapped(f"note: {notice}", hang=6), err=True)
    say(f"numbers: eyechart show {quoted(str(run.path))}")
    say(f"report: {run.path / 'report.html'}")
    problems = run.plan["images"]["problems"]
    for problem in problems:
        say(f"skipped {problem['path']}: {problem['reason']}", err=True)
    if problems or (measures and run.plan["left_out"]):
        sys.exit(PARTLY)


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair or "." not in pair.split("=")[0]]
    if wrong:
        raise UsageError(f"--set takes MEASURE.OPTION=VALUE, such as cka.readout=gap; got {wrong[0]!r}.")
    return dict(pair.split("=", 1) for pair in pairs)


@main.command()
@run_argument
@plugin_option
@json_option
def show(run: Path, plugins: tuple[Path, ...], json_: bool) -> None:
    """Print the findings and verdicts of a run folder; or how a training went (its folder or NAME.records.jsonl)."""
    from eyechart.training.chart import is_training

    if is_training(run):
        show_training(run, json_)
        return
    opened = open_run(run, plugins)
    if json_:
        findings: dict[str, dict[str, Any]] = {name: {} for name in opened.findings}
        for row in opened.quantities():
            label = f"{row['quantity']} {row['subjects']}".strip()
            findings[row["measure"]][label] = {key: row[key] for key in ("value", "low", "high")}
        verdicts = [verdict.as_json() for verdict in opened.verdicts]
        as_json({"subjects": list(opened.scene.subjects), "findings": findings, "verdicts": verdicts})
        return
    from eyechart.terminal import print_findings, print_verdicts

    print_verdicts(opened)
    click.echo()
    print_findings(opened)


def show_training(path: Path, json_: bool) -> None:
    from eyechart.training.chart import print_training, save_training_charts, trainings_as_json

    if json_:
        as_json({"trainings": trainings_as_json(path)})
        return
    print_training(path)
    for drawn in save_training_charts(path):
        say(f"chart: {drawn}")


@main.command()
@run_argument
@click.option(
    "--tour", is_flag=True, help="Open the page as a tour of the papers: their figures in order, ours beside."
)
@click.option(
    "--largest",
    type=click.FloatRange(min=1),
    help="Megabytes the page may have, 10 by default; tables and pictures to explore are left out until it fits.",
)
@lang_option
@plugin_option
def report(run: Path, tour: bool, largest: float | None, lang: str | None, plugins: tuple[Path, ...]) -> None:
    """Draw the page of a run folder again, from the files in the folder alone."""
    most = int(largest * 1e6) if largest else None
    say(open_run(run, plugins).report(tour_first=tour, lang=lang or "en", largest=most))


@main.command()
@click.argument("subject", shell_complete=complete_subjects)
@json_option
def anatomy(subject: str, json_: bool) -> None:
    """Show the sites the taps find in SUBJECT, as a tree."""
    from eyechart.images import open_images
    from eyechart.subjects.anatomy import anatomy_of
    from eyechart.subjects.load import load_subject
    from eyechart.terminal import print_anatomy

    loaded = load_subject(subject)
    images = loaded.prepare(open_images("sample").pictures([0, 1]))
    sites = anatomy_of(loaded.name, loaded.module, images, call=loaded.call, classifier=loaded.classifier)
    if json_:
        as_json(sites.as_json())
    else:
        print_anatomy(sites)


@main.command()
@click.argument("name", required=False)
@json_option
def subjects(name: str | None, json_: bool) -> None:
    """List what can be examined by name; with NAME, the card of a bundled model or the names that match.

    NAME may be a part of a name or a pattern, of one library or of all: vit, timm:vit, 'torchvision:res*'.
    """
    from eyechart import zoo
    from eyechart.errors import UnknownSubject
    from eyechart.subjects.catalogue import available, counts, own_values
    from eyechart.terminal import print_card, print_subjects

    bundled = {row["spec"]: row["card"] for row in available()}
    spec = name if name and name in bundled else f"zoo:{name}"
    rows = [{"spec": spec, "source": "zoo", "card": bundled[spec]}] if spec in bundled else available(name)
    if not rows and name and name.startswith("hf:"):
        raise UnknownSubject("The models of the Hugging Face hub cannot be listed; give one as hf:ORG/NAME.")
    if not rows:
        raise UnknownSubject(f"No subject matches {name!r}; `eyechart subjects` lists the bundled ones.")
    if json_:
        as_json(rows)
    elif spec in bundled:
        model = spec.removeprefix("zoo:").partition("@")[0]
        print_card(spec, bundled[spec], zoo.switches(model), own_values(model))
    else:
        print_subjects(rows, counts() if name is None else None)


@main.command()
@plugin_option
@json_option
def measures(plugins: tuple[Path, ...], json_: bool) -> None:
    """List the measures: the question each asks, where it comes from, the claims it decides, and its options.

    Options are shown with their default values; eyechart exam --set MEASURE.OPTION=VALUE changes one.
    """
    from eyechart.claims.table import CLAIMS
    from eyechart.measure_options import choices_of, meanings_of
    from eyechart.measures import load_plugin
    from eyechart.measures import measures as all_measures

    for plugin in plugins:
        load_plugin(plugin)
    rows: list[dict[str, Any]] = [
        {
            "name": measure.name,
            "question": measure.title,
            "sources": [f"{source.paper}, {source.figures}" for source in measure.sources],
            "options": measure.options,
            "choices": choices_of(measure),
            "meanings": meanings_of(measure),
            "claims": [claim.id for claim in CLAIMS.values() if measure.name in claim.measures and claim.tests],
        }
        for measure in all_measures().values()
    ]
    if json_:
        as_json(rows)
        return
    from eyechart.terminal import wrapped

    for row in rows:
        say(f"{row['name']:20} {row['question']}")
        say(wrapped("; ".join(row["sources"]), indent=21))
        if row["claims"]:
            say(wrapped(f"decides {', '.join(row['claims'])}", indent=21))
        for option, value in row["options"].items():
            others = ", ".join(str(choice) for choice in row["choices"][option] if choice != value)
            meaning = row["meanings"][option]
            details = (f" (or {others})" if others else "") + (f"  {meaning}" if meaning else "")
            say(wrapped(f"--set {row['name']}.{option}={value}{details}", indent=21, hang=4))


@main.command()
@click.argument("name", required=False)
@claims_option
@json_option
def claims(name: str | None, claims_file: Path | None, json_: bool) -> None:
    """List the published claims and how each is decided; with NAME (C09), one of them."""
    from eyechart.claims.table import CLAIMS, STUDIES, add_claims
    from eyechart.files import read_text
    from eyechart.studies.study import studies_of_claims
    from eyechart.terminal import wrapped

    def tell(words: str, hang: int = 17) -> None:  # piped, a line stays one, so that grep works on it
        say(wrapped(words, hang=hang) if sys.stdout.isatty() else words)

    if claims_file is not None:
        add_claims(read_text(claims_file, "--claims"), str(claims_file))
    wanted = name.upper().removeprefix("C") if name else None
    wanted = f"C{int(wanted):02}" if wanted and wanted.isdecimal() and len(wanted) < 10 else name
    if wanted and wanted not in CLAIMS:
        raise UsageError(f"No claim is called {name!r}; the claims are C01 to {max(CLAIMS)}.")
    chosen = [CLAIMS[wanted]] if wanted else list(CLAIMS.values())
    if json_:
        as_json([claim.as_json() for claim in chosen])
        return
    studies = studies_of_claims() if any(claim.settled_by != "exam" for claim in chosen) else {}
    for claim in chosen:
        tell(f"{claim.id}  {claim.sentence}", hang=5)
        tell(f"     source      {claim.figure}; reported: {claim.reported}")
        tell(f"     decided by  {claim.decide}")
        tell(f"     holds if    {claim.margin}")
        if claim.settled_by == "exam":
            tell(f"     settled by  exam ({', '.join(claim.measures)}); needs {claim.wants}")
        else:
            tell(f"     settled by  study {', '.join(studies[claim.id])}; needs {STUDIES[claim.settled_by]}")
        if claim.null:
            tell(f"     null        {claim.null}")
        if claim.changed:
            tell(f"     changed     {claim.changed}")
        if wanted:
            for test in claim.tests:
                asked = "; ".join(f"{part.quantity} {part.asks}" for part in test.parts)
                read = f", read {test.reading}" if test.reading else ""
                tell(f"     test        {test.measure}{read}: {asked}")
    if studies:
        say("")
        tell(
            "exam: `eyechart exam` decides it on subjects that have what it needs. study: no exam decides it, only "
            "trainings made for the purpose, with several seeds of each: `eyechart study NAME`.",
            hang=0,
        )


for command in (compare, figures, table, cite):
    main.add_command(command)
main.add_command(train)
main.add_command(study)
main.add_command(export)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL: eval "$(eyechart completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click has a class for each choice
    say(kind(main, {}, "eyechart", "_EYECHART_COMPLETE").source())
