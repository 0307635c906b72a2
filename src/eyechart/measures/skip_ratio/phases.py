"""Quantities of skip ratios over depth: phases of the class token, at attention and at MLPs, and ViT against CNN."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray

from eyechart.quantity import Bounds, Compute, PerSubjects, of_each, subjects_in
from eyechart.reading_estimates import halves, site_indices
from eyechart.sites import Kind

KINDS: dict[Kind, str] = {"attention": "attention", "mlp": "MLPs"}
"""The residual additions of a transformer block, and their names in texts. They may go opposite ways: in zoo:vit the
class token's phase change is +.61 at the MLPs and +.03 at attention."""


def profile(estimate: xarray.Dataset, subject: str, variable: str, token: str, kind: str | None = None) -> np.ndarray:
    """One value a block: `variable` at the class token or averaged over the grid, averaged over the block's junctions.

    Ratios are read as logarithms: they are skewed, and one block with a ratio of 50 would decide a plain mean.
    """
    column = estimate.variables  # at once: a resampled exam asks 20,000 times
    chosen = column["subject"].values == subject
    if kind is not None:
        chosen &= column["kind"].values == kind
    values, blocks = column[f"{variable}_{token}"].values[chosen], column["block"].values[chosen]
    values = np.log(values) if variable == "ratio" else values
    return np.array([values[blocks == block].mean() for block in dict.fromkeys(blocks.tolist())])


def with_class_token(estimate: xarray.Dataset) -> list[str]:
    """ViTs whose class token is there at every junction and is what the classifier reads (CaiT's enters late)."""
    return [s for s in subjects_in(estimate, "vit") if estimate.class_token.values[site_indices(estimate, s)].all()]


def typical_ratio(estimate: xarray.Dataset, subject: str) -> float:
    """Median over the junctions of the ratio of grid tokens; NaN where every branch adds exactly zero.

    The one number here that any model with skips has, a CNN or a ViT without class token too. A median's jackknife will
    do: images move a junction far less than junctions differ.
    """
    ratios = estimate.variables["ratio_grid"].values[site_indices(estimate, subject)]
    return float(np.nanmedian(ratios)) if np.isfinite(ratios).any() else float("nan")


def class_token_ratio(estimate: xarray.Dataset, subject: str, kind: str, half: int) -> float:
    """The class token's ratio over the first (0) or the second (1) half of the blocks, as the claims read it."""
    return float(np.exp(halves(profile(estimate, subject, "ratio", "cls", kind))[half]))


def halves_apart(values: np.ndarray) -> float:
    """First half of the blocks minus second half."""
    first, second = halves(values)
    return first - second


def class_token_phase(variable: str, kind: str) -> Compute:
    """First half minus second half of (class token minus grid): above 0 if the class token keeps to the skip early."""
    return of_each(partial(phase_of, variable=variable, kind=kind), with_class_token)


def phase_of(estimate: xarray.Dataset, subject: str, variable: str, kind: str) -> float | None:
    gap = profile(estimate, subject, variable, "cls", kind) - profile(estimate, subject, variable, "grid", kind)
    return halves_apart(gap) if len(gap) >= 2 else None


def with_joining_token(estimate: xarray.Dataset) -> list[str]:
    """ViTs whose classifier reads a class token, whichever block it joins at."""
    return [s for s in subjects_in(estimate, "vit") if estimate.class_token.values[site_indices(estimate, s)].any()]


def phase_since_joining(kind: str) -> Compute:
    """The phase of the class token over the blocks that it passes: from the first block on it is its phase over all."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        gap = profile(estimate, subject, "ratio", "cls", kind) - profile(estimate, subject, "ratio", "grid", kind)
        passed = gap[np.isfinite(gap)]
        return halves_apart(passed) if len(passed) >= 2 else None

    return of_each(number, with_joining_token)


def half_change(token: str, kind: str) -> Compute:
    """The phase change of one kind of token alone: a difference of two may be due to only one of them."""

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        ratios = profile(estimate, subject, "ratio", token, kind)
        return halves_apart(ratios) if len(ratios) >= 2 else None

    return of_each(number, with_class_token)


def agreement(variable: str, kind: str) -> Compute:
    """The phase change of a cosine, times the sign of the ratio's at the same junctions: above 0 if they agree.

    Not smooth: where the ratio's change is near 0 the sign jumps, which leaving out one fold at a time hardly ever
    shows. Of 40 exams without any phase change of the ratio the jackknife let 27 decide, at random; the bootstrap 4.
    """

    def number(estimate: xarray.Dataset, subject: str) -> float | None:
        ratio, cosine = (phase_of(estimate, subject, name, kind) for name in ("ratio", variable))
        return None if ratio is None or cosine is None else float(np.sign(ratio)) * cosine

    return of_each(number, with_class_token)


def late_excess(estimate: xarray.Dataset, subject: str) -> np.ndarray | None:
    """Class token, each block of the second half: log ratio at attention minus at the MLP."""
    attention, mlp = (profile(estimate, subject, "ratio", "cls", kind) for kind in KINDS)
    return (attention - mlp)[-(len(mlp) // 2) :] if len(attention) == len(mlp) >= 2 else None


def late_attention_over_mlp(estimate: xarray.Dataset, subject: str) -> float | None:
    """Above 0 if the MLPs change the late class token more than attention does."""
    excess = late_excess(estimate, subject)
    return None if excess is None else float(excess.mean())


def late_mlp_share(estimate: xarray.Dataset, subject: str) -> float | None:
    """Share of the late blocks whose MLP changes the class token more than attention: one block may make the mean."""
    excess = late_excess(estimate, subject)
    return None if excess is None else share_above(excess, np.zeros_like(excess))


def unmoved_mlp_share(estimate: xarray.Dataset) -> Bounds:
    """Bounds where resampling the images did not change it: half a block, as it changes in steps of one."""
    result: dict[tuple[str, ...], tuple[float, float]] = {}
    for subject in with_class_token(estimate):
        excess, share = late_excess(estimate, subject), late_mlp_share(estimate, subject)
        if excess is not None and share is not None:
            half = 0.5 / len(excess)
            result[subject,] = (max(share - half, 0.0), min(share + half, 1.0))
    return result


DEPTHS = 100
"""Depths at which two subjects are compared, between blocks too: where the curves cross is read from a line there."""


def half_a_depth(estimate: xarray.Dataset, *subjects: str) -> float:
    return 0.5 / DEPTHS


def share_above(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.mean(one > other)) if np.isfinite(one + other).all() else float("nan")


def higher_share(estimate: xarray.Dataset) -> PerSubjects:
    """Share of the depth at which the ViT's grid tokens have a higher skip ratio than the CNN's locations.

    Of a ViT the lower one of attention and MLP counts: their mean is high where one of them hardly writes at all.
    """
    depths = (np.arange(DEPTHS) + 0.5) / DEPTHS
    curve_of = {}
    for subject in subjects_in(estimate):
        kinds = set(estimate.kind.values[site_indices(estimate, subject)].tolist())
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
