"""A phone: dashed lines beside names of rows, maps two a row, and words that are not broken in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyechart.measures import find_measure
from tests.charts.findings import finding_of

from .browser import Browser
from .one_figure import PANELS_OF, drawn
from .test_layout import PHONE

ROWS = """(() => {
  const names = [], lines = [], look = (group, y) => group.items.forEach((mark) => mark.items.forEach((item) => {
    const { y: from, y2: to, strokeDash: dash, strokeDashOffset: offset = 0, bounds } = item;
    if (mark.role === 'axis-label' && item.align === 'left') names.push([y + bounds.y1, y + bounds.y2]);
    if (mark.marktype === 'rule' && dash?.length && to - from > 50) lines.push([y + from, y + to, dash, offset]);
    if (mark.marktype === 'group') look(item, y + (item.y || 0));
  }));
  window.eyechart.views.get(%s).view.scenegraph().root.items.forEach((group) => look(group, 0));
  return [names, lines];
})()"""


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_a_dashed_line_leaves_out_the_names_of_rows(browser: Browser, tmp_path: Path) -> None:
    """The line of no difference lay over names of corruptions."""
    chart = find_measure("corruption").chart
    names, lines = browser.ask(ROWS % drawn(browser, tmp_path, lambda _: chart(finding_of("corruption"))))
    assert names
    assert lines
    for start, end, (on, off), offset in lines:
        for middle in ((top + bottom) / 2 for top, bottom in names):
            if not start - 20 < middle < end:  # of the other panel
                continue
            assert (middle - start + offset) % (on + off) > on - 0.5, (middle, start, on, off, offset)


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_maps_of_the_loss_stand_two_a_row(browser: Browser, tmp_path: Path) -> None:
    """They stood in one column, and then the curves below them were 120 pixels wide."""
    chart = find_measure("landscape").chart
    figure = drawn(browser, tmp_path, lambda _: chart(finding_of("landscape")))
    widths = [width for width in browser.ask(PANELS_OF % figure)[0] if width]
    maps = [width for width in widths if width < 180]
    assert len(maps) == 8
    assert min(maps) > 110
    assert max(widths) > 180
