"""Tables of findings, the colours of subjects, and tooltips: what every chart is made with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips, value_table


@pytest.fixture
def finding() -> xr.Dataset:
    values = np.array([[0.5, 0.7], [np.nan, 0.1]])
    axes = ("subject", "block")
    return xr.Dataset(
        {"lost": (axes, values), "lost_low": (axes, values - 0.1), "lost_high": (axes, values + 0.2)}
        | {"chance": ("subject", [0.1, 0.2])},
        coords={"subject": ["a", "b"], "block": [0, 1], "family": ("subject", ["vit", "cnn"])},
    )


def test_a_row_for_each_number_with_its_interval_and_coordinates(finding: xr.Dataset) -> None:
    table = table_of(finding, "lost", also=["chance"])
    assert set(table.columns) == {"subject", "block", "family", "lost", "lost_low", "lost_high", "chance"}
    assert table[["subject", "block"]].to_numpy().tolist() == [["a", 0], ["a", 1], ["b", 1]]  # one is not a number
    assert table["lost_high"].tolist() == pytest.approx([0.7, 0.9, 0.3])
    assert table["chance"].tolist() == [0.1, 0.1, 0.2]


def test_gaps_stay_where_a_line_should_break(finding: xr.Dataset) -> None:
    assert table_of(finding, "lost", gaps=True)["lost"].isna().tolist() == [False, False, True, False]


def test_without_intervals(finding: xr.Dataset) -> None:
    assert set(table_of(finding, "lost", ends=False).columns) == {"subject", "block", "family", "lost"}


@pytest.mark.parametrize(("times", "row"), [(100.0, (50, 40, 70)), (-100.0, (-50, -70, -40)), (1.0, (0.5, 0.4, 0.7))])
def test_a_negative_factor_exchanges_the_ends(finding: xr.Dataset, times: float, row: tuple[float, ...]) -> None:
    table = table_of(finding, "lost", also=["chance"], times=times)
    assert table[["lost", "lost_low", "lost_high"]].to_numpy()[0] == pytest.approx(row)
    assert table["chance"].tolist()[0] == 0.1  # only what is drawn is multiplied
    value = value_table(finding, "lost", times=times)
    assert value[["value", "low", "high"]].to_numpy()[0] == pytest.approx(row)


def test_several_variables_stand_in_one_column(finding: xr.Dataset) -> None:
    assert {"value", "low", "high"} < set(value_table(finding, "lost").columns)
    assert {"share", *ends_of("share")} < set(value_table(finding, "lost", "share").columns)


def test_the_finding_stays_as_it_was(finding: xr.Dataset) -> None:
    before = finding.copy(deep=True)
    value_table(finding, "lost", times=-100.0)
    assert finding.identical(before)


def test_colours_follow_the_exam() -> None:
    with theme.drawing(subjects=["c", "b", "a"]):
        colour: Any = subject_colours(np.array(["a", "b", "a"]), "who").to_dict()
    assert (colour["field"], colour["type"]) == ("who", "nominal")
    assert colour["scale"]["domain"] == ["a", "b"]
    assert colour["scale"]["range"] == [theme.SUBJECT_COLOURS[2], theme.SUBJECT_COLOURS[1]]
    assert colour["title"] is None
    assert "legend" not in colour
    silent: Any = subject_colours(["a"], legend=None).to_dict()
    assert silent["legend"] is None


def told(tips: Any) -> list[dict[str, Any]]:
    return [tip.to_dict() for tip in tips]


def test_tooltips() -> None:
    assert told(tooltips("subject", "head:Q", name="block", cka=("CKA", ".3f"), size=("passes", ""))) == [
        {"field": "subject", "type": "nominal", "title": "subject"},
        {"field": "head", "type": "quantitative", "title": "head"},
        {"field": "name", "type": "nominal", "title": "block"},
        {"field": "cka", "type": "quantitative", "title": "CKA", "format": ".3f"},
        {"field": "size", "type": "quantitative", "title": "passes"},
    ]


@pytest.mark.parametrize(("name", "low", "high"), [("cka", "cka_low", "cka_high"), ("value", "low", "high")])
def test_tooltips_of_an_interval(name: str, low: str, high: str) -> None:
    tips = told(interval_tooltips(name, "likeness", ".1%"))
    assert [(tip["field"], tip["title"]) for tip in tips] == [(name, "likeness"), (low, "from"), (high, "to")]
    assert {tip["format"] for tip in tips} == {".1%"}
