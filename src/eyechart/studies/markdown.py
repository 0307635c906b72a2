"""`docs/reproduction.md`: every claim with what was found, made from the records by `eyechart study --report`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from eyechart.charts.numbers import in_words
from eyechart.claims.table import EVIDENCE, Claim, margins_of
from eyechart.claims.verdict import PartVerdict, Verdict
from eyechart.studies.bundled_exams import SOURCES, BundledExams
from eyechart.studies.claim_answers import Answer, arm_rows, change_of_mind, changes_of_mind, needs_words
from eyechart.studies.earlier_rules import NOTHING, Earlier, earlier, summary_words
from eyechart.studies.questions import Question
from eyechart.studies.recorded import missing_exams, state_of
from eyechart.studies.records import Records
from eyechart.studies.side_by_side import DECIDED
from eyechart.studies.summary import TRIAL, summary
from eyechart.studies.verdicts import StudyVerdict

HEAD = """# Reproduction: what became of every claim

Made by `eyechart study --report` from the records in `src/eyechart/studies/records/`; do not edit by hand.

Data of the studies is **CIFAR-100 (re-split)**: all 60,000 pictures of CIFAR-100, divided anew into 50,000 for
training and 10,000 for testing, so accuracies are not those of the literature. A verdict *over seeds* speaks of an
architecture under one recipe at this scale: most models have about 2.8 million parameters, and pictures have 32 pixels.
A verdict *on these weights* speaks of the models bundled with eyechart, on CIFAR-10. Margins are ours and stand in
`claims.toml`. A study's test of a claim was committed before its runs ("registered before the runs"); where it was
added or changed afterwards, that is said. "Changed after results were seen" speaks of results on the bundled models: a
study that says "registered before the runs" registered what it had been changed to. Rows are those of the run list,
which `eyechart study` prints. With a network, `eyechart exam --subjects-from scripts/large_scale.toml` examines public
checkpoints of ImageNet and ImageNet-21k, as proxies of what this scale cannot show (C16, C37–C39); nobody has recorded
it yet.
"""


def markdown(
    all_answers: Sequence[Answer],
    records: Sequence[Records],
    asked: Sequence[Question],
    exams: BundledExams,
    made_again: str = "",
) -> str:
    """`made_again` is what `repeats.in_words` says."""
    before = earlier(all_answers, records, exams)
    claims = (line for each in all_answers for line in _claim(each, before.get(each.claim.id, NOTHING)))
    bundled = [f"**A trial before row 1.** {TRIAL}\n"]
    bundled += ["Exams of the bundled models:\n", *(f"- {words}" for words in exams.words), f"\n{SOURCES}\n"]
    bundled += [f"{made_again}\n"] if made_again else []
    return "\n".join(
        [
            HEAD,
            *bundled,
            *_overview(all_answers, summary_words(before)),
            *_questions(asked),
            *_studies(records),
            *claims,
        ]
    )


def _questions(asked: Sequence[Question]) -> Iterator[str]:
    yield "## Questions of the notes, and disagreements of the papers\n"
    for each in asked:
        yield f"### {each.id}: {each.translation}\n"
        yield f"> {each.korean} ({', '.join(each.notes)})\n"
        answer = each.answer.replace("\n", " ")
        yield f"**{each.state.capitalize()}.** {answer}\n"


def _overview(all_answers: Sequence[Answer], changed_rules: str) -> Iterator[str]:
    numbers = summary(all_answers)
    yield (
        f"Of {numbers.claims} claims, {numbers.over_seeds} are decided over seeds, {numbers.of_weights} more on the "
        f"bundled weights, {numbers.undecided} are tested and undecided, and {numbers.not_yet} are not tested yet. "
        f"{' '.join([*numbers.sentences, *([changed_rules] if changed_rules else [])])}\n"
    )
    yield "† Clear of its margin by itself, but not among all intervals (Holm's correction).\n"
    yield "| claim | over seeds | bundled weights | |\n|---|---|---|---|"
    for each in all_answers:
        seeds = _all(_word(studied.verdict) for studied in each.studied)
        weights = _all(_word(verdict) for verdict in each.examined)
        yield f"| [{each.claim.id}](#{each.claim.id.lower()}) | {seeds} | {weights} | {each.claim.sentence} |"
    yield ""


def _word(verdict: Verdict) -> str:
    return verdict.verdict + (" (proxy)" if verdict.proxy else "") + ("†" if verdict.stands is False else "")


def _all(words: Iterator[str]) -> str:
    """
    >>> _all(iter(["holds", "fails", "holds"])), _all(iter([]))
    ('2 × holds, fails', '–')
    """
    verdicts = list(words)
    counted = {word: verdicts.count(word) for word in dict.fromkeys(verdicts)}
    return ", ".join(word if times == 1 else f"{times} × {word}" for word, times in counted.items()) or "–"


def _studies(records: Sequence[Records]) -> Iterator[str]:
    yield "## Studies\n"
    for each in records:
        study = each.study
        recorded = [line for arm, seed in study.runs if (line := each.training(arm.name, seed)) is not None]
        yield f"### {study.title}\n"
        missing, failures = missing_exams(each), each.failures()
        told = [study.question, f"Row {study.row} of the run list.", state_of(each)]
        told += [f"Exams of them still missing: {', '.join(missing)}."] if missing else []
        told += [f"Failed: {len(failures)}."] if failures else []
        yield f"`{study.name}`: {' '.join(told)}\n"
        if not recorded:
            continue
        yield "| arm | seeds | parameters | training images | accuracy, mean over seeds (lowest to highest) | seconds |"
        yield "|---|---|---|---|---|---|"
        for arm in arm_rows(each):
            accuracy = f"{arm.accuracy} ({arm.spread})" if arm.spread else arm.accuracy
            numbers = f"{arm.seeds} | {arm.parameters:,} | {arm.images:,} | {accuracy}"
            yield f"| {arm.name} | {numbers} | {arm.seconds:.0f} |"
        steps = "; ".join(sorted({line["step"] for line in recorded}))
        yield f"\nData: {recorded[0]['data']}. Steps: {steps}.\n"


def _claim(each: Answer, before: Earlier) -> Iterator[str]:
    claim = each.claim
    yield f'\n## <a id="{claim.id.lower()}"></a>{claim.id}: {claim.sentence}\n'
    yield f"{claim.korean}\n"
    yield f"- **Published:** {claim.figure}: {claim.reported} ({EVIDENCE[claim.evidence]})."
    yield f"- **Decided by:** {claim.decide}. {_margins(claim)}."
    if claim.changed:
        yield f"- **Changed after results were seen:** {f'{claim.changed} {before.words}'.rstrip()}"
    for studied in each.studied:
        yield from _studied(studied)
    for verdict in each.examined:
        yield from _examined(verdict)
    yield from _before(before)
    if each.compared:
        yield f"- **Seeds and bundled weights differ:** {' '.join(each.compared)}"
    for words in each.waiting:
        yield f"- **Not yet:** {words}"
    for words in each.untested:
        yield f"- **Not tested over seeds:** {words}"
    if not each.verdicts:
        yield f"- **Not yet.** {each.missing}"


def _before(before: Earlier) -> Iterator[str]:
    """What the claim would have come to by its rule before it was changed, where that is something else."""
    of_studies = [(each.verdict, f" (study `{each.study}`)") for each in before.studied]
    for verdict, where in [*of_studies, *((verdict, "") for verdict in before.examined)]:
        yield f"- By the rule before that change; it does not count: {_head(verdict)}{where}."
        yield from (f"  - {_part(part)}." for part in verdict.parts)


def _margins(claim: Claim) -> str:
    """What is asked, each thing once. Readings are told apart: in one list C46 asked the same ratio to be below 0.5 and
    below 1. A reading that asks less than another is that one under other options."""
    by_reading: dict[str, list[str]] = {}
    for test in claim.tests:
        by_reading.setdefault(test.reading, []).extend(map(str, margins_of([test])))
    if claim.margins != margins_of(claim.tests):
        by_reading = {"": [str(margin) for margin in claim.margins]}
    asked: dict[tuple[str, ...], list[str]] = {}
    for reading, margins in by_reading.items():
        asked.setdefault(tuple(dict.fromkeys(margins)), []).append(reading)
    told = {margins: each for margins, each in asked.items() if not any({*margins} < {*other} for other in asked)}
    return ". ".join(
        f"Read {' or '.join(each)}, it holds if {'; '.join(margins)}" if all(each) else f"Holds if {'; '.join(margins)}"
        for margins, each in told.items()
    )


def _studied(each: StudyVerdict) -> Iterator[str]:
    verdict = each.verdict
    yield f"- {_head(verdict)} (study `{each.study}`; registered {each.registered})."
    for part, interval, mind in zip(verdict.parts, each.intervals, changes_of_mind(each), strict=True):
        yield f"  - {_part(part)}; {interval.words}. {mind}"
    if needs_words(verdict):
        yield f"  - {verdict.remarks}"
    for words in filter(None, (each.unfinished, each.sizes)):
        yield f"  - {words}"


def _head(verdict: Verdict) -> str:
    reading = f", read {verdict.reading}" if verdict.reading else ""
    mark = "†" if verdict.stands is False else ""
    return f"**{verdict.words.capitalize()}**{mark}: {', '.join(verdict.subjects)}{reading}"


def _examined(verdict: Verdict) -> Iterator[str]:
    yield f"- {_head(verdict)}."
    for part in verdict.parts:
        yield f"  - {_part(part)}. {change_of_mind(part, 'images') if part.verdict in DECIDED else ''}".rstrip()
    if needs_words(verdict) or "undecided" in [verdict.verdict, *(part.verdict for part in verdict.parts)]:
        yield f"  - {verdict.remarks}"


def _part(part: PartVerdict) -> str:
    shown = "no number" if math.isnan(part.effect) else in_words(part.effect, part.low, part.high)
    return f"{part.verdict}: {part.words}: {shown}; the claim asks for {part.asks}"
