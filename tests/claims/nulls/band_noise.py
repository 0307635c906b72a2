"""Noise by frequency: two subjects with given chances to lose the picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray

from eyechart.measures.band_noise.measure import RINGS
from tests.claims.nulls.case import Case
from tests.measures.test_band_noise import play, tilted

LEVELS = np.array([0.03, 0.07, 0.15, 0.4])[:, None] / 0.1


def losing(low: float, high: float) -> np.ndarray:
    """Chances to be right where so much is lost at the lowest and at the highest ring, and evenly between."""
    return 1 - np.minimum(LEVELS * np.linspace(low, high, RINGS), 0.9)


def worse_at_both_ends(seed: int) -> Mapping[str, xarray.Dataset]:
    """As issue 10 measured it: low .098 against .038, high .136 against .111."""
    return {"band_noise": play({"vit": losing(0.098, 0.136), "cnn": losing(0.038, 0.111)}, images=4096, seed=seed)}


def alike(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"band_noise": play({"vit": tilted(0.0), "cnn": tilted(0.0)}, seed=seed)}


def as_the_paper(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"band_noise": play({"vit": tilted(-1.0), "cnn": tilted(1.0)}, images=4096, seed=seed)}


CASES: tuple[Case, ...] = (
    Case("C57", "a ViT that loses more at both ends than a steeper CNN", "holds", findings=worse_at_both_ends),
    Case("C57", "a ViT and a CNN that lose alike at every frequency", "holds", findings=alike, draws=40),
    Case("C57", "a ViT hurt by low and a CNN hurt by high frequencies", "fails", findings=as_the_paper),
)
