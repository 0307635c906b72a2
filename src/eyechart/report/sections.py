"""One section of the page for each finding: its figure, what it says here, its numbers, method and downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eyechart.charts.numbers import count, is_number, with_span
from eyechart.charts.small_multiples import MOST_TOGETHER
from eyechart.measure import SampledExperiment
from eyechart.phrases import harmless_cell
from eyechart.quantity import quantities_in
from eyechart.reading_estimates import UNMOVED
from eyechart.report.embed import data_uri, embed, svg_uri
from eyechart.report.sentences import lines, name_of_quantity, of_these, typeset

if TYPE_CHECKING:
    import pandas as pd
    import xarray

    from eyechart.measure import Measure
    from eyechart.report.embed import EmbeddedChart
    from eyechart.report.words import Language
    from eyechart.run import Run
    from eyechart.scene import Scene

TALL = 600  # pixels; a higher figure of many subjects shows two of them at first, and names the others to be picked
NARROW_ON_PAPER, LONG_ON_PAPER = 119.0, 228.0  # mm: as wide as has its words beside it, as high as fits under a heading
TALL_ON_PAPER = 180.0  # mm: the tokens of two subjects, 203, left the lower two thirds of the sheet before empty
FEW_LINES = 3  # of what a measure says of many subjects; more are folded
LARGEST_TABLE = 100_000  # bytes of one table put into the page; larger ones (6 of 74) were a quarter of the page


def section(
    run: Run,
    name: str,
    measure: Measure,
    subject_label: Any,
    language: Language = "en",
    chart: EmbeddedChart | None = None,
) -> dict[str, Any]:
    """`chart`: where it is drawn already."""
    finding = run.findings[name]
    undrawn = ""
    try:
        chart = chart or embed(run, name, language)
    except Exception as error:  # one figure of twenty, after all the work: whatever it is, the others are drawn
        undrawn = in_one_line(error)
    try:
        words = measure.sentence(finding)
    except Exception as error:
        words = f"Nothing could be said of these numbers ({in_one_line(error)})."
    sentence = typeset(words, run.scene.subjects)
    short, subjects = name_of_quantity(name), subjects_of(finding, run.scene.subjects)
    pair = two_of([name for name in subjects if chart and name in chart.subjects] or subjects, run.scene)
    told, folded = lines(sentence, run.scene.subjects), list[str]()
    if len(subjects) > MOST_TOGETHER:
        told, folded = of_these(told, pair, run.scene.subjects, FEW_LINES)
    quantities = quantity_rows(finding, measure, subject_label)
    return {
        "id": f"measure-{name}",
        "name": name,
        "chapter": measure.chapter,
        "subjects": subjects,
        "few": pair if chart and chart.height / chart.words > TALL and len(chart.subjects) > MOST_TOGETHER else [],
        "on_paper": on_paper(chart),
        "drawn_subjects": [name for name in subjects if chart and name in chart.subjects],
        "papers": [source.paper for source in measure.sources if source.paper != "eyechart"],
        "title": measure.title,
        "short": f"{short[:1].upper()}{short[1:]}",
        "how_to_read": measure.how_to_read,
        "method": measure.method,
        "sources": measure.sources,
        "sentence": sentence.replace("\n", " "),
        "lines": told,
        "more_lines": folded,
        "quantities": quantities,
        "numbers": numbers_said([row for quantity in quantities for row in quantity["rows"]]),
        "sample": sample(finding, measure, run.plan),
        "chart": chart,
        "undrawn": undrawn,
        "light": svg_uri(chart.light) if chart else None,
        "dark": data_uri(chart.dark, "image/svg+xml") if chart else None,
        "files": tables(name, finding),
    }


def on_paper(chart: EmbeddedChart | None) -> dict[str, Any]:
    """How a printed page takes the figure, in millimetres: `width` of the whole; one too `long` for a sheet would have
    small words there or leave most of the sheet before empty: it is cut between its panels into `strips` of that width.
    """
    if chart is None:
        return {"width": 0, "long": False, "narrow": False, "strips": 0}
    high = chart.paper * chart.height / chart.width
    width = chart.paper * min(1.0, LONG_ON_PAPER / high)
    long = high > TALL_ON_PAPER
    return {
        "width": round(width, 1),
        "long": long,
        "narrow": chart.paper <= NARROW_ON_PAPER and not long,
        "strips": round(chart.paper, 1),
    }


def subjects_of(finding: xarray.Dataset, subjects: Sequence[str]) -> list[str]:
    """Whom a finding is about: the subjects of its axes and of its quantities."""
    names = {
        str(name)
        for column in finding.variables
        if str(column).endswith("subject")
        for name in finding[column].values.ravel()
    }
    if "quantity_subjects" in finding:
        names |= {name for pair in finding.quantity_subjects.values for name in str(pair).split(" | ")}
    return [subject for subject in subjects if subject in names] or list(subjects)


def two_of(subjects: Sequence[str], scene: Scene) -> list[str]:
    """What a figure of many subjects shows before others are picked: the first, and one as unlike it as there is.

    A CNN beside what is none; else the first of another family.
    """
    families = {anatomy.subject: anatomy.family for anatomy in scene.anatomies}
    first, *others = subjects
    if not others:
        return [first]

    def unlikeness(name: str) -> tuple[bool, bool]:
        return (families[name] == "cnn") != (families[first] == "cnn"), families[name] != families[first]

    return [first, max(others, key=unlikeness)]


def in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


NAME_BESIDE, LETTERS_BESIDE = 14, 35  # of the longest name; of it, its number and its interval: a phone has 354 pixels
WITH_UNIT, UNIT_LETTER = 37, 0.8  # with its unit, whose letters are small


def quantity_rows(finding: xarray.Dataset, measure: Measure, subject_label: Any) -> list[dict[str, Any]]:
    """Each quantity with a row for each subject or pair; of a pair told both ways round, only the first."""
    explained = {quantity.name: quantity.explain for quantity in measure.quantities}
    made: list[dict[str, Any]] = []
    met: set[tuple[Any, ...]] = set()
    for row in quantities_in(finding):
        name, subjects = row["quantity"], row["quantity_subjects"].split(" | ")
        ends = value, low, high = [row[f"quantity_{part}"] for part in ("value", "low", "high")]
        turned = (name, *reversed(subjects))
        if (*turned, -value, -high, -low) in met or (len(subjects) == 2 and (*turned, *ends) in met):
            continue
        met.add((name, *subjects, *ends))
        shown, span = with_span(value, low, high)
        still = low == high and ("exact" if finding.attrs.get("of_weights") else UNMOVED)
        ends_said = still or (f"[{span}]" if span else "")
        longest, unit = max(map(len, subjects)), row["quantity_unit"]
        letters = longest + len(shown) + len(ends_said)
        has_room = letters <= LETTERS_BESIDE and letters + UNIT_LETTER * (len(unit) + bool(unit)) <= WITH_UNIT
        if not made or made[-1]["key"] != name:
            group = {"key": name, "name": name_of_quantity(name), "explain": explained.get(name, ""), "rows": []}
            made.append(group)
        made[-1]["rows"].append(
            {
                "subjects": [subject_label(subject) for subject in subjects],
                "long": longest > NAME_BESIDE or not has_room,
                "value": shown,
                "number": value,
                "width": high - low,
                "span": ends_said,
                "unit": unit,
            }
        )
    for group in made:  # or one number of four stood below its name, and the others beside theirs
        long = any(row["long"] for row in group["rows"])
        group["rows"] = [row | {"long": long} for row in group["rows"]]
    return made


def numbers_said(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the fold over the numbers is called; where none has an interval, it promises none. What was not measured
    counts for nothing.

    >>> exact, missing = {"number": 1.0, "span": "exact"}, {"number": float("nan"), "span": ""}
    >>> numbers_said([{"number": 1.5, "span": "[1, 2]"}, exact, missing]), numbers_said([exact])
    ('2 numbers, 1 of them with an interval', '1 number')
    >>> numbers_said([missing])
    'No number could be taken'
    >>> numbers_said(3 * [{"number": 1.5, "span": "[1, 2]"}])
    '3 numbers with intervals'
    """
    rows = [row for row in rows if is_number(row["number"])]
    if not rows:  # "0 numbers" stood above three rows
        return "No number could be taken"
    one = len(rows) == 1
    said = "1 number" if one else f"{len(rows)} numbers"
    told = sum(row["span"].startswith("[") for row in rows)
    if not told:
        return said
    if told < len(rows):
        return f"{said}, {told} of them with {'an interval' if told == 1 else 'intervals'}"
    return f"{said} with its interval" if one else f"{said} with intervals"


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
    left_out: list[str] = []
    for dims, variables in groups.items():
        about = "quantities" if dims == ("quantity_row",) else " × ".join(dims)
        cells = finding[variables[0]].size * len(variables)
        if not cells:  # such as relative positions where no subject has any
            continue
        # Counting first: writing a table of millions of cells only to drop it took longer than the whole page.
        rows = finding[variables].to_dataframe().dropna(how="all", subset=variables) if cells < largest else None
        text = None if rows is None else csv_of(rows)
        if text is None or len(text) > largest:
            left_out.append(about)
            continue
        file = f"{name}-{'-'.join(dims) if about != 'quantities' else about}.csv"
        made.append({"name": file, "uri": data_uri(text, "text/csv;charset=utf-8"), "label": f"CSV, {about}"})
    if left_out:
        made.append({"name": None, "uri": None, "label": f"{', '.join(left_out)}: in findings/{name}.nc"})
    return made


def csv_of(rows: pd.DataFrame) -> str:
    """A table as CSV in which no name is a formula."""
    plain = rows.reset_index()
    for column in plain.columns[[kind.kind == "O" for kind in plain.dtypes]]:  # texts, of whatever dtype
        # Each name once: a table of 100,000 cells has a few dozen.
        other = {cell: harmless_cell(cell) for cell in plain[column].unique() if isinstance(cell, str)}
        plain[column] = plain[column].map(lambda cell, other=other: other.get(cell, cell))
    return plain.to_csv(float_format="%.7g", index=False)
