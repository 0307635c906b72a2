"""What claims would have come to by the rules before they were changed after results had been seen.

Each rule of `claims/earlier_rules.toml` is judged on the numbers that today's verdicts are about: of the same arms over
the same seeds, and of the same bundled weights. Where it says something else, the reader sees that the change decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eyechart.claims.earlier_rules import RULES, EarlierRule
from eyechart.claims.judge import Measured, decide
from eyechart.claims.verdict import Verdict
from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import Answer
from eyechart.studies.records import Records
from eyechart.studies.verdicts import StudyVerdict, exam_verdict, of_tuples, own_verdict

SAME = "By the rule before that change its verdicts would be the same."
UNKNOWN = "What the rule before that change would say is not known: the number that it asks for is not recorded."
PARTLY_UNKNOWN = (
    "Of some verdicts it is not known: the number that the rule before that change asks for is not recorded."
)


@dataclass(frozen=True)
class Earlier:
    """What the earlier rules of one claim say."""

    studied: tuple[StudyVerdict, ...] = ()
    examined: tuple[Verdict, ...] = ()
    """Those that come out otherwise than today's on the same subjects."""
    words: str = ""
    """What is said of the others."""

    @property
    def differs(self) -> bool:
        return bool(self.studied or self.examined)


NOTHING = Earlier()


def earlier(all_answers: Sequence[Answer], records: Sequence[Records], exams: BundledExams) -> dict[str, Earlier]:
    """By claim, of every one that was changed and has a verdict."""
    by_study = {each.study.name: each for each in records}
    return {
        each.claim.id: of_claim(each, by_study, exams) for each in all_answers if each.claim.changed and each.verdicts
    }


def of_claim(answer: Answer, records: Mapping[str, Records], exams: BundledExams) -> Earlier:
    studied: list[StudyVerdict] = []
    examined: list[Verdict] = []
    same, unknown = 0, 0
    for rule in RULES.get(answer.claim.id, ()):
        for now, before in _pairs(rule, answer, records, exams):
            if before is None:
                unknown += 1
            elif all(verdict.verdict == _verdict(before).verdict for verdict in now):
                same += 1
            elif isinstance(before, StudyVerdict):
                studied.append(before)
            else:
                examined.append(before)
    words = SAME if same and not unknown else UNKNOWN
    if studied or examined:
        words = PARTLY_UNKNOWN if unknown else ""
    return Earlier(tuple(studied), tuple(examined), words)


def summary_words(found: Mapping[str, Earlier]) -> str:
    """A sentence for the head of the page; empty where nothing hangs on a change."""
    claims = [claim for claim, each in found.items() if each.differs]
    if not claims:
        return ""
    return (
        f"Rules of {len(found)} of the tested claims were changed after results on the bundled models were seen. "
        "Where the rule before says something else, that stands beside the verdict and does not count: "
        f"{', '.join(claims)}."
    )


def _verdict(found: StudyVerdict | Verdict) -> Verdict:
    return found.verdict if isinstance(found, StudyVerdict) else found


def _pairs(
    rule: EarlierRule, answer: Answer, records: Mapping[str, Records], exams: BundledExams
) -> Iterator[tuple[list[Verdict], StudyVerdict | Verdict | None]]:
    """Today's verdicts on each tuple of subjects, and the earlier rule's."""
    of_studies: dict[tuple[str, tuple[str, ...]], list[Verdict]] = {}
    for each in answer.studied:
        if rule.replaced_by(each.verdict.reading) and rule.study in ("", each.study):
            of_studies.setdefault((each.study, each.verdict.subjects), []).append(each.verdict)
    for (study, subjects), now in of_studies.items():
        yield now, over_seeds(rule, subjects, records[study])
    of_weights: dict[tuple[str, ...], list[Verdict]] = {}
    for verdict in answer.examined:
        if rule.replaced_by(verdict.reading):
            of_weights.setdefault(verdict.subjects, []).append(verdict)
    for now in of_weights.values():
        yield now, on_weights(rule, now[0], exams)


def over_seeds(rule: EarlierRule, subjects: tuple[str, ...], records: Records) -> StudyVerdict | None:
    test = rule.test
    if rule.study:
        contrasts = records.study.contrasts
        worded = tuple(replace(part, words=contrasts[part.quantity].words) for part in test.parts)
        found = own_verdict(replace(test, parts=worded), records)
    else:
        by_part = [of_tuples(records, part.quantity).get(subjects) for part in test.parts]
        rows = [by_seed for by_seed in by_part if by_seed]
        whole = len(rows) == len(test.parts)
        found = exam_verdict(test, "", subjects, rows, records) if whole else None
    return found and replace(found, registered="")


def on_weights(rule: EarlierRule, now: Verdict, exams: BundledExams) -> Verdict | None:
    """On the numbers that were kept, behind those of its gates that today's verdict has gone through."""
    keys = [(part.quantity, " | ".join(now.subjects)) for part in rule.test.parts]
    if any(key not in exams.quantities for key in keys):
        return None
    # How an interval narrows is not kept, so there is no forecast.
    readings = [Measured(*exams.quantities[key], exams.images[key], now.measure, smooth=False) for key in keys]
    asked = {gate.key for gate in rule.test.gates}
    gates = tuple(gate for gate in now.gates if gate.gate in asked)
    verdict = decide(replace(rule.test, gates=()), now.subjects, readings, ())
    verdict = replace(verdict, gates=gates, proxy=any(gate.outcome == "proxy" for gate in gates))
    failed = next((gate for gate in gates if gate.outcome == "failed"), None)
    if failed is None:
        return verdict
    words = f"Gate failed, so nothing is decided: {failed.title} ({failed.gate}): {failed.words}."
    return replace(verdict, verdict="undecided", reason=words, remarks=words)
