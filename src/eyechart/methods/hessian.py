"""Comparisons of Hessian spectra: who may be compared with whom, and how far a difference of shares may be off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from eyechart.intervals import t_quantile
from eyechart.methods.twins import snapshot
from eyechart.zoo import SNAPSHOTS

if TYPE_CHECKING:
    import xarray

    from eyechart.curvature import Eigenvalues
    from eyechart.measures.measure import PerSubjects
    from eyechart.sites import Anatomy


def of_each(variable: str, variant: str) -> Callable[[xarray.Dataset], PerSubjects]:
    def compute(estimate: xarray.Dataset) -> PerSubjects:
        if variant not in estimate.variant.values:
            return {}
        values = estimate[variable].sel(variant=variant)
        return {(str(who),): float(values.sel(subject=who)) for who in estimate.subject.values}

    return compute


def against(
    variable: str, variant: str, combine: Callable[[float, float], float], first: str = "vit", second: str = "cnn"
) -> Callable[[xarray.Dataset], PerSubjects]:
    """A number for every two subjects of these kinds that were taken at the same time of their training."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        own = of_each(variable, variant)(estimate)
        kinds, times = estimate.kind.values, estimate.snapshot.values
        build = dict(zip(estimate.subject.values.tolist(), estimate.build.values.tolist(), strict=True))
        return {
            (str(one), str(two)): combine(own[str(one),], own[str(two),])
            for one, kind, time in zip(estimate.subject.values, kinds, times, strict=True)
            for two, other, then in zip(estimate.subject.values, kinds, times, strict=True)
            if own
            and first in str(kind).split()
            and second in str(other).split()
            and time == then
            and (second != "mean" or build[str(one)] == build[str(two)])  # a twin, not any other ViT
        }

    return compute


def taken(time: str, compute: Callable[[xarray.Dataset], PerSubjects]) -> Callable[[xarray.Dataset], PerSubjects]:
    """The same number of those tuples only that were taken at this time of their training ("" is its end)."""

    def limited(estimate: xarray.Dataset) -> PerSubjects:
        times = dict(zip(estimate.subject.values.tolist(), estimate.snapshot.values.tolist(), strict=True))
        return {key: value for key, value in compute(estimate).items() if all(times[who] == time for who in key)}

    return limited


def share_gap_bounds(
    compute: Callable[[xarray.Dataset], PerSubjects], variant: str
) -> Callable[[xarray.Dataset], Mapping[tuple[str, ...], tuple[float, float]]]:
    """The interval of a difference of shares, from the differences of single minibatches.

    A share of exactly 0 has no spread, which would look like certainty; over n minibatches it may still be up to
    1 − 0.025^(1/n), and that is added on its side.
    """

    def bounds(estimate: xarray.Dataset) -> dict[tuple[str, ...], tuple[float, float]]:
        result: dict[tuple[str, ...], tuple[float, float]] = {}
        for one, two in compute(estimate):
            shares = [estimate.negative.sel(subject=who, variant=variant).values for who in (one, two)]
            both = np.isfinite(shares[0] + shares[1])
            first, second = (share[both] for share in shares)
            if len(first) < 2:
                result[one, two] = float("nan"), float("nan")
                continue
            room = at_most(len(first))  # the values of a minibatch come together
            middle, half = (first - second).mean(), t_quantile(len(first)) * (first - second).std(ddof=1)
            half = half / np.sqrt(len(first))
            low = middle - half - (0 if second.any() else room)
            high = middle + half + (0 if first.any() else room)
            result[one, two] = max(-1.0, float(low)), min(1.0, float(high))
        return result

    return bounds


def at_most(trials: int) -> float:
    """Upper 97.5 % bound of a share that was 0 in so many trials."""
    return float(1 - 0.025 ** (1 / trials))


def kind_of(anatomy: Anatomy) -> str:
    """The parts a subject can play in a claim, as words."""
    if anatomy.family == "vit":
        return "vit" + {"cls": " class-token", "gap": " mean"}.get(anatomy.pooling or "", "")
    if anatomy.family == "staged transformer":
        kinds = {site.attention.kind for site in anatomy.sites if site.attention is not None}
        # Swin's last stage may be one window, so a single windowed site makes it Swin.
        return "windowed" if "windowed" in kinds else "staged" if kinds == {"global"} else "other"
    return anatomy.family


def time_of(subject: str) -> str:
    """When in its training a subject was taken; empty at the end.

    >>> time_of("zoo:vit@warmup"), time_of("zoo:vit")
    ('warmup', '')
    """
    place = snapshot(subject)[1]
    return SNAPSHOTS[place].removeprefix(".") if place < len(SNAPSHOTS) else ""


def as_tensors(rows: Sequence[Sequence[Eigenvalues]]) -> dict[str, Tensor]:
    """Variants × minibatches as tensors (minibatch, variant, …)."""

    def table(number: Callable[[Eigenvalues], Any]) -> Tensor:
        return torch.from_numpy(np.array([[number(each) for each in row] for row in rows], np.float64)).transpose(0, 1)

    return {
        "values": table(lambda each: each.values),
        "residuals": table(lambda each: each.residuals),
        "errors": table(lambda each: each.errors),
        "ends": table(lambda each: (each.lowest, each.highest)),
        "products": table(lambda each: each.products),
    }
