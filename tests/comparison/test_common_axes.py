"""Figures that are exchanged under a slider have the same axes, whatever each run by itself would choose."""

from __future__ import annotations

import re
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from eyechart.charts.export import specification
from eyechart.comparison.common_axes import on_common_axes


def chart(values: list[float], **scale: Any) -> dict[str, Any]:
    frame = pd.DataFrame({"x": range(len(values)), "y": values, "low": [value - 3 for value in values]})
    line = alt.Chart(frame).mark_line().encode(x="x:Q", y=alt.Y("y:Q", scale=alt.Scale(**scale)))
    bars = alt.Chart(frame).mark_rule().encode(x="x:Q", y=alt.Y("low:Q", scale=alt.Scale(**scale)), y2="y:Q")
    return specification(alt.concat(alt.layer(line, bars), line))


def labels(spec: dict[str, Any]) -> list[str]:
    return re.findall(r">([−\d.]+)</text>", vl_convert.vegalite_to_svg(spec))


def test_axes_reach_as_far_as_any_of_the_runs() -> None:
    low, high = chart([1.0, 2.0], zero=False), chart([40.0, 50.0, 60.0], zero=False)
    assert labels(low) != labels(high)
    both = on_common_axes([low, high])
    assert labels(both[0]) == labels(both[1])
    ends = both[0]["concat"][0]["layer"][0]["encoding"]["y"]["scale"]["domain"]["unionWith"]
    assert ends == [-2.0, 60.0]  # the interval's lower end too
    assert both[0]["concat"][1]["encoding"]["y"]["scale"]["domain"]["unionWith"] == [1.0, 60.0]  # each panel its own
    assert "domain" not in low["concat"][1]["encoding"]["y"]["scale"]  # the chart itself is left alone


def test_what_a_chart_says_that_it_shows_is_widened() -> None:
    both = on_common_axes([chart([1.0], domain=[0, 5]), chart([1.0], domain=[-1, 3])])
    assert [each["concat"][1]["encoding"]["y"]["scale"]["domain"] for each in both] == [[-1, 5], [-1, 5]]


def test_figures_of_other_panels_keep_their_axes() -> None:
    one, two = chart([1.0]), chart([9.0])
    two["concat"] = two["concat"][:1]
    assert on_common_axes([one, two]) == [one, two]
    one["concat"][1]["title"], two["concat"][0]["title"] = "of the ViT", {"text": ["of the", "ViT"]}  # its second panel
    both = on_common_axes([one, two])
    assert both[0]["concat"][0] == one["concat"][0]
    reach = both[0]["concat"][1]["encoding"]["y"]["scale"]["domain"]["unionWith"]
    assert reach == both[1]["concat"][0]["layer"][0]["encoding"]["y"]["scale"]["domain"]["unionWith"] == [1.0, 9.0]
