"""The page in a real browser as readers use it: search, filters, links, linked looking, print, no JavaScript, axe."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from eyechart.charts import theme
from eyechart.report import page

from .browser import Browser, chromium
from .synthetic import as_run, synthetic_run, vit
from .test_explorer import run_with_maps

DESK, PHONE = (1400, 900), (390, 844)
DARK: dict[str, Any] = {"color_scheme": "dark"}
SEEN = "(selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility())"

MARKS_OF = """((figure) => {
  const found = [], look = (group) => group.items.forEach((mark) => mark.items.forEach((item) => {
    if (mark.marktype === 'group') look(item);
    else if (mark.marktype === 'symbol' && item.datum?.subject) found.push(item.datum);
  }));
  window.eyechart.views.get(figure).view.scenegraph().root.items.forEach(look);
  return found;
})"""

PLACE_OF_LEGEND = """(() => {
  const figure = document.querySelector('[data-chart=feature_variance]'), { view } = window.eyechart.views.get(figure);
  if (!view) return null; // it is being drawn
  const find = (group, x, y) => {
    for (const mark of group.items) for (const item of mark.items) {
      if (mark.role === 'legend-symbol' && item.datum.value === 'zoo:resnet') return [x + item.x, y + item.y];
      const found = mark.marktype === 'group' && find(item, x + item.x, y + item.y);
      if (found) return found;
    }
  };
  const [x, y] = view.origin(), { left, top } = view.padding();
  const edge = figure.querySelector('canvas').getBoundingClientRect();
  return find(view.scenegraph().root.items[0], x + left + edge.x, y + top + edge.y);
})()"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small page with everything on it: verdicts, four figures, the explorer."""
    folder = tmp_path_factory.mktemp("reading")
    run = run_with_maps(folder)
    run.findings = synthetic_run(folder).findings | run.findings
    first, last = run.scene.anatomies
    run.scene = replace(run.scene, anatomies=(first, vit("zoo:vit-2"), last))
    run.plan["subjects"].insert(1, {**run.plan["subjects"][0], "name": "zoo:vit-2"})
    return page.write_report(as_run(run))


def seen(browser: Browser, selector: str) -> list[str]:
    """The ids of what is visible, or its first words where it has none."""
    found: list[str] = browser.page.evaluate(
        f"(selector) => ({SEEN})(selector).map((each) => each.id || each.textContent.trim().slice(0, 40))", selector
    )
    return found


def visible(browser: Browser, selector: str) -> int:
    return len(seen(browser, selector))


def to_figure(browser: Browser, name: str) -> None:
    browser.ask(f"document.getElementById('measure-{name}').scrollIntoView()")
    assert browser.wait_for(f"window.eyechart.views.get(document.querySelector('[data-chart={name}]'))?.view")
    assert browser.wait_for(f"document.querySelector('[data-chart={name}]').dataset.marked !== undefined")


# --- search, filters, links, tables ----------------------------------------------------------------------------------


def test_search_shows_what_has_the_words_and_where(browser: Browser, file: Path) -> None:
    browser.open(file)
    sections = seen(browser, "section.measure")
    assert len(sections) == 5
    assert visible(browser, ".quantities") == 0  # folded
    browser.page.fill("#find-words", "lowest third uniformity")
    assert browser.wait_for("document.querySelectorAll('section.measure[hidden]').length === 4")
    assert seen(browser, "section.measure") == ["measure-cka"]
    assert visible(browser, "#measure-cka .quantities") == 1  # the words stand in that fold
    assert "measure-cka" not in seen(browser, ".side li a[href='#measure-feature_variance']")
    assert browser.ask("document.getElementById('find-said').textContent") == "0 of 4 tested claims, 1 of 5 figures"
    again = "(line) => line.after(line.cloneNode(true))"  # a claim that is read in two ways has two lines
    browser.ask(f"(({again})(document.querySelector('.glance li')))")
    browser.page.fill("#find-words", "lowest third uniformity ")
    assert browser.ask("document.getElementById('find-said').textContent").startswith("0 of 4 tested claims")
    browser.ask("document.querySelector('.glance li').remove()")
    browser.page.click("#find-reset")
    assert seen(browser, "section.measure") == sections
    assert visible(browser, ".quantities") == 0


