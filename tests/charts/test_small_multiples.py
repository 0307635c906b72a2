"""Above three subjects every one gets a panel of its own, on common axes; up to three nothing changes."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
import pytest
import vl_convert

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.tables import subject_colours


def curves(count: int) -> Any:
    subjects = [f"s{number}" for number in range(count)]
    rows = [{"subject": s, "depth": at / 3, "value": at + n} for n, s in enumerate(subjects) for at in range(4)]
    frame = pd.DataFrame(rows)
    frame = frame.assign(low=frame["value"] - 1, high=frame["value"] + 1)
    with theme.drawing(subjects=subjects):
        chart = theme.curve(frame, theme.depth_axis(), alt.Y("value:Q"), subject_colours(subjects), "low", "high")
        chart = chart + theme.reference(0, "nothing")
        return theme.panels([chart.properties(width=380, height=200, title="values")], columns=2)


def test_three_stay_together() -> None:
    spec = specification(curves(3))
    assert "layer" in spec["concat"][0]


@pytest.mark.parametrize("count", [4, 6])
def test_more_get_a_panel_each(count: int) -> None:
    spec = specification(curves(count))
    (inner,) = spec["concat"]
    assert inner["title"] == "values"
    assert [panel["title"]["text"] for panel in inner["concat"]] == [f"s{number}" for number in range(count)]
    assert inner["resolve"]["scale"]["y"] == "shared"
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    assert svg.count(">nothing<") == 2 * count  # the reference, with its rim, stands in every panel
    assert svg.count("mark-line") == count
