"""What is known of every claim: what studies say over seeds, what an exam of the bundled weights says beside it.

The page and `docs/reproduction.md` are both made from this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eyechart.claims.table import CLAIMS, STUDIES, Claim
from eyechart.claims.verdict import PartVerdict, Verdict
from eyechart.claims.wording import MOST_SEEDS, round_up
from eyechart.studies.records import Records, records_folder
from eyechart.studies.study import find, names
from eyechart.studies.verdicts import StudyVerdict, verdicts_of

DECIDED = ("holds", "fails")


@dataclass(frozen=True)
class Answer:
    """A claim with all that is known of it here."""

    claim: Claim
    studied: tuple[StudyVerdict, ...]
    examined: tuple[Verdict, ...]

    @property
    def decided(self) -> bool:
        return any(verdict.verdict in DECIDED for verdict in self.verdicts)

    @property
    def verdicts(self) -> list[Verdict]:
        return [*(each.verdict for each in self.studied), *self.examined]

    @property
    def status(self) -> str:
        """In a word or two: "holds", "holds in one reading, fails in another", "undecided", "not yet"."""
        of_studies = [each.verdict.verdict for each in self.studied]
        decisions = list(dict.fromkeys(of_studies or [verdict.verdict for verdict in self.examined]))
        if not decisions:
            return "not yet"
        return decisions[0] if len(decisions) == 1 else ", ".join(decisions) + " by reading"

    @property
    def compared(self) -> str:
        """A sentence where a study and the bundled weights differ; empty where they agree or one of them is silent."""
        over_seeds = {each.verdict.verdict for each in self.studied} & set(DECIDED)
        of_weights = {verdict.verdict for verdict in self.examined} & set(DECIDED)
        if not over_seeds or not of_weights or over_seeds & of_weights:
            return ""
        return (
            f"Over seeds it {' and '.join(sorted(over_seeds))}, on the bundled weights it "
            f"{' and '.join(sorted(of_weights))}: other data, another length of training, and one seed there."
        )

    @property
    def missing(self) -> str:
        """What it needs, where nothing is known yet."""
        if self.claim.settled_by == "exam":
            return f"Needs an exam of {self.claim.wants}."
        return f"Needs {STUDIES[self.claim.settled_by]}; its trainings are not recorded yet."


def answers(records: Iterable[Records], examined: Sequence[Verdict]) -> list[Answer]:
    """One for each claim of the table, in its order."""
    studied = told_once(list(records))
    return [
        Answer(
            claim,
            tuple(each for each in studied if each.verdict.claim == claim.id),
            tuple(verdict for verdict in examined if verdict.claim == claim.id and verdict.verdict != "not tested"),
        )
        for claim in CLAIMS.values()
    ]


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
    """From the lowest seed to the highest."""
    seconds: float
    exams: int
    """How many of its trainings have all their exams."""


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
                    f"{min(right):.1f} to {max(right):.1f}",
                    sum(line["seconds"] for line in mine) / len(mine),
                    sum(records.recorded(arm.name, seed) for seed in arm.seeds),
                )
            )
    return made


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
    return f"The effect would have to move by {part.clearness:.1f} half-widths of its interval."


def decided_by_a_later_test(all_answers: Sequence[Answer]) -> list[str]:
    """Claims decided over seeds, but by no test that was registered before its runs."""
    decided = {
        each.claim.id: {studied.registered for studied in each.studied if studied.verdict.verdict in DECIDED}
        for each in all_answers
    }
    return [claim for claim, registered in decided.items() if registered and "before the runs" not in registered]


def summary(all_answers: Sequence[Answer]) -> Mapping[str, int]:
    """How many claims are decided over seeds, decided on the bundled weights only, undecided, and not tested yet."""
    over_seeds = [each for each in all_answers if any(s.verdict.verdict in DECIDED for s in each.studied)]
    of_weights = [each for each in all_answers if each.decided and each not in over_seeds]
    tested = [each for each in all_answers if each.verdicts and not each.decided]
    return {
        "over seeds": len(over_seeds),
        "on the bundled weights": len(of_weights),
        "undecided": len(tested),
        "not yet": len(all_answers) - len(over_seeds) - len(of_weights) - len(tested),
    }
