"""Helpers to build cases: subjects changed by hand, and findings whose truth is known."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray
from torch import nn

from eyechart.intervals import jackknife
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject

FOLDS = 16


def changed(spec: str, name: str, change: Callable[[nn.Module], object] = lambda module: None) -> Subject:
    """A bundled model under another name, changed by hand: `change` gets a copy of its module.

    It keeps classes, preprocessing and card, so that every measure applies to it.
    """
    original = load_subject(spec)
    module = copy.deepcopy(original.module)
    change(module)
    return replace(original, name=name, module=module)


def finding(rows: Mapping[tuple[str, str], tuple[float, float, float]], images: int = 256) -> xarray.Dataset:
    """A finding of quantities alone: {(quantity, "vit | cnn"): (value, low, high)}."""
    ends = np.array(list(rows.values()), dtype=float).reshape(-1, 3)
    return xarray.Dataset(
        {f"quantity_{name}": ("quantity_row", ends[:, place]) for place, name in enumerate(("value", "low", "high"))},
        coords={
            "quantity": ("quantity_row", [quantity for quantity, _ in rows]),
            "quantity_subjects": ("quantity_row", [subjects for _, subjects in rows]),
            "quantity_unit": ("quantity_row", [""] * len(rows)),
        },
        attrs={"images": images, "folds": FOLDS},
    )


def noisy(truth: float, error: float, generator: np.random.Generator) -> tuple[float, float, float]:
    """What an exam would find of a smooth quantity: the mean of sixteen folds, with its jackknife interval."""
    folds = truth + error * np.sqrt(FOLDS) * generator.normal(size=FOLDS)
    left_out = (folds.sum() - folds) / (FOLDS - 1)
    low, high = jackknife(np.array(folds.mean()), left_out)
    return float(folds.mean()), float(low), float(high)


def noisy_finding(
    truths: Mapping[str, float], subjects: Sequence[str], error: float, seed: int, images: int = 256
) -> xarray.Dataset:
    """A finding of one tuple of subjects whose quantities are `truths` and err by `error` (one standard error)."""
    generator = np.random.default_rng(seed)
    who = " | ".join(subjects)
    return finding({(quantity, who): noisy(truth, error, generator) for quantity, truth in truths.items()}, images)
