"""Panels of a figure in a real browser: where they stand, how large they are, and what lies over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import subject_colours

from .browser import Browser
from .one_figure import PANELS_OF, PLACES, drawn
from .test_layout import DESK, PHONE


def large_and_small(_: xr.Dataset) -> Any:
    """A map wider than a phone above a panel that fits it, and a dashed line whose name does not fit a panel."""
    cells = pd.DataFrame({"x": [0, 1], "y": [0, 1], "value": [0.0, 1.0]})
    tiles = alt.Chart(cells).mark_rect().encode(alt.X("x:O", title=None), alt.Y("y:O", title=None), color="value:Q")
    points = alt.Chart(cells).mark_point().encode(alt.X("x:Q", title=None), alt.Y("y:Q", title=None))
    small = theme.panel(points + theme.reference(0.5, "half of the panel"), (200, 120))
    tall = points.encode(alt.Y("y:Q", title="change of the words (log scale about 0)"))
    tiny = theme.panel(tall + theme.reference(0.5, "half of the panel"), (90, 120))
    return theme.panels([theme.panel(alt.layer(tiles), (600, 300)), small, tiny], columns=1)


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_what_fits_a_phone_keeps_its_size(browser: Browser, tmp_path: Path) -> None:
    """All panels gave as much as the widest had to: Fourier's were 100 pixels wide, with half of the screen empty."""
    figure = drawn(browser, tmp_path, large_and_small)
    assert browser.ask(f"{figure}.querySelector('canvas').clientWidth <= {figure}.clientWidth")
    panels, names, upright = browser.ask(PANELS_OF % figure)
    wide, small, tiny = sorted(panels, reverse=True)
    assert (small, tiny) == (200, 90)
    assert wide > 200
    ((high, lines),) = upright
    assert high < 124  # on lines of their own: they reached into what was above
    assert len(lines) > 1
    assert len(lines[-1]) > 2  # "0)" stood alone
    assert names == ["half of the panel"]  # not on the tiny one, where it would lie over the axis


def side_by_side(title: str) -> Any:
    """Four panels of curves, two a row: as in `feature_variance`."""
    cells = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    x = alt.X("x:Q", title="depth (input → output)")
    points = alt.layer(alt.Chart(cells).mark_point().encode(x, alt.Y("y:Q", title="change")))
    return theme.panels([theme.panel(points, (400, 280), title)] * 4, columns=2)


@pytest.mark.parametrize("browser", [(800, 900), PHONE], indirect=True)
def test_panels_stand_beside_one_another_where_they_can_be_read(browser: Browser, tmp_path: Path) -> None:
    """At 800 pixels a title pushed the second column away; on a phone two stood in a row, 90 pixels wide."""
    wide = browser.ask("window.innerWidth") == 800
    title = "on and on " * 12 if wide else "variance"  # lines of the first fill their room in any font
    figure = drawn(browser, tmp_path, lambda _: side_by_side(title))
    widths = browser.ask(PANELS_OF % figure)[0]
    assert browser.ask(f"{figure}.querySelector('canvas').clientWidth <= {figure}.clientWidth")
    high = browser.ask(f"{figure}.querySelector('canvas').clientHeight")
    assert min(widths) > 200
    assert (high < 1000) == wide  # two rows, or four


def unequal(_: xr.Dataset) -> Any:
    """One panel, and beside it two that are a figure of their own: as in `few_shot`."""
    cells = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    points = alt.layer(alt.Chart(cells).mark_point().encode(alt.X("x:Q", title=None), alt.Y("y:Q", title=None)))
    one = theme.panel(points, (260, 260))
    return theme.panels([one, theme.panels([one, one], columns=2)], columns=2)


@pytest.mark.parametrize("browser", [(800, 900)], indirect=True)
def test_panels_of_one_row_are_of_one_size(browser: Browser, tmp_path: Path) -> None:
    """The two had the room of one: 240, 125 and 125 pixels."""
    widths = [width for width in browser.ask(PANELS_OF % drawn(browser, tmp_path, unequal))[0] if width]
    assert len(widths) == 3
    assert max(widths) - min(widths) < 8


