"""What is printed, laid out by a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eyechart.report import page

from .browser import Browser
from .synthetic import as_run, resnet, synthetic_run, vit

A4 = (703, 1000)  # pixels between its margins


def printed(browser: Browser, folder: Path) -> None:
    run = synthetic_run(folder)
    run.scene = replace(run.scene, anatomies=(vit("zoo:vit"), vit("zoo:vit-2"), resnet("zoo:resnet")))
    run.plan["subjects"].insert(1, {**run.plan["subjects"][0], "name": "zoo:vit-2"})
    run.verdicts = [each for each in run.verdicts for _ in range(2)]  # each claim on two pairs
    browser.open(page.write_report(as_run(run)))
    browser.page.emulate_media(media="print")


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_each_verdict_names_its_claim_for_a_page_may_begin_with_it(browser: Browser, tmp_path: Path) -> None:
    printed(browser, tmp_path)
    again = browser.page.locator(".verdicts tr.again")
    assert again.count() > 0
    for row in again.all():
        assert row.locator(".claim .id").is_visible()
        assert not row.locator(".claim p").first.is_visible()  # the sentence stands above, once
    browser.page.emulate_media(media="screen")
    assert not again.first.locator(".claim .id").is_visible()


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_signs_of_lists_have_room_in_their_columns(browser: Browser, tmp_path: Path) -> None:
    """They stood left of the page, which cut them, and in the next column on the words of the first."""
    printed(browser, tmp_path)
    for name in ("notices", "references"):
        list_, item = (f"document.querySelector('#{name} {tag}').getBoundingClientRect().left" for tag in ("ul", "li"))
        assert browser.ask(f"{item} - {list_}") >= 12
        assert browser.ask(list_) >= 0
