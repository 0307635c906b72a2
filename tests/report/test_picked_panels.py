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
from eyechart.measures import find_measure
from tests.charts.findings import finding_of

from .browser import Browser
from .one_figure import PLACES, drawn
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


def test_what_is_relative_begins_a_row() -> None:
    """Of three kinds, two a row, the third stood beside the first of those relative to the intact picture."""
    above, below = find_measure("robustness").chart(finding_of("robustness")).to_dict()["concat"]
    titles = [[panel["title"] for panel in row["concat"]] for row in (above, below)]
    assert [f"{title}, relative" for title in titles[0]] == titles[1]
