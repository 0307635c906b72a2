"""The page of a comparison, in the looks of an exam's page and without scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

import eyechart
from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.numbers import with_span
from eyechart.claims.table import CLAIMS
from eyechart.report import page as exam_page
from eyechart.report.embed import data_uri, on_both_papers
from eyechart.report.sentences import name_of_quantity
from eyechart.report.verdict_rows import KINDS

if TYPE_CHECKING:
    from eyechart.comparison.comparison import Comparison
    from eyechart.comparison.differences import Difference, Estimate

MOST_PANELS = 12
PANEL = (200, 130)  # pixels
HOWS = {
    "paired": "paired over the folds of the same images",
    "independent": "as if the runs were independent, rather too wide",
    "exact": "read off the weights, without sampling",
}


def render(comparison: Comparison) -> str:
    labels = comparison.labels
    css = exam_page.HERE.joinpath("page.css").read_text(encoding="utf-8")
    with theme.drawing(subjects=comparison.subjects[0], for_export=True):
        pictures = [picture(each, labels) for each in clearest(comparison.differences)]
    context = {
        "policy": exam_page.content_policy([]),
        "version": eyechart.__version__,
        "title": f"{labels[0]} compared with {', '.join(labels[1:])}",
        "icon": exam_page.icon(),
        "css": Markup(css),
        "labels": labels,
        "runs": [run_row(comparison, place) for place in range(len(labels))],
        "images": comparison.runs[0].plan["images"],
        "changed": sum(each.clearness > 1 for each in comparison.differences),
        "count": len(comparison.differences),
        "paired": sum(how == "paired" for each in comparison.differences for how in each.hows),
        "differing": sum(line.differs for line in comparison.verdicts),
        "pictures": pictures,
        "verdicts": [
            {
                "claim": line.claim,
                "sentence": line.sentence,
                "source": CLAIMS[line.claim].figure,
                "subjects": [subject(name, comparison) for name in line.subjects],
                "kinds": [KINDS[word] for word in line.words],
                "differs": line.differs,
            }
            for line in comparison.verdicts
        ],
        "measures": measures(comparison),
        "left_out": comparison.left_out,
    }
    return exam_page.filled(context, "compare.html")


def run_row(comparison: Comparison, place: int) -> dict[str, Any]:
    run = comparison.runs[place]
    return {
        "label": comparison.labels[place],
        "path": str(run.path),
        "subjects": [
            subject(first, comparison) | {"shown": name}
            for first, name in zip(comparison.subjects[0], comparison.subjects[place], strict=True)
        ],
        "specs": [entry.get("spec") or entry["name"] for entry in run.plan["subjects"]],
        "used": run.plan["images"]["used"],
        "made": exam_page.made_on(run.plan)["words"],
        "folds": comparison.same_folds[place],
    }


def subject(name: str, comparison: Comparison) -> dict[str, str]:
    return {"name": name, "colour": theme.subject_colour(name, comparison.subjects[0])}


def measures(comparison: Comparison) -> list[dict[str, Any]]:
    """Every quantity, by measure."""
    made: dict[str, dict[str, Any]] = {}
    for each in comparison.differences:
        title = comparison.runs[0].measures[each.measure].title
        section = made.setdefault(each.measure, {"name": each.measure, "title": title, "rows": [], "changed": 0})
        section["changed"] += each.clearness > 1
        section["rows"].append(
            {
                "name": name_of_quantity(each.quantity),
                "explain": each.explain,
                "unit": each.unit,
                "subjects": [subject(name, comparison) for name in each.subjects],
                "values": [number(value) for value in each.values],
                "changes": [
                    number(change) | {"clear": each_clear(change), "how": HOWS[how], "short": how}
                    for change, how in zip(each.changes, each.hows, strict=True)
                ],
            }
        )
    return list(made.values())


def each_clear(change: Estimate) -> bool:
    return change.is_finite and not change.low <= 0 <= change.high


def number(estimate: Estimate) -> dict[str, Any]:
    value, span = with_span(estimate.value, estimate.low, estimate.high)
    return {"value": value, "span": "" if estimate.low == estimate.high else span}


def clearest(differences: Sequence[Difference]) -> list[Difference]:
    """The quantities that changed most clearly, three of a measure at most; of two with the same numbers, one."""
    chosen: list[Difference] = []
    for each in sorted(differences, key=lambda each: -each.clearness):
        alike = [other for other in chosen if other.measure == each.measure]
        same = [other for other in alike if other.quantity == each.quantity and {*other.subjects} == {*each.subjects}]
        twice = bool(same) or any(other.values == each.values for other in alike)
        if each.clearness > 1 and not twice and len(alike) < 3 and len(chosen) < MOST_PANELS:
            chosen.append(each)
    return chosen


def picture(each: Difference, labels: Sequence[str]) -> dict[str, Any]:
    """A quantity over the runs in their order, with its interval in each. Single pictures, which flow on any screen."""
    import altair as alt
    import pandas as pd

    values = zip(labels, each.values, strict=True)
    rows = [{"run": label, "value": value.value, "low": value.low, "high": value.high} for label, value in values]
    frame = pd.DataFrame(rows).assign(subject=each.subjects[0])
    x = alt.X("run:N", sort=list(labels), title=None, axis=alt.Axis(labelAngle=0, labelLimit=90))
    y = alt.Y("value:Q", title=each.unit or None, scale=alt.Scale(zero=False))
    colour = alt.Color("subject:N", scale=theme.subject_scale([each.subjects[0]]), legend=None)
    bars = theme.error_bars(frame, x, y, "low", "high", color=colour)
    name, subjects = name_of_quantity(each.quantity), " and ".join(each.subjects)
    title = alt.TitleParams(name, subtitle=subjects, limit=PANEL[0] + 40)
    chart = theme.panel(alt.layer(bars, theme.curve(frame, x, y, colour)), PANEL, title)
    light, dark = on_both_papers(specification(theme.dress(chart)))
    width, height = (
        round(float(side)) for side in re.findall(r'<svg[^>]*? width="([\d.]+)" height="([\d.]+)"', light)[0]
    )
    uris = {paper: data_uri(svg, "image/svg+xml") for paper, svg in (("light", light), ("dark", dark))}
    return {**uris, "width": width, "height": height, "words": f"{name} of {subjects} over the runs"}
