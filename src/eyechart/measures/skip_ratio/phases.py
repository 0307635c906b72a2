"""What the curves of skip ratios say: phases of the class token, at attention and at MLPs, and a ViT against a CNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from eyechart.quantity import subjects_in
from eyechart.reading_estimates import halves, places_of

if TYPE_CHECKING:
    import xarray

    from eyechart.quantity import PerSubjects
    from eyechart.sites import Kind

KINDS: dict[Kind, str] = {"attention": "attention", "mlp": "MLPs"}
"""The two residual additions of a transformer block, and how they are told. They may go opposite ways: in zoo:vit the
class token's phase change is +.61 at the MLPs and +.03 at attention."""


def profile(estimate: xarray.Dataset, subject: str, variable: str, token: str, kind: str | None = None) -> np.ndarray:
    """One value a block: `variable` at the class token or averaged over the grid, averaged over the block's junctions.

    Ratios are read as logarithms: they are skewed, and one block with a ratio of 50 would decide a plain mean.
    """
    column = estimate.variables  # at once: a resampled exam asks 20,000 times
    mine = column["subject"].values == subject
    if kind is not None:
        mine &= column["kind"].values == kind
    values, blocks = column[f"{variable}_{token}"].values[mine], column["block"].values[mine]
    values = np.log(values) if variable == "ratio" else values
    return np.array([values[blocks == block].mean() for block in dict.fromkeys(blocks.tolist())])


def with_class_token(estimate: xarray.Dataset) -> list[str]:
    """ViTs whose class token is there at every junction and is what the classifier reads (CaiT's enters late)."""
    return [s for s in subjects_in(estimate, "vit") if estimate.class_token.values[places_of(estimate, s)].all()]


def halves_apart(values: np.ndarray) -> float:
    """First half of the blocks minus second half."""
    first, second = halves(values)
    return first - second


def class_token_phase(variable: str, kind: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """First half minus second half of (class token minus grid): above 0 if the class token rides the skip early."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        result: PerSubjects = {}
        for subject in with_class_token(estimate):
            gap = profile(estimate, subject, variable, "cls", kind) - profile(estimate, subject, variable, "grid", kind)
            if len(gap) >= 2:
                result[subject,] = halves_apart(gap)
        return result

    return compute


def half_change(token: str, kind: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """The phase change of one kind of token by itself: the other may make up the difference of the two alone."""

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        ratios = {s: profile(estimate, s, "ratio", token, kind) for s in with_class_token(estimate)}
        return {(subject,): halves_apart(values) for subject, values in ratios.items() if len(values) >= 2}

    return compute


def agreement(variable: str, kind: str) -> Callable[[xarray.Dataset], PerSubjects]:
    """The phase change by a cosine, counted positive where it goes the way of the ratio's at the same junctions.

    Not smooth: a ratio that may go either way makes the sign jump, which leaving out one fold in turn hardly ever sees.
    Of 40 exams without any phase change of the ratio the jackknife let 27 decide, at random; the bootstrap 4.
    """

    def compute(estimate: xarray.Dataset) -> PerSubjects:
        ratio, cosine = (class_token_phase(name, kind)(estimate) for name in ("ratio", variable))
        return {subjects: float(np.sign(ratio[subjects])) * cosine[subjects] for subjects in cosine}

    return compute


def late_excess(estimate: xarray.Dataset) -> dict[str, np.ndarray]:
    """Class token, each block of the second half: log ratio at attention minus at the MLP."""
    result = {}
    for subject in with_class_token(estimate):
        attention, mlp = (profile(estimate, subject, "ratio", "cls", kind) for kind in KINDS)
        if len(attention) == len(mlp) >= 2:
            result[subject] = (attention - mlp)[-(len(mlp) // 2) :]
    return result


def late_attention_over_mlp(estimate: xarray.Dataset) -> PerSubjects:
    """Above 0 if it is the MLPs that change the late class token."""
    return {(subject,): float(excess.mean()) for subject, excess in late_excess(estimate).items()}


def late_mlp_share(estimate: xarray.Dataset) -> PerSubjects:
    """Share of the late blocks whose MLP writes more on the class token than their attention: one may make the mean."""
    return {(subject,): share_above(excess, np.zeros_like(excess)) for subject, excess in late_excess(estimate).items()}


def unmoved_mlp_share(estimate: xarray.Dataset) -> dict[tuple[str, ...], tuple[float, float]]:
    """Where no draw of images moved it: half a block, for it moves in steps of one."""
    half = {subject: 0.5 / len(excess) for subject, excess in late_excess(estimate).items()}
    shares = late_mlp_share(estimate)
    return {(s,): (max(share - half[s], 0.0), min(share + half[s], 1.0)) for (s,), share in shares.items()}


def share_above(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.mean(one > other)) if np.isfinite(one + other).all() else float("nan")


def higher_share(estimate: xarray.Dataset) -> PerSubjects:
    """Share of the depth at which the ViT's grid tokens have a higher skip ratio than the CNN's locations.

    Of a ViT the lower one of attention and MLP counts: their mean is high where one of them hardly writes at all.
    """
    depths = (np.arange(100) + 0.5) / 100
    curve_of = {}
    for subject in subjects_in(estimate):
        kinds = set(estimate.kind.values[places_of(estimate, subject)].tolist())
        curves = []
        for kind in kinds & set(KINDS) or [None]:  # a CNN is read block by block, whatever stands in its branch
            values = profile(estimate, subject, "ratio", "grid", kind)
            if len(values) >= 2:
                curves.append(np.interp(depths, (np.arange(len(values)) + 0.5) / len(values), values))
        if curves:
            curve_of[subject] = np.min(curves, axis=0)
    return {
        (vit, cnn): share_above(curve_of[vit], curve_of[cnn])
        for vit in subjects_in(estimate, "vit")
        for cnn in subjects_in(estimate, "cnn")
        if vit in curve_of and cnn in curve_of
    }
