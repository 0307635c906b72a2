"""Layers that are picked elsewhere, marked in figures of several maps to a panel and in figures of pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyechart.measures import find_measure
from tests.charts.findings import CNN, SWIN, VIT, finding_of

from .browser import Browser
from .one_figure import drawn

DESK = (1400, 900)
RINGS = (
    "[...%s.querySelectorAll('svg.rings rect')].map((ring) => [ring.width, ring.height].map((it) => it.baseVal.value))"
)


def rings(browser: Browser, figure: str, subject: str, layer: str) -> list[list[float]]:
    browser.ask(f"window.eyechart.set('layers', [{{ subject: '{subject}', name: '{layer}' }}])")
    marked: list[list[float]] = browser.ask(RINGS % figure)
    assert len(marked) == int(browser.ask(f"{figure}.dataset.marked"))
    return marked


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_two_maps_of_a_panel_are_marked_each_by_itself(browser: Browser, tmp_path: Path) -> None:
    """Removed skips were not marked at all; as one map, the mark of a column would be as wide as both."""
    finding = finding_of("skip_removal")
    figure = drawn(browser, tmp_path, lambda _: find_measure("skip_removal").chart(finding))
    marked = rings(browser, figure, VIT, "block 0")
    maps = [(wide, high) for wide, high in marked if max(wide, high) > 2 * min(wide, high)]
    assert len(maps) == 4  # a row and a column of two maps of three layers
    assert sorted(round(max(each) / min(each)) for each in maps) == [3] * 4
    assert len(marked) == 4 + 4  # and the points without the skips of that block: two curves, two ways
    assert len(rings(browser, figure, CNN, "block 1")) > 0
    assert browser.complaints == []


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_twins_are_marked_for_either(browser: Browser, tmp_path: Path) -> None:
    finding = finding_of("depth_similarity").assign_coords(block=[1, 2, 3, 4], other_block=[1, 2, 3, 4])
    figure = drawn(browser, tmp_path, lambda _: find_measure("depth_similarity").chart(finding))
    assert len(rings(browser, figure, VIT, "block 2")) == 2 + 1 + 1  # two curves of pairs, a map, the best of a size
    assert len(rings(browser, figure, SWIN, "block 2")) == 2 + 1
    assert browser.complaints == []


@pytest.mark.parametrize("browser", [DESK], indirect=True)
@pytest.mark.parametrize("name", ["attention_maps", "receptive_field"])
def test_pictures_of_a_layer_are_framed(browser: Browser, tmp_path: Path, name: str) -> None:
    """Tiles of what is one picture, and pictures in a row: no cell of theirs answered to a layer picked elsewhere."""
    finding = finding_of(name)
    figure = drawn(browser, tmp_path, lambda _: find_measure(name).chart(finding))
    layer = str(finding.name.values[finding.subject.values == VIT][0])
    framed = [(wide, high) for wide, high in rings(browser, figure, VIT, layer) if min(wide, high) > 30]
    assert framed
    assert rings(browser, figure, VIT, "block 99") == []
    assert browser.complaints == []
