"""Names of dashed lines in live charts, in panels that became narrow: no mark is hidden behind one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest

from eyechart.charts import theme

from .browser import Browser
from .one_figure import drawn
from .test_reading import PHONE

NAME = "what equal lengths would give"

#: Where a name stands (above its line, at the end), and how many marks lie under it; null without one.
HIDDEN = """(() => {
  const points = [];
  let name = null;
  window.eyechart.visit(window.eyechart.views.get(%s).view, (item, { marktype, role, group }) => {
    if (role !== 'mark') return;
    const { x1, x2, y1, y2 } = item.bounds;
    if (marktype === 'symbol') points.push({ x1, x2, y1, y2 });
    if (marktype !== 'text' || !item.text || item.stroke) return;
    name = { x1, x2, y1, y2, above: y2 < item.y + 1, end: x2 > group.width - 6 };
  });
  if (!name) return null;
  const wide = ({ x1, x2 }) => Math.min(x2, name.x2) - Math.max(x1, name.x1);
  const high = ({ y1, y2 }) => Math.min(y2, name.y2) - Math.max(y1, name.y1);
  const under = points.filter((point) => wide(point) > 1 && high(point) > 1);
  return [name.above, name.end, under.length];
})()"""


def of_points(*points: tuple[float, float]) -> Any:
    """A line at 0 with its name above its end, and points: on a phone the panel is less than half as wide."""
    frame = pd.DataFrame(points, columns=["x", "y"])
    x, y = (alt.X("x:Q", scale=alt.Scale(domain=[0, 1])), alt.Y("y:Q", scale=alt.Scale(domain=[-1, 1])))
    return lambda _: theme.panel(alt.Chart(frame).mark_point().encode(x, y) + theme.reference(0, NAME), (760, 200))


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0.1, 0.5)], [True, True, 0]),
        ([(0.8, 0.1)], [False, True, 0]),
        ([(0.8, 0.1), (0.8, -0.1)], [True, False, 0]),
        ([(0.2, 0.1), (0.8, 0.1), (0.2, -0.1), (0.8, -0.1)], None),
    ],
)
def test_no_mark_is_hidden_behind_the_name_of_a_line(
    browser: Browser, tmp_path: Path, points: list[tuple[float, float]], expected: list[Any] | None
) -> None:
    """On a tablet "equal lengths" lay over half a diamond of the skip ratios of a ResNet."""
    figure = drawn(browser, tmp_path, of_points(*points))
    assert browser.ask(HIDDEN % figure) == expected
