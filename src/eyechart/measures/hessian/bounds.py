"""Hessian spectra: how far a number may be off, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray
from torch import Tensor

from eyechart.curvature import Eigenvalues
from eyechart.intervals import jackknife, t_quantile
from eyechart.quantity import Bounds, Compute
from eyechart.reading_estimates import spanned, with_ends


def share_gap_bounds(compute: Compute, variant: str) -> Callable[[xarray.Dataset], Bounds]:
    """The interval of a difference of shares, from the differences of single minibatches.

    A share of exactly 0 has no spread, which would look like certainty; over n minibatches it may still be up to
    1 − 0.025^(1/n), and that is added on its side.
    """

    def bounds(estimate: xarray.Dataset) -> Bounds:
        result: dict[tuple[str, ...], tuple[float, float]] = {}
        for (one, two), middle in compute(estimate).items():
            shares = [estimate.negative.sel(subject=subject, variant=variant).values for subject in (one, two)]
            both = np.isfinite(shares[0] + shares[1])
            first, second = (share[both] for share in shares)
            if len(first) < 2:
                result[one, two] = float("nan"), float("nan")
                continue
            room = at_most(len(first))  # the values of a minibatch come together
            half = t_quantile(len(first)) * (first - second).std(ddof=1) / np.sqrt(len(first))
            low = middle - half - (0 if second.any() else room)
            high = middle + half + (0 if first.any() else room)
            result[one, two] = max(-1.0, float(low)), min(1.0, float(high))
        return result

    return bounds


def small_share_bounds(compute: Compute, variant: str) -> Callable[[xarray.Dataset], Bounds]:
    """The interval of the second one's share, from single minibatches, for the question whether it is nearly 0.

    It never ends below the bound of a share of exactly 0: one negative eigenvalue among 16 minibatches would have a
    mean and spread that end at .04, while none at all may still be .21.
    """

    def bounds(estimate: xarray.Dataset) -> Bounds:
        result: dict[tuple[str, ...], tuple[float, float]] = {}
        for (one, two), middle in compute(estimate).items():
            shares = estimate.negative.sel(subject=two, variant=variant).values
            shares = shares[np.isfinite(shares)]
            if len(shares) < 2:
                result[one, two] = float("nan"), float("nan")
                continue
            half = t_quantile(len(shares)) * shares.std(ddof=1) / np.sqrt(len(shares))
            high = max(middle + half, at_most(len(shares)))
            result[one, two] = max(0.0, float(middle - half)), min(1.0, float(high))
        return result

    return bounds


def mean_bounds(compute: Compute, variant: str, sign: str = "positive") -> Callable[[xarray.Dataset], Bounds]:
    """The interval of a mean positive eigenvalue (of one subject) or of a ratio of two, from single minibatches.

    A few steep minibatches carry such a mean, so its errors are skewed: the hull of two jackknife intervals, of the
    number and of its logarithm. Of exams of 8 minibatches, drawn with replacement from 16 real ones of each zoo
    subject, it held the truth in 87–98 %, and 94–96 % for ratios (67 and 83 % where one minibatch of 16 carries most);
    the plain interval alone in 81–95 and 92–94 %.
    """

    def bounds(estimate: xarray.Dataset) -> Bounds:
        result: dict[tuple[str, ...], tuple[float, float]] = {}
        for subjects in compute(estimate):
            spectra = estimate.sel(subject=list(subjects), variant=variant).transpose("minibatch", "subject", ...)
            finite = np.isfinite(spectra[f"{sign}_sum"].values)  # a subject that knows fewer of the images has fewer
            sums, counts = (np.nan_to_num(spectra[f"{sign}_{each}"].values[finite.any(1)]) for each in ("sum", "count"))
            if (finite.sum(0) < 2).any():
                result[subjects] = float("nan"), float("nan")
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                whole, without = sums.sum(0) / counts.sum(0), (sums.sum(0) - sums) / (counts.sum(0) - counts)
                numbers = np.stack([whole, *without])
                numbers = numbers[:, 0] / numbers[:, 1] if len(subjects) == 2 else numbers[:, 0]
                plain = jackknife(numbers[0], numbers[1:], (0, None))
                scaled = np.exp(jackknife(np.log(numbers[0]), np.log(numbers[1:])))
            result[subjects] = float(np.minimum(plain[0], scaled[0])), float(np.maximum(plain[1], scaled[1]))
        return result

    return bounds


def ape_ends(finding: xarray.Dataset, subject: str, variant: str) -> tuple[float, float]:
    """The interval of a mean positive eigenvalue; that of the variable `ape` itself knows nothing of its skew."""
    name = f"ape_{variant.replace(' + ', '_')}"
    rows = (finding["quantity"].values == name) & (finding.quantity_subjects.values == subject)
    (row,) = np.flatnonzero(rows)
    return float(finding.quantity_low[row]), float(finding.quantity_high[row])


def spectra_in_words(finding: xarray.Dataset) -> str:
    """Of each subject the share of negative and the mean of positive eigenvalues, on the first and the last loss."""
    said = []
    for subject in finding.subject.values.tolist():
        of_subject = finding.sel(subject=subject)
        if int(of_subject.refused):
            said.append(f"{subject} is left out: one of its operations has no second derivative")
            continue
        if np.isnan(of_subject.nep.values).all():
            said.append(f"{subject} is left out: there was no minibatch that it could be shown")
            continue
        parts = []
        for variant in dict.fromkeys([of_subject.variant.values[0], of_subject.variant.values[-1]]):
            one = of_subject.sel(variant=variant)
            nep = spanned(with_ends(one, "nep"), ".0%")
            ape = spanned((float(one.ape), *ape_ends(finding, subject, variant)), ",.0f")
            steep = f"the positive ones average {ape}" if np.isfinite(one.ape) else "none is positive"
            parts.append(f"{nep} of the eigenvalues are negative and {steep} ({variant})")
        said.append(f"for {subject} " + ", and ".join(parts))
    worst = float(finding.unsettled.max())  # NaN where nothing was measured: max skips it
    certainty = ["all of these are known to 1 %" if worst == 0 else f"up to {worst:.0%} of these are not known to 1 %"]
    ends = [
        f"the algebraically {end} one is not known to 1 % in up to {share:.0%} of the minibatches"
        for end in ("smallest", "largest")
        if (share := float(finding[f"{end}_unsettled"].max())) > 0
    ]
    count = int(finding.attrs["minibatches"])
    minibatches = f"{count} minibatch{'' if count == 1 else 'es'} of {finding.attrs['batch']}"
    remarks = "; ".join([*(certainty if np.isfinite(worst) else ()), *ends])
    told = f"Over {minibatches}: {'; '.join(said)}."
    return f"{told}\n{remarks[0].upper()}{remarks[1:]}." if remarks else told


def at_most(trials: int) -> float:
    """Upper 97.5 % bound of a share that was 0 in so many trials."""
    return float(1 - 0.025 ** (1 / trials))


def as_tensors(rows: Sequence[Sequence[Eigenvalues]]) -> dict[str, Tensor]:
    """Variants × minibatches as tensors (minibatch, variant, …)."""

    def table(number: Callable[[Eigenvalues], Any]) -> Tensor:
        return torch.from_numpy(np.array([[number(each) for each in row] for row in rows], np.float64)).transpose(0, 1)

    return {
        "values": table(lambda each: each.values),
        "residuals": table(lambda each: each.residuals),
        "errors": table(lambda each: each.errors),
        "ends": table(lambda each: (each.lowest, each.highest)),
        "end_errors": table(lambda each: (each.lowest_error, each.highest_error)),
        "products": table(lambda each: each.products),
    }