def test_search_finds_the_same_claims_at_a_glance_and_in_the_table(browser: Browser, file: Path) -> None:
    """What was changed about a claim stands in the table alone: its row was found, and the claim at a glance not."""
    browser.open(file)
    browser.page.fill("#find-words", "bare majority")
    assert browser.wait_for("document.querySelectorAll('.glance li[hidden]').length > 0")
    table = set(seen(browser, "table.verdicts tr.found .id"))
    assert table == set(seen(browser, ".glance li .id")) == {"C58"}
    browser.page.fill("#find-words", "molluscs")
    assert browser.wait_for("!document.querySelector('.glance li:not([hidden])')")


SECOND = """(() => {
    const lines = [...document.querySelectorAll(".glance li")];
    const first = lines.find((line) => line.querySelector(".id").textContent === "C15");
    first.after(first.cloneNode(true));
    const second = first.nextElementSibling;
    second.classList.add("again");
    second.children[1].innerHTML = '<span class="short">Read so.</span><span class="whole">All of it. Read so.</span>';
    second.id = "second";
})()"""


def test_a_second_reading_is_told_whole_where_the_first_is_filtered_away(browser: Browser, file: Path) -> None:
    browser.open(file)
    browser.ask(SECOND)
    told = "#second > span:nth-of-type(2) > span"
    assert seen(browser, told) == ["Read so."]
    browser.page.select_option("#find-kind", "holds")  # C15 fails
    assert seen(browser, told) == ["All of it. Read so."]
    browser.page.select_option("#find-kind", "")
    assert seen(browser, told) == ["Read so."]


LINES_OF_WORDS = """[...document.querySelectorAll(".selects label")].filter((x) => x.checkVisibility()).map((label) => {
    const text = [...label.querySelectorAll("span[lang=en]")].find((each) => !each.closest("option")).firstChild;
    return text.data.split(" ").map((word) => {
        const range = document.createRange(), at = text.data.indexOf(word);
        range.setStart(text, at);
        range.setEnd(text, at + word.length);
        return [word, range.getClientRects().length];
    });
}).flat()"""


def test_no_word_of_the_filters_is_broken(browser: Browser, file: Path) -> None:
    """“compared with”, which appears with the first subject that is picked, was “compare / d with”."""
    browser.open(file)
    browser.page.select_option("#find-subject", "zoo:vit")
    lines = browser.ask(LINES_OF_WORDS)
    assert ["compared", 1] in lines
    assert [word for word, many in lines if many > 1] == []


def test_filters_by_verdict_paper_and_subject(browser: Browser, file: Path) -> None:
    browser.open(file)
    claims = ".glance li .id"
    assert seen(browser, claims) == ["C09", "C13", "C15", "C58"]
    browser.page.select_option("#find-kind", "fails")
    assert seen(browser, claims) == ["C15"]
    assert seen(browser, "section.measure") == ["measure-cka"]  # which decided it
    browser.page.select_option("#find-kind", "")
    browser.page.select_option("#find-paper", "Park & Kim 2022")
    assert seen(browser, claims) == ["C58"]
    assert set(seen(browser, "section.measure")) == {"measure-cka", "measure-feature_variance"}
    browser.page.click("#find-reset")
    browser.page.select_option("#find-subject", "zoo:vit")
    assert seen(browser, claims) == ["C09", "C13", "C15", "C58"]
    browser.page.select_option("#find-subject", "zoo:resnet")
    assert seen(browser, claims) == ["C13", "C15", "C58"]  # C09 speaks of the ViT alone
    assert seen(browser, "#subjects tbody th") == ["zoo:resnet"]
    browser.page.select_option("#find-other", "zoo:vit-2")  # a pair: nothing was said of these two
    assert seen(browser, claims) == []


