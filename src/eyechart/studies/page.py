"""The page of the studies: every claim with what was found, in the looks of an exam's page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

import eyechart
from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.claims.table import EVIDENCE
from eyechart.claims.verdict import Verdict
from eyechart.measures import measures
from eyechart.report import page as exam_page
from eyechart.report.embed import picture
from eyechart.report.verdict_rows import BEHIND_CLAIMS, KINDS, papers_of, references, rows
from eyechart.report.verdict_rows import picture as drawing_of
from eyechart.report.words import Words, language_of, script_words, translator
from eyechart.studies.bundled_exams import SOURCES, BundledExams
from eyechart.studies.claim_answers import Answer, arm_rows, change_of_mind, changes_of_mind
from eyechart.studies.earlier_rules import NOTHING, Earlier, earlier, summary_words
from eyechart.studies.figure import figure
from eyechart.studies.question_figures import drawn_contrast, figures_of
from eyechart.studies.questions import Numbers, Question
from eyechart.studies.recorded import missing_exams, state_of, trained
from eyechart.studies.records import Records
from eyechart.studies.seeds import LEAST_SEEDS
from eyechart.studies.side_by_side import DECIDED
from eyechart.studies.summary import TRIAL, summary
from eyechart.studies.verdicts import StudyVerdict

GREY = "#7f7f7f"
SCRIPTS = ("store.js", "languages.js", "folds.js", "studies.js")
STATES = {
    "over-seeds": "decided over seeds",
    "on-weights": "more on the bundled weights",
    "undecided": "tested, undecided",
    "not-yet": "not yet",
}
"""Of a claim, as the page counts and filters them."""
MOST_ROWS = 4
CITED = (*BEHIND_CLAIMS, "Chen, Hsieh & Gong 2022")
"""Papers behind claims, those that nobody has tested yet too, and the other side of D2."""
LINKED = re.compile(
    r"\b(?P<claim>C\d\d)(?!\d)"  # in Korean a letter may follow
    r"|\barXiv:(?P<paper>\d{4}\.\d{5})"
    r"|\b[Rr]ows? (?P<row>\d+)(?: (?P<joint>and|to) (?P<second>\d+))?"
    r"|(?P<korean>\d+)행"
)


def page(
    all_answers: Sequence[Answer],
    records: Sequence[Records],
    asked: Sequence[Question],
    exams: BundledExams,
    lang: str = "en",
    made_again: str = "",
) -> str:
    """One self-contained HTML file that opens in `lang`."""
    language = language_of(lang)
    numbers = Numbers({each.study.name: each for each in records}, all_answers, exams.quantities)
    quantities = {quantity.name: quantity for measure in measures().values() for quantity in measure.quantities}
    scripts = [exam_page.text_of(name) for name in SCRIPTS]
    before = earlier(all_answers, records, exams)
    claims = [claim_context(each, before.get(each.claim.id, NOTHING)) for each in all_answers]
    context = {
        "title": "What became of every claim",
        "policy": exam_page.content_policy(scripts),
        "version": eyechart.__version__,
        "icon": exam_page.icon(),
        "css": Markup(exam_page.text_of("page.css") + exam_page.text_of("studies.css")),
        "numbers": summary(all_answers),
        "kinds": [KINDS[kind] for kind in ("holds", "fails", "undecided")],
        "changed_rules": summary_words(before),
        "claims": claims,
        "states": STATES,
        "counts": Counter(claim["state"] for claim in claims),
        "papers": sorted({paper for claim in claims for paper in claim["papers"]}),
        "deciding": list(dict.fromkeys(one.study for each in all_answers for one in each.studied)),
        "studies": [study_context(each) for each in records],
        "questions": [
            {**vars(each), "of_papers": each.of_papers, "figures": figures_of(each, numbers, quantities)}
            for each in asked
        ],
        "linked": linked,
        "exams": exams.words,
        "sources": SOURCES,
        "made_again": made_again,
        "trial": TRIAL,
        "references": references([], CITED),
        "charts": exam_page.json_in_html({"words": script_words(scripts)}),
        "scripts": [Markup(script) for script in scripts],
    }
    say = translator(measures().values(), subjects_of(all_answers, records, exams))
    return exam_page.filled(context, "studies.html", Words(say, language))


def begun(words: str) -> str:
    """As the beginning of a sentence; a t interval keeps its letter.

    >>> begun("all 5 seeds give the same number"), begun("t interval over 5 seeds")
    ('All 5 seeds give the same number', 't interval over 5 seeds')
    """
    return words if words.startswith("t ") else words[:1].upper() + words[1:]


def linked(text: str) -> Markup:
    """A text in which claims, rows of the run list and papers by their number lead to them.

    >>> linked("C31 & more")
    Markup('<a href="#C31">C31</a> &amp; more')
    >>> linked("rows 2 and 7")
    Markup('<a href="#row-2">rows 2</a> and <a href="#row-7">7</a>')
    """
    return Markup(LINKED.sub(_link, str(escape(text))))


def _link(found: re.Match[str]) -> str:
    if found["claim"]:
        return f'<a href="#{found[0]}">{found[0]}</a>'
    if found["paper"]:
        return f'<a href="https://arxiv.org/abs/{found["paper"]}" rel="noreferrer">{found[0]}</a>'
    if found["korean"]:
        return f'<a href="#row-{found["korean"]}">{found[0]}</a>'
    if not found["second"]:
        return f'<a href="#row-{found["row"]}">{found[0]}</a>'
    first, joint, second = found[0].rpartition(f" {found['joint']} ")
    return f'<a href="#row-{found["row"]}">{first}</a>{joint}<a href="#row-{second}">{second}</a>'


def subjects_of(all_answers: Sequence[Answer], records: Sequence[Records], exams: BundledExams) -> list[str]:
    """Whoever a sentence may name: arms of studies and bundled models."""
    named = [name for each in all_answers for verdict in each.verdicts for name in verdict.subjects]
    named += [name for run in exams.runs for name in run["subjects"]]
    return list(dict.fromkeys([*named, *(arm for each in records for arm in each.study.arms)]))


def claim_context(each: Answer, before: Earlier = NOTHING) -> dict[str, Any]:
    """`before` is what the claim's rules said before they were changed."""
    claim = each.claim
    shown, folded = divided(each.studied)
    return {
        "state": state_of_claim(each),
        "verdicts": sorted({f"{study}:{KINDS[verdict].slug}" for study, verdict in by_study(each)}),
        "papers": papers_of(claim),
        "studied_kinds": studied_kinds([one.verdict for one in each.studied]),
        "id": claim.id,
        "sentence": claim.sentence,
        "korean": claim.korean,
        "figure": claim.figure,
        "reported": claim.reported,
        "evidence": EVIDENCE[claim.evidence],
        "changed": claim.changed,
        "studied": [studied_context(one) for one in shown],
        "folded": [studied_context(one) for one in folded],
        "folded_kinds": studied_kinds([one.verdict for one in folded]),
        "examined": [examined_context(verdict) for verdict in each.examined],
        "examined_kinds": studied_kinds(each.examined),
        "before": [*map(studied_context, before.studied), *map(examined_context, before.examined)],
        "before_words": before.words,
        "compared": each.compared,
        "waiting": each.waiting,
        "untested": each.untested,
        "missing": "" if each.verdicts else each.missing,
    }


