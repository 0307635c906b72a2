"""The page in a real browser as it looks: what is cut off, broken in the middle or laid over something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyechart.report import page

from .browser import Browser
from .synthetic import as_run, synthetic_run

DESK, PHONE = (1400, 900), (390, 844)
#: Over how many lines the text of each element runs.
LINES = """((selector) => [...document.querySelectorAll(selector)].map((element) => {
  const text = document.createRange();
  text.selectNodeContents(element);
  return new Set([...text.getClientRects()].map(({ top }) => Math.round(top))).size;
}))"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page.write_report(as_run(synthetic_run(tmp_path_factory.mktemp("layout"))))


@pytest.mark.parametrize("browser", [DESK, PHONE], indirect=True)
def test_names_of_claims_stay_on_one_line(browser: Browser, file: Path) -> None:
    browser.open(file)
    assert set(browser.ask(f"{LINES}('.glance .id')")) == {1}


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_a_phone_shows_all_of_every_subject(browser: Browser, file: Path) -> None:
    """Accuracy was four columns off the screen."""
    browser.open(file)
    edges = "[...document.querySelectorAll('#subjects td')].map((cell) => cell.getBoundingClientRect().right)"
    assert max(browser.ask(edges)) <= 390
    label = "document.querySelector('#subjects td:nth-child(8)').dataset.label"
    assert browser.ask(label) == "Accuracy, common crop"
    browser.ask("document.querySelector('[data-language=ko]').click()")
    assert browser.ask(label) == "정확도, 공통 크롭"
