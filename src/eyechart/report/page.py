"""The report: one HTML file made from a run folder alone, which no network is needed to read."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from eyechart.charts import theme
from eyechart.charts.numbers import count, percent, with_span
from eyechart.claims.summary import summarise
from eyechart.measure import SampledExperiment
from eyechart.phrases import harmless_cell
from eyechart.report.embed import data_uri, embed, javascript
from eyechart.report.explorer import explorer
from eyechart.report.sentences import lines, name_of_quantity, typeset
from eyechart.report.verdict_rows import references, rows
from eyechart.report.verdict_summary import of_weights, verdict_context

if TYPE_CHECKING:
    import pandas as pd
    import xarray

    from eyechart.measure import Measure
    from eyechart.run import Run
    from eyechart.sites import Anatomy

LARGEST = 10_000_000  # bytes of the page: what mail servers still take
LARGEST_TABLE = 100_000  # bytes of one table put into the page; larger ones (6 of 74) were a quarter of the page
MOST_PROBLEMS = 200
HERE = files("eyechart.report")


def write_report(run: Run, watched: Callable[[Iterable[str]], Iterable[str]] = iter) -> Path:
    """Draw the page of a run into its folder."""
    from eyechart.files import write_text

    undrawn: list[str] = []
    path = write_text(run.path / "report.html", render(run, undrawn, watched))
    for sentence in undrawn:
        run.notice(sentence)
    return path


def render(run: Run, undrawn: list[str] | None = None, watched: Callable[[Iterable[str]], Iterable[str]] = iter) -> str:
    """The page as HTML; one too large to mail goes without second pictures, then without its largest tables, then all
    of them, then most of its explorer, then its live charts.

    A figure that cannot be drawn does not stop the others: it is named where it would stand, in the notices and, for
    the terminal, in `undrawn`.
    """
    plan, subjects = run.plan, run.scene.subjects

    def subject_label(name: str) -> dict[str, str]:
        return {"name": name, "colour": theme.subject_colour(name, subjects)}

    sections = [section(run, name, run.measures[name], subject_label) for name in watched(run.findings)]
    undrawn = [] if undrawn is None else undrawn
    undrawn += [
        f"The figure of {made['name']} could not be drawn ({made['undrawn']}); its numbers are on the page."
        for made in sections
        if made["undrawn"]
    ]
    verdict_rows = rows(run.verdicts, subject_label, list(run.findings))
    css, script = (HERE.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    vega = javascript()
    maps = explorer_context(run)
    images = plan["images"]
    context = {
        "policy": content_policy([vega, script, *([maps["script"]] if maps else [])]),
        "version": plan["eyechart"],
        "title": f"Eye exam of {', '.join(subjects)}",
        "icon": icon(),
        "subjects": [subject_label(entry["name"]) | subject_row(entry, run) for entry in plan["subjects"]],
        "images": images,
        "made": made_on(plan),
        "sections": sections,
        **verdict_context(verdict_rows, summarise(run.verdicts), of_weights(run)),
        "notices": [*plan["notices"], *undrawn],
        "problems": images["problems"][:MOST_PROBLEMS],
        "problem_count": len(images["problems"]),
        "references": references(
            run.verdicts, [source.paper for name in run.findings for source in run.measures[name].sources]
        ),
        "provenance": provenance(plan),
        "css": Markup(css + (maps["css"] if maps else "")),
        "explorer": maps,
        "charts": json_in_html(charts_data(sections)),
        "vega": Markup(vega),
        "script": Markup(script),
    }
    html = filled(context)
    if too_large(html):
        for made in sections:
            made["dark"] = None  # only seen on dark paper without JavaScript, where the light one lies on white
        html = filled(context)
    for largest in (LARGEST_TABLE // 10, LARGEST_TABLE // 50, 0):
        if too_large(html):
            for made in sections:
                made["files"] = tables(made["name"], run.findings[made["name"]], largest)
            html = filled(context)
    if too_large(html) and maps:
        fits = len(maps["data"]) - (len(html.encode()) - LARGEST)
        context["explorer"] = explorer_context(run, largest=fits)  # fewer pictures, at least one
        html = filled(context)
    if too_large(html):
        html = filled(context | {"charts": json_in_html(charts_data([]))})  # pictures only
    return html


def explorer_context(run: Run, largest: int | None = None) -> dict[str, Any] | None:
    """The explorer's data, script and looks; None where no subject has attention maps."""
    data = explorer(run, largest)
    if data is None:
        return None
    css, script = (HERE.joinpath(f"explorer.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return {"data": json_in_html(data), "images": data["images"], "script": Markup(script), "css": css}


def filled(context: Mapping[str, Any], template: str = "page.html") -> str:
    """A template of this folder with everything in it escaped, unless it is marked as made here."""
    loader = jinja2.FunctionLoader(lambda name: HERE.joinpath(name).read_text(encoding="utf-8"))
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, loader=loader)
    env.filters["count"] = count
    html = env.get_template(template).render(context)
    return html.encode("utf-8", "backslashreplace").decode("utf-8")  # half a character of a name is written out


def too_large(html: str) -> bool:
    return len(html.encode()) > LARGEST


def content_policy(scripts: list[str]) -> str:
    """Nothing may be fetched, and only these very scripts may run, whatever a subject or a file is called."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_in_html(data: object) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def icon() -> str:
    return data_uri(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 7 7"><rect x="-1" y="-1" width="7" height="7" rx="1.2" '
        'fill="#fff"/><path d="M0 0h5v1H1v1h4v1H1v1h4v1H0z" fill="#1f2328"/></svg>',
        "image/svg+xml",
    )


def made_on(plan: Mapping[str, Any]) -> dict[str, str]:
    moment = datetime.datetime.fromisoformat(plan["provenance"]["made"])
    return {"iso": moment.isoformat(), "words": f"{moment.day} {moment:%B %Y}"}


def charts_data(sections: list[dict[str, Any]]) -> dict[str, Any]:
    drawn = [made for made in sections if made["chart"] is not None]
    charts = {made["name"]: {"spec": made["chart"].spec, "tables": made["chart"].tables} for made in drawn}
    return {"charts": charts, "config": {"light": theme.configuration(), "dark": theme.configuration(dark=True)}}


# --- subjects ---------------------------------------------------------------------------------------------------------


def subject_row(entry: Mapping[str, Any], run: Run) -> dict[str, Any]:
    anatomy = run.scene.anatomy(entry["name"])
    return {
        "architecture": {"cnn": "CNN"}.get(anatomy.architecture, anatomy.architecture),
        "parameters": entry["parameters"],
        "input": "×".join(map(str, entry["input_size"])),
        "blocks": len(anatomy.pick("block")) or "–",
        "heads": heads(anatomy),
        "grid": grids(anatomy),
        "accuracy": accuracy(run, entry["name"]),
        "no_accuracy": no_accuracy(entry, run),
        "weights": entry["weights"],
        "trained": entry["trained"],
    }


def no_accuracy(entry: Mapping[str, Any], run: Run) -> str:
    if not entry.get("classifier", True):
        return "has no classifier"
    return "no labels" if not run.scene.classes else "classes do not match"


def heads(anatomy: Anatomy) -> str:
    """
    >>> from eyechart.sites import Anatomy
    >>> heads(Anatomy("vgg", (), (), (32, 32), "cnn", None, "gap"))
    '–'
    """
    numbers = sorted({site.heads for site in anatomy.pick("attention") if site.heads})
    return "–" if not numbers else f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def grids(anatomy: Anatomy) -> str:
    """The grid of the first and of the last block, if it has one: "8×8", "32×32 → 4×4"."""
    seen = [f"{site.grid[0]}×{site.grid[1]}" for site in anatomy.pick("block") if site.grid]
    return "–" if not seen else seen[0] if seen[0] == seen[-1] else f"{seen[0]} → {seen[-1]}"


def accuracy(run: Run, subject: str) -> dict[str, str] | None:
    finding = run.findings.get("recognition")
    if finding is None or subject not in finding.subject.values:
        return None
    here = finding.sel(subject=subject)
    names = {"value": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}
    return {name: percent(float(here[variable])) for name, variable in names.items()}


# --- verdicts ---------------------------------------------------------------------------------------------------------


def section(run: Run, name: str, measure: Measure, subject_label: Any) -> dict[str, Any]:
    finding = run.findings[name]
    chart, undrawn = None, ""
    try:
        chart = embed(run, name)
    except Exception as error:  # one figure of twenty, after all the work: whatever it is, the others are drawn
        undrawn = in_one_line(error)
    try:
        said = measure.sentence(finding)
    except Exception as error:
        said = f"Nothing could be said of these numbers ({in_one_line(error)})."
    sentence = typeset(said, run.scene.subjects)
    return {
        "id": f"measure-{name}",
        "name": name,
        "title": measure.title,
        "title_ko": measure.title_ko,
        "how_to_read": measure.how_to_read,
        "how_to_read_ko": measure.how_to_read_ko,
        "method": measure.method,
        "sources": measure.sources,
        "sentence": sentence,
        "lines": lines(sentence, run.scene.subjects),
        "quantities": quantity_rows(finding, measure, subject_label),
        "sample": sample(finding, measure, run.plan),
        "chart": chart,
        "undrawn": undrawn,
        "light": data_uri(chart.light, "image/svg+xml") if chart else None,
        "dark": data_uri(chart.dark, "image/svg+xml") if chart else None,
        "files": tables(name, finding),
    }


def in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def quantity_rows(finding: xarray.Dataset, measure: Measure, subject_label: Any) -> list[dict[str, Any]]:
    """Each quantity with a row for each subject or pair; of a pair told both ways round, only the first."""
    explained = {quantity.name: quantity.explain for quantity in measure.quantities}
    made: list[dict[str, Any]] = []
    met: set[tuple[Any, ...]] = set()
    for index in range(finding.sizes.get("quantity_row", 0)):
        row = finding.isel(quantity_row=index)
        name, subjects = str(row.quantity.item()), str(row.quantity_subjects.item()).split(" | ")
        ends = value, low, high = [float(row[f"quantity_{part}"]) for part in ("value", "low", "high")]
        if (name, *reversed(subjects), -value, -high, -low) in met:
            continue
        met.add((name, *subjects, *ends))
        shown, span = with_span(value, low, high)
        exact = low == high and finding.attrs.get("of_weights")
        if not made or made[-1]["key"] != name:
            group = {"key": name, "name": name_of_quantity(name), "explain": explained.get(name, ""), "rows": []}
            made.append(group)
        made[-1]["rows"].append(
            {
                "subjects": [subject_label(subject) for subject in subjects],
                "value": shown,
                "span": "exact" if exact else f"[{span}]" if span else "",
                "unit": str(row.quantity_unit.item()),
            }
        )
    return made


def sample(finding: xarray.Dataset, measure: Measure, plan: Mapping[str, Any]) -> str:
    """How many images it used, why not more, and where its intervals come from; a measure may say it in its own words.

    What no image was drawn for has no intervals, and says so itself (`attrs["sample"]`). What they are too few for
    follows (`attrs["note"]`).
    """
    if "sample" in finding.attrs:
        return f"{finding.attrs['sample']}."
    images, folds = int(finding.attrs["images"]), int(finding.attrs["folds"])
    used, effort = plan["images"]["used"], plan["settings"]["effort"]
    fewer = images < used and isinstance(measure, SampledExperiment)
    drawn = f"{count(images)} of {count(used)}" if fewer else count(images)
    why = f"sized by \u2011\u2011effort\u00a0{effort}" if measure.name in plan["sized"] else "as asked for"
    why = f" ({why})" if fewer else ""
    note = f" {finding.attrs['note']}." if "note" in finding.attrs else ""
    return f"{drawn} images{why}; intervals from {folds} folds of them, for these images and weights.{note}"


def tables(name: str, finding: xarray.Dataset, largest: int = LARGEST_TABLE) -> list[dict[str, str | None]]:
    """The finding as CSV: a file for each set of dimensions, without replicates. Too large ones are only named."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for variable, values in finding.data_vars.items():
        if "replicate" not in values.dims:
            groups.setdefault(tuple(map(str, values.dims)), []).append(str(variable))
    made: list[dict[str, str | None]] = []
    for dims, variables in groups.items():
        about = "quantities" if dims == ("quantity_row",) else " × ".join(dims)
        cells = finding[variables[0]].size * len(variables)
        # Counting first: writing a table of millions of cells only to drop it took longer than the whole page.
        rows = finding[variables].to_dataframe().dropna(how="all", subset=variables) if cells < largest else None
        text = None if rows is None else csv_of(rows)
        if text is None or len(text) > largest:
            made.append({"name": None, "uri": None, "label": f"{about}: in findings/{name}.nc"})
            continue
        file = f"{name}-{'-'.join(dims) if about != 'quantities' else about}.csv"
        made.append({"name": file, "uri": data_uri(text, "text/csv;charset=utf-8"), "label": f"CSV, {about}"})
    return made


def csv_of(rows: pd.DataFrame) -> str:
    """A table as CSV in which no name is a formula."""
    plain = rows.reset_index()
    for column in plain.columns[[kind.kind == "O" for kind in plain.dtypes]]:  # texts, of whatever dtype
        plain[column] = [harmless_cell(cell) if isinstance(cell, str) else cell for cell in plain[column]]
    return plain.to_csv(float_format="%.7g", index=False)


# --- where it comes from ----------------------------------------------------------------------------------------------


def fact(name: str, text: str, code: bool = False) -> dict[str, Any]:
    return {"name": name, "text": text, "code": code}


def options(chosen: Mapping[str, Any]) -> str:
    """
    >>> options({"limit": None, "train": "", "recalibrate": True, "asked_for": False, "seed": 0})
    'recalibrate yes, asked for no, seed 0'
    """
    words = {True: "yes", False: "no"}
    shown = {key: words[value] if isinstance(value, bool) else value for key, value in chosen.items()}
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in shown.items() if value not in (None, ""))


