"""Panels of the subjects that were picked stand where a reader looks for them."""

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
from eyechart.measures import find_measure
from tests.charts.findings import finding_of

from .browser import Browser
from .one_figure import PANELS_OF, PLACES, drawn
from .test_layout import DESK


def three_maps_and_a_curve(_: xr.Dataset) -> Any:
    """As in `cka`, of a ViT and a CNN."""
    cells = pd.DataFrame({"x": list("abab"), "y": list("ccdd"), "value": [0.1, 0.2, 0.3, 0.4]})
    points = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    curve = theme.panel(alt.layer(alt.Chart(points).mark_line().encode(alt.X("x:Q"), alt.Y("y:Q"))), (250, 190))
    maps = theme.panels([heatmap(cells, x="x", y="y", value="value", size=250)] * 3, columns=3)
    return theme.panels([maps, theme.panels([curve], columns=3, shared=())], columns=1, shared=())


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_one_panel_does_not_stand_alone_below_three(browser: Browser, tmp_path: Path) -> None:
    """The best match of a ViT in a CNN was alone in a row of 1,100 pixels."""
    figure = drawn(browser, tmp_path, three_maps_and_a_curve)
    browser.ask("window.eyechart.set('only', ['zoo:vit', 'zoo:resnet'])")
    assert browser.wait_for(f"({PLACES % figure}).length === 4")
    (left, top), (right, beside), (below, low), (corner, lowest) = browser.ask(PLACES % figure)
    assert left == below < right
    assert corner == right
    assert top == beside < low == lowest


def four_curves(_: xr.Dataset) -> Any:
    subjects = ["zoo:vit", "zoo:resnet", "zoo:swin", "zoo:pit"]
    rows = [{"subject": name, "depth": at / 3, "value": at + n} for n, name in enumerate(subjects) for at in range(4)]
    curve = theme.curve(pd.DataFrame(rows), theme.depth_axis(), alt.Y("value:Q"), subject_colours(subjects))
    return theme.panel(curve, (380, 200), "values")


@pytest.mark.parametrize(
    ("browser", "rows"), [(DESK, [4]), ((1100, 900), [4]), ((800, 900), [2, 2])], indirect=["browser"]
)
def test_the_fourth_of_four_subjects_does_not_stand_alone(browser: Browser, tmp_path: Path, rows: list[int]) -> None:
    """Three were in a row, and one below: at a desk all fit into it."""
    figure = drawn(browser, tmp_path, four_curves)
    heights = [top for _, top in browser.ask(PLACES % figure)]
    assert [heights.count(height) for height in sorted(set(heights))] == rows


def four_curves_above_wide_maps(_: xr.Dataset) -> Any:
    """As in `skip_ratio`: no way of drawing the curves alone makes room for the maps and the names of their rows."""
    cells = pd.DataFrame({"x": list("abab"), "y": ["block 1 attention"] * 2 + ["block 2 attention"] * 2})
    cells["value"] = [0.1, 0.2, 0.3, 0.4]
    maps = theme.panels([heatmap(cells, x="x", y="y", value="value", size=340)] * 2, columns=2)
    return theme.panels([four_curves(_), maps], columns=1, shared=())


#: How high the names of subjects stand above their panels.
NAMED = """(() => {
  const found = [];
  window.eyechart.visit(window.eyechart.views.get(%s).view, ({ text, bounds }, { role }, left, top) => {
    if (role === 'title-text' && /^zoo:/.test(text)) found.push(Math.round(top + bounds.y1));
  });
  return found;
})()"""


@pytest.mark.parametrize("browser", [(800, 900)], indirect=True)
def test_nor_above_maps_that_fill_the_page(browser: Browser, tmp_path: Path) -> None:
    """Nor are the curves squeezed to 155 pixels beside an empty third of the page, as the maps below need less room."""
    figure = drawn(browser, tmp_path, four_curves_above_wide_maps)
    assert min(width for width in browser.ask(PANELS_OF % figure)[0] if width) > 200
    heights = browser.ask(NAMED % figure)
    assert [heights.count(height) for height in sorted(set(heights))] == [2, 2]


def curves_and_a_panel_of_each(_: xr.Dataset) -> Any:
    """As in `few_shot`: small curves, and below them larger ones of one subject each."""
    points = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    line = theme.panel(alt.layer(alt.Chart(points).mark_line().encode(alt.X("x:Q"), alt.Y("y:Q"))), (260, 200))
    names = ("zoo:vit", "zoo:resnet", "zoo:swin", "zoo:pit")
    each = theme.panels([theme.of_subject(line, name) for name in names], columns=3)
    return theme.panels([four_curves(_), each], columns=2, shared=())


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_columns_of_picked_panels_stand_below_one_another(browser: Browser, tmp_path: Path) -> None:
    """The upper ones were narrower, and a third of their row was empty."""
    figure = drawn(browser, tmp_path, curves_and_a_panel_of_each)
    browser.ask("window.eyechart.set('only', ['zoo:vit'])")  # the others but one are not of this page, and stay
    assert browser.wait_for(f"({PANELS_OF % figure})[0].filter(Boolean).length === 6")
    assert {width for width in browser.ask(PANELS_OF % figure)[0] if width} == {260}


def test_what_is_relative_begins_a_row() -> None:
    """Of three kinds, two a row, the third stood beside the first of those relative to the intact picture."""
    above, below = find_measure("robustness").chart(finding_of("robustness")).to_dict()["concat"]
    titles = [[panel["title"] for panel in row["concat"]] for row in (above, below)]
    assert [f"{title}, relative" for title in titles[0]] == titles[1]
