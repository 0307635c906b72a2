"""What is known of every claim: what studies say over seeds, what an exam of the bundled weights says beside it.

The page and `docs/reproduction.md` are both made from this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eyechart.claims.asking import asked_of
from eyechart.claims.judge import corrected
from eyechart.claims.parts import ClaimTest
from eyechart.claims.table import CLAIMS, STUDIES, Claim
from eyechart.claims.verdict import PartVerdict, Verdict
from eyechart.claims.wording import MOST_SEEDS, round_up
from eyechart.studies.records import Records, records_folder
from eyechart.studies.side_by_side import DECIDED, differences
from eyechart.studies.study import find, names
from eyechart.studies.verdicts import StudyVerdict, verdicts_of

BY_READING = ", depending on reading or model"
"""Behind what became of a claim of which not all verdicts are alike."""


@dataclass(frozen=True)
class Answer:
    """A claim with all that is known of it here."""

    claim: Claim
    studied: tuple[StudyVerdict, ...]
    examined: tuple[Verdict, ...]
    waiting: tuple[str, ...] = ()
    """Tests of studies whose trainings or exams are not recorded yet; a sentence each."""
    untested: tuple[str, ...] = ()
    """What of the claim's sentence no study asks."""

    @property
    def decided(self) -> bool:
        return any(verdict.verdict in DECIDED for verdict in self.verdicts)

    @property
    def verdicts(self) -> list[Verdict]:
        return [*(each.verdict for each in self.studied), *self.examined]

    @property
    def status(self) -> str:
        """In a few words: "holds", "holds or fails, depending on reading or model", "undecided", "not yet"."""
        of_studies = [each.verdict.verdict for each in self.studied]
        decisions = list(dict.fromkeys(of_studies or [verdict.verdict for verdict in self.examined]))
        if not decisions:
            return "not yet"
        return decisions[0] if len(decisions) == 1 else " or ".join(decisions) + BY_READING

    @property
    def compared(self) -> list[str]:
        """Sentences where a study and the bundled weights differ."""
        return differences([each.verdict for each in self.studied], self.examined)

    @property
    def missing(self) -> str:
        """What it needs, where nothing is known yet."""
        if self.claim.settled_by == "exam":
            return f"Needs an exam of {self.claim.wants}."
        return f"Needs {STUDIES[self.claim.settled_by]}; its trainings are not recorded yet."


def answers(records: Iterable[Records], examined: Sequence[Verdict]) -> list[Answer]:
    """One for each claim of the table, in its order."""
    records = list(records)
    studied = corrected_for_number(told_once(records))
    examined = corrected_together(examined)
    return [
        Answer(
            claim,
            tuple(each for each in studied if each.verdict.claim == claim.id),
            tuple(verdict for verdict in examined if verdict.claim == claim.id and verdict.verdict != "not tested"),
            tuple(still_to_come(claim.id, records, studied)),
            tuple(words for each in records if (words := each.study.untested.get(claim.id))),
        )
        for claim in CLAIMS.values()
    ]


def corrected_for_number(studied: Sequence[StudyVerdict]) -> list[StudyVerdict]:
    """Each with whether it stays decided under Holm's correction over all intervals of all studies."""
    verdicts = corrected([(each.test, each.verdict) for each in studied])
    return [replace(each, verdict=verdict) for each, verdict in zip(studied, verdicts, strict=True)]


