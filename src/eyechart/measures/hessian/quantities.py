"""Comparisons of Hessian spectra: which subjects are compared, and the quantities of each loss."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import xarray

from eyechart.measures.hessian.bounds import mean_bounds, share_gap_bounds, small_share_bounds
from eyechart.methods.twins import snapshot
from eyechart.quantity import Compute, PerSubjects, Quantity
from eyechart.reading_estimates import by_subject
from eyechart.sites import Anatomy
from eyechart.zoo import SNAPSHOTS

VARIANTS = ("augmented + penalty", "augmented", "clean + penalty", "clean")
PAPER, PLAIN = VARIANTS[0], VARIANTS[-1]


def per_subject(variable: str, variant: str) -> Compute:
    def compute(estimate: xarray.Dataset) -> PerSubjects:
        if variant not in estimate.variant.values:
            return {}
        values = estimate[variable].sel(variant=variant).values.tolist()
        return {(subject,): value for subject, value in zip(estimate.subject.values.tolist(), values, strict=True)}

    return compute


def against(
    variable: str, variant: str, combine: Callable[[float, float], float], first: str = "vit", second: str = "cnn"
) -> Compute:
    """A number for every two subjects of these kinds that were taken at the same time of their training."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        values = per_subject(variable, variant)(estimate)
        kind, time, build = (by_subject(estimate, name) for name in ("kind", "snapshot", "build"))
        return {
            (one, two): combine(values[one,], values[two,])
            for one, two in itertools.product(kind, kind)
            if values
            and first in kind[one].split()
            and second in kind[two].split()
            and time[one] == time[two]
            and (second != "mean" or build[one] == build[two])  # a twin, not any other ViT
        }

    return compute


def over_its_own_cnn(variable: str, variant: str) -> Compute:
    """A subject with convolution and attention blocks, divided by the CNN that has convolutions in place of attention.

    Only then is attention the only difference: `zoo:resnet` has 8 blocks of 32 to 256 channels and `zoo:alternet` 17 of
    96 to 512, so it is no control. Stage, channels and grid must agree block for block.
    """
    divided = against(variable, variant, ratio, "hybrid", "cnn")

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        shell = by_subject(estimate, "shell")
        return {key: value for key, value in divided(estimate).items() if shell[key[0]] == shell[key[1]]}

    return compute


def ratio(one: float, two: float) -> float:
    return one / two if two else float("nan")


def of_second(variable: str, variant: str, first: str = "vit", second: str = "cnn") -> Compute:
    """The number of the second subject, for every pair that is compared: a part of a claim about both."""
    return against(variable, variant, lambda _, of_second: of_second, first, second)


def taken_at(time: str, compute: Compute) -> Compute:
    """The same number, only of subjects that are snapshots of this time of their training ("" is its end)."""

    def limited(estimate: xarray.Dataset) -> PerSubjects:
        times = by_subject(estimate, "snapshot")
        return {key: value for key, value in compute(estimate).items() if {times[subject] for subject in key} == {time}}

    return limited


def name_of(variant: str) -> str:
    return variant.replace(" + ", "_")


def share_gap(name: str, compute: Compute, explain: str, variant: str) -> Quantity:
    return Quantity(name, compute, explain, limits=(-1.0, 1.0), bounds=share_gap_bounds(compute, variant))


def small_share(name: str, compute: Compute, explain: str, variant: str) -> Quantity:
    return Quantity(name, compute, explain, limits=(0.0, 1.0), bounds=small_share_bounds(compute, variant))


def steepness(name: str, compute: Compute, explain: str, variant: str, sign: str = "positive") -> Quantity:
    return Quantity(name, compute, explain, limits=(0.0, None), bounds=mean_bounds(compute, variant, sign))


def per_variant() -> tuple[Quantity, ...]:
    made: list[Quantity] = []
    for variant in VARIANTS:
        key, loss = name_of(variant), f"({variant})"
        negative = "share of negative ones among the five largest Hessian eigenvalues"
        made += [
            Quantity(f"nep_{key}", per_subject("nep", variant), f"{negative} {loss}", limits=(0.0, 1.0), share=True),
            steepness(f"ape_{key}", per_subject("ape", variant), f"mean positive Hessian eigenvalue {loss}", variant),
            *(
                share_gap(
                    f"{name}_{key}",
                    taken_at(time, against("nep", variant, operator.sub)),
                    f"{negative}, ViT minus CNN, at the end of {when} {loss}",
                    variant,
                )
                for name, time, when in (("nep_gap", "warmup", "the warm-up"), ("nep_gap_trained", "", "training"))
            ),
            *(
                small_share(
                    f"{name}_{key}",
                    taken_at(time, of_second("nep", variant)),
                    f"{negative}, of the CNN beside a ViT, at the end of {when} {loss}",
                    variant,
                )
                for name, time, when in (("nep_cnn", "warmup", "the warm-up"), ("nep_cnn_trained", "", "training"))
            ),
            steepness(
                f"ape_ratio_{key}",
                against("ape", variant, ratio),
                f"mean positive Hessian eigenvalue, ViT divided by CNN {loss}",
                variant,
            ),
            steepness(
                f"ape_attention_ratio_{key}",
                over_its_own_cnn("ape", variant),
                f"mean positive Hessian eigenvalue, CNN with attention blocks divided by the CNN without {loss}",
                variant,
            ),
        ]
    return tuple(made)


def kind_of(anatomy: Anatomy) -> str:
    """The parts a subject can play in a claim, as words."""
    if anatomy.family == "vit":
        return "vit" + {"cls": " class-token", "gap": " mean"}.get(anatomy.pooling or "", "")
    if anatomy.family == "staged transformer":
        kinds = {site.attention.kind for site in anatomy.sites if site.attention is not None}
        # Swin's last stage may be one window, so a single windowed site makes it Swin.
        return "windowed" if "windowed" in kinds else "staged" if kinds == {"global"} else "other"
    return anatomy.family


def shell_of(anatomy: Anatomy) -> str:
    """What a CNN and its copy with attention in place of some convolutions share: stage and shape of every block."""
    return str([(block.stage, block.channels, block.grid) for block in anatomy.pick("block")])


def time_of(spec: str) -> str:
    """When in its training a subject was taken; empty at the end.

    >>> time_of("zoo:vit@warmup"), time_of("zoo:vit")
    ('warmup', '')
    """
    place = snapshot(spec)[1]
    return SNAPSHOTS[place].removeprefix(".") if place < len(SNAPSHOTS) else ""
