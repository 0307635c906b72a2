"""What the curves of probes say: where readouts part, and whose tokens or means tell the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from eyechart.estimates import places_of, subjects_in, thirds

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import PerSubjects

PARTED = 0.05  # class token and pooled tokens part where their probes differ by more than five points from there on


def mean_of(estimate: xarray.Dataset, places: np.ndarray, readout: str) -> float:
    return float(estimate.accuracy.sel(readout=readout).values[places].mean())


def vits(estimate: xarray.Dataset, pooling: str) -> dict[str, np.ndarray]:
    """ViTs that read their class token, or the mean of all, with the places of their blocks."""
    found = {subject: places_of(estimate, subject) for subject in subjects_in(estimate, "vit")}
    return {who: places for who, places in found.items() if estimate.pooling.values[places[0]] == pooling}


def thirds_of(places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, high = thirds(places)
    return low, np.setdiff1d(places, np.concatenate([low, high])), high


def twins(estimate: xarray.Dataset) -> list[tuple[str, np.ndarray, str, np.ndarray]]:
    """Every GAP ViT with every class-token ViT of the same build, and the places of their blocks."""
    return [
        (gap, there, cls, here)
        for gap, there in vits(estimate, "gap").items()
        for cls, here in vits(estimate, "cls").items()
        if estimate.build.values[there[0]] == estimate.build.values[here[0]]
    ]


def token_gap(estimate: xarray.Dataset) -> PerSubjects:
    return {
        (gap, cls): mean_of(estimate, there[-1:], "tokens") - mean_of(estimate, here[-1:], "tokens")
        for gap, there, cls, here in twins(estimate)
    }


def pooled_over_first_at_mid_depth(estimate: xarray.Dataset) -> PerSubjects:
    result: PerSubjects = {}
    for who, places in vits(estimate, "gap").items():
        middle = thirds_of(places)[1]
        if len(middle):
            result[who,] = mean_of(estimate, middle, "gap") - mean_of(estimate, middle, "first")
    return result


def parting_depth(estimate: xarray.Dataset) -> PerSubjects:
    """Depth of the first block from which on the class token is better read than the mean; 1 if they never part.

    The mean of all tokens, the class token among them: the paper's "CLS; GAP". "CLS; GAP except CLS" is another curve.
    """
    result: PerSubjects = {}
    for who, places in vits(estimate, "cls").items():
        accuracy = estimate.accuracy.isel(site=places)
        ahead = (accuracy.sel(readout="cls") - accuracy.sel(readout="gap with cls")).values > PARTED
        apart = len(ahead) if ahead.all() else int(np.argmin(ahead[::-1]))  # how many of the last blocks
        result[who,] = float(estimate.depth.values[places[-apart]]) if apart else 1.0
    return result


def at_the_end(one: str, other: str, pooling: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """One readout minus another at the last block of every ViT of one pooling."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        return {
            (who,): mean_of(estimate, places[-1:], one) - mean_of(estimate, places[-1:], other)
            for who, places in vits(estimate, pooling).items()
        }

    return compute


def divergence(estimate: xarray.Dataset) -> PerSubjects:
    """Size of the difference of two ViTs' token probes in the last third of the blocks minus that in the others."""
    result: PerSubjects = {}
    for gap, there, cls, here in twins(estimate):
        if len(here) >= 3:
            tokens = estimate.accuracy.sel(readout="tokens").values
            difference = tokens[there] - tokens[here]
            low, middle, high = thirds_of(np.arange(len(here)))
            rest = np.concatenate([low, middle])
            result[gap, cls] = float(abs(difference[high].mean()) - abs(difference[rest].mean()))
    return result


def middle_gap(estimate: xarray.Dataset) -> PerSubjects:
    return {
        (vit, cnn): mean_of(estimate, thirds_of(places_of(estimate, vit))[1], "gap")
        - mean_of(estimate, thirds_of(places_of(estimate, cnn))[1], "gap")
        for vit in subjects_in(estimate, "vit")
        for cnn in subjects_in(estimate, "cnn")
        if len(places_of(estimate, vit)) >= 3 <= len(places_of(estimate, cnn))
    }
