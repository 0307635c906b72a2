"""What is printed, laid out by a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.tables import subject_colours
from eyechart.measures import measures
from eyechart.report import page

from .browser import Browser
from .synthetic import as_run, resnet, synthetic_run, vit

WORDS = (Path(__file__).parent / "paper_words.js").read_text(encoding="utf-8").partition("\n")[2]
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
def test_what_holms_correction_takes_away_is_dashed_on_paper_too(browser: Browser, tmp_path: Path) -> None:
    """A solid line, which stands in for the ground of the others, lay over its dashes."""
    printed(browser, tmp_path)
    stamps = "[...document.querySelectorAll('.glance .stamp%s')].map((each) => getComputedStyle(each).borderTopStyle)"
    assert set(browser.ask(stamps % ".corrected-away")) == {"dashed"}
    assert set(browser.ask(stamps % ":not(.corrected-away)")) == {"solid"}
    assert browser.ask("document.querySelector('.glance .stamps').getBoundingClientRect().right") >= 1 + float(
        browser.ask("document.querySelector('.glance .stamps .stamp:last-child').getBoundingClientRect().right")
    )


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_signs_of_lists_have_room_in_their_columns(browser: Browser, tmp_path: Path) -> None:
    """They stood left of the page, which cut them, and in the next column on the words of the first."""
    printed(browser, tmp_path)
    for name in ("notices", "references"):
        list_, item = (f"document.querySelector('#{name} {tag}').getBoundingClientRect().left" for tag in ("ul", "li"))
        assert browser.ask(f"{item} - {list_}") >= 12
        assert browser.ask(list_) >= 0


def wide_chart(finding: xr.Dataset) -> Any:
    """Six panels in a row, 2,000 pixels."""
    frame = pd.DataFrame({"depth": [0.0, 1.0], "value": [0.2, 0.7], "subject": ["zoo:vit"] * 2})
    curve = theme.curve(frame, theme.depth_axis(), alt.Y("value:Q"), subject_colours(["zoo:vit"]))
    return theme.panels([theme.panel(curve, (300, 200), "ratio") for _ in range(6)], columns=6)


def two_tall_rows(finding: xr.Dataset) -> Any:
    """Each with a legend; it would fit on a sheet of its own."""
    names = ["zoo:vit", "zoo:resnet"]
    frame = pd.DataFrame({"depth": [0.0, 1.0] * 2, "value": [0.2, 0.7, 0.1, 0.3], "subject": names + names[::-1]})
    curve = theme.curve(frame, theme.depth_axis(), alt.Y("value:Q"), subject_colours(names))
    return theme.panels([theme.panel(curve, (420, 400), "ratio") for _ in range(2)], columns=1, shared=())


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_a_figure_as_high_as_a_sheet_is_cut_between_its_rows(browser: Browser, tmp_path: Path) -> None:
    """Kept whole it left two thirds of the sheet before empty. A legend stays with the row above it."""
    run = synthetic_run(tmp_path)
    run.measures["feature_variance"].chart = two_tall_rows
    browser.open(page.write_report(as_run(run)))
    assert browser.wait_for("document.querySelectorAll('.over-pages .strip').length > 0")
    browser.page.emulate_media(media="print")
    height = "(strip) => strip.getBoundingClientRect().height"
    strips = browser.ask(f"[...document.querySelectorAll('.strip')].map({height})")
    assert len(strips) == 2
    assert abs(strips[0] / strips[1] - 1) < 0.15  # a row and its legend each


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_sections_are_as_close_as_print_asks(browser: Browser, tmp_path: Path) -> None:
    """The distances of the screen, 68 pixels, came after those of print and won; one sheet of ten was half empty."""
    printed(browser, tmp_path)
    above = browser.ask(
        "[...document.querySelectorAll('.measure + .measure')].map((section) => getComputedStyle(section))"
        ".map((style) => parseFloat(style.marginTop) + parseFloat(style.paddingTop))"
    )
    assert above
    assert max(above) <= 26
    assert browser.ask("getComputedStyle(document.querySelector('.measure > .chart')).marginTop") == "6px"
    assert browser.ask("getComputedStyle(document.querySelector('.about')).breakInside") == "auto"
    first = browser.ask("getComputedStyle(document.querySelector('#references li')).marginTop")
    assert first == "0px"  # a break between columns drops it in the second, whose first line stood higher


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_nothing_on_paper_is_smaller_than_six_points(browser: Browser, tmp_path: Path) -> None:
    """Words of wide figures were 3.8 points high, numbers under the pictures of verdicts 4.9."""
    run = synthetic_run(tmp_path)
    run.measures["feature_variance"].chart = wide_chart
    for language in ("en", "ko"):
        browser.open(page.write_report(as_run(run), lang=language))
        browser.page.emulate_media(media="print")
        browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        words = browser.page.evaluate(WORDS)
        assert len(words) > 500
        assert [said for said in words if said[0] < 6] == []


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_figures_are_printed_in_the_language_that_is_shown(browser: Browser, tmp_path: Path) -> None:
    """A page switched to Korean was printed with English figures."""
    pages = {}
    for language in ("en", "ko"):
        file = page.write_report(as_run(synthetic_run(tmp_path / language)), lang=language)
        pages[language] = file
    pictures = "[...document.querySelectorAll('.still')].map((each) => [decodeURIComponent(each.src), each.width])"
    shown = {}
    for language, file in pages.items():
        browser.open(file)
        other = "ko" if language == "en" else "en"
        before = browser.ask("document.querySelector('.still').src")
        browser.ask(f"document.querySelector('[data-language={other}]').click()")
        assert browser.wait_for(f"document.querySelector('.still').src !== {json.dumps(before)}")
        browser.page.wait_for_timeout(300)
        switched = browser.ask(pictures)
        browser.open(pages[other])
        shown[language] = (switched, browser.ask(pictures))
    for switched, made in shown.values():
        for (one, _), (two, _) in zip(switched, made, strict=True):
            assert words_in(one) == words_in(two)
            assert one.count("data:image/png") == two.count("data:image/png")
    browser.ask("document.querySelector('[data-language=ko]').click()")


def words_in(picture: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", picture)


ENGLISH = r"\b(click|tap|hover|tooltip|pointer|drag|arrow keys?|downloads?)\b"
KOREAN = "클릭|누르|누른|툴팁|내려받|화살표"
ASKING = re.compile(f"{ENGLISH}|{KOREAN}", re.IGNORECASE)
SHOWN = """
(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), said = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.parentElement.closest("script, style") && node.parentElement.checkVisibility()) said.push(node.data);
  }
  return said.join("\\n");
})()
"""


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_paper_asks_for_nothing_that_only_a_screen_can_do(browser: Browser, tmp_path: Path) -> None:
    browser.open(page.write_report(as_run(synthetic_run(tmp_path)), tour_first=True))
    browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert "Pick a block" in browser.page.evaluate(SHOWN)
    browser.page.emulate_media(media="print")
    for language in ("en", "ko"):
        browser.ask(f"document.querySelector('[data-language={language}]').click()")
        assert ASKING.search(browser.page.evaluate(SHOWN)) is None
    assert "Pick a block" not in browser.page.evaluate(SHOWN)


def test_how_figures_are_read_is_true_on_paper_too() -> None:
    told = {name: f"{room.how_to_read} {room.how_to_read_ko} {room.method}" for name, room in measures().items()}
    assert {name for name, words in told.items() if ASKING.search(words)} == set()


@pytest.mark.parametrize("browser", [A4], indirect=True)
def test_headings_of_the_tour_stay_with_their_figures(browser: Browser, tmp_path: Path) -> None:
    """A heading and the first of two lines under it stood at the foot of a sheet, and the figure on the next."""
    browser.open(page.write_report(as_run(synthetic_run(tmp_path)), tour_first=True))
    browser.page.emulate_media(media="print")
    kept = "[...document.querySelectorAll('%s')].map((each) => getComputedStyle(each)['%s'])"
    assert set(browser.ask(kept % (".tour > li > h3, .tour > li > h3 + p", "break-after"))) == {"avoid"}
    assert set(browser.ask(kept % (".tour > li > h3 + p, .slot figure", "break-inside"))) == {"avoid"}
    for shown in (".slot:has(figure) > p", ".tour-of"):  # links and choices
        assert browser.ask(f"[...document.querySelectorAll('{shown}')].every((each) => !each.checkVisibility())")
