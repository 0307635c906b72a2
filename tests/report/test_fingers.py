"""A phone: what a finger does to a chart, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.tables import subject_colours
from eyechart.report import page, words

from .browser import Browser
from .one_figure import drawn
from .synthetic import as_run, synthetic_run
from .test_explorer import run_with_maps
from .test_reading import PHONE, PLACE_OF_LEGEND, to_figure

TOUCHED = [(*PHONE, {"has_touch": True, "is_mobile": True})]
TOLD = "document.querySelector('#vg-tooltip-element.visible')"

MARKS = """((name, kind) => {
  const found = [], canvas = document.querySelector(`[data-chart=${name}] canvas`);
  const edge = canvas.getBoundingClientRect(), { view } = window.eyechart.views.get(canvas.closest('figure'));
  window.eyechart.visit(view, ({ bounds, datum }, { marktype }, x, y) => {
    if (marktype !== kind || typeof datum?.name !== 'string') return;
    found.push({ x: edge.x + x + (bounds.x1 + bounds.x2) / 2, y: edge.y + y + (bounds.y1 + bounds.y2) / 2, datum });
  });
  return found;
})"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fingers")
    run = run_with_maps(folder)
    run.findings = synthetic_run(folder).findings | run.findings
    return page.write_report(as_run(run))


def marks(browser: Browser, figure: str, kind: str) -> list[dict[str, Any]]:
    """In the middle of the window, where nothing lies over them."""
    to_figure(browser, figure)
    tall = 0.0
    while tall != (tall := browser.ask("document.documentElement.scrollHeight")):  # a figure above is still drawn
        browser.page.wait_for_timeout(600)
    browser.ask(f"document.querySelector('[data-chart={figure}] canvas').scrollIntoView({{ block: 'center' }})")
    found: list[dict[str, Any]] = browser.ask(f"{MARKS}('{figure}', '{kind}')")
    return [mark for mark in found if 80 < mark["y"] < PHONE[1] - 80]


@pytest.mark.parametrize("browser", [*TOUCHED, (1400, 900)], indirect=True)
def test_words_are_those_of_the_hand_that_reads(browser: Browser, file: Path) -> None:
    """On a phone the explorer said to click and to use arrow keys."""
    browser.open(file)
    fingers = browser.ask("window.matchMedia('(pointer: coarse)').matches")
    browser.ask("document.getElementById('explorer').scrollIntoView()")
    assert browser.wait_for("!document.querySelector('#explorer [data-part=table]').hidden")
    said = browser.page.locator("#explorer").inner_text()
    assert bool(re.search(r"\b(click|arrow keys)\b", said, re.IGNORECASE)) is not fingers
    assert bool(re.search(r"\btap\b", said, re.IGNORECASE)) is fingers
    browser.ask("document.querySelector('[data-language=ko]').click()")
    assert ("화살표 키" in browser.page.locator("#explorer").inner_text()) is not fingers


