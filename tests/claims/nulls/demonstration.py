"""How rows look: one exam shared by a null, and findings made up for many seeds."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import noisy_finding


def untrained() -> list[str]:
    return ["zoo:vit@random"]


def trained() -> list[str]:
    return ["zoo:vit"]


def skip_at_four_fifths(seed: int) -> Mapping[str, xarray.Dataset]:
    """Exactly at the margin of C24: "holds" is right only by chance."""
    return {"skip_ratio": noisy_finding({"skip_higher_share": 0.8}, ["vit", "cnn"], 0.02, seed)}


CASES = (
    Case("C09", "the heads of an untrained ViT look everywhere alike", "holds", subjects=untrained),
    Case("C09", "the bundled ViT has near and far heads in its lower half", "fails", subjects=trained),
    Case("C24", "a share of places exactly at the margin", "holds", findings=skip_at_four_fifths, draws=200),
)
