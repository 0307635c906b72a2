"""From records to verdicts: the same tests as in an exam, with seeds in place of images.

A study's own tests are about contrasts between its arms. Every test of an exam whose quantities its exams measured is
judged too: its value in each seed is one draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import ACCURACY, TRAINED, Facts
from eyechart.claims.judge import Measured, decide
from eyechart.claims.parts import ClaimTest
from eyechart.claims.verdict import Verdict
from eyechart.methods.ranks import rank_correlation
from eyechart.studies.contrasts import Contrast, arms_of
from eyechart.studies.recorded import unequal_sizes
from eyechart.studies.records import Records, Row, scaled
from eyechart.studies.seeds import (
    LEAST_SEEDS,
    OverSeeds,
    contrast_over_seeds,
    mean_over_seeds,
    partial_over_arms,
    rank_over_seeds,
)
from eyechart.studies.study import Study, hash_of, key_of


@dataclass(frozen=True)
class StudyVerdict:
    """A verdict over seeds, and how its intervals came about."""

    study: str
    verdict: Verdict
    intervals: tuple[OverSeeds, ...]
    draws: tuple[Mapping[int, float], ...]
    """Of each part, what every seed gives by itself."""
    registered: str
    """ "before the runs", "before the runs, changed since", "after the runs", or "after the runs it borrows" where it
    has none of its own."""
    test: ClaimTest
    sizes: str = ""
    """A sentence where its arms have unequal numbers of parameters."""
    asked_seeds: int = 0
    """Of the arm that the study trains with fewest."""

    @property
    def seeds(self) -> int:
        return min(each.seeds for each in self.intervals)

    @property
    def unfinished(self) -> str:
        """A sentence while some of its seeds are not recorded: it may come out otherwise with all of them."""
        few = self.seeds < self.asked_seeds
        return f"Seeds recorded so far: {self.seeds} of {self.asked_seeds}." if few else ""


def verdicts_of(records: Records) -> list[StudyVerdict]:
    """One verdict for each test of the study that its records can answer, then those of exams."""
    own = [verdict for test in records.study.tests if (verdict := own_verdict(test, records)) is not None]
    return [*own, *exam_verdicts(records)]


def own_verdict(test: ClaimTest, records: Records) -> StudyVerdict | None:
    """A claim decided by contrasts; None while an arm of it has no record."""
    study = records.study
    contrasts = [study.contrasts[part.quantity] for part in test.parts]
    arms = tuple(dict.fromkeys(arm for contrast in contrasts for arm in contrast.arms))
    facts_of = {arm: facts for arm in arms if (facts := records.facts(arm)) is not None}
    if len(facts_of) < len(arms):
        return None
    over_seeds = [interval_of(contrast, records) for contrast in contrasts]
    if any(each is None for each in over_seeds):
        return None
    intervals = tuple(each for each in over_seeds if each is not None)
    verdict = judged(test, arms, intervals, [facts_of[arm] for arm in arms], study.name)
    draws = tuple(draws_of(contrast, records) for contrast in contrasts)
    registered = registration(study, test, records)
    sizes = unequal_sizes(arms, records)
    return StudyVerdict(study.name, verdict, intervals, draws, registered, test, sizes, asked_seeds(study, arms))


def asked_seeds(study: Study, arms: Iterable[str]) -> int:
    return min((len(study.arms[arm].seeds) for arm in arms if arm in study.arms), default=0)


def judged(
    test: ClaimTest, arms: tuple[str, ...], intervals: Sequence[OverSeeds], facts: Sequence[Facts], study: str
) -> Verdict:
    seeds = min(each.seeds for each in intervals)
    readings = [
        Measured(
            each.value,
            each.low,
            each.high,
            each.arms or seeds,
            study,
            folds=each.folds,
            unit="arms" if each.arms else "",
            without=each.without_more,
        )
        for each in intervals
    ]
    verdict = decide(test, arms, readings, facts, max(seeds, 1))
    if seeds < LEAST_SEEDS:
        words = f"Undecided with {seeds} seed{'' if seeds == 1 else 's'}; at least {LEAST_SEEDS} are needed."
        verdict = replace(verdict, verdict="undecided", reason=f"{words} {verdict.reason}", remarks=words)
    return verdict


def registration(study: Study, test: ClaimTest, records: Records) -> str:
    """Whether what decides this claim is what its records were made under."""
    used = {arm for part in test.parts for arm in study.contrasts[part.quantity].arms}
    now = study.registered[key_of(test)]
    made = {
        line.get("registered", {}).get(key_of(test))
        for line in records.lines
        if line.get("study") == study.name and (line.get("arm") in used or used & set(line.get("arms", ())))
    }
    if not made:
        return "after the runs it borrows"
    if None in made:  # at least some of its runs were there before it
        return "after the runs"
    return "before the runs" if made == {now} else "before the runs, changed since"


def interval_of(contrast: Contrast, records: Records) -> OverSeeds | None:
    """A contrast over seeds, on its own scale; None while an arm of it has no number."""
    by_arm = records.of_arms(contrast)
    if any(not by_arm.get(arm) for arm in contrast.weights):
        return None
    if contrast.ranked_with:
        over_seeds = ranks_of(contrast, by_arm, records)
    elif contrast.correlated_with:
        over_seeds = correlation_of(contrast, by_arm, records)
    else:
        over_seeds = sum_of(contrast, by_arm, records)
    return over_seeds and replace(over_seeds, pictures=records.pictures(contrast))


def sum_of(contrast: Contrast, by_arm: Mapping[str, Mapping[int, float]], records: Records) -> OverSeeds:
    values = {arm: np.array(list(numbers.values())) for arm, numbers in by_arm.items() if numbers}
    recipes = {key: facts.settings for key in values if (facts := records.facts(arms_of(key)[-1])) is not None}
    shared = [recipes.get(arm) for arm in contrast.weights]
    pool = {arm: numbers for arm, numbers in values.items() if all(recipes.get(arm) == other for other in shared)}
    over_seeds = contrast_over_seeds(contrast.weights, values, pool)
    pairs = any(len(arms_of(key)) > 1 for key in contrast.weights)
    # One training may be in several of the numbers, or in what several began with: each seed gives one sum of them.
    if contrast.chosen or pairs or contrast.paired:
        seeds = set.intersection(*(set(by_arm[arm]) for arm in contrast.weights))
        sums = [sum(weight * by_arm[arm][seed] for arm, weight in contrast.weights.items()) for seed in sorted(seeds)]
        over_seeds = mean_over_seeds(np.array(sums))
        if contrast.chosen and not any(sums):
            over_seeds = replace(over_seeds, low=math.nan, high=math.nan, same_arms=True)
        elif over_seeds.low == over_seeds.high:
            over_seeds = as_sure_as_runs(contrast, contrast.weights, records, over_seeds)
    else:
        unmoved = [arm for arm in contrast.weights if len(values[arm]) > 1 and not np.ptp(values[arm])]
        over_seeds = as_sure_as_runs(contrast, unmoved, records, over_seeds)
    if contrast.scale != "ratio":
        return over_seeds
    return replace(
        over_seeds, value=math.exp(over_seeds.value), low=math.exp(over_seeds.low), high=math.exp(over_seeds.high)
    )


def draws_of(contrast: Contrast, records: Records) -> dict[int, float]:
    """What each seed that all arms have gives by itself."""
    by_arm = records.of_arms(contrast)
    other = contrast.correlated_with or (contrast.ranked_with if contrast.ranked_with != "weights" else "")
    others = records.of_arms(replace(contrast, quantity=other)) if other else {}
    tables = [by_arm, others] if other else [by_arm]
    seeds = set.intersection(*(set(table.get(arm, {})) for arm in contrast.weights for table in tables))
    draws = {}
    for seed in sorted(seeds):
        mine = np.array([by_arm[arm][seed] for arm in contrast.weights])
        weights = np.array(list(contrast.weights.values()))
        theirs = np.array([others[arm][seed] for arm in contrast.weights]) if other else weights
        if contrast.ranked_with:
            draws[seed] = rank_correlation(mine, theirs)
        elif contrast.correlated_with:
            held = np.array([contrast.held[arm] for arm in contrast.weights])
            draws[seed] = partial_over_arms(np.column_stack([mine, theirs]), held, 1).value
        else:
            total = float(weights @ mine)
            draws[seed] = math.exp(total) if contrast.scale == "ratio" else total
    return draws


def ranks_of(contrast: Contrast, by_arm: Mapping[str, Mapping[int, float]], records: Records) -> OverSeeds | None:
    """A rank correlation over arms, of each seed's numbers with the arms' order or with another quantity of theirs."""
    if contrast.ranked_with == "weights":
        others = {arm: dict.fromkeys(by_arm[arm], weight) for arm, weight in contrast.weights.items()}
    else:
        others = records.of_arms(replace(contrast, quantity=contrast.ranked_with))
    pairs = []
    for arm in contrast.weights:
        seeds = sorted(by_arm[arm].keys() & others.get(arm, {}).keys())
        pairs.append(np.array([(by_arm[arm][seed], others[arm][seed]) for seed in seeds]))
    return rank_over_seeds(pairs) if all(len(each) for each in pairs) else None


def correlation_of(contrast: Contrast, by_arm: Mapping[str, Mapping[int, float]], records: Records) -> OverSeeds | None:
    """A partial correlation over arms of two quantities, each the mean over the seeds that have both."""
    others = records.of_arms(replace(contrast, quantity=contrast.correlated_with))
    shared = {arm: by_arm[arm].keys() & others.get(arm, {}).keys() for arm in contrast.weights}
    if not all(shared.values()):
        return None
    means = [
        [float(np.mean([numbers[arm][seed] for seed in sorted(seeds)])) for numbers in (by_arm, others)]
        for arm, seeds in shared.items()
    ]
    held = np.array([contrast.held[arm] for arm in shared])
    return partial_over_arms(np.array(means), held, min(map(len, shared.values())))


def of_seeds(rows: Sequence[Row]) -> OverSeeds:
    """The mean of one quantity over seeds; where the seeds do not differ at all, as sure as its runs are."""
    over_seeds = mean_over_seeds(np.array([row.value for row in rows]))
    if over_seeds.low == over_seeds.high:
        half = float(np.mean([max(row.high - row.value, row.value - row.low) for row in rows]))
        over_seeds = replace(over_seeds, low=over_seeds.value - half, high=over_seeds.value + half, of_runs=True)
    lowest, highest = limits_of(rows[0].measure, rows[0].quantity)
    return replace(
        over_seeds,
        pictures=rows[0].pictures,
        low=over_seeds.low if lowest is None else max(over_seeds.low, lowest),
        high=over_seeds.high if highest is None else min(over_seeds.high, highest),
    )


@cache
def limits_of(measure: str, name: str) -> tuple[float | None, float | None]:
    """Between which numbers a quantity of a measure can lie."""
    from eyechart.measures import choose_measures

    (chosen,) = choose_measures([measure])
    (quantity,) = (each for each in chosen.quantities if each.name == name)
    return (0.0, 1.0) if quantity.share or quantity.among is not None else quantity.limits


def as_sure_as_runs(contrast: Contrast, unmoved: Iterable[str], records: Records, over_seeds: OverSeeds) -> OverSeeds:
    """The interval wider by what is not known within the runs of arms whose seeds do not differ at all: they are no
    certainty. All runs see the same images, so many of them are as sure as one."""
    rows = {" | ".join(arms): by_seed for arms, by_seed in records.values(contrast.quantity).items()}
    total = 0.0
    for arm in unmoved:
        arms = contrast.chosen[arm].take if arm in contrast.chosen else (arm,)
        halves = [half_width(row, contrast) for each in arms for row in rows[each].values()]
        total += (contrast.weights[arm] * float(np.mean(halves))) ** 2
    if not total or not math.isfinite(total):
        return over_seeds
    low, high = over_seeds.value - over_seeds.low, over_seeds.high - over_seeds.value
    return replace(
        over_seeds,
        low=over_seeds.value - math.sqrt(low**2 + total),
        high=over_seeds.value + math.sqrt(high**2 + total),
        of_runs=True,
    )


def half_width(row: Row, contrast: Contrast) -> float:
    """Of a run's own interval, on the scale of the contrast."""
    value, low, high = (scaled(number, contrast) for number in (row.value, row.low, row.high))
    return max(high - value, value - low)