def over_the_frame(_: xr.Dataset) -> Any:
    """Two panels, of which one has a mark on its upper edge, and a third with a shaded ground."""
    cells = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    x, y = alt.X("x:Q", title=None), alt.Y("y:Q", title=None, axis=None)
    low, high = (alt.Scale(domain=[0, top], nice=False) for top in (2, 1))
    line = theme.panel(alt.layer(alt.Chart(cells).mark_line().encode(x, y.scale(low))), (200, 120), "a line")
    mark = alt.Chart(cells).mark_point(size=200).encode(x, y.scale(high))
    ground = alt.Chart(cells).mark_rect(style="frame").encode(x=x, x2=alt.X2("y"))
    return theme.panels(
        [line, theme.panel(mark, (200, 120), "marks"), theme.panel(ground + mark, (200, 120), "ground")]
    )


HEIGHTS_OF_TITLES = """(() => {
  const found = [], look = (group, top) => group.items.forEach((mark) => mark.items.forEach((item) => {
    if (mark.role === 'title-text') found.push(Math.round(top + item.bounds.y2));
    if (mark.marktype === 'group') look(item, top + (item.y ?? 0));
  }));
  window.eyechart.views.get(%s).view.scenegraph().root.items.forEach((root) => look(root, 0));
  return found;
})()"""


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_titles_of_a_row_stand_at_one_height(browser: Browser, tmp_path: Path) -> None:
    """Whatever reaches over a frame lifted the title above it: a mark by eight pixels, a number of the axis by five."""
    heights = browser.ask(HEIGHTS_OF_TITLES % drawn(browser, tmp_path, over_the_frame))
    assert len(heights) == 3
    assert len(set(heights)) == 1


def six_small(_: xr.Dataset) -> Any:
    cells = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    points = alt.layer(alt.Chart(cells).mark_point().encode(alt.X("x:Q", title=None), alt.Y("y:Q", title=None)))
    return theme.panels([theme.panel(points, (190, 200))] * 6, columns=3)


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_small_panels_are_as_wide_as_a_phone(browser: Browser, tmp_path: Path) -> None:
    figure = drawn(browser, tmp_path, six_small)
    assert browser.ask(f"{figure}.querySelector('canvas').clientWidth <= {figure}.clientWidth")
    assert min(browser.ask(PANELS_OF % figure)[0]) > 240


def four_above_four(_: xr.Dataset) -> Any:
    """As in `robustness`: below each panel the same, relative to the intact picture."""
    cells = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    points = alt.layer(alt.Chart(cells).mark_point().encode(alt.X("x:Q", title=None), alt.Y("y:Q", title="accuracy")))
    return theme.panels([theme.panel(points, (260, 200), f"panel {number}") for number in range(8)], columns=4)


@pytest.mark.parametrize("browser", [(800, 900)], indirect=True)
def test_a_row_of_four_becomes_two_of_two(browser: Browser, tmp_path: Path) -> None:
    """Three a row put panels of the second four beside one of the first."""
    places = browser.ask(PLACES % drawn(browser, tmp_path, four_above_four))
    assert len(places) == 8
    rows = [y for _, y in places]
    assert rows[0] == rows[1] < rows[2] == rows[3] < rows[4]


def twenty_one_maps(_: xr.Dataset) -> Any:
    """As in `cka` of six subjects."""
    cells = pd.DataFrame({"x": list("abcabc"), "y": list("dddeee"), "value": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]})
    return theme.panels([heatmap(cells, x="x", y="y", value="value", size=140)] * 21, columns=5)


@pytest.mark.parametrize("browser", [(800, 900)], indirect=True)
def test_rows_of_five_become_as_many_as_there_is_room_for(browser: Browser, tmp_path: Path) -> None:
    """Five have no half: with two a row, two fifths of the figure were empty."""
    places = browser.ask(PLACES % drawn(browser, tmp_path, twenty_one_maps))
    assert len(places) == 21
    assert len({y for _, y in places}) <= 7


def of_cells(_: xr.Dataset) -> Any:
    cells = [{"x": f"a{x}", "y": f"b{y}", "value": x * y / 342 - 1} for x in range(37) for y in range(20)]
    return theme.panels([heatmap(pd.DataFrame(cells), x="x", y="y", value="value", size=(370, 200))] * 2, columns=2)


CELLS_OF = """(() => {
  const found = [], look = (group) => group.items.forEach((mark) => mark.items.forEach((item) => {
    if (mark.marktype === 'rect' && item.datum?.value !== undefined) found.push([item.width, item.height]);
    if (mark.marktype === 'group') look(item);
  }));
  window.eyechart.views.get(%s).view.scenegraph().root.items.forEach(look);
  return found;
})()"""


