"""Where a rule was changed after results were seen, the reader sees what the one before would have said."""

import re

import pytest

from eyechart.claims.earlier_rules import RULES
from eyechart.claims.table import CLAIMS
from eyechart.report.words import translator
from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import Answer
from eyechart.studies.earlier_rules import SAME, UNKNOWN, Earlier, earlier, summary_words
from eyechart.studies.markdown import markdown
from eyechart.studies.page import claim_context
from eyechart.studies.records import Records

NOT_RECORDED = {"C14", "C20", "C21", "C23", "C24", "C30", "C34", "C35", "C68"}


@pytest.fixture(scope="module")
def before(found: list[Answer], records: list[Records]) -> dict[str, Earlier]:
    return earlier(found, records, BundledExams.read())


def test_every_changed_claim_has_its_rule_before_or_says_that_its_number_is_missing(
    before: dict[str, Earlier],
) -> None:
    changed = {claim.id for claim in CLAIMS.values() if claim.changed}
    assert changed - RULES.keys() == NOT_RECORDED
    assert RULES.keys() <= changed
    assert {claim for claim, each in before.items() if each.words == UNKNOWN} == NOT_RECORDED & before.keys()
    assert all(each.differs or each.words for each in before.values())


def test_a_change_that_decides_is_seen(before: dict[str, Earlier], found: list[Answer]) -> None:
    """C15 fails by a part that was added: a drop of .1 alone holds for the pooled ViT over five seeds."""
    verdicts = {each.verdict.subjects: each.verdict for each in before["C15"].studied if not each.verdict.reading}
    assert verdicts["vit-gap", "resnet"].verdict == "holds"
    assert verdicts["vit", "resnet"].verdict == "undecided"
    (today,) = (each for each in found if each.claim.id == "C15")
    assert {each.verdict.verdict for each in today.studied} == {"fails"}
    assert before["C31"].studied[0].verdict.verdict == "holds"
    assert {each.verdict.subjects: each.verdict.verdict for each in before["C56"].studied} == {
        ("vit",): "holds",
        ("vit-gap",): "fails",
    }
    assert before["C28"].examined == (), "a ratio of 16 that may be 1.5 decided nothing then, either"
    assert before["C10"] == Earlier(words=SAME)
    assert before["C42"].words == SAME, "a study's own contrasts"


def test_what_is_shown_of_it_comes_out_otherwise_than_today(before: dict[str, Earlier], found: list[Answer]) -> None:
    for answer in found:
        each = before.get(answer.claim.id, Earlier())
        for verdict in [*(one.verdict for one in each.studied), *each.examined]:
            now = {one.verdict for one in answer.verdicts if one.subjects == verdict.subjects}
            assert now - {verdict.verdict}, answer.claim.id
            assert verdict.stands is None, "it is no verdict of ours: it counts nowhere"


def test_it_stands_on_the_page_and_in_the_text_marked_as_not_counting(
    before: dict[str, Earlier], found: list[Answer], records: list[Records]
) -> None:
    text = markdown(found, records, [], BundledExams.read())
    entry = text[text.index('<a id="c15">') : text.index('<a id="c16">')]
    mark = "- By the rule before that change; it does not count: **Holds over 5 seeds**: vit-gap, resnet"
    assert mark in entry
    assert summary_words(before) in text
    assert re.search(r"does not count: C05, C15, .*C31.*C58", summary_words(before))
    (answer,) = (each for each in found if each.claim.id == "C15")
    rows = claim_context(answer, before["C15"])["before"]
    assert [(row["kind"].word, row["registered"]) for row in rows] == [
        ("undecided", ""),
        ("holds", ""),
        ("undecided", ""),
    ]


def test_its_words_are_there_in_korean() -> None:
    say = translator([], ["vit", "resnet"])
    parts = [part for rules in RULES.values() for rule in rules if not rule.study for part in rule.test.parts]
    assert [part.words for part in parts if say(part.words.format("vit", "resnet")) is None] == []
