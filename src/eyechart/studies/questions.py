"""Questions of the notes' authors and disagreements of the papers, answered by numbers of the records.

`notes/questions.toml` holds the words; the numbers of an answer are filled in from an exam of the bundled models or
from a study, with their intervals. An answer of which a number is missing is "not yet".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eyechart.charts.numbers import in_words, number
from eyechart.errors import EyechartError
from eyechart.phrases import span_of
from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import BY_READING, Answer
from eyechart.studies.contrasts import AFTER
from eyechart.studies.records import Records
from eyechart.studies.seeds import LEAST_SEEDS, OverSeeds, fisher
from eyechart.studies.study import folder
from eyechart.studies.verdicts import interval_of, of_seeds, of_tuples

STATES = ("answered", "partly", "open")
BLANK = re.compile(r"\{(exam|seeds|contrast|claim|correlation) ([^{}]+)\}")
AT_EQUAL = ", at equal data and recipe"
"""Behind the name of a study: a correlation over those of its arms that differ in their architecture alone."""
NOT_YET = "Not yet: a number that it needs is not recorded."
NOT_YET_KO = "아직 없음: 필요한 수가 기록되지 않았다."
WITHOUT = {False: "no interval", True: "구간 없음"}
"""What stands behind a number without an interval, in English and in Korean."""
KOREAN = {"holds": "성립", "fails": "불성립", "undecided": "미정", "not yet": "아직 없음"}


@dataclass(frozen=True)
class Question:
    id: str
    notes: tuple[str, ...]
    korean: str
    translation: str
    answer: str
    state: str
    answer_ko: str = ""
    asked_ko: str = ""
    """The question in Korean, where the author's words are not Korean or state one side of a disagreement."""
    meanwhile: str = ""
    """What is said while a number of the answer is missing."""
    meanwhile_ko: str = ""
    meanwhile_state: str = "open"
    blanks: tuple[tuple[str, str], ...] = ()
    """What the answer was filled with, by kind and name: its figure draws the same."""

    @property
    def of_papers(self) -> bool:
        """Whether papers disagree about it; otherwise an author of the notes asked."""
        return self.id.startswith("D")


def questions(records: Sequence[Records], answers: Sequence[Answer], exams: BundledExams) -> list[Question]:
    """Every question of the file, its answer filled in."""
    text = (folder() / "notes" / "questions.toml").read_text(encoding="utf-8")
    numbers = Numbers({each.study.name: each for each in records}, answers, exams.quantities)
    return [
        fill(Question(**{**entry, "notes": tuple(entry["notes"])}), numbers)
        for entry in tomllib.loads(text)["question"]
    ]


def fill(question: Question, numbers: Numbers) -> Question:
    if question.state not in STATES:
        raise EyechartError(f"questions.toml: the state of {question.id} is one of {', '.join(STATES)}.")
    if any(numbers.of(*blank) is None for blank in BLANK.findall(question.answer)):
        if not question.meanwhile:
            return replace(question, answer=NOT_YET, answer_ko=NOT_YET_KO, state="open")
        said, said_ko = question.meanwhile, question.meanwhile_ko
        return fill(
            replace(question, answer=said, answer_ko=said_ko, state=question.meanwhile_state, meanwhile=""), numbers
        )

    def filled(text: str, korean: bool) -> str:
        lines = BLANK.sub(lambda blank: numbers.of(blank[1], blank[2], korean) or "", text).splitlines()
        return "\n".join(" ".join(line.split()) for line in lines)  # the page breaks there: one finding a line

    blanks = tuple(dict.fromkeys(BLANK.findall(question.answer)))
    told = numbers.added([what for kind, what in blanks if kind == "contrast"])
    answer, answer_ko = (
        f"{filled(text, korean)} {words}".strip()
        for text, korean, words in zip((question.answer, question.answer_ko), (False, True), told, strict=True)
    )
    return replace(question, answer=answer, answer_ko=answer_ko, blanks=blanks)


