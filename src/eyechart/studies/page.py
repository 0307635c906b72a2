"""The page of the studies: every claim with what was found, in the looks of an exam's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

import eyechart
from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.numbers import with_span
from eyechart.claims.verdict import Verdict
from eyechart.report import page as exam_page
from eyechart.report.embed import picture
from eyechart.report.verdict_rows import KINDS, interval_drawing, references, rows
from eyechart.report.verdict_rows import picture as drawing_of
from eyechart.report.words import Words, language_of, translator
from eyechart.studies.bundled_exams import SOURCES, BundledExams
from eyechart.studies.claim_answers import Answer, arm_rows, change_of_mind, summary
from eyechart.studies.figure import figure
from eyechart.studies.questions import Question
from eyechart.studies.records import Records
from eyechart.studies.verdicts import draws_of, interval_of

GREY = "#7f7f7f"


SCRIPTS = ("store.js", "languages.js")


def page(
    all_answers: Sequence[Answer],
    records: Sequence[Records],
    asked: Sequence[Question],
    exams: BundledExams,
    lang: str = "en",
    made_again: str = "",
) -> str:
    """One self-contained HTML file that opens in `lang`."""
    language, numbers = language_of(lang), summary(all_answers)
    scripts = [exam_page.text_of(name) for name in SCRIPTS]
    context = {
        "title": "What became of every claim",
        "policy": exam_page.content_policy(scripts),
        "version": eyechart.__version__,
        "icon": exam_page.icon(),
        "css": Markup(exam_page.text_of("page.css")),
        "numbers": numbers,
        "claims": [claim_context(each) for each in all_answers],
        "studies": [study_context(each) for each in records],
        "questions": asked,
        "exams": exams.words,
        "sources": SOURCES,
        "made_again": made_again,
        "references": references([verdict for each in all_answers for verdict in each.verdicts]),
        "charts": exam_page.json_in_html({"words": {}}),
        "scripts": [Markup(script) for script in scripts],
    }
    say = translator([], subjects_of(all_answers, records, exams))
    return exam_page.filled(context, "studies.html", Words(say, language))


def subjects_of(all_answers: Sequence[Answer], records: Sequence[Records], exams: BundledExams) -> list[str]:
    """Whoever a sentence may name: arms of studies and bundled models."""
    named = [name for each in all_answers for verdict in each.verdicts for name in verdict.subjects]
    named += [name for run in exams.runs for name in run["subjects"]]
    return list(dict.fromkeys([*named, *(arm for each in records for arm in each.study.arms)]))


def claim_context(each: Answer) -> dict[str, Any]:
    claim = each.claim
    return {
        "studied_kinds": studied_kinds([one.verdict for one in each.studied]),
        "id": claim.id,
        "sentence": claim.sentence,
        "korean": claim.korean,
        "figure": claim.figure,
        "reported": claim.reported,
        "decide": claim.decide,
        "changed": claim.changed,
        "studied": [
            {
                **verdict_context(one.verdict, one.draws),
                "study": one.study,
                "registered": one.registered,
                "how": [interval.words for interval in one.intervals],
                "minds": [
                    change_of_mind(part, interval.unit)
                    for part, interval in zip(one.verdict.parts, one.intervals, strict=True)
                ],
            }
            for one in each.studied
        ],
        "examined": [verdict_context(verdict) for verdict in each.examined],
        "compared": each.compared,
        "missing": "" if each.verdicts else each.missing,
        "kind": KINDS[each.status]
        if each.status in KINDS
        else KINDS["not tested" if not each.verdicts else "undecided"],
        "status": each.status,
    }


def studied_kinds(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """One stamp for all verdicts of a kind: 16 of them beside one claim filled a screen of a phone."""
    of_kind = {kind: [each for each in verdicts if each.verdict == kind] for kind in KINDS}
    return [
        {"kind": KINDS[kind], "number": len(alike), "words": alike[0].words if len(alike) == 1 else kind}
        for kind, alike in of_kind.items()
        if alike
    ]


def verdict_context(verdict: Verdict, draws: Sequence[Mapping[int, float]] = ()) -> dict[str, Any]:
    (row,) = rows([verdict], lambda name: {"name": name, "colour": GREY}, [])
    if draws:
        row["parts"] = [drawing_of(part, of_part) for part, of_part in zip(verdict.parts, draws, strict=True)]
    of_a_study = {"study": "", "registered": "", "how": (), "minds": ()}  # filled in where there is one
    return {**row, **of_a_study, "words": verdict.words, "reading": verdict.reading}


def study_context(records: Records) -> dict[str, Any]:
    study = records.study
    lines = [records.training(arm.name, seed) for arm, seed in study.runs]
    return {
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "row": study.row,
        "runs": len(lines),
        "trained": sum(line is not None for line in lines),
        "measured": sum(records.recorded(arm.name, seed) for arm, seed in study.runs),
        "failures": records.failures(),
        "arms": arm_rows(records),
        "pictures": drawn(records),
        "unasked": unasked_contrasts(records),
        "figure": study.figure.get("title", ""),
        "file": study.hash,
        "made": sorted({line["made"][:10] for line in records.lines}),
        "made_under": sorted({line["study_file"] for line in records.lines}),
        "devices": sorted({f"{line['device']}, torch {line['torch']}" for line in records.lines if "device" in line}),
    }


def unasked_contrasts(records: Records) -> list[dict[str, Any]]:
    """Contrasts that no claim asks for (questions of the notes do), drawn without a margin."""
    asked = {part.quantity for test in records.study.tests for part in test.parts}
    shown = []
    for contrast in records.study.contrasts.values():
        interval = None if contrast.name in asked else interval_of(contrast, records)
        if interval is not None:
            numbers = (interval.value, interval.low, interval.high)
            effect, span = with_span(*numbers)
            about = {"words": contrast.words, "effect": effect, "span": span, "how": interval.words}
            look = {"kind": KINDS["not tested"], "said": f"{contrast.words}: {effect}"}
            shown.append({**about, **look, **interval_drawing(numbers, "", (), draws_of(contrast, records))})
    return shown


def drawn(records: Records) -> list[dict[str, Any]]:
    with theme.drawing(for_export=True):
        return [picture(specification(chart)) for chart in figure(records)]