def test_what_scripts_say_is_true_of_every_hand() -> None:
    hands = re.compile(r"\b(click|tap|mouse|finger)\b", re.IGNORECASE)
    of_one_hand = {said for said in words.all_script_words() if hands.search(said)}
    assert {said.partition(" ")[0] for said in of_one_hand} == {"Draw", "Hold"}  # each for its own


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
def test_a_tap_beside_a_point_picks_it(browser: Browser, file: Path) -> None:
    """Vega hears of a mark by a pointer that moves over it; a finger comes down, and nothing was picked or told."""
    browser.open(file)
    heads = marks(browser, "attention_distance", "symbol")
    lowest = max(heads, key=lambda mark: float(mark["y"]))
    browser.page.touchscreen.tap(lowest["x"], lowest["y"] + 9)
    assert browser.wait_for("document.querySelector('.brushed')?.dataset.heads === '1'")
    layer = lowest["datum"]["name"].removesuffix(" attention")
    assert browser.ask("window.eyechart.state.layers") == [{"subject": lowest["datum"]["subject"], "name": layer}]


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
def test_a_tap_on_a_cell_tells_it_till_the_next_touch(browser: Browser, file: Path) -> None:
    browser.open(file)
    cells = marks(browser, "cka", "rect")
    for cell in (cells[0], max(cells, key=lambda each: float(each["x"]))):  # beside a finger there is no room for words
        browser.page.touchscreen.tap(cell["x"], cell["y"])
        assert browser.wait_for(TOLD)
        told = browser.ask(f"[...{TOLD}.querySelectorAll('td.value')].map((each) => each.innerText)")
        assert told[:2] == [cell["datum"]["name"], cell["datum"]["other_name"]]
        box = browser.ask(f"{TOLD}.getBoundingClientRect().toJSON()")
        assert box["left"] >= 0
        assert box["right"] <= PHONE[0]
        shown = f"{cell['datum']['name']} {cell['datum']['other_name']}"
        assert browser.wait_for(f"document.querySelector('.cell')?.dataset.shown === '{shown}'")
        browser.page.touchscreen.tap(200, 20)
        assert browser.wait_for(f"!{TOLD}")


POINTS_OF_CELL = """(() => {
  const found = [], cell = document.querySelector('.cell'), edge = cell.querySelector('canvas').getBoundingClientRect();
  window.eyechart.visit(window.eyechart.others.get(cell), ({ bounds, datum }, { marktype }, x, y) => {
    const middle = () => [edge.x + x + (bounds.x1 + bounds.x2) / 2, edge.y + y + (bounds.y1 + bounds.y2) / 2];
    if (marktype === 'symbol') found.push([...middle(), datum.layer]);
  });
  return found;
})()"""


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
@pytest.mark.parametrize("beside", [13, -40])
def test_a_tap_above_or_below_a_point_under_a_cell_tells_it(browser: Browser, file: Path, beside: int) -> None:
    """Its points answered to an exact tap alone: layers of a ResNet stand 7 pixels apart there."""
    browser.open(file)
    cell = marks(browser, "cka", "rect")[0]
    browser.page.touchscreen.tap(cell["x"], cell["y"])
    assert browser.wait_for("document.querySelector('.cell')?.dataset.shown")
    browser.page.touchscreen.tap(200, 20)
    browser.ask("document.querySelector('.cell').scrollIntoView({ block: 'center' })")
    browser.page.wait_for_timeout(300)
    x, y, layer = browser.ask(POINTS_OF_CELL)[1]
    browser.page.touchscreen.tap(x, y + beside)
    assert browser.wait_for(TOLD)
    assert browser.ask(f"{TOLD}.querySelector('td.value').innerText") == layer


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
def test_lines_of_the_contents_are_as_high_as_a_finger_needs(browser: Browser, file: Path) -> None:
    """24 pixels: WCAG 2.2, target size (minimum)."""
    browser.open(file)
    browser.page.tap(".menu > summary")
    heights = "[...document.querySelectorAll('.side li a, .side select, .side .check, .side button')]"
    shown = f"{heights}.filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect().height)"
    assert len(browser.ask(shown)) > 10
    assert min(browser.ask(shown)) >= 24


@pytest.mark.parametrize("browser", [(*PHONE, {"java_script_enabled": False})], indirect=True)
def test_without_javascript_a_figure_is_moved_and_not_shrunk(browser: Browser, file: Path) -> None:
    browser.open(file)
    picture = browser.page.locator("[data-chart=cka] .still")
    box, figure = picture.bounding_box(), browser.page.locator("[data-chart=cka]").bounding_box()
    assert box
    assert figure
    own = float(picture.get_attribute("width") or 0)
    assert own > PHONE[0]
    assert box["width"] == pytest.approx(own, abs=1)
    assert figure["x"] + figure["width"] <= PHONE[0]  # the page is no wider than the window


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
def test_a_tap_on_a_legend_shows_a_subject_alone(browser: Browser, file: Path) -> None:
    browser.open(file)
    marks(browser, "feature_variance", "symbol")
    browser.page.touchscreen.tap(*browser.ask(PLACE_OF_LEGEND))
    assert browser.wait_for("document.documentElement.dataset.alone === 'zoo:resnet'")