def test_links_open_what_is_folded(browser: Browser, file: Path) -> None:
    browser.open(file, at="#verdict-C15-1")
    place = "document.getElementById('verdict-C15-1').getBoundingClientRect().top"
    assert browser.wait_for(f"{place} >= 0 && {place} < 300")
    assert visible(browser, "#verdict-C15-1 .part") == 1
    anchor = "#verdict-C58-1 .anchor"
    assert browser.ask(f"document.querySelector('{anchor}').hash") == "#verdict-C58-1"
    browser.page.select_option("#find-kind", "holds")
    browser.ask("(location.hash = 'verdict-C58-1')")
    assert browser.wait_for("document.getElementById('verdict-C58-1').checkVisibility()")  # filtered out before
    for identity in ("chapter-more", "measure-cka", "explorer"):
        assert visible(browser, f".anchor[href='#{identity}']") == 1


def test_tables_sort_three_ways(browser: Browser, file: Path) -> None:
    browser.open(file)
    rows = "#subjects tbody th"
    before = ["zoo:vit", "zoo:vit-2", "zoo:resnet"]
    assert seen(browser, rows) == before
    for order in (["zoo:resnet", "zoo:vit", "zoo:vit-2"], ["zoo:vit", "zoo:vit-2", "zoo:resnet"], before):
        browser.page.click("#subjects th:nth-child(5) button")  # blocks: 9, 9 and 8
        assert seen(browser, rows) == order
    assert browser.ask("document.querySelector('#subjects th[aria-sort]')") is None


def test_a_quantity_is_named_once_beside_all_its_subjects(browser: Browser, file: Path) -> None:
    """The first row had room for its name and what it is, and stood apart; a subject by itself had no name at all."""
    browser.open(file)
    browser.ask("document.querySelectorAll('#measure-cka details').forEach((fold) => { fold.open = true; })")
    names, value = "#measure-cka .quantities tbody th div", "#measure-cka .quantities thead th:nth-child(3) button"
    one, other = "uniformity", "uniformity difference"
    named = lambda: [name.split("mean")[0].split("uniformity of")[0] for name in seen(browser, names)]  # noqa: E731
    heights = "[...document.querySelectorAll('#measure-cka .quantities tbody tr')].map((row) => row.clientHeight)"
    assert named() == [one, other]
    first, second, *_ = browser.ask(heights)
    assert abs(first - second) < 8
    browser.page.click(value)
    assert named() == [one, other, one]
    browser.page.click(value)
    browser.page.click(value)
    assert named() == [one, other]
    browser.ask("window.eyechart.set('only', ['zoo:resnet'])")
    assert named() == [one, other]
    browser.ask("window.eyechart.set('only', [])")
    assert named() == [one, other]
    assert browser.ask("document.querySelector('#measure-cka .quantities tbody th').rowSpan") == 2
    # and a claim with two verdicts: the rule is below both
    rules = "[row, next].map((each) => getComputedStyle(each.querySelector('.claim')).borderBottomColor)"
    row = "const row = document.querySelector('table.verdicts tbody tr'), next = row.cloneNode(true)"
    within, below = browser.ask(f"(() => {{ {row}; next.classList.add('again'); row.after(next); return {rules}; }})()")
    assert within == "rgba(0, 0, 0, 0)" != below


# --- linked looking --------------------------------------------------------------------------------------------------


