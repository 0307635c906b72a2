"""READ FIRST: the whole story on one page.

    images → plan → subjects under taps → views → tallies → shards → findings with error bars → verdicts → report

`exam` follows that line from top to bottom; each step is one room of the package, and nothing flows back.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.claims.asking import asked_of
from eyechart.claims.facts import facts_of
from eyechart.claims.judge import judge
from eyechart.claims.table import add_claims
from eyechart.drawings import draw_charts
from eyechart.engines import choose_engine
from eyechart.engines.clock import Clock
from eyechart.engines.forecast import Forecast, forecast_of
from eyechart.engines.interruption import finishing_the_shard
from eyechart.engines.plan import write_plan
from eyechart.engines.prepared import Prepared
from eyechart.engines.shard_helper import division
from eyechart.engines.workload import Workload
from eyechart.errors import RunFolderError, UsageError
from eyechart.files import read_text
from eyechart.findings import make_findings
from eyechart.images import common_crop, open_images, plan_batches
from eyechart.measure import EFFORTS
from eyechart.measures import check_tests, choose_measures, load_plugin
from eyechart.phrases import as_keywords, one_line
from eyechart.question import what_differs
from eyechart.report.words import language_of, page_language
from eyechart.run import Run

if TYPE_CHECKING:
    from eyechart.engines import Engine
    from eyechart.engines.prepared import Part
    from eyechart.engines.workload import Kind
    from eyechart.images import BatchPlan, Images
    from eyechart.sites import Anatomy
    from eyechart.subjects.load import Given
    from eyechart.subjects.subject import Subject
    from eyechart.subjects.trial import Trial

BUNDLED_PAIR = ("zoo:vit", "zoo:resnet")
Progress = Callable[[str, float, float], None]
"""What is being done, seconds gone, and seconds in all as far as is known now (see `progress` of `exam`)."""


def exam(
    subjects: Given | Sequence[Given] | Mapping[str, Given] = BUNDLED_PAIR,
    images: Any = "sample",
    measures: str | Sequence[str] | None = None,
    *,
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    effort: str = "normal",
    limit: int | None = None,
    seed: int = 0,
    classes: Mapping[str, str | int] | None = None,
    device: str = "auto",
    dtype: str = "float32",
    overwrite: bool = False,
    plugins: Sequence[str | Path] = (),
    claims: str | Path | None = None,
    engine: str = "inline",
    shards: int | None = None,
    keep_shards: bool = False,
    page: bool = True,
    lang: str | None = None,
    progress: Progress | bool | None = None,
) -> Run:
    """Examine subjects on images and leave a run folder with findings, verdicts and the page.

    The same call again continues where it stopped and computes nothing twice; another question gets another folder.

    subjects    one or several: a spec as on the command line ("zoo:vit", "timm:resnet50", "timm:resnet50@ckpt.pth",
                "hf:ORG/NAME"), a module of your own, or what `load_subject` gives (a module with its preprocessing);
                {"label": subject, …} says what tables and charts call them, as "label=timm:resnet50" does
    images      a folder (subfolders are classes), an .npz, .tar shards, "hf:NAME:split", "sample" or "sample:train"; or
                what is in memory: a tensor (image, 3, y, x) of 0 … 1, a uint8 array (image, y, x, 3), PIL pictures,
                paths, each also as (pictures, labels); a torch Dataset or DataLoader, neither normalised nor
                augmented. `open_images(…, labels=, classes=)` names the classes
    measures    names, as a list or "cka,probes"; None: all that apply, within the time of `effort`
    out         the run folder; None: runs/<subjects>-<images>-<hash>
    options     of measures: {"cka.readout": "gap"}; `eyechart measures` lists them
    effort      "quick", "normal" or "full": the seconds that experiments may take, and so how many images they use
    limit       use this many images, balanced over classes; None: all
    seed        of the order of images
    classes     {class of the images: class of the subjects or its index}, where their names do not tell
    device      "auto", "cpu", "cuda", "cuda:1", "mps"
    dtype       "float32", "tf32" (GPU), "bfloat16", "float16" or "float64"
    overwrite   start again where the folder holds a run already
    plugins     Python files with measures of your own; `measures` then knows their names too
    claims      a TOML file with claims of your own, in the form of claims.toml, judged by the same protocol
    engine      who computes the shards: "inline", this process; "ranks", processes that torchrun or SLURM started;
                "ray", "ray:auto" or "ray://ADDRESS", a Ray cluster on this machine, the one around, or another
    shards      into how many parts the work is cut, so the most workers that can help; None: at most 16
    keep_shards keep the tallies of a finished run (a gigabyte is possible): findings can then be made anew from them
    page        False: numbers and verdicts alone; `run.report()` draws the page later
    lang        the language in which the page opens, "en" or "ko" (it has a switch); None: English, and a finished page
                stays as it is
    progress    called with what is being done, the seconds gone and the seconds it will take in all, as far as is known
                now (infinite before the first batch; 0: a sentence that stays); lines after the first say what each
                worker of a cluster does just now. None or True: on stderr, a bar on a terminal and a line at every
                tenth elsewhere, then what the page notes; False: nothing

    >>> import eyechart, tempfile
    >>> run = eyechart.exam("zoo:resnet", measures="recognition", limit=64, out=tempfile.mkdtemp(), progress=False)
    >>> float(run.findings["recognition"].accuracy.sel(subject="zoo:resnet")) > 0.8
    True
    >>> run.verdicts[0], run.path.joinpath("report.html").exists()
    (<C01 not tested>, True)
    """
    if lang is not None:
        language_of(lang)  # before anything is computed
    again = functools.partial(
        prepare,
        subjects,
        images,
        measures,
        options=options,
        effort=effort,
        limit=limit,
        seed=seed,
        classes=classes,
        device=device,
        dtype=dtype,
        plugins=plugins,
        claims=claims,
        shards=shards,
    )
    workers = choose_engine(engine)
    with reported(progress) as tell:
        run = examined(
            workers, again, out, overwrite=overwrite, keep_shards=keep_shards, page=page, lang=lang, progress=tell
        )
        for notice in run.notices:
            tell(notice, 0, 0)
        if progress is None or progress is True:
            for notice in run.plan["notices"]:
                tell(f"note: {as_keywords(notice)}", 0, 0)
    return Run(run.path)


@contextmanager
def reported(progress: Progress | bool | None) -> Iterator[Progress]:
    """Where progress goes."""
    from eyechart.progress import progress as shown

    silent = nullcontext(lambda what, done, total: None)
    with nullcontext(progress) if callable(progress) else silent if progress is False else shown() as tell:
        yield tell


def examined(
    workers: Engine,
    again: Callable[..., Prepared],
    out: str | Path | None,
    *,
    overwrite: bool,
    keep_shards: bool,
    page: bool,
    lang: str | None,
    progress: Progress,
) -> Run:
    """The run folder of an exam, with as much done as was missing."""
    began = time.monotonic()
    prepared = again(progress=lambda what: progress(one_line(what), time.monotonic() - began, math.inf))
    folder = Path(out) if out is not None else Path("runs") / folder_name(prepared.plan)
    workers.admit(folder, overwrite=overwrite)
    run = open_folder(prepared.plan, folder, overwrite=overwrite)
    clock = Clock(Workload(list(run.measures.values()), run.scene, prepared.batches), progress, began)
    with threads_of(run.plan):
        judged = run.judged
        complete = run.finished if page else judged
        with finishing_the_shard(lambda words: progress(words, 0, 0)):
            computed = (keep_shards or not judged) and workers.examine(run, prepared, again, clock)
        clock.skip("pass", "experiment")
        if not workers.finishes:
            progress(f"The shards of this process are in {run.path}; rank 0 finishes the run.", 0, 0)
        elif computed or not judged:
            try:
                finish(run, clock, lang, page=page)
            except RunFolderError:  # another process may have finished the same exam and removed its shards
                if not Run(run.path).finished:
                    raise
        elif not complete:
            clock.skip("intervals")
            publish(run, clock, lang)
        elif page and lang is not None and page_language(run.path / "report.html") != lang:
            publish(run, lang=lang)
        else:
            progress(f"Nothing to do: {run.path} already holds this exam, finished.", 0, 0)
        done = Run(run.path)
        if workers.finishes and not keep_shards and (done.finished if page else done.judged):
            run.drop_shards()
    return run


def forecast(
    subjects: Given | Sequence[Given] | Mapping[str, Given] = BUNDLED_PAIR,
    images: Any = "sample",
    measures: str | Sequence[str] | None = None,
    *,
    progress: Callable[[str], None] = lambda what: None,
    **settings: Any,
) -> Forecast:
    """What the same call of `exam` would cost: minutes, memory and disk of each measure. Nothing is written.

    Takes what `exam` takes about the question. Subjects are loaded and their passes timed here for a second or two.

    >>> cost = forecast("zoo:resnet", measures="recognition,cka", limit=64)
    >>> [row.name for row in cost.rows], 0 < cost.seconds < 600
    (['recognition', 'cka'], True)
    """
    prepared = (again := functools.partial(prepare, subjects, images, measures, **settings))(progress=progress)
    with threads_of(prepared.plan):
        return forecast_of(prepared, again, progress)


def prepare(
    subjects: Given | Sequence[Given] | Mapping[str, Given],
    images: Any,
    measures: str | Sequence[str] | None,
    *,
    options: Mapping[str, Any] | None = None,
    effort: str = "normal",
    limit: int | None = None,
    seed: int = 0,
    classes: Mapping[str, str | int] | None = None,
    device: str = "auto",
    dtype: str = "float32",
    plugins: Sequence[str | Path] = (),
    claims: str | Path | None = None,
    shards: int | None = None,
    part: Part | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Prepared:
    """Load what was asked for and write the plan down; every process of an exam does this for itself.

    A process that was given a `part` of an exam loads these subjects alone.
    """
    from eyechart.device import allow_tf32, choose_device, choose_dtype
    from eyechart.subjects.anatomy import anatomy_of
    from eyechart.subjects.labels import check_mapping, match_classes
    from eyechart.subjects.load import as_list, each_subject
    from eyechart.subjects.parking import Parking
    from eyechart.subjects.subject import blamed
    from eyechart.subjects.trial import Rehearsal

    torch_device = choose_device(device)
    torch_dtype = choose_dtype(dtype, torch_device)
    allow_tf32(dtype == "tf32")
    if effort not in EFFORTS:
        raise UsageError(f"The effort is one of {', '.join(EFFORTS)}; got {effort!r}.")
    for plugin in plugins:
        load_plugin(plugin)
    own_claims = read_text(claims, "--claims") if claims is not None else ""
    check_tests(add_claims(own_claims, str(claims)), str(claims))
    asked = choose_measures(measures, options)
    progress("looking through the images")
    source: Images = open_images(images, progress=lambda done, total: progress(f"images read: {done:,} of {total:,}"))
    check_mapping(classes, source.classes)
    batches: BatchPlan = plan_batches(source, limit=limit, seed=seed, shards=shards)

    first_two = [common_crop(source.picture(i)) for i in batches.order[:2]]
    loaded: list[Subject] = []
    anatomies: list[Anatomy] = []
    trials: list[Trial] = []
    given, parking = as_list(subjects), Parking()
    places = range(len(given)) if part is None else part.places
    progress("loading subjects")
    for place, subject in zip(places, each_subject(subjects, places), strict=True):
        borrowed = not isinstance(given[place], str)
        subject = subject.in_numbers(torch_dtype, torch_device, borrowed=borrowed)
        which = f"{subject.name} (subject {place + 1} of {len(given)})"
        progress(f"{which}: first pass")
        dry = subject.prepare((first_two * 2)[:2]).to(torch_device, torch_dtype)
        with blamed(subject, "on the first two images"):
            rehearsal = Rehearsal(subject, dry)
            progress(f"{which}: its sites")
            anatomy = anatomy_of(subject.name, subject.module, dry, call=subject.call, classifier=subject.classifier)
            progress(f"{which}: is it the same twice?")
            trials.append(rehearsal.trial(anatomy))
        anatomies.append(anatomy)
        loaded.append(subject)
        if not borrowed and (told := parking.take(subject)):
            progress(told)
    matches = {subject.name: match_classes(source.classes, subject, mapping=classes) for subject in loaded}
    progress("writing the plan (the weights are hashed)")
    plan = write_plan(
        loaded,
        anatomies,
        source,
        batches,
        asked,
        label_maps={name: (match.indices, match.reason) for name, match in matches.items()},
        settings={
            "device": str(torch_device),
            "dtype": dtype,
            "seed": seed,
            "limit": limit,
            "folds": batches.folds,
            "effort": effort,
            "asked_for": measures is not None,
            "claims": own_claims,
            **division(loaded, anatomies),
        },
        trials=trials,
        part=part,
    )
    return Prepared(plan, loaded, anatomies, source, batches)


@contextmanager
def threads_of(plan: Mapping[str, Any]) -> Iterator[None]:
    """As many threads as the plan says: sums over other numbers of them are rounded otherwise."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, int(plan["settings"].get("threads", before))))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def open_folder(plan: Mapping[str, Any], folder: Path, *, overwrite: bool) -> Run:
    """The folder of this question: a new one, or the one an earlier call or another process began."""
    run = Run(folder)
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"A run needs a folder, but {folder} is a file; choose another with --out.")
        if not (folder / "plan.json").exists() and not run.is_free:
            raise UsageError(
                f"{folder} is not empty and not a run folder, so nothing is written there; choose another --out."
            )
    except OSError as error:  # a name too long, a folder that may not be read
        raise UsageError(f"{folder} cannot be a run folder ({error.strerror}); choose another with --out.") from error
    if overwrite:
        run.clear()
    run.sweep()
    if not (folder / "plan.json").exists():
        run.begin(plan)
        return run
    differs = what_differs(run.plan, plan)
    if differs or run.plan["question"] != plan["question"]:
        raise RunFolderError(
            f"{folder} holds another exam: {differs or 'its question differs'}; pass --overwrite to replace it, or "
            "choose another folder with --out."
        )
    return run