def a_panel_each_and_all_together(_: xr.Dataset) -> Any:
    """As in `calibration`: higher than a phone, with a legend at its foot."""
    subjects = ["zoo:vit", "zoo:vit", "zoo:resnet", "zoo:resnet"]
    frame = pd.DataFrame({"subject": subjects, "x": [0.0, 1.0, 0.0, 1.0], "y": [0.0, 1.0, 1.0, 0.0]})
    base = alt.Chart(frame).encode(alt.X("x:Q"), alt.Y("y:Q"))
    own = [
        theme.of_subject(theme.panel(alt.layer(base.mark_point()), (300, 330), name), name)
        for name in dict.fromkeys(subjects)
    ]
    together = theme.panel(alt.layer(base.mark_point().encode(subject_colours(subjects))), (300, 330))
    return theme.panels([*own, together], columns=1, shared=())


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
def test_a_figure_stays_where_its_legend_was_tapped(browser: Browser, tmp_path: Path) -> None:
    """Of a figure higher than a phone, of which one panel was left, the text below it was seen."""
    figure = drawn(browser, tmp_path, a_panel_each_and_all_together)
    bottom, view = f"{figure}.getBoundingClientRect().bottom", f"window.eyechart.views.get({figure}).view"
    browser.ask(f"window.scrollBy(0, {bottom} - {PHONE[1] - 60})")
    browser.page.wait_for_timeout(600)
    before = browser.ask(bottom)
    assert browser.ask(f"{figure}.getBoundingClientRect().top") < 0
    browser.ask(f"window.before = {view}, 1")
    browser.page.touchscreen.tap(*browser.ask(PLACE_OF_LEGEND))
    assert browser.wait_for(f"{view} && {view} !== window.before")
    assert browser.wait_for(f"Math.abs({bottom} - {before}) < 40")


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
def test_what_floats_over_the_page_stands_side_by_side_or_in_two_lines(browser: Browser, file: Path) -> None:
    """One lay over the other, and a long one reached the edge of the window."""
    browser.open(file)
    layers = "['block 1', 'block 2'].map((name) => ({ subject: 'zoo:vit', name }))"
    browser.ask(f"(window.eyechart.set('layers', {layers}), window.eyechart.set('only', ['zoo:vit']), 1)")
    boxes = "[...document.querySelectorAll('button.alone')].map((each) => each.getBoundingClientRect().toJSON())"
    one, two = browser.ask(boxes)
    assert one["bottom"] <= two["top"] or one["right"] <= two["left"]
    for box in (one, two):
        assert box["left"] >= 18
        assert box["right"] <= PHONE[0] - 18
        assert box["bottom"] <= PHONE[1] - 18


@pytest.mark.parametrize("browser", TOUCHED, indirect=True)
def test_a_figure_far_away_is_drawn_again_when_it_comes_near(browser: Browser, file: Path) -> None:
    """All were drawn at once: after a whole page was read, a change of language held a core for four seconds."""
    browser.open(file)
    figures = "[...document.querySelectorAll('figure[data-chart]')].filter((each) => each.checkVisibility())"
    for number in range(browser.ask(f"{figures}.length")):
        browser.ask(f"{figures}[{number}].scrollIntoView()")
        assert browser.wait_for(f"window.eyechart.views.get({figures}[{number}])?.view")
    last = f"window.eyechart.views.get({figures}.at(-1)).view"
    browser.ask(f"(window.last = {last}, window.scrollTo(0, 0), 1)")
    browser.page.wait_for_timeout(600)
    browser.ask("document.querySelector('[data-language=ko]').click()")
    browser.page.wait_for_timeout(1500)
    assert browser.ask(f"{last} === window.last")
    browser.ask(f"{figures}.at(-1).scrollIntoView()")
    assert browser.wait_for(f"{last} && {last} !== window.last")