def test_a_layer_is_marked_everywhere_and_a_cell_becomes_curves(browser: Browser, file: Path) -> None:
    browser.open(file)
    browser.page.click("button.layer[data-subject='zoo:vit'][data-layer='block 3']")
    to_figure(browser, "feature_variance")
    assert browser.ask("document.querySelector('[data-chart=feature_variance]').dataset.marked") == "2"  # two junctions
    to_figure(browser, "cka")
    boxes = browser.ask(
        "[...document.querySelectorAll('[data-chart=cka] svg.rings rect')].map((each) => each.getBoundingClientRect())"
        ".map(({ x, y, width, height }) => [x, y, width, height])"
    )
    assert len(boxes) == 3  # row and column of its own map, column of the map with the other
    column, row = sorted(boxes[:2], key=lambda box: float(box[2]))
    assert column[3] == pytest.approx(row[2], abs=3) == pytest.approx(10 * column[2], rel=0.1)  # 10 sites
    middle = column[0] + column[2] / 2, row[1] + row[3] / 2
    browser.move(*middle)
    assert browser.wait_for("document.getElementById('vg-tooltip-element')?.classList.contains('visible')")
    told = browser.ask("[...document.querySelectorAll('#vg-tooltip-element td.value')].map((each) => each.innerText)")
    assert told == ["block 3", "block 3", "1.00"]
    told_of = "window.eyechart.tooltip.formatTooltip(%s, (text) => text)"
    interval = (
        "{ layer: 'block 3 attention', kind: 'conv', patch: 'row 2, column 7', other: 'null', share: '0.31',"
        " [window.eyechart.sentence('from')]: '0.29', [window.eyechart.sentence('to')]: '0.33' }"
    )
    cells = [cell for cell in re.split("<[^>]*>", browser.ask(told_of % interval)) if cell]
    assert cells == [
        "layer",
        "block 3 attention",
        "kind",
        "convolution",
        "patch",
        "row 2, column 7",
        "share",
        "0.31 [0.29, 0.33]",
    ]
    narrow = interval.replace("'0.29'", "'0.31'").replace("'0.33'", "'0.31'")
    assert "0.31 (±<0.005)" in browser.ask(told_of % narrow)
    assert "block 6 MLP junction" in browser.ask(told_of % "{ layer: 'block 6 mlp junction' }")
    browser.ask("document.documentElement.lang = 'ko'")
    cells = [cell for cell in re.split("<[^>]*>", browser.ask(told_of % interval)) if cell]
    assert cells[1::2] == ["블록 3 어텐션", "합성곱", "2행 7열", "0.31 [0.29, 0.33]"]
    browser.ask("document.documentElement.lang = 'en'")
    browser.ask(
        "(({ eyechart: page, eyechart: { show } }) => { page.show = (...how) => show(...(page.shown = how)); })(window)"
    )
    browser.click(middle[0] + column[2], middle[1])  # the next cell: block 4 with block 3
    assert browser.wait_for("document.querySelector('.cell')?.dataset.shown === 'block 4 block 3'")
    curves = "window.eyechart.shown[1].concat.flatMap(({ layer }) => layer.map(({ mark }) => mark.color))"
    assert set(browser.ask(curves)) == {theme.SUBJECT_COLOURS[0]}  # of the ViT, and not Vega's own blue
    pressed = "button.layer[aria-pressed=true]"
    assert seen(browser, pressed) == ["3", "4"]
    browser.click(*middle)  # on the diagonal: one layer, and one curve
    assert browser.wait_for("document.querySelector('.cell')?.dataset.shown === 'block 3 block 3'")
    assert browser.ask("document.querySelector('button.looking').textContent") == "Marked: zoo:vit, block 3. Unmark"
    assert browser.ask("window.eyechart.shown[1].concat.length") == 1
    browser.page.click("button.looking")
    assert seen(browser, pressed) == []
    assert visible(browser, ".cell") == 0


def another_place(browser: Browser, place: list[float]) -> list[float]:
    """Where the entry of the legend has come to stand, once its figure is drawn anew and nothing moves any more."""
    assert browser.wait_for(f"((now) => now && String(now) !== '{place[0]},{place[1]}')({PLACE_OF_LEGEND})")
    now, before = browser.ask(PLACE_OF_LEGEND), None
    while now is None or now != before:
        browser.page.wait_for_timeout(150)
        before, now = now, browser.ask(PLACE_OF_LEGEND)
    moved: list[float] = now
    return moved