def corrected_together(examined: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts on the bundled weights, corrected for all their intervals: an exam corrects for its own alone, and one
    that was made for a single claim has two."""
    from eyechart.measures import measures

    tests = {(test.claim, test.reading): test for test in asked_of(measures().values())}
    of_each = [tests.get((verdict.claim, verdict.reading)) for verdict in examined]
    pairs = [(test, under_its_gates(test, one)) for test, one in zip(of_each, examined, strict=True) if test]
    again = iter(corrected(pairs))
    return [next(again) if test else verdict for test, verdict in zip(of_each, examined, strict=True)]


def under_its_gates(test: ClaimTest, verdict: Verdict) -> Verdict:
    """A verdict that was kept, undecided where its test has got a gate since."""
    passed = {gate.gate for gate in verdict.gates}
    added = [gate.title for gate in test.gates if gate.key not in passed]
    if not added or verdict.verdict not in DECIDED:
        return verdict
    words = f"Undecided: its exam was made before there was a gate for the {added[0]}, and has to be made again."
    return replace(verdict, verdict="undecided", reason=words, remarks=words, stands=None)


def still_to_come(claim: str, records: Sequence[Records], studied: Sequence[StudyVerdict]) -> Iterator[str]:
    """What studies ask of a claim and cannot answer yet."""
    answered = {(each.study, each.verdict.reading) for each in studied if each.verdict.claim == claim}
    for each in records:
        for test in each.study.tests:
            if test.claim == claim and (each.study.name, test.reading) not in answered:
                reading = f", read {test.reading}" if test.reading else ""
                yield f"To come from the study {each.study.name}{reading}."


def told_once(records: Sequence[Records]) -> list[StudyVerdict]:
    """What all studies say. A study that borrows an arm examines the same trainings again: what it says of them alone
    is no further evidence, so of such verdicts that on most seeds is told, and of equals the first."""
    kept: dict[tuple[object, ...], StudyVerdict] = {}
    for each in records:
        for found in verdicts_of(each):
            arms = [each.study.arms.get(name) for name in found.verdict.subjects]
            homes = tuple((arm.home if arm and arm.home else each.study.name) for arm in arms)
            key = found.verdict.claim, found.verdict.reading, found.verdict.subjects, homes
            if key not in kept or found.seeds > kept[key].seeds:
                kept[key] = found
    return list(kept.values())


def all_records(*folders: Path) -> list[Records]:
    return [Records.of(find(name), *(folders or (records_folder(),))) for name in names()]


@dataclass(frozen=True)
class ArmRow:
    """An arm with what its seeds gave: a line of the studies' tables."""

    name: str
    seeds: int
    parameters: int
    images: int
    accuracy: str
    """In percent, the mean over seeds."""
    spread: str
    """From the lowest seed to the highest; empty for one seed, which has none."""
    seconds: float


def arm_rows(records: Records) -> list[ArmRow]:
    """Every arm of which a training is recorded that did not fail."""
    made = []
    for arm in records.study.arms.values():
        mine = [line for seed in arm.seeds if (line := records.training(arm.name, seed)) and not line.get("failed")]
        if mine:
            right = [100 * line["scores"]["test_accuracy"][0] for line in mine]
            made.append(
                ArmRow(
                    arm.name,
                    len(mine),
                    mine[0]["parameters"],
                    mine[0]["train_images"],
                    f"{sum(right) / len(right):.1f} %",
                    f"{min(right):.1f} to {max(right):.1f}" if len(right) > 1 else "",
                    sum(line["seconds"] for line in mine) / len(mine),
                )
            )
    return made


def changes_of_mind(each: StudyVerdict) -> list[str]:
    """Of every part, what would change the verdict."""
    stuck = each.test.stuck([part.verdict for part in each.verdict.parts])
    barred = any(gate.outcome == "failed" for gate in each.verdict.gates)
    minds = []
    for part, interval in zip(each.verdict.parts, each.intervals, strict=True):
        if part.verdict == "undecided" and (stuck or barred):
            minds.append(NOTHING_TO_DECIDE if stuck else GATE_FAILED)
        elif interval.same_arms or (part.verdict == "undecided" and interval.all_alike):
            minds.append(f"{interval.without_more}.")
        else:
            minds.append(change_of_mind(part, interval.unit))
    return minds


NOTHING_TO_DECIDE = "Other parts disagree already, so this one cannot decide the claim."
GATE_FAILED = "A gate failed, so more seeds would not decide it."


def change_of_mind(part: PartVerdict, unit: str = "seeds") -> str:
    """What would change the verdict on one part."""
    if math.isnan(part.effect) or math.isnan(part.low):
        return f"It needs a number with an interval over at least 3 {unit}."
    if part.verdict == "undecided":
        if part.needed is None:
            return "The effect lies on the margin."
        if unit == "seeds" and part.needed > MOST_SEEDS:
            return f"More than {MOST_SEEDS:,} seeds would be needed, if the effect stays."
        return f"About {round_up(part.needed):,} {unit} would decide it if the effect stays."
    if math.isinf(part.clearness):
        return "Nothing varies here; another way of training might."
    return f"The effect lies {part.clearness:.1f} half-widths of its interval away from the margin."


def needs_words(verdict: Verdict) -> bool:
    """Whether its parts alone do not say why it came out so: a gate spoke, or parts that fail did not decide it."""
    unlike = verdict.verdict == "undecided" and any(part.verdict == "fails" for part in verdict.parts)
    return unlike or any(gate.outcome != "passed" for gate in verdict.gates)
