"""One page a measure, from its own words, its claims and its tests."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import reasons, runs
from site_text import filled, table

from eyechart.claims.table import CLAIMS
from eyechart.measure import Experiment, Measure, SampledExperiment
from eyechart.measure_options import choices_of, meanings_of
from eyechart.measures import measures
from eyechart.report.sentences import typeset
from eyechart.report.verdict_rows import link_of, papers

ROOT = Path(__file__).parents[2]
LABELS = {
    "": "none",
    "images": "images with classes",
    "subjects": "images with classes, and a subject whose classes are those",
}
SHORTEST_SENTENCE = 5
"""Words from which the name of a test says something to a reader."""


def navigation() -> list[Any]:
    return ["measures/index.md", *({name: f"measures/{name}.md"} for name in measures())]


def pages(drawn: Mapping[str, Path]) -> dict[str, str]:
    every = measures()
    made = {f"measures/{name}.md": page(measure, name in drawn) for name, measure in every.items()}
    rows = [
        (f"[`{name}`]({name}.md)", each.title, "; ".join(map(source, each.sources))) for name, each in every.items()
    ]
    listed = table(("measure", "question", "from"), rows)
    return made | {"measures/index.md": filled("measures.md", table=listed, count=len(every))}


def page(measure: Measure, drawn: bool) -> str:
    module = inspect.getmodule(type(measure))
    claims = [claim for claim in CLAIMS.values() if measure.name in claim.measures]
    return filled(
        "measure.md",
        measure=measure,
        mathematics=re.sub(r"^[ME]\d+[^:]*: *(.)", lambda first: first[1].upper(), inspect.getdoc(module) or ""),
        drawn=drawn,
        run=runs().get(measure.name),
        said=said(measure),
        shown=shown(measure),
        why_not=reasons().get(measure.name, "it was not asked for."),
        needs=LABELS[measure.labels],
        cost=cost(measure),
        options=options(measure),
        claims=claims,
        known_answers=known_answers(measure.name),
        sources=[reference(each) for each in measure.sources],
    )


def source(source: Any) -> str:
    return f"{source.paper}, {source.figures}"


def reference(source: Any) -> str:
    """The paper in full, with its address, and what of it the measure follows."""
    full = papers().get(source.paper, source.paper)
    address = link_of(full)
    return f"{f'[{full}]({address})' if address else full}: {source.figures}"


def said(measure: Measure) -> str:
    run = runs().get(measure.name)
    return "" if run is None else typeset(measure.sentence(run.findings[measure.name]), run.scene.subjects)


def shown(measure: Measure) -> str:
    """What the figure was made from: not the pictures of the whole exam, of which many measures take a part."""
    run = runs().get(measure.name)
    if run is None:
        return ""
    seen = run.findings[measure.name].attrs
    if seen.get("of_weights"):
        return str(seen["sample"])
    plan = run.plan
    return f"This figure: {seen['images']:,} pictures of {plan['images']['name']}, effort {plan['settings']['effort']}"


def cost(measure: Measure) -> str:
    if not isinstance(measure, Experiment):
        return "It shares the forward pass of the exam with other measures, on all images."
    if not isinstance(measure, SampledExperiment):
        return "It works on subjects by itself (their weights, or passes of its own), on what it says under options."
    efforts = ", ".join(f"{seconds:g} s at `--effort {effort}`" for effort, seconds in measure.budget.items())
    least = f"; where that is less than {measure.least_images} images it is left out" if measure.least_images else ""
    shown = f" (a subject too large for that is shown on {measure.shown_from})" if measure.shown_from else ""
    return (
        f"It has passes of its own, on as many images as a budget allows for each subject: {efforts}{least}{shown}. "
        "Seconds are counted on one core of a plain machine; `images` sets their number by hand."
    )


def options(measure: Measure) -> str:
    choices, meanings = choices_of(measure), meanings_of(measure)
    rows = [
        (f"`--set {measure.name}.{name}={value}`", ", ".join(f"`{each}`" for each in choices[name]), meanings[name])
        for name, value in measure.options.items()
    ]
    return table(("option and its default", "values", "meaning"), rows) if rows else ""


def known_answers(name: str) -> list[tuple[str, list[str]]]:
    """Each test file of a measure with the names of its tests as sentences."""
    rooms = sorted(measures(), key=len, reverse=True)
    made = []
    for path in sorted((ROOT / "tests" / "measures").glob(f"test_{name}*.py")):
        if next(room for room in rooms if path.stem.startswith(f"test_{room}")) != name:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        sentences = [re.sub("^test ", "", each.replace("_", " ")) for each in names]
        kept = [text[0].upper() + text[1:] for text in sentences if len(text.split()) >= SHORTEST_SENTENCE]
        if kept:
            made.append((f"tests/measures/{path.name}", kept))
    return made
