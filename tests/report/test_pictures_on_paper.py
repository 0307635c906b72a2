"""Pictures of comparisons and of studies, which have no live chart: on paper their words can be read, too."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import altair as alt
import pandas as pd
import pytest

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.paper import POINTS
from eyechart.report import embed

NAMES = [f"block {number} of this subject" for number in range(3)]


def chart(panels: int) -> Any:
    rows = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    each = alt.Chart(rows).mark_line().encode(x=alt.X("x:Q", title="depth"), y=alt.Y("y:Q", title="accuracy"))
    row = alt.concat(*(each.properties(width=240, height=160, title=name) for name in NAMES[:panels]), columns=panels)
    return specification(theme.dress(row if panels > 1 else each.properties(width=240, height=160)))


@pytest.mark.parametrize("panels", [1, 3])
def test_words_of_a_picture_have_six_points_on_paper(panels: int) -> None:
    made = embed.picture(chart(panels))["languages"]["en"]
    drawn = unquote(made["sheet"] or made["light"])
    width = float(re.search(r'<svg[^>]*? width="([\d.]+)"', drawn)[1])  # type: ignore[index]
    smallest = min(float(size) for size in re.findall(r'font-size="([\d.]+)px"', drawn))
    assert smallest * made["paper"] * POINTS / width >= 6
    assert made["paper"] <= 186
    assert bool(made["sheet"]) == (panels > 1)  # one that fits is not carried twice
