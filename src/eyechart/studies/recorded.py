"""How far a study is recorded and what it decides, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

from eyechart.studies.records import Records
from eyechart.studies.study import Study

UNEQUAL = 0.05
"""Sizes that differ by more than this share are told beside what compares them."""
MOST_NAMED = 6


def trained(records: Records) -> int:
    """How many of a study's own trainings are recorded."""
    return sum(records.training(arm.name, seed) is not None for arm, seed in records.study.runs)


def state_of(records: Records) -> str:
    runs, made = len(records.study.runs), trained(records)
    if not made:
        return f"None of its {runs} trainings is recorded yet."
    return f"{'All' if made == runs else f'{made} of'} {runs} trainings are recorded."


def missing_exams(records: Records) -> list[str]:
    """By name, those that lack a line although all trainings they need are recorded."""
    study = records.study
    return [
        exam.name
        for exam in study.exams
        if trained(records)
        and any(
            all(records.training(arm, seed) for arm in group) and not records.exam(exam, group, seed)
            for group in exam.groups()
            for seed in study.seeds_of(group)
        )
    ]


def unequal_sizes(arms: Iterable[str], records: Records) -> str:
    """How many parameters the arms of a comparison have, where they differ by more than a few per cent; else empty."""
    sizes: dict[str, int] = {}
    for name in dict.fromkeys(arm.partition("@")[0] for arm in arms):
        arm = records.study.arms.get(name)
        lines = (records.training(name, seed) for seed in (arm.seeds if arm else ()))
        found = [int(line["parameters"]) for line in lines if line and "parameters" in line]
        if found:
            sizes[name] = found[0]
    if not sizes or max(sizes.values()) <= (1 + UNEQUAL) * min(sizes.values()):
        return ""
    if len(sizes) > MOST_NAMED:
        low, high = (f"{size / 1e6:.2f}" for size in (min(sizes.values()), max(sizes.values())))
        return f"Its {len(sizes)} arms differ in size: {low} to {high} million parameters."
    named = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in sizes.items())
    return f"The arms differ in size, in millions of parameters: {named}."


def decided_by(study: Study) -> str:
    """What a study is for.

    >>> from eyechart.studies.study import find
    >>> decided_by(find("equal_grids")), decided_by(find("fine_grids"))
    ('no claim of its own: what its exams ask is judged over its seeds', 'decides C78')
    """
    if study.tests:
        return f"decides {', '.join(sorted({test.claim for test in study.tests}))}"
    asked = ["what its exams ask is judged over its seeds"] if any(exam.judged for exam in study.exams) else []
    asked += ["its contrasts answer questions of the notes"] if study.contrasts else []
    return f"no claim of its own: {'; '.join(asked)}"