@dataclass(frozen=True)
class Numbers:
    """Where the numbers of answers come from."""

    records: Mapping[str, Records]
    answers: Sequence[Answer]
    exam: Mapping[tuple[str, str], tuple[float, float, float]]

    def of(self, kind: str, what: str, korean: bool = False) -> str | None:
        """A number in words; None where it is not recorded."""
        if kind == "claim":
            return self._claim(what, korean)
        name, _, where = what.rpartition(" of ")
        if kind == "exam":
            value = self.exam.get((name, where.replace(", ", " | ")))
            return None if value is None else in_words(*value, without=WITHOUT[korean])
        if kind == "seeds":
            over_seeds = self.over_seeds(name, where)
            if over_seeds is None:
                return None
            return in_words(over_seeds.value, over_seeds.low, over_seeds.high, without=WITHOUT[korean])
        study = where.removesuffix(AT_EQUAL)
        if kind == "contrast":
            return self._contrast(name, study, korean)
        return self._correlation(name, self.of_study(study), where != study, korean)

    def added(self, contrasts: Sequence[str]) -> tuple[str, str]:
        """How many of these contrasts ("name of study") were added after the runs: a sentence in both languages."""
        named = [what.rpartition(" of ")[::2] for what in contrasts]
        later = sum(self.of_study(study).study.contrasts[name].added == AFTER for name, study in named)
        if not later:
            return "", ""
        return (
            "Contrasts of this answer that were added after the runs, when results were known: "
            f"{later} of {len(named)}.",
            f"이 답의 대비 {len(named)}개 가운데 {later}개는 실행이 끝나 결과를 안 뒤에 더했다.",
        )

    def of_study(self, name: str) -> Records:
        if name not in self.records:
            raise EyechartError(f"questions.toml: there is no study called {name!r}.")
        return self.records[name]

    def over_seeds(self, quantity: str, where: str) -> OverSeeds | None:
        """A quantity of an exam of a study, its mean over seeds; `where` is "vit, resnet in base"."""
        arms, _, study = where.rpartition(" in ")
        rows = of_tuples(self.of_study(study), quantity).get(tuple(arms.split(", ")))
        return of_seeds(list(rows.values())) if rows and len(rows) >= LEAST_SEEDS else None

    def _claim(self, name: str, korean: bool) -> str:
        (answer,) = (each for each in self.answers if each.claim.id == name)
        where = "over seeds" if answer.studied else "on the bundled weights" if answer.examined else ""
        words, several = answer.status.removesuffix(BY_READING), BY_READING * answer.status.endswith(BY_READING)
        if not korean:
            return f"{name}: {f'{words} {where}'.strip()}{several}."
        said = ", ".join(KOREAN[word] for word in words.split(" or "))
        at = {"over seeds": "시드에 걸쳐 ", "on the bundled weights": "번들 가중치에서 ", "": ""}[where]
        return f"{name}: {at}{said}{'(읽는 법이나 모델에 따라)' if several else ''}."

    def _contrast(self, name: str, study: str, korean: bool) -> str | None:
        records = self.of_study(study)
        if name not in records.study.contrasts:
            raise EyechartError(f"questions.toml: {study} has no contrast {name!r}.")
        interval = interval_of(records.study.contrasts[name], records)
        if interval is None:
            return None
        return in_words(interval.value, interval.low, interval.high, without=WITHOUT[korean])

    def _correlation(self, names: str, records: Records, at_equal: bool, korean: bool) -> str | None:
        means = arm_means(records, *names.split(", "))
        pairs = [means[arm] for arm in (alike(records, means) if at_equal else means)]
        if len(pairs) < 4:
            return None
        r = float(np.corrcoef(np.array(pairs).T)[0, 1])
        low, high = fisher(r, len(pairs))
        said = f"r = {number(r, 2)} [{span_of(number(low, 2), number(high, 2), 2, high - low)}]"
        return f"실험군 {len(pairs)}개에서 {said}" if korean else f"{said} over {len(pairs)} arms"


def arm_means(records: Records, one: str, other: str) -> dict[str, tuple[float, float]]:
    """Two quantities of every arm that has both, each the mean over its seeds."""
    columns: list[dict[str, float]] = []
    for quantity in (one, other):
        values = records.values(quantity)
        columns.append(
            {
                arms[0]: float(np.mean([row.value for row in by_seed.values()]))
                for arms, by_seed in values.items()
                if len(arms) == 1 and arms[0] in records.study.arms
            }
        )
    return {arm: (columns[0][arm], columns[1][arm]) for arm in columns[0] if arm in columns[1]}


def alike(records: Records, arms: Iterable[str]) -> list[str]:
    """The largest group of these arms that were trained on equally many images by one recipe."""
    groups: list[tuple[tuple[object, ...], list[str]]] = []
    for arm in arms:
        facts = records.facts(arm)
        key = (facts.settings, facts.training_images) if facts else ()
        same = next((names for known, names in groups if known == key), None)
        if same is None:
            groups.append((key, [arm]))
        else:
            same.append(arm)
    return max((names for _, names in groups), key=len, default=[])
