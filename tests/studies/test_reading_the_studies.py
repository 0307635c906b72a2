"""The page of the studies in a browser: folded claims, filters, and links to what is folded or filtered out."""

from collections import Counter
from pathlib import Path

import pytest

from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import Answer
from eyechart.studies.page import STATES, page, state_of_claim
from eyechart.studies.summary import summary
from tests.report.browser import Browser

SHOWN = "[...document.querySelectorAll('{}')].filter((each) => !each.hidden).length"


@pytest.fixture(scope="module")
def file(found: list[Answer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every claim, but no figure of a study: these take seconds."""
    path = tmp_path_factory.mktemp("page") / "studies.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eyechart.studies.page.earlier", lambda *given: {})  # it asks for the records of every study
        path.write_text(page(found, [], [], BundledExams.read()), encoding="utf-8")
    return path


def choose(browser: Browser, field: str, value: str) -> None:
    browser.ask(f"((field) => {{ field.value = {value!r}; field.dispatchEvent(new Event('input')); }})({field})")


def test_states_of_claims_are_those_that_are_counted(found: list[Answer]) -> None:
    counted, numbers = Counter(map(state_of_claim, found)), summary(found)
    assert counted == {
        "over-seeds": numbers.over_seeds,
        "on-weights": numbers.of_weights,
        "undecided": numbers.undecided,
        "not-yet": numbers.not_yet,
    }
    assert set(counted) == set(STATES)


def test_claims_are_folded_and_a_link_opens_its_own(browser: Browser, file: Path) -> None:
    """Unfolded the page was 58,700 px high, and 123,600 on a phone."""
    browser.open(file)
    assert browser.ask("document.querySelectorAll('.claim-fold[open]').length") == 0
    assert browser.ask("document.documentElement.scrollHeight") < 12_000
    browser.ask("document.querySelector('.glance a[href=\"#C24\"]').click()")
    assert browser.wait_for("document.getElementById('C24').open")
    choose(browser, "document.getElementById('find-state')", "not-yet")
    assert browser.ask("document.getElementById('C24').hidden")
    browser.ask("document.querySelector('.counts a').click()")  # one that is decided
    assert browser.wait_for("document.querySelector('.claim-fold:target')?.open")
    assert browser.ask(SHOWN.format(".claim-fold")) == browser.ask("document.querySelectorAll('.claim-fold').length")
    assert not browser.complaints


def test_claims_are_filtered_by_what_a_study_said_of_them(browser: Browser, file: Path, found: list[Answer]) -> None:
    browser.open(file)
    choose(browser, "document.getElementById('find-study')", "base")
    choose(browser, "document.getElementById('find-kind')", "fails")
    said = [
        each for each in found if any((one.study, one.verdict.verdict) == ("base", "fails") for one in each.studied)
    ]
    assert 0 < len(said) < len(found)
    for selector in (".claim-fold", ".glance li"):
        assert browser.ask(SHOWN.format(selector)) == len(said)
    browser.ask("document.querySelector('[data-language=ko]').click()")
    words = f"주장 {len(found)}개 가운데 {len(said)}개"
    assert browser.ask("document.querySelector('.find-said').textContent") == words
    browser.ask("document.querySelector('[data-unfold=yes]').click()")
    assert browser.ask("document.querySelectorAll('.claim-fold[open]').length") == len(said)
    browser.ask("document.querySelector('.tally [data-state=undecided]').click()")
    assert browser.ask(SHOWN.format(".claim-fold")) == summary(found).undecided


def test_on_paper_everything_is_unfolded(browser: Browser, file: Path) -> None:
    browser.open(file)
    browser.page.emulate_media(media="print")
    tables = "[...document.querySelectorAll('.claim-fold .verdicts')]"
    assert browser.ask(f"{tables}.every((each) => each.checkVisibility())")