def test_a_legend_shows_a_subject_by_itself_and_brushed_heads_their_maps(browser: Browser, file: Path) -> None:
    browser.open(file)
    to_figure(browser, "attention_distance")
    canvas = browser.page.locator("[data-chart=attention_distance] .live canvas").bounding_box()
    assert canvas is not None
    right, bottom = canvas["x"] + canvas["width"] - 2, canvas["y"] + canvas["height"] - 2
    browser.move(canvas["x"] + 2, canvas["y"] + 2)
    browser.page.mouse.down()
    browser.page.mouse.move(right, bottom, steps=3)
    browser.page.mouse.up()
    assert browser.wait_for("document.querySelector('.brushed')?.dataset.heads === '48'")
    # a head is one, though two panels draw it: 72 dots and 32 on lines
    assert "looks in 48 of these 72 heads" in browser.ask("document.querySelector('.brushed p').textContent")
    words = browser.ask("document.querySelector('.brushed button:nth-of-type(9)').innerText")
    assert words == "zoo:vit, block 2, head 1"
    browser.page.click(".brushed button:nth-of-type(9)")
    assert browser.wait_for("document.getElementById('explorer').dataset.layer === '1'")
    assert browser.ask("document.getElementById('explorer').dataset.head") == "0"
    chosen = browser.page.locator("[data-chart=attention_distance] .hint select")  # without a pointer
    chosen.focus()
    for _ in range(2):
        browser.press("ArrowDown")
    assert browser.wait_for("document.querySelector('.brushed')?.dataset.heads === '8'")
    assert browser.ask("document.querySelector('.brushed button').innerText") == "zoo:vit, block 2, head 1"
    browser.press("Tab")
    assert browser.ask("document.activeElement.closest('.brushed') !== null")  # the maps are next
    to_figure(browser, "attention_maps")
    urls = browser.ask("window.eyechart.rowsOf('attention_maps').map((row) => row.url).filter(Boolean)")
    assert {url[:11] for url in urls} == {"data:image/"}  # found in the still picture, which alone has them
    to_figure(browser, "feature_variance")
    alone = "document.documentElement.dataset.alone === '%s'"
    among_all = browser.ask(PLACE_OF_LEGEND)
    browser.click(*among_all)
    assert browser.wait_for(alone % "zoo:resnet")
    assert visible(browser, "button.alone:not(.looking)") == 1
    by_itself = another_place(browser, among_all)  # now it is the only one
    browser.click(*among_all)  # the pointer has not moved: it is the same entry that is meant
    assert browser.wait_for(alone % "")
    browser.click(*another_place(browser, by_itself))
    assert browser.wait_for(alone % "zoo:resnet")
    browser.click(*another_place(browser, among_all))
    assert browser.wait_for(alone % "")


@pytest.mark.parametrize("browser", [(*PHONE, {"has_touch": True, "is_mobile": True})], indirect=True)
def test_a_held_finger_brushes_heads_and_a_quick_one_scrolls(browser: Browser, file: Path) -> None:
    browser.open(file)
    to_figure(browser, "attention_distance")
    canvas = browser.page.locator("[data-chart=attention_distance] canvas")
    fingers = browser.page.context.new_cdp_session(browser.page)

    def touch(kind: str, *at: float) -> None:
        points = [{"x": at[0], "y": at[1]}] if at else []
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def drag(hold: int) -> float:
        """Where the page stood when the finger came down: bringing the figure into view may move it by a pixel."""
        canvas.scroll_into_view_if_needed()
        stood = float(browser.ask("window.scrollY"))
        edge = canvas.bounding_box()
        assert edge
        start, end = (edge["x"] + 60, edge["y"] + 250), (edge["x"] + edge["width"] - 20, edge["y"] + 30)
        touch("touchStart", *start)
        browser.page.wait_for_timeout(hold)
        for share in (0.3, 0.6, 1.0):
            touch("touchMove", *(one + share * (two - one) for one, two in zip(start, end, strict=True)))
        touch("touchEnd")
        return stood

    assert "Hold a finger" in browser.ask("document.querySelector('[data-chart=attention_distance] .hint').textContent")
    drag(hold=0)
    assert browser.ask("document.querySelectorAll('.brushed, .brush').length") == 0
    canvas.scroll_into_view_if_needed()
    tall = 0.0
    while tall != (tall := browser.ask("document.documentElement.scrollHeight")):  # a figure above is still drawn
        browser.page.wait_for_timeout(600)
    before = drag(hold=500)
    assert browser.wait_for("Number(document.querySelector('.brushed')?.dataset.heads) > 0")
    assert browser.ask("document.querySelectorAll('.brush').length") == 0
    assert browser.ask("window.scrollY") == before