GAPS_OF_BARS = """(() => {
  const bars = [], look = (group) => group.items.forEach((mark) => {
    const words = mark.role === 'legend-label' ? mark.items.map(({ bounds }) => bounds) : [];
    if (words.length) bars.push(words.slice(1).map(({ x1 }, at) => x1 - words[at].x2));
    if (mark.marktype === 'group') mark.items.forEach(look);
  });
  window.eyechart.views.get(%s).view.scenegraph().root.items.forEach(look);
  return bars;
})()"""


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_cells_of_a_narrow_map_leave_no_seams(browser: Browser, tmp_path: Path) -> None:
    """Cells of 4.3 pixels end between two, and the paper showed through: each reaches into the next. And numbers of the
    bar of colours stand at even distances, as what they mark: the first is pushed inwards."""
    figure = drawn(browser, tmp_path, of_cells)
    panels, cells = browser.ask(PANELS_OF % figure)[0], browser.ask(CELLS_OF % figure)
    assert max(panels) < 370
    bars = browser.ask(GAPS_OF_BARS % figure)
    assert bars
    assert all(min(gaps) >= 0.5 * max(gaps) and min(gaps) > 6 for gaps in bars)
    assert len(cells) == 2 * 37 * 20
    assert min(width for width, _ in cells) > min(panels) / 37 + 0.5
    assert min(height for _, height in cells) > 0.5 + min(panels) / 370 * 200 / 20


def of_a_pair(_: xr.Dataset) -> Any:
    """One panel of the ViT, whose rows are layers of the ResNet: Altair moves its table above the panel."""
    rows = pd.DataFrame({"subject": ["zoo:resnet"] * 2, "x": [0.1, 0.9], "y": [0.1, 0.9]})
    points = alt.Chart(rows).mark_point().encode(alt.X("x:Q", title=None), alt.Y("y:Q", title=None))
    return theme.panels([theme.of_subject(theme.panel(alt.layer(points), (300, 200)), "zoo:vit")], columns=2)


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_a_figure_of_a_pair_is_not_blank_with_one_of_them(browser: Browser, tmp_path: Path) -> None:
    """With the ViT alone it lost its rows (Vega: "Infinite extent"), with the ResNet alone its panel."""
    figure = drawn(browser, tmp_path, of_a_pair)
    for name in ("zoo:vit", "zoo:resnet"):
        browser.ask(f"(window.eyechart.views.get({figure}).old = true, window.eyechart.set('only', ['{name}']))")
        assert browser.wait_for(f"((now) => now.view && !now.old)(window.eyechart.views.get({figure}))")
        assert browser.ask(PANELS_OF % figure)[0] == [300]
        assert browser.ask(f"{figure}.querySelector('canvas').clientHeight") > 200
    assert browser.complaints == []


def beside_one_another(_: xr.Dataset) -> Any:
    """Subjects in a column that is not called `subject`, each in a place of its own beside the others."""
    rows = pd.DataFrame({"each_subject": ["zoo:vit", "zoo:resnet"], "x": ["even"] * 2, "y": [0.1, 0.9]})
    place = alt.XOffset("each_subject:N", sort=["zoo:vit", "zoo:resnet"])
    points = alt.Chart(rows).mark_point().encode(alt.X("x:N", title=None), alt.Y("y:Q", title=None), place)
    return theme.panel(
        alt.layer(points.encode(color=subject_colours(rows["each_subject"], "each_subject"))), (300, 200)
    )


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_those_who_are_not_shown_leave_no_gap(browser: Browser, tmp_path: Path) -> None:
    """They stayed as points without a colour, which told the pointer their numbers, and the others stood aside."""
    figure = drawn(browser, tmp_path, beside_one_another)
    browser.ask(f"(window.eyechart.views.get({figure}).old = true, window.eyechart.set('only', ['zoo:vit']))")
    assert browser.wait_for(f"((now) => now.view && !now.old)(window.eyechart.views.get({figure}))")
    marks = "window.eyechart.views.get(%s).view.scenegraph().root.items[0].items.find((mark) => mark.role === 'mark')"
    points = browser.ask(f"({marks % figure}).items.map((item) => item.x)")
    assert points == [pytest.approx(browser.ask(f"window.eyechart.views.get({figure}).view.width()") / 2, abs=2)]
