"""Similarity by depth, of a model and what fine-tuning made of it, and of two sizes."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import noisy_finding

SIZES, TUNED = "across sizes", "through fine-tuning"


def finding(low: float, high: float, seed: int) -> Mapping[str, xarray.Dataset]:
    truths = {
        f"{kind}_{name}": value
        for kind in ("size", "tuning")
        for name, value in (("low", low), ("decline", low - high))
    }
    return {"depth_similarity": noisy_finding(truths, ["one", "other"], 0.01, seed)}


def unlike(seed: int) -> Mapping[str, xarray.Dataset]:
    return finding(0.2, 0.1, seed)


def alike_everywhere(seed: int) -> Mapping[str, xarray.Dataset]:
    return finding(0.9, 0.9, seed)


def alike_below(seed: int) -> Mapping[str, xarray.Dataset]:
    return finding(0.9, 0.4, seed)


CASES: tuple[Case, ...] = (
    Case("C40", "low layers that share .2 and high ones that share .1", "holds", findings=unlike, draws=20),
    Case("C40", "two subjects alike at every depth", "holds", findings=alike_everywhere, draws=200),
    Case("C40", "low layers alike, high ones not", "fails", findings=alike_below, draws=5),
)