def exam_verdicts(records: Records) -> Iterator[StudyVerdict]:
    """Every test of the measures in this study's exams, on every tuple of arms that has its quantities."""
    from eyechart.measures import choose_measures

    plans = {measure: exam.options for exam in records.study.exams if exam.judged for measure in exam.measures}
    for name, options in plans.items():
        (measure,) = choose_measures(
            [name], {key: value for key, value in options.items() if key.startswith(f"{name}.")}
        )
        for test in asked_of([measure]):
            if (test.claim, test.reading) in records.study.replaces:
                continue
            parts = [of_tuples(records, part.quantity) for part in test.parts]
            for subjects in parts[0]:
                if all(subjects in by_subjects for by_subjects in parts):
                    verdict = exam_verdict(
                        test, name, subjects, [by_subjects[subjects] for by_subjects in parts], records
                    )
                    if verdict is not None:
                        yield verdict


def of_tuples(records: Records, quantity: str) -> Mapping[tuple[str, ...], Mapping[int, Row]]:
    """A quantity of each tuple of subjects, by seed, all from one exam: that with most seeds, of equals the first."""
    by_exam: dict[tuple[str, ...], dict[str, dict[int, Row]]] = {}
    for seed, row in records.rows_of(quantity):
        by_exam.setdefault(row.subjects, {}).setdefault(row.exam, {})[seed] = row
    return {subjects: max(exams.values(), key=len) for subjects, exams in by_exam.items()}