def state_of_claim(each: Answer) -> str:
    """A key of STATES: what `Summary` counts the claim as."""
    if any(one.verdict.verdict in DECIDED for one in each.studied):
        return "over-seeds"
    return "on-weights" if each.decided else "undecided" if each.verdicts else "not-yet"


def by_study(each: Answer) -> list[tuple[str, str]]:
    """Who said what of a claim; "weights" are the bundled ones."""
    studied: list[tuple[str, str]] = [(one.study, one.verdict.verdict) for one in each.studied]
    return [*studied, *(("weights", verdict.verdict) for verdict in each.examined)]


def divided(studied: Sequence[StudyVerdict]) -> tuple[list[StudyVerdict], list[StudyVerdict]]:
    """What stands in the table, and what is a click away: models that failed a gate, and of one reading more than
    `MOST_ROWS`. Claims that every arm of a study can be asked had 23 rows."""
    shown: list[StudyVerdict] = []
    folded: list[StudyVerdict] = []
    met: Counter[str] = Counter()
    for each in studied:
        barred = any(gate.outcome == "failed" for gate in each.verdict.gates)
        met[each.verdict.reading] += not barred
        (folded if barred or met[each.verdict.reading] > MOST_ROWS else shown).append(each)
    return (shown, folded) if shown and len(folded) > 1 else (list(studied), [])


