"""What the page opens with is chosen by the numbers: large, sure, different from one another."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import xarray

from eyechart.measures.feature_variance.measure import FeatureVariance
from eyechart.quantity import Quantity
from eyechart.report import highlights
from eyechart.report.highlights import Contrast, chosen

from .synthetic import as_run, synthetic_run


def contrast(one: float, other: float, half: float, chapter: str = "share", **more: float) -> Contrast:
    values = {"a": (one, one - half, one + half), "b": (other, other - half, other + half)}
    values |= {name: (value, value - half, value + half) for name, value in more.items()}
    ends = [value for value, _, _ in values.values()]
    size = highlights.share_of_possible(max(ends), min(ends), (0, 1))
    return Contrast("m", chapter, f"{one} or {other}", "", values, size)


def test_a_tiny_difference_is_not_lifted_by_a_tiny_interval() -> None:
    tiny, large = contrast(0.99, 0.98, 1e-6), contrast(0.9, 0.5, 0.05, "look")
    assert tiny.clearness > 100 * large.clearness
    assert chosen([tiny, large]) == [large, tiny]


def test_what_is_not_clear_of_chance_among_all_looked_at_is_not_told() -> None:
    barely = contrast(0.60, 0.40, 0.2 / math.sqrt(2) / 1.2)
    assert barely.clearness == pytest.approx(1.2)
    assert chosen([barely]) == [barely]
    assert chosen([barely, *[contrast(0.5, 0.5, 0.1, f"{n}") for n in range(20)]]) == []
    assert (
        chosen([contrast(0.60, 0.40, 0.2 / math.sqrt(2) / 1.2, c=0.5, d=0.5, e=0.5, f=0.5)]) == []
    )  # of fifteen pairs


def finding_of(**ends: tuple[float, float, float]) -> xarray.Dataset:
    """A finding with one quantity of some subjects."""
    value, low, high = zip(*ends.values(), strict=True)
    columns = {"value": value, "low": low, "high": high}
    return xarray.Dataset(
        {f"quantity_{name}": ("quantity_row", list(each)) for name, each in columns.items()},
        coords={
            "quantity": ("quantity_row", ["frequency"] * len(value)),
            "quantity_subjects": ("quantity_row", list(ends)),
            "quantity_unit": ("quantity_row", [""] * len(value)),
        },
    )


class Frequencies(FeatureVariance):
    quantities = (Quantity("frequency", lambda _: {}, "frequency"),)


class Right(Frequencies):
    labels = "subjects"


def test_a_number_without_an_interval_is_not_told_and_neither_is_what_a_guessing_subject_gets_right() -> None:
    sure, exact = {"a": (0.3, 0.2, 0.4), "b": (0.8, 0.7, 0.9)}, {"a": (0.3, 0.3, 0.3), "b": (0.8, 0.8, 0.8)}
    assert highlights.contrasts("m", Frequencies(), finding_of(**exact)) == []
    assert len(highlights.contrasts("m", Frequencies(), finding_of(**sure))) == 1
    assert len(highlights.contrasts("m", Frequencies(), finding_of(**sure), guessing=["a"])) == 1
    assert highlights.contrasts("m", Right(), finding_of(**sure), guessing=["a"]) == []


def test_each_chapter_speaks_once_and_five_at_most() -> None:
    alike = [contrast(0.9, 0.1 + 0.01 * n, 0.01) for n in range(4)]
    assert chosen(alike) == [alike[0]]
    others = [contrast(0.9, 0.1 + 0.05 * n, 0.01, f"chapter {n}") for n in range(8)]
    assert chosen(others[::-1]) == others[:5]


def test_the_sentence_and_the_chart_hold_the_findings_numbers(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path)
    opening = highlights.highlights(as_run(run), lambda name: {"name": name, "colour": "red"})
    (row,) = opening["rows"]  # uniformity; nothing else is had by both subjects
    assert row["measure"] == "cka"
    assert row["question"] == "What do layers share?"
    assert row["sentence"] == (
        "Mean CKA between the lowest and the highest third of the blocks: 0.612 [0.589, 0.635] in zoo:vit against "
        "0.301 [0.284, 0.318] in zoo:resnet."
    )
    first, second = row["chart"]["rows"]
    assert first["said"] == "zoo:vit: 0.612 [0.589, 0.635]"
    assert first["low"] < first["x"] < first["high"] == highlights.WIDTH - highlights.EDGE
    per_unit = (highlights.WIDTH - 2 * highlights.EDGE) / 0.635  # the scale begins at 0, which is near
    assert second["x"] == pytest.approx(highlights.EDGE + 0.301 * per_unit, abs=0.1)


def test_one_subject_alone_opens_with_its_clearest_verdicts(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path)
    run.scene = replace(run.scene, anatomies=run.scene.anatomies[:1])
    opening = highlights.highlights(as_run(run), lambda name: {"name": name, "colour": "red"})
    assert [row["measure"] for row in opening["rows"]] == ["attention_distance", "cka"]
    assert opening["rows"][0]["sentence"].startswith("Nearest quarter of early heads: 0.180 [0.160, 0.200]; ")
    run.verdicts = [replace(verdict, verdict="undecided") for verdict in run.verdicts]  # an untrained subject's
    assert highlights.highlights(as_run(run), lambda name: {})["rows"] == [], "it said that decided verdicts are shown"


def test_a_subject_with_the_value_of_an_end_is_not_said_to_lie_between() -> None:
    """Five of six subjects had a hit-rate of 0, and four of them were "between" 1 and 0."""
    values = {"a": (1.0, 0.9, 1.0), "b": (0.0, 0.0, 0.1), "c": (0.0, 0.0, 0.2)}
    told = highlights.sentence(Contrast("m", "place", "hit-rate", "", values, 1.0))
    assert told == "Hit-rate: 1.00 [0.90, 1.00] in a against 0.00 [0.00, 0.10] in b, 1 other in that range."
