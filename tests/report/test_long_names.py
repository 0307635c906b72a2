"""Names as long as timm's where there is little room: whole where they fit on a line, else broken at their signs."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyechart.report import page

from .browser import Browser
from .synthetic import as_run, synthetic_run

DESK, PHONE = (1440, 900), (390, 844)
NAMES = ("timm:vit_small_patch16_224@random", "timm:resnet18@random")
UNFOLD = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
HEIGHTS = "[...document.querySelectorAll('%s')].map((each) => each.getBoundingClientRect().height)"
TWO_LINES = 32


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page.write_report(as_run(synthetic_run(tmp_path_factory.mktemp("names"), *NAMES)))


@pytest.mark.parametrize("browser", [DESK, PHONE], indirect=True)
def test_names_are_whole_beside_their_numbers(browser: Browser, file: Path) -> None:
    """In verdicts they were broken in mid-word (`@rand om`), on a phone beside numbers too (`resn et18@ran dom`)."""
    browser.open(file)
    browser.ask(UNFOLD)
    for selector in (".part .name", ".why .name", ".quantities .subject"):
        heights = browser.ask(HEIGHTS % selector)
        assert heights, selector
        assert max(heights) < TWO_LINES, selector


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_a_number_and_its_interval_stay_on_one_line_below_a_long_name(browser: Browser, file: Path) -> None:
    browser.open(file)
    browser.ask(UNFOLD)
    tops = browser.ask(
        "[...document.querySelectorAll('.quantities tbody tr')].map((row) => "
        "[...row.cells].slice(1).map((cell) => Math.round(cell.getBoundingClientRect().top)))"
    )
    assert tops
    for name, number, interval in tops:
        assert name < number == interval


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_a_name_longer_than_its_line_is_broken_at_its_signs(browser: Browser, tmp_path: Path) -> None:
    """A piece between two signs lies on one line; the page was 507 pixels wide."""
    name = "swin_tiny_patch4_window7_with_a_label_of_sixty_letters_s0_e1"
    run = synthetic_run(tmp_path, name)
    run.measures["feature_variance"].sentence = lambda _: f"It says more of {name}, and says it here."
    browser.open(page.write_report(as_run(run)))
    browser.ask(UNFOLD)
    for selector in (".part .name", ".says .name", ".quantities .long .subject"):
        assert max(browser.ask(HEIGHTS % selector)) > TWO_LINES, selector
        lines = browser.ask(
            f"[...document.querySelectorAll('{selector}')].flatMap((name) => [...name.childNodes])"
            ".filter((piece) => piece.data).map((piece) => { const text = document.createRange();"
            "text.selectNode(piece); return text.getClientRects().length; })"
        )
        assert set(lines) - {0} == {1}, selector
    assert browser.ask("document.documentElement.scrollWidth") == PHONE[0]


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_a_long_label_with_blanks_leaves_room_for_the_accuracy(browser: Browser, tmp_path: Path) -> None:
    """It stayed on one line at the head, and accuracy and weights lay beyond the edge of the table."""
    names = "residual network, width 8, MC-dropout, weak recipe, last EMA", "swin_tiny_patch4_window7_label_of_sixty"
    browser.open(page.write_report(as_run(synthetic_run(tmp_path, *names))))
    assert min(browser.ask(HEIGHTS % "#subjects .long .subject")) > 0
    box = "document.querySelector('#subjects .wide')"
    wide, room = browser.ask(f"[{box}.scrollWidth, {box}.clientWidth]")
    assert wide <= room