def studied_context(one: StudyVerdict) -> dict[str, Any]:
    return {
        **verdict_context(one.verdict, one.draws),
        "study": one.study,
        "registered": one.registered,
        "sizes": one.sizes,
        "unfinished": one.unfinished,
        "how": [begun(interval.words) for interval in one.intervals],
        "seeds": one.seeds >= LEAST_SEEDS,
        "minds": changes_of_mind(one),
    }


def examined_context(verdict: Verdict) -> dict[str, Any]:
    minds = [change_of_mind(part, "images") if part.verdict in DECIDED else "" for part in verdict.parts]
    return {**verdict_context(verdict), "minds": minds}


def studied_kinds(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """One stamp for all verdicts of a kind: 16 of them beside one claim filled a screen of a phone.

    Those that Holm's correction leaves undecided have their own: beside one that stays they would look as clear as it.
    """
    of_kind = {
        (kind, away): [each for each in verdicts if each.verdict == kind and (each.stands is False) == away]
        for kind in KINDS
        for away in (False, True)
    }
    return [
        {
            "kind": KINDS[kind],
            "number": len(alike),
            "words": alike[0].words if len(alike) == 1 else kind,
            "subjects": list(dict.fromkeys(name for each in alike for name in each.subjects)),
            "corrected_away": away,
        }
        for (kind, away), alike in of_kind.items()
        if alike
    ]


def verdict_context(verdict: Verdict, draws: Sequence[Mapping[int, float]] = ()) -> dict[str, Any]:
    (row,) = rows([verdict], lambda name: {"name": name, "colour": GREY}, [])
    if draws:
        row["parts"] = [drawing_of(part, of_part) for part, of_part in zip(verdict.parts, draws, strict=True)]
    # Filled in where there is one.
    of_a_study = {"study": "", "registered": "", "sizes": "", "unfinished": "", "how": (), "seeds": False}
    shown = verdict.shown  # the part that the reason speaks of
    at = verdict.parts.index(shown) if shown else 0
    where = verdict.words.removeprefix(f"{verdict.verdict} ").removesuffix(", proxy")
    return {**row, **of_a_study, "where": where, "reading": verdict.reading, "shown": at}


def study_context(records: Records) -> dict[str, Any]:
    study = records.study
    return {
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "row": study.row,
        "recorded": bool(trained(records) or records.failures()),
        "state": state_of(records),
        "missing_exams": missing_exams(records),
        "failures": records.failures(),
        # Arms that it borrows are another study's: by themselves they say nothing of this one.
        "arms": arm_rows(records) if trained(records) else [],
        "pictures": drawn(records) if trained(records) else [],
        "unasked": unasked_contrasts(records),
        "figure": study.figure.get("title", ""),
        "file": study.hash,
        "made": sorted({line["made"][:10] for line in records.lines}),
        "made_under": sorted({line["study_file"] for line in records.lines}),
        "devices": sorted({f"{line['device']}, torch {line['torch']}" for line in records.lines if "device" in line})
        if trained(records)
        else [],
    }


def unasked_contrasts(records: Records) -> list[dict[str, Any]]:
    """Contrasts that no claim asks for (questions of the notes do), drawn without a margin."""
    asked = {part.quantity for test in records.study.tests for part in test.parts}
    unasked = [contrast for contrast in records.study.contrasts.values() if contrast.name not in asked]
    return [drawn for contrast in unasked if (drawn := drawn_contrast(contrast, records))]


def drawn(records: Records) -> list[dict[str, Any]]:
    with theme.drawing(for_export=True):
        return [picture(specification(chart), list(records.study.arms)) for chart in figure(records)]