def provenance(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    made, images, batches = plan["provenance"], plan["images"], plan["batches"]
    facts = [
        fact("Made", made["made"]),
        fact("Command", shlex.join([Path(made["command"][0]).name, *made["command"][1:]]), code=True),
        fact("Question", plan["question"], code=True),
        fact("Images", f"{images['name']}: {count(images['used'])} of {count(images['count'])}"),
        fact("Images, fingerprint", images["fingerprint"], code=True),
        fact("Blocks and folds", f"blocks of {batches['block']} images, {batches['folds']} folds"),
        fact("Settings", options(plan["settings"])),
        fact(
            "Measures",
            "; ".join(
                f"{entry['name']} ({options(entry['options'])})" if options(entry["options"]) else entry["name"]
                for entry in plan["measures"]
            ),
        ),
    ]
    for subject in plan["subjects"]:
        if subject.get("spec", subject["name"]) != subject["name"]:
            facts.append(fact(f"Spec of {subject['name']}", subject["spec"], code=True))
        facts.append(fact(f"Weights of {subject['name']}", subject["weights"], code=True))
        if subject["card"]:
            plain = {key: value for key, value in subject["card"].items() if not isinstance(value, dict | list)}
            text = "; ".join(f"{key}: {value}" for key, value in plain.items())
            facts.append(fact(f"Card of {subject['name']}", text))
    facts.append(fact("Python, machine", f"{made['python']}, {made['machine']}"))
    facts.append(fact("Packages", ", ".join(f"{name} {version}" for name, version in made["packages"].items())))
    return facts
