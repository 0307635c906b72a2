"""`docs/reproduction.md`: every claim with what was found, made from the records by `eyechart study --report`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from eyechart.claims.table import EVIDENCE
from eyechart.claims.verdict import PartVerdict, Verdict
from eyechart.claims.wording import interval_words
from eyechart.phrases import count
from eyechart.studies.bundled_exams import SOURCES, BundledExams
from eyechart.studies.claim_answers import Answer, arm_rows, change_of_mind, decided_by_a_later_test, summary
from eyechart.studies.questions import Question
from eyechart.studies.records import Records
from eyechart.studies.verdicts import StudyVerdict

HEAD = """# Reproduction: what became of every claim

Made by `eyechart study --report` from the records in `src/eyechart/studies/records/`; do not edit by hand.

Data of the studies is **CIFAR-100 (re-split)**: all 60,000 pictures of CIFAR-100, divided anew into 50,000 for
training and 10,000 for testing, so accuracies are not those of the literature. A verdict *over seeds* speaks of an
architecture under one recipe at this scale: models of about 3 million parameters on pictures of 32 pixels. A verdict
*on these weights* speaks of the models bundled with eyechart, on CIFAR-10. Intervals are 95 %; margins are ours and
stand in `claims.toml`. What decides a claim in a study was committed before its runs; where it was added or changed
afterwards, that is said. With a network, `eyechart exam --subjects-from scripts/large_scale.toml` examines public
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
    claims = (line for each in all_answers for line in _claim(each))
    bundled = ["Exams of the bundled models:\n", *(f"- {words}" for words in exams.words), f"\n{SOURCES}\n"]
    bundled += [f"{made_again}\n"] if made_again else []
    return "\n".join([HEAD, *bundled, *_overview(all_answers), *_questions(asked), *_studies(records), *claims])


def _questions(asked: Sequence[Question]) -> Iterator[str]:
    yield "## Questions of the notes, and disagreements of the papers\n"
    for each in asked:
        yield f"### {each.id}: {each.translation}\n"
        yield f"> {each.korean} ({', '.join(each.notes)})\n"
        yield f"**{each.state.capitalize()}.** {each.answer}\n"


def _overview(all_answers: Sequence[Answer]) -> Iterator[str]:
    numbers = summary(all_answers)
    over, of_weights, open_, waiting = numbers.values()
    late = decided_by_a_later_test(all_answers)
    but = f" ({', '.join(late)} by a test that was added or changed after its runs)" if late else ""
    yield (
        f"Of {len(all_answers)} claims {over} are decided over seeds{but}, {of_weights} more on the bundled weights, "
        f"{open_} are tested and undecided, and {waiting} are not tested yet.\n"
    )
    yield "| claim | over seeds | bundled weights | |\n|---|---|---|---|"
    for each in all_answers:
        seeds = _all(each.studied[index].verdict.verdict for index in range(len(each.studied)))
        weights = _all(verdict.verdict for verdict in each.examined)
        yield f"| [{each.claim.id}](#{each.claim.id.lower()}) | {seeds} | {weights} | {each.claim.sentence} |"
    yield ""


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
        lines = [each.training(arm.name, seed) for arm, seed in study.runs]
        recorded = [line for line in lines if line is not None]
        measured = sum(each.recorded(arm.name, seed) for arm, seed in study.runs)
        yield f"### {study.title}\n"
        failed = count(len(each.failures()), "failure")
        yield (
            f"`{study.name}`, row {study.row} of the run list: {study.question} {len(recorded)} of {len(lines)} "
            f"trainings are recorded, {measured} of them with all their exams; {failed}.\n"
        )
        if not recorded:
            continue
        yield "| arm | seeds | parameters | training images | accuracy, mean over seeds (lowest to highest) | seconds |"
        yield "|---|---|---|---|---|---|"
        for arm in arm_rows(each):
            numbers = f"{arm.seeds} | {arm.parameters:,} | {arm.images:,} | {arm.accuracy} ({arm.spread})"
            yield f"| {arm.name} | {numbers} | {arm.seconds:.0f} |"
        steps = "; ".join(sorted({line["step"] for line in recorded}))
        yield f"\nData: {recorded[0]['data']} (re-split). Steps: {steps}.\n"


def _claim(each: Answer) -> Iterator[str]:
    claim = each.claim
    yield f'\n## <a id="{claim.id.lower()}"></a>{claim.id}: {claim.sentence}\n'
    yield f"{claim.korean}\n"
    yield f"- **Published:** {claim.figure}: {claim.reported} ({EVIDENCE[claim.evidence]})."
    yield f"- **Decided by:** {claim.decide}. Holds if {claim.margin}."
    if claim.changed:
        yield f"- **Changed after results were seen:** {claim.changed}"
    for studied in each.studied:
        yield from _studied(studied)
    for verdict in each.examined:
        yield from _examined(verdict)
    if each.compared:
        yield f"- **Both beside each other:** {each.compared}"
    if not each.verdicts:
        yield f"- **Not yet.** {each.missing}"


def _studied(each: StudyVerdict) -> Iterator[str]:
    verdict = each.verdict
    reading = f", read {verdict.reading}" if verdict.reading else ""
    yield f"- **{verdict.words.capitalize()}** (study `{each.study}`{reading}; registered {each.registered})."
    for part, interval in zip(verdict.parts, each.intervals, strict=True):
        yield f"  - {_part(part)}; {interval.words}. {change_of_mind(part, interval.unit)}"


def _examined(verdict: Verdict) -> Iterator[str]:
    reading = f", read {verdict.reading}" if verdict.reading else ""
    yield f"- **{verdict.words.capitalize()}**: {', '.join(verdict.subjects)}{reading}."
    for part in verdict.parts:
        yield f"  - {_part(part)}."


def _part(part: PartVerdict) -> str:
    shown = "no number" if math.isnan(part.effect) else interval_words(part.effect, part.low, part.high)
    return f"{part.verdict}: {part.words}: {shown}; the claim asks for {part.asks}"
