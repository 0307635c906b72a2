"""Findings written by hand, whose verdicts can be read off them."""

from typing import Any

import xarray

from eyechart.claims.gates import GATES, Facts
from eyechart.claims.judge import decide, judge, read
from eyechart.claims.parts import ClaimTest, Part
from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import Verdict

GAP = Part("uniformity_gap", "above", 0.1, "uniformity of {0} above that of {1}", inclusive=True)
NEAR = Part("near", "below", 0.5, "nearest heads of {0}")
FAR = Part("far", "above", 0.8, "farthest heads of {0}")
FACTS = {
    "vit": Facts("vit", "transformer", True, "sample", (0.9, 0.88, 0.92), "strong", grid=(8, 8), heads=(6,) * 9),
    "cnn": Facts("cnn", "cnn", True, "sample", (0.93, 0.91, 0.95), "strong", grid=(32, 32)),
    "random": Facts("random", "cnn", False, "sample", (0.1, 0.08, 0.12), None, grid=(32, 32)),
}


def over_seeds(test: ClaimTest, findings: dict[str, xarray.Dataset], seeds: int) -> Verdict:
    """As a study judges it."""
    by_part = [read(findings, part.quantity) for part in test.parts]
    (subjects,) = by_part[0]
    return decide(test, subjects, [part[subjects] for part in by_part], [FACTS[name] for name in subjects], seeds)


def of_table(claim: str, parts: tuple[Part, ...], **more: Any) -> ClaimTest:
    """A test of a claim with the gates that the table gives it."""
    return ClaimTest(claim, parts, **{"gates": tuple(GATES[key] for key in CLAIMS[claim].gates), **more})


def finding(*rows: tuple[str, str, float, float, float], images: int = 1000) -> xarray.Dataset:
    names, subjects, values, lows, highs = zip(*rows, strict=True)
    return xarray.Dataset(
        {
            "quantity_value": ("quantity_row", list(values)),
            "quantity_low": ("quantity_row", list(lows)),
            "quantity_high": ("quantity_row", list(highs)),
        },
        coords={
            "quantity": ("quantity_row", list(names)),
            "quantity_subjects": ("quantity_row", list(subjects)),
            "quantity_unit": ("quantity_row", [""] * len(names)),
        },
        attrs={"images": images, "folds": 16},
    )


def of(claim: str, verdicts: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.claim == claim]


def gap_verdict(value: float, low: float, high: float, pair: str = "vit | cnn", **options: Any) -> Verdict:
    found = {"cka": finding(("uniformity_gap", pair, value, low, high))}
    [verdict] = of("C13", judge([of_table("C13", (GAP,))], found, FACTS, **options))
    return verdict


C09 = of_table("C09", (NEAR, FAR))


def compound(near: tuple[float, float, float], far: tuple[float, float, float], test: ClaimTest = C09) -> Verdict:
    names = [part.quantity for part in test.parts]
    found = {"attention_distance": finding((names[0], "vit", *near), (names[1], "vit", *far))}
    [verdict] = of(test.claim, judge([test], found, FACTS))
    return verdict