def test_the_tour_moves_figures_into_the_papers_order_and_back(browser: Browser, file: Path) -> None:
    browser.open(file)
    home = "document.querySelector('#measure-cka figure.chart') !== null"
    assert browser.ask(home)
    browser.page.check("#tour-on")
    assert not browser.ask(home)
    assert visible(browser, ".chapter") == 0
    figures = "[...document.querySelectorAll('.tour li:has(figure)')].map((step) => step.querySelector('h3').innerText)"
    order = [
        "Dosovitskiy et al. 2020, Fig.\u00a07 right, Fig.\u00a011\u00a0#",
        "Raghu et al. 2021, Fig.\u00a01\u00a0#",
        "Park & Kim 2022, Figs.\u00a09, D.1\u00a0#",
    ]
    assert browser.ask(figures) == order
    browser.page.select_option("#tour-of", "Raghu et al. 2021")
    assert browser.ask(figures) == ["Raghu et al. 2021, Fig.\u00a01\u00a0#", "Raghu et al. 2021, Fig.\u00a03\u00a0#"]
    browser.page.select_option("#tour-of", "N3")
    assert "Raghu et al. 2021, Fig.\u00a01\u00a0#" in browser.ask(figures)  # which that note speaks of as well
    browser.ask("(location.hash = 'measure-cka')")
    assert browser.wait_for(home)
    assert not browser.page.is_checked("#tour-on")


# --- screens, paper, readers ------------------------------------------------------------------------------------------

UNFOLDED = ".about, .quantities, #verdict-C13-1, #not-tested table, #verdicts .note"


def test_paper_has_everything_unfolded(browser: Browser, file: Path) -> None:
    browser.open(file)
    assert visible(browser, UNFOLDED) == 0
    browser.page.emulate_media(media="print")
    assert visible(browser, UNFOLDED) == browser.ask(f"document.querySelectorAll('{UNFOLDED}').length") > 10
    assert visible(browser, "#tour") == 0  # it repeats the others: printed where it was switched on
    assert visible(browser, ".side, .alone, .anchor") == 0
    assert visible(browser, ".still") == 5


@pytest.mark.parametrize("browser", [(*DESK, {"java_script_enabled": False})], indirect=True)
def test_without_javascript_everything_stands_there(browser: Browser, file: Path) -> None:
    browser.open(file)
    for selector in (".about", ".quantities", "#verdict-C13-1 .part", ".still", ".side ol ol a", ".highlights .dots"):
        assert browser.page.locator(selector).first.is_visible(), selector
    assert not browser.page.locator(".finder").is_visible()


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_a_phone_finds_the_contents_behind_a_button(browser: Browser, file: Path) -> None:
    browser.open(file)
    assert visible(browser, ".side li a") == 0
    button = "(({ right, top }) => [right, top])(document.querySelector('.menu > summary').getBoundingClientRect())"
    place = browser.ask(button)
    browser.page.click(".menu > summary")
    assert visible(browser, ".side li a") > 8
    assert browser.ask(button) == pytest.approx(place, abs=2)  # where a second tap closes it
    browser.page.click(".side a[href='#measure-cka']")
    assert visible(browser, ".side li a") == 0
    assert browser.wait_for("document.querySelector('#measure-cka .live canvas')")
    browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert browser.ask("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("browser", [DESK, (*PHONE, DARK)], indirect=True, ids=["light", "dark phone"])
def test_axe_finds_no_serious_fault(browser: Browser, file: Path) -> None:
    browser.open(file, at="#explorer")
    assert browser.wait_for("document.getElementById('explorer').dataset.query !== undefined")
    browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    found = Axe().run(browser.page).response["violations"]
    serious = {
        fault["id"]: [node["html"][:120] for node in fault["nodes"][:3]]
        for fault in found
        if fault["impact"] in ("serious", "critical")
    }
    assert serious == {}


def test_a_missing_browser_is_said_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("EYECHART_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser was tested"):
        chromium()
    monkeypatch.setenv("EYECHART_BROWSER", "required")
    with pytest.raises(pytest.fail.Exception, match="EYECHART_BROWSER=required, but no browser was tested"):
        chromium()
