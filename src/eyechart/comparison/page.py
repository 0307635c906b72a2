"""The page of a comparison, in the looks of an exam's page; with more than two runs, a slider goes over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

import eyechart
from eyechart.charts import theme
from eyechart.charts.numbers import number as plain
from eyechart.charts.numbers import with_span
from eyechart.claims.table import CLAIMS
from eyechart.comparison.pictures import clearest, figures, panel
from eyechart.report import page as exam_page
from eyechart.report.sentences import name_of_quantity
from eyechart.report.verdict_rows import KINDS
from eyechart.report.words import Language, Words, language_of, script_words, translator

if TYPE_CHECKING:
    from eyechart.comparison.comparison import Comparison
    from eyechart.comparison.differences import Difference, Estimate

STYLES = ("page.css", "compare.css")
SCRIPTS = ("store.js", "languages.js", "compare.js")
HOWS = {
    "paired": "paired over the folds of the same images",
    "independent": "as if the runs were independent; too wide where they share images",
    "exact": "read off the weights, without sampling",
}


def render(comparison: Comparison, lang: str = "en") -> str:
    language: Language = language_of(lang)
    labels = comparison.labels
    scripts = [exam_page.text_of(name) for name in SCRIPTS]
    with theme.drawing(subjects=comparison.subjects[0], for_export=True):
        panels = [
            panel(each, labels, comparison.shown) | {"steps": steps(each), "explain": each.explain}
            for each in clearest(comparison.differences)
        ]
    left_out = dict(comparison.left_out)
    context = {
        "policy": exam_page.content_policy(scripts),
        "version": eyechart.__version__,
        "title": f"{labels[0]} compared with {', '.join(labels[1:])}",
        "icon": exam_page.icon(),
        "css": Markup("".join(map(exam_page.text_of, STYLES))),
        "labels": labels,
        "runs": [run_row(comparison, place) for place in range(len(labels))],
        "images": comparison.runs[0].plan["images"],
        "used": used_in_words(comparison),
        "notices": comparison.notices,
        "same_images": comparison.same_images,
        "changed": sum(each.clearness > 1 for each in comparison.differences),
        "count": len(comparison.differences),
        "paired": sum(how == "paired" for each in comparison.differences for how in each.hows),
        "differing": sum(line.differs for line in comparison.verdicts),
        "tested": sum(line.compared for line in comparison.verdicts),
        "panels": panels,
        "figures": figures(comparison, left_out),
        "verdicts": [
            {
                "claim": line.claim,
                "sentence": line.sentence,
                "source": CLAIMS[line.claim].figure,
                "subjects": [subject(name, comparison) for name in line.subjects],
                "kinds": [
                    {"kind": KINDS[word], "barred": barred, "corrected_away": away}
                    for word, barred, away in zip(line.words, line.barred, line.corrected_away, strict=True)
                ],
                "differs": line.differs,
                "compared": line.compared,
            }
            for line in comparison.verdicts
        ],
        "measures": measures(comparison),
        "left_out": by_reason(left_out),
        "charts": exam_page.json_in_html({"words": script_words(scripts)}),
        "scripts": [Markup(script) for script in scripts],
    }
    every = dict.fromkeys(name for run in comparison.runs for name in run.scene.subjects)
    say = translator(comparison.runs[0].measures.values(), list(every))
    return exam_page.filled(context, "compare.html", Words(say, language))


def by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    """What was left out, by why: twenty measures that one run did not measure are one line.

    >>> by_reason({"cka": "it was not measured in b", "probes": "it was not measured in b"})
    {'it was not measured in b': ['cka', 'probes']}
    """
    reasons: dict[str, list[str]] = {}
    for what, why in left_out.items():
        reasons.setdefault(why, []).append(what)
    return reasons


def used_in_words(comparison: Comparison) -> str:
    used = [run.plan["images"]["used"] for run in comparison.runs]
    return f"{max(used):,} images" if len(set(used)) == 1 else f"{min(used):,} to {max(used):,} images"


def run_row(comparison: Comparison, place: int) -> dict[str, Any]:
    run = comparison.runs[place]
    specs = {entry["name"]: entry.get("spec") or entry["name"] for entry in run.plan["subjects"]}
    return {
        "label": comparison.labels[place],
        "path": str(run.path),
        "subjects": [
            {"name": name, "colour": theme.subject_colour(first, comparison.subjects[0])}
            for first, name in zip(comparison.subjects[0], comparison.subjects[place], strict=True)
        ],
        "specs": [specs[name] for name in comparison.subjects[place]],
        "used": run.plan["images"]["used"],
        "made": exam_page.made_on(run.plan)["words"],
        "order": order_of(comparison, place),
    }


def order_of(comparison: Comparison, place: int) -> str:
    """How a run's images differ from those of the first; nothing where they do not."""
    if comparison.same_folds[place]:
        return ""
    used, common = (run.plan["images"]["used"] for run in (comparison.runs[place], comparison.runs[0]))
    shared = comparison.in_common[place]
    return "in another order" if used == common == shared else f"{shared:,} in common with {comparison.labels[0]}"


def subject(name: str, comparison: Comparison) -> dict[str, str]:
    return {"name": comparison.shown[name], "colour": theme.subject_colour(name, comparison.subjects[0])}


def measures(comparison: Comparison) -> list[dict[str, Any]]:
    """Every quantity, by measure."""
    made: dict[str, dict[str, Any]] = {}
    for each in comparison.differences:
        title = comparison.runs[0].measures[each.measure].title
        section = made.setdefault(each.measure, {"name": each.measure, "title": title, "rows": []})
        section["rows"].append(
            {
                "name": name_of_quantity(each.quantity),
                "explain": each.explain,
                "unit": each.unit,
                "subjects": [subject(name, comparison) for name in each.subjects],
                "values": [number(value) for value in each.values],
                "changes": steps(each),
            }
        )
    later = range(len(comparison.labels) - 1)
    for section in made.values():  # of each later run by itself: what the slider shows
        section["changed"] = [sum(row["changes"][at]["clear"] for row in section["rows"]) for at in later]
    return list(made.values())


def steps(each: Difference) -> list[dict[str, Any]]:
    """A quantity in each later run: its value, and by how much it differs from the first."""
    later = zip(each.values[1:], each.changes, each.hows, strict=True)
    return [
        number(change)
        | {"was": number(each.values[0]), "now": number(now), "clear": each_clear(change)}
        | {"how": HOWS[how], "short": how, "from_to": " → ".join(from_to(each.values[0], now))}
        for now, change, how in later
    ]


def from_to(was: Estimate, now: Estimate) -> tuple[str, str]:
    """Two values that are subtracted beside them, with the same decimals: 0.649 → 0.73 is no change by 0.085.

    >>> from eyechart.comparison.differences import Estimate
    >>> from_to(Estimate(0.6494, 0.601, 0.698), Estimate(0.7341, 0.66, 0.80))
    ('0.649', '0.734')
    """
    shown = [number(value)["value"] for value in (was, now)]
    if not all(value.is_finite and value.low < value.high for value in (was, now)):
        return shown[0], shown[1]
    decimals = max(len(text.partition(".")[2]) for text in shown)
    return plain(was.value, decimals), plain(now.value, decimals)


def each_clear(change: Estimate) -> bool:
    return change.is_finite and not change.low <= 0 <= change.high


def number(estimate: Estimate) -> dict[str, Any]:
    value, span = with_span(estimate.value, estimate.low, estimate.high)
    return {"value": value, "span": "" if estimate.low == estimate.high else span}