def folder_name(plan: Mapping[str, Any]) -> str:
    names = "-".join(subject["name"].partition(":")[2] or subject["name"] for subject in plan["subjects"][:3])
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{names}-{plan['images']['name']}")[:60].strip("-")
    return f"{readable}-{plan['question'][:8]}"


def finish(run: Run, clock: Clock | None = None, lang: str | None = None, *, page: bool = True) -> None:
    """Shards → findings → verdicts → page, if any. Needs neither models nor images: shards may come from elsewhere."""
    findings = make_findings(run, processes_of(run), counting(clock, "intervals", run.measures))
    tests = asked_of(run.measures.values())
    left_out = {entry["measure"]: entry["reason"] for entry in run.plan["left_out"]}
    run.write_verdicts(judge(tests, findings, facts_of(run.plan, findings), left_out=left_out))
    run.record([*(f"findings/{name}.nc" for name in findings), "verdicts.json"], anew=True)
    run.findings = findings
    publish(run, clock, lang, page=page)


def processes_of(run: Run) -> int:
    """How many work on what needs no subjects: as many as there are threads of the passes, or processes."""
    return max(int(run.plan["settings"].get(name, 1)) for name in ("threads", "processes"))


def counting(clock: Clock | None, kind: Kind, names: Iterable[str]) -> Callable[[str], object]:
    return clock.counting(kind, names) if clock else lambda name: None


def publish(run: Run, clock: Clock | None = None, lang: str | None = None, *, page: bool = True) -> None:
    """Findings and verdicts → table and page."""
    again = run.anew()  # they are made from what is in the files
    again.write_summary()
    again.record(["summary.csv"])
    if page:
        language = language_of(lang or "en")
        drawn = draw_charts(again, language, processes_of(run), counting(clock, "figure", again.findings))
        again.report(lang=language, drawn=drawn)
    for notice in again.notices:
        run.notice(notice)
