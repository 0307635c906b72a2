"""What is recorded, and what it says of every claim: read once a file of tests."""

import pytest

from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import Answer, all_records, answers
from eyechart.studies.records import Records


@pytest.fixture(scope="module")
def records() -> list[Records]:
    return all_records()


@pytest.fixture(scope="module")
def found(records: list[Records]) -> list[Answer]:
    return answers(records, BundledExams.read().verdicts)
