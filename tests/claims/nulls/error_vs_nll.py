"""Families whose error and training loss are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from unittest.mock import patch

import xarray

from eyechart import intervals
from tests.claims.nulls.case import Case
from tests.measures.test_error_vs_nll import stage

REPORTED = {
    "mixer": ("mixer", 0.354, 2.57),
    "vit": ("vit", 0.335, 2.52),
    "pit": ("staged", 0.239, 2.30),
    "swin": ("windows", 0.232, 2.23),
    "resnet": ("cnn", 0.173, 2.09),
}
"""As Park & Kim's poster has it: kind, error, training NLL."""


def families(**changed: tuple[str, float, float]) -> Callable[[int], Mapping[str, xarray.Dataset]]:
    @cache
    def made(seed: int) -> Mapping[str, xarray.Dataset]:
        # A fifth of the usual draws: the families lie many standard errors apart.
        with patch.object(intervals, "DRAWS", 50), patch.object(intervals, "SMALL_DRAWS", 30):
            return {"error_vs_nll": stage(**REPORTED | changed)}

    return made


CASES: tuple[Case, ...] = (
    Case(
        "C42",
        "a Mixer, of the weakest bias, errs least and fits best",
        "holds",
        findings=families(mixer=("mixer", 0.15, 2.0)),
    ),
    Case(
        "C42",
        "a CNN that errs least because it is held back: its training loss is the highest",
        "holds",
        findings=families(resnet=("cnn", 0.173, 2.8)),
    ),
    Case(
        "C42",
        "every family the same",
        "holds",
        findings=families(**{name: (kind, 0.3, 2.3) for name, (kind, _, _) in REPORTED.items()}),
    ),
    Case("C42", "the reported numbers", "fails", findings=families()),
)
