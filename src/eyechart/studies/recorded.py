"""How far a study is recorded, in sentences for its page."""

from __future__ import annotations

from eyechart.studies.records import Records


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
