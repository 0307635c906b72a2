"""Cases of few-shot evaluation: features with and without classes in them, and subjects that are tight by chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import xarray

from eyechart.intervals import jackknife
from eyechart.measures.few_shot.measure import FewShot
from eyechart.measures.few_shot.quantities import correlation_z, leads_together
from eyechart.tracing.views import Look
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import FOLDS, finding, noisy_finding
from tests.measures.staging import anatomy, measure_tensors, scene, site

IMAGES, CLASSES, WIDTH = 160, 5, 6
SHOTS_AND_WAYS = "for shots and ways"

TIGHTER = "for how tight classes are"


def features(seed: int, apart: float) -> Mapping[str, xarray.Dataset]:
    """The class token of one block: five classes whose centres lie `apart` standard deviations from the middle."""
    dice = torch.Generator().manual_seed(seed)
    labels = torch.arange(IMAGES) % CLASSES
    centres = apart * torch.randn(CLASSES, WIDTH, generator=dice)
    tokens = torch.randn(IMAGES, 5, WIDTH, generator=dice) + centres[labels][:, None]
    place = replace(site("blocks.0", prefix=1, depth=1.0), channels=WIDTH)
    where = replace(scene(anatomy("vit", [place], cls=0), images=IMAGES, block=8), classes=tuple("abcde"))
    return {
        "few_shot": measure_tensors(
            FewShot(), where, {("vit", place.name): Look(place, output=tokens)}, 8, labels.numpy()
        )
    }


def no_classes(seed: int) -> Mapping[str, xarray.Dataset]:
    """Guessing gets worse with more ways, as the claim says; but no picture shown helps."""
    return features(seed, apart=0.0)


def classes(seed: int) -> Mapping[str, xarray.Dataset]:
    return features(seed, apart=1.2)


def shots_do_not_help(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"few_shot": noisy_finding({"shots_trend": 0.0, "ways_trend": -0.1}, ["vit"], 0.005, seed)}


def subjects(accuracy: np.ndarray, spread: np.ndarray) -> xarray.Dataset:
    """An estimate of subjects with these accuracies and spreads."""
    return xarray.Dataset(
        {
            "episodes": (("subject", "way", "shot"), accuracy[:, None, None]),
            "within": ("subject", spread),
            "between": ("subject", np.ones(len(spread))),
        },
        coords={"subject": [f"s{at}" for at in range(len(spread))], "way": [2], "shot": [1]},
    )


def among(seed: int, accuracy: np.ndarray, spread: np.ndarray) -> Mapping[str, xarray.Dataset]:
    """What an exam finds that errs by .005 in accuracies and .01 in spreads."""
    dice = np.random.default_rng(seed)
    errors = np.sqrt(FOLDS) * dice.normal(size=(FOLDS, 2, len(spread))) * np.array([0.005, 0.01])[:, None]
    folds = np.stack([accuracy, spread]) + errors
    left_out = [subjects(*np.delete(folds, fold, axis=0).mean(0)) for fold in range(FOLDS)]
    found = {}
    for name, compute in (("tightness_z", correlation_z), ("tightness_of_the_better", leads_together)):
        for who, value in compute(subjects(*folds.mean(0))).items():
            low, high = jackknife(np.array(value), np.array([compute(each)[who] for each in left_out]))
            found[name, " | ".join(who)] = (value, float(low), float(high))
    return {"few_shot": finding(found)}


def unrelated(seed: int) -> Mapping[str, xarray.Dataset]:
    """Six subjects drawn at random: their correlation is below 0 every other time, far from what images explain."""
    dice = np.random.default_rng(10_000 + seed)
    return among(seed, 0.8 + 0.05 * dice.normal(size=6), 0.7 + 0.1 * dice.normal(size=6))


def equally_accurate(seed: int) -> Mapping[str, xarray.Dataset]:
    return among(seed, np.array([0.9, 0.9]), np.array([0.6, 0.8]))


def the_looser_is_better(seed: int) -> Mapping[str, xarray.Dataset]:
    return among(seed, np.array([0.9, 0.8]), np.array([0.8, 0.6]))


def tight_and_accurate(seed: int) -> Mapping[str, xarray.Dataset]:
    return among(seed, np.linspace(0.7, 0.95, 6), np.array([0.8, 0.77, 0.72, 0.7, 0.66, 0.6]))


def the_tighter_is_better(seed: int) -> Mapping[str, xarray.Dataset]:
    return among(seed, np.array([0.9, 0.8]), np.array([0.6, 0.8]))


CASES = (
    Case("C71", "features without any class in them", "holds", findings=no_classes, reading=SHOTS_AND_WAYS),
    Case("C71", "shots do not help", "holds", findings=shots_do_not_help, draws=200, reading=SHOTS_AND_WAYS),
    Case("C71", "five classes apart", "fails", findings=classes, reading=SHOTS_AND_WAYS),
    Case(
        "C71",
        "accuracy and spread of six subjects are unrelated",
        "holds",
        findings=unrelated,
        draws=60,
        reading=TIGHTER,
    ),
    Case("C71", "two subjects are equally accurate", "holds", findings=equally_accurate, draws=60, reading=TIGHTER),
    Case(
        "C71",
        "the more accurate has the looser classes",
        "holds",
        findings=the_looser_is_better,
        draws=5,
        reading=TIGHTER,
    ),
    Case("C71", "six subjects, the tighter the better", "fails", findings=tight_and_accurate, draws=5, reading=TIGHTER),
    Case(
        "C71",
        "the more accurate of two has the tighter classes",
        "fails",
        findings=the_tighter_is_better,
        draws=5,
        reading=TIGHTER,
    ),
)
