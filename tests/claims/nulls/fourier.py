"""Frequencies: attention that adds nothing or a constant, noise, and sub-layers that do as the paper says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray

from eyechart.intervals import with_intervals
from eyechart.measure import Views
from eyechart.measures.fourier.measure import PARTS, Fourier
from eyechart.methods.spectrum import BANDS
from eyechart.site_choice import sub_layers
from eyechart.sites import Anatomy
from tests.claims.nulls.case import Case
from tests.claims.nulls.feature_variance import blind
from tests.measures import staging

IMAGES = 128


def transformer() -> Anatomy:
    sites = [staging.site("stem", "stem", grid=(8, 8), block=-1)]
    for block in range(6):
        where: dict[str, Any] = {"grid": (8, 8), "block": block, "depth": (block + 1) / 6}
        geometry = staging.full_grid(8, 4)
        sites.append(staging.site(f"{block} weights", "attention", "attention", attention=geometry, **where))
        sites += [staging.site(f"{block} {kind}", "junction", kind, **where) for kind in ("attention", "mlp")]
        sites.append(staging.site(f"{block}", "block", "attention", **where))
    return staging.anatomy("vit", sites)


def cnn() -> Anatomy:
    sites = [staging.site("stem", "stem", grid=(8, 8), block=-1)]
    for block in range(6):
        where: dict[str, Any] = {"grid": (8, 8), "block": block, "stage": block // 3, "depth": (block + 1) / 6}
        sites.append(staging.site(f"{block} add", "junction", "conv", **where))
        sites.append(staging.site(f"{block}", "block", "conv", **where))
    return staging.anatomy("cnn", sites, "cnn")


def spectra(seed: int, changes: Mapping[str, float], noise: float = 0.2) -> Mapping[str, xarray.Dataset]:
    """A finding whose sub-layers change high frequencies by so much, on both scales, with noise between images."""
    people, dice = [transformer(), cnn()], np.random.default_rng(seed)
    measure, where = Fourier(images=IMAGES), staging.scene(*people, images=IMAGES)
    tally = measure.tally(where)
    for batch in staging.batches(IMAGES, 16):
        found = {}
        for who in people:
            layers = sub_layers(who)
            power = torch.ones(16, len(layers), len(PARTS), 5, dtype=torch.float64)
            for row, place in enumerate(layers):
                early = "early " if place.kind == "attention" and place.block < 2 else ""
                change = changes.get(place.name, changes.get(early + place.kind, 0.0)) + noise * dice.normal(size=16)
                power[:, row, PARTS.index("result"), -1] = torch.from_numpy(np.exp(2 * change))
            energy = power[..., -1:].expand(*power.shape[:-1], len(BANDS))
            found[who.subject] = {"along": power, "energy": energy, "folds": torch.as_tensor(batch.image_folds)}
        measure.update(tally, batch, Views({}, found), where)
    return {"fourier": with_intervals(measure, tally, where)}


def nothing_changes(seed: int) -> Mapping[str, xarray.Dataset]:
    """Noise that leaves the mean power as it is."""
    level = -(0.2**2)  # the mean of exp(2 · .2 · normal) is exp(2 · .2²)
    return spectra(seed, dict.fromkeys(("attention", "early attention", "mlp", "conv"), level))


def one_of_many(seed: int) -> Mapping[str, xarray.Dataset]:
    """One block raises high frequencies by far, or damps them; all others do the opposite by a little."""
    most = {"attention": 0.1, "early attention": -0.1, "mlp": -0.1, "conv": -0.1}
    return spectra(seed, most | {"5 attention": -2.0, "5 mlp": 2.0, "5": 2.0})


def as_the_paper(seed: int) -> Mapping[str, xarray.Dataset]:
    return spectra(seed, {"attention": -0.3, "early attention": 0.2, "mlp": 0.2, "conv": 0.2})


CASES: tuple[Case, ...] = (
    Case(
        "C56",
        "attention that adds nothing, or the same constant everywhere, damps nothing",
        "holds",
        subjects=blind,
        reading="for attention",
        limit=128,
    ),
    Case("C56", "one sub-layer does so by far, and all others do the opposite", "holds", findings=one_of_many, draws=3),
    Case("C56", "changes that are noise about 0", "holds", findings=nothing_changes, draws=20),
    Case(
        "C56",
        "early attention raises high frequencies, later attention damps them, MLPs and convolutions raise them",
        "fails",
        findings=as_the_paper,
    ),
)
