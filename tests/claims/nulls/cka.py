"""Claims about likeness of layers, on tables of CKA whose layers lie on a line: likeness falls with distance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from unittest.mock import patch

import numpy as np
import torch
import xarray

from eyechart import intervals
from eyechart.measures.cka.measure import Cka, CkaTally
from eyechart.sites import Architecture, Site
from tests.claims.nulls.case import Case
from tests.measures.staging import anatomy, scene, site

STAGES = [0, 0, 1, 1, 2, 2, 3, 3]
DEPTHS = np.arange(9) / 8  # a stem and eight blocks
CNN = 4 * DEPTHS
"""Where the layers of the CNN lie."""


def along(*corners: tuple[float, float]) -> np.ndarray:
    """Places of the layers of a ViT that is at these (depth, place), and between them in between."""
    depths, places = zip(*corners, strict=True)
    return np.interp(DEPTHS, depths, places)


def tables(
    vit: np.ndarray, *, cnn: np.ndarray = CNN, step: float = 0.0, kind: Architecture = "cnn"
) -> Callable[[int], Mapping[str, xarray.Dataset]]:
    """Findings of a ViT and a subject with stages, each boundary of which costs `step`; noise of .01 in 16 folds."""

    @cache
    def made(seed: int) -> Mapping[str, xarray.Dataset]:
        subjects: list[tuple[str, list[int], Architecture]] = [("vit", [0] * 8, "transformer"), ("other", STAGES, kind)]
        people = [
            anatomy(name, [site(f"{name} stem", role="stem", block=-1), *blocks(name, stages)], architecture)
            for name, stages, architecture in subjects
        ]
        places = np.concatenate([vit, cnn])
        stage = np.concatenate([np.zeros(9), [0, *STAGES]])
        own = np.arange(18) >= 9
        across = own[:, None] & own & (stage[:, None] != stage)
        table = np.exp(-np.abs(places[:, None] - places)) - step * across
        noise = 0.01 * np.random.default_rng(seed).normal(size=(16, 18, 18))
        noise = (noise + noise.transpose(0, 2, 1)) * (1 - np.eye(18))
        where = scene(*people, images=256, block=16)
        ones = torch.ones(16, dtype=torch.float64)
        tally = CkaTally(torch.from_numpy(table + noise), torch.zeros(16, 0, 18, dtype=torch.float64), ones)
        # A fifth of the usual draws: the ends of these intervals lie far from the margins, and a case costs a second.
        with patch.object(intervals, "DRAWS", 50), patch.object(intervals, "SMALL_DRAWS", 30):
            return {"cka": intervals.with_intervals(Cka(), tally, where)}

    return made


def blocks(name: str, stages: Sequence[int]) -> list[Site]:
    grids = [(8 // 2**stage, 8 // 2**stage) for stage in stages]
    return [
        site(f"{name} {i}", block=i, stage=stage, depth=(i + 1) / len(stages), grid=grid)
        for i, (stage, grid) in enumerate(zip(stages, grids, strict=True))
    ]


AS_TOLD = tables(along((0, 0), (0.25, 2), (0.75, 4), (1, 8)))
NO_LAG = tables(CNN)
IDLE = tables(np.zeros(9))
UNIFORM = along((0, 0), (1, 0.3))
STEPPED = tables(UNIFORM, cnn=CNN / 2, step=0.2)
EVEN_DRIFT = tables(UNIFORM, cnn=CNN / 2)

CASES: tuple[Case, ...] = (
    Case("C13", "a CNN whose layers drift apart evenly, with no step where stages end", "holds", findings=EVEN_DRIFT),
    Case("C13", "a ViT whose layers lie as far apart as the CNN's", "holds", findings=NO_LAG),
    Case("C13", "a ViT with layers alike and a CNN with a step at every stage", "fails", findings=STEPPED),
    Case("C14", "a ViT without a lag", "holds", findings=NO_LAG),
    Case("C14", "a ViT whose blocks do nothing is as like the CNN at its stem as anywhere", "holds", findings=IDLE),
    Case("C14", "a ViT that is where the CNN is half-way at a quarter of its depth", "fails", findings=AS_TOLD),
    Case("C15", "a ViT whose top is as like the CNN as its bottom", "holds", findings=NO_LAG, reading=""),
    Case(
        "C15",
        "a best match that falls from 1 to .84 is lower, but not unlike",
        "holds",
        findings=tables(along((0, 0), (0.6, 2), (0.65, 4.17), (1, 4.3))),
        reading="",
    ),
    Case(
        "C15",
        "a ViT whose top third is far from every CNN layer",
        "fails",
        findings=tables(along((0, 0), (0.6, 2), (0.7, 6), (1, 9))),
        reading="",
    ),
    Case(
        "C60",
        "stages that drift apart faster than a ViT, but evenly",
        "holds",
        findings=tables(UNIFORM, kind="transformer"),
    ),
    Case("C60", "a step at every stage", "fails", findings=tables(UNIFORM, cnn=CNN / 2, step=0.2, kind="transformer")),
    Case("C79", "a ViT without a lag: its top is the match of the CNN's top", "holds", findings=NO_LAG),
    Case("C79", "a ViT whose blocks do nothing", "holds", findings=IDLE),
    Case("C79", "a ViT that reaches the CNN's top at three quarters and goes on", "fails", findings=AS_TOLD),
)
