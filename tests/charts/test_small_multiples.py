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
from eyechart.report.words import chart_words


def curves(*counts: int) -> Any:
    """A panel for each count, of that many subjects."""
    with theme.drawing(subjects=[f"s{number}" for number in range(max(counts))]):
        return theme.panels([panel(count) for count in counts], columns=2)


def panel(count: int) -> Any:
    subjects = [f"s{number}" for number in range(count)]
    rows = [{"subject": s, "depth": at / 3, "value": at + n} for n, s in enumerate(subjects) for at in range(4)]
    frame = pd.DataFrame(rows)
    frame = frame.assign(low=frame["value"] - 1, high=frame["value"] + 1)
    chart = theme.curve(frame, theme.depth_axis(), alt.Y("value:Q"), subject_colours(subjects), "low", "high")
    chart = chart + theme.reference(0, "nothing")
    return chart.properties(width=380, height=200, title="values")


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


def test_the_name_of_a_line_stands_clear_of_the_curve() -> None:
    """ "equal lengths" lay over the curve and the last mark of two of six subjects."""
    subjects = [f"s{number}" for number in range(4)]
    heights = {"s0": (0.9, 0.9), "s1": (0.9, 0.55), "s2": (0.9, 0.45), "s3": (0.6, 0.6)}
    rows = [{"subject": s, "depth": at, "value": heights[s][at]} for s in subjects for at in (0, 1)]
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]))
    chart = theme.curve(pd.DataFrame(rows), theme.depth_axis(), y, subject_colours(subjects))
    spec = specification((chart + theme.reference(0.5, "one half")).properties(width=380, height=200))
    found: list[tuple[Any, str, str]] = []
    for panel in spec["concat"]:
        names = [layer for layer in panel["layer"][-1]["layer"] if layer["mark"]["type"] == "text"]
        at = {(layer["encoding"]["x"]["value"], layer["mark"]["align"], layer["mark"]["baseline"]) for layer in names}
        assert len(names) == 2  # with its rim
        assert len(at) == 1
        found += at
    assert found[0] == ("width", "right", "bottom")  # where it always stood
    assert found[1] == found[3] == ("width", "right", "top")
    assert found[2] == (0, "left", "bottom")  # the curve crosses the line at its end


def test_what_fewer_subjects_have_gets_panels_of_the_same_size() -> None:
    """Two of six subjects have a class token: beside panels of one subject each, theirs was higher."""
    many, two = specification(curves(4, 2))["concat"]
    assert [panel["title"]["text"] for panel in two["concat"]] == ["s0", "s1"]
    assert {(panel["width"], panel["height"]) for panel in [*many["concat"], *two["concat"]]} == {(190, 150)}


def test_points_beside_small_panels_keep_their_legend() -> None:
    """Small panels are named above; the five colours of the points beside them were named nowhere."""
    subjects = [f"s{number}" for number in range(5)]
    rows = pd.DataFrame({"subject": subjects, "what": "lost", "value": range(5)})
    points = alt.Chart(rows).mark_point().encode(alt.X("what:N"), alt.Y("value:Q"), color=subject_colours(subjects))
    with theme.drawing(subjects=subjects):
        spec = specification(theme.panels([theme.panel(alt.layer(points), (200, 100)), panel(5)], columns=2))
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    assert all(svg.count(f">{subject}<") == 2 for subject in subjects)  # above its panel and in the legend


def test_a_line_about_one_subject_stands_in_its_panel_alone() -> None:
    """The first half of a ViT ended in the panels of CNNs, too."""
    chart = panel(4) + theme.reference(1, "of s1", subject="s1")
    (inner,) = specification(theme.panels([chart.properties(width=380, height=200)]))["concat"]
    said = [[layer["mark"].get("style") for layer in _marks(part)].count("reference-label") for part in inner["concat"]]
    assert said == [1, 2, 1, 1]  # "nothing" stands in all of them


def test_points_below_rows_of_small_panels_keep_their_legend() -> None:
    """As above, one level further in: the six colours of the types of corruption were named nowhere."""
    subjects = [f"s{number}" for number in range(5)]
    rows = pd.DataFrame({"subject": subjects, "what": "lost", "value": range(5)})
    points = alt.Chart(rows).mark_point().encode(alt.X("what:N"), alt.Y("value:Q"), color=subject_colours(subjects))
    with theme.drawing(subjects=subjects):
        below = theme.panels([theme.panel(alt.layer(points), (200, 100))])
        spec = specification(theme.panels([theme.panels([panel(5)]), below], columns=1))
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    assert all(svg.count(f">{subject}<") == 2 for subject in subjects)


@pytest.mark.parametrize("named", [True, False])
def test_a_name_that_is_too_long_for_small_panels_stands_above_them(named: bool) -> None:
    """The line of guessing was drawn in 24 panels of robustness and named in none."""
    chart = panel(4) + theme.reference(1, "guessing, 1 of 10 classes", named=named)
    (inner,) = specification(theme.panels([chart.properties(width=380, height=200)]))["concat"]
    assert inner["title"]["subtitle"] == ["dashed: guessing, 1 of 10 classes"]
    styles = [mark["mark"].get("style") for part in inner["concat"] for mark in _marks(part)]
    assert styles.count("reference") == 2 * 4  # "nothing" and this one in each panel
    assert styles.count("reference-label") == 4
    assert chart_words([inner], [])["dashed: guessing, 1 of 10 classes"] == "파선: 찍기, 클래스 10개 중 1개"


def _marks(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [mark for each in part["layer"] for mark in _marks(each)] if "layer" in part else [part]