def exam_verdict(
    test: ClaimTest, measure: str, subjects: tuple[str, ...], parts: list[Mapping[int, Row]], records: Records
) -> StudyVerdict | None:
    recorded_facts = [records.facts(subject.partition("@")[0]) for subject in subjects]
    finite = [[row for row in by_seed.values() if math.isfinite(row.value)] for by_seed in parts]
    if not all(finite):
        return None
    intervals = tuple(of_seeds(rows) for rows in finite)
    facts = [
        replace(fact, subject=name) for fact, name in zip(recorded_facts, subjects, strict=True) if fact is not None
    ]
    if len(facts) < len(subjects):
        return None
    verdict = judged(eased(test, subjects, records.study), subjects, intervals, facts, records.study.name)
    made = {
        line["tests"].get(key_of(test)) for line in records.lines if "tests" in line and measure in line["measures"]
    }
    registered = "before the runs" if made <= {hash_of(test)} else "before the runs, changed since"
    draws = tuple({seed: row.value for seed, row in by_seed.items()} for by_seed in parts)
    sizes = unequal_sizes(subjects, records)
    asked = asked_seeds(records.study, (subject.partition("@")[0] for subject in subjects))
    return StudyVerdict(records.study.name, verdict, intervals, draws, registered, test, sizes, asked)


def eased(test: ClaimTest, subjects: Sequence[str], study: Study) -> ClaimTest:
    """The test as arms that saw a part of the data are asked: they need only be trained, for none reaches an accuracy
    that all of the data gives."""
    arms = [study.arms.get(subject.partition("@")[0]) for subject in subjects]
    if all(arm is None or arm.settings.get("fraction", 1.0) == 1.0 for arm in arms):
        return test
    return replace(test, gates=tuple(TRAINED if gate is ACCURACY else gate for gate in test.gates))
