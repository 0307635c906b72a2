"""Linear readouts by ridge regression to ±1 targets, in closed form: what probes and few-shot evaluation share.

A readout of features x gives each class c the score  ((x − mean) / scale) · w_c + b_c,  where with z the standardised
features of n images and y = +1 for the own class, −1 for the others,

    w = argmin  mean ‖y − b − z w‖² + penalty ‖w‖²,     b = mean y      (the intercept is not penalised)

All of it follows from sums over images (`Moments`), so images may be seen in any order and anywhere:

>>> features, labels = torch.tensor([[0.0], [1.0], [9.0], [10.0]]), torch.tensor([0, 0, 1, 1])
>>> some, others = Moments.of(features[:3, None], labels[:3], 2), Moments.of(features[3:, None], labels[3:], 2)
>>> readout = fit(some + others, penalty=torch.tensor([0.01]))
>>> readout.scores(torch.tensor([[2.0], [8.0]])[:, None]).argmax(-1).squeeze()
tensor([0, 1])
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PENALTIES = 10.0 ** torch.arange(-4, 2.5, 0.5, dtype=torch.float64)
"""Tried by `choose`, relative to the variance of one standardised feature."""
CONSTANT = 1e-12
"""A feature whose variance is less than this share of its mean square is constant up to rounding: it gets no weight."""


@dataclass(frozen=True)
class Moments:
    """Sums over images for several probes at once, in float64."""

    products: Tensor
    """Σ x xᵀ, (probe, feature, other feature)."""
    sums: Tensor
    """Σ x over the images of each class, (probe, feature, class): both Σ x and Σ x yᵀ follow from it."""
    counts: Tensor
    """Images of each class, (class,)."""

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> Moments:
        """Of features (image, probe, feature)."""
        x = features.double().transpose(0, 1)
        one_hot = torch.nn.functional.one_hot(labels, classes).double()
        return cls(x.transpose(1, 2) @ x, x.transpose(1, 2) @ one_hot, one_hot.sum(0))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.products + other.products, self.sums + other.sums, self.counts + other.counts)

    @property
    def mean(self) -> Tensor:
        return self.sums.sum(-1) / self.counts.sum()

    @property
    def targets(self) -> Tensor:
        """Mean ±1 target of each class."""
        return 2 * self.counts / self.counts.sum() - 1

    def standardised(self, mean: Tensor, scale: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean z zᵀ and mean z (y − targets)ᵀ, with z = (x − mean) / scale: not this part's own mean unless given."""
        n, part_mean = self.counts.sum(), self.mean
        products = self.products / n - _outer(part_mean, mean) - _outer(mean, part_mean) + _outer(mean, mean)
        with_targets = 2 * self.sums / n - part_mean[..., None]
        cross = with_targets - _outer(part_mean, targets) - _outer(mean, self.targets - targets)
        return products / _outer(scale, scale), cross / scale[..., None]


@dataclass(frozen=True)
class Readout:
    mean: Tensor
    scale: Tensor
    weights: Tensor
    """(probe, feature, class)."""
    bias: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """(image, probe, class) from features (image, probe, feature)."""
        z = (features.double() - self.mean) / self.scale
        return torch.einsum("npd,pdc->npc", z, self.weights) + self.bias


def fit(moments: Moments, penalty: Tensor) -> Readout:
    """The readouts of these moments, with a penalty for each probe."""
    scale = _scale(moments)
    products, cross = moments.standardised(moments.mean, scale, moments.targets)
    products.diagonal(dim1=-2, dim2=-1).add_(penalty[:, None])
    weights = torch.cholesky_solve(cross, torch.linalg.cholesky(products))
    return Readout(moments.mean, scale, weights, moments.targets)


def choose(fitted: Moments, held_out: Moments) -> Tensor:
    """For each probe, the penalty of `PENALTIES` whose readout of `fitted` has the least squared error on `held_out`.

    The squared error follows from the sums as well, so no image needs to be seen again.
    """
    return PENALTIES[squared_errors(fitted, held_out).argmin(1)]


def squared_errors(fitted: Moments, held_out: Moments) -> Tensor:
    """Mean ‖y − scores‖² over held-out images, (probe, penalty)."""
    scale, targets = _scale(fitted), fitted.targets
    products, cross = fitted.standardised(fitted.mean, scale, targets)
    values, vectors = torch.linalg.eigh(products)
    other_products, other_cross = held_out.standardised(fitted.mean, scale, targets)
    cross, other_cross = vectors.transpose(1, 2) @ cross, vectors.transpose(1, 2) @ other_cross
    other_products = vectors.transpose(1, 2) @ other_products @ vectors
    alone = (1 - 2 * targets * held_out.targets + targets.square()).sum()
    errors = []
    for penalty in PENALTIES:
        weights = cross / (values.clamp_min(0) + penalty)[..., None]
        explained = (weights * (other_products @ weights - 2 * other_cross)).sum((1, 2))
        errors.append(alone + explained)
    return torch.stack(errors, dim=1)


def solve(features: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """argmin ‖targets − features w‖² + penalty ‖w‖² of (…, image, feature) and (…, image, class), on the smaller side.

    Primal (xᵀx + λ)⁻¹ xᵀy and dual xᵀ (x xᵀ + λ)⁻¹ y are the same number.
    """
    smaller = dual if features.shape[-2] < features.shape[-1] else primal
    return smaller(features, targets, penalty)


def primal(features: Tensor, targets: Tensor, penalty: float) -> Tensor:
    flipped = features.transpose(-2, -1)
    return torch.cholesky_solve(flipped @ targets, _cholesky(flipped @ features, penalty))


def dual(features: Tensor, targets: Tensor, penalty: float) -> Tensor:
    flipped = features.transpose(-2, -1)
    return flipped @ torch.cholesky_solve(targets, _cholesky(features @ flipped, penalty))


def _cholesky(matrix: Tensor, penalty: float) -> Tensor:
    matrix.diagonal(dim1=-2, dim2=-1).add_(penalty)
    factor: Tensor = torch.linalg.cholesky(matrix)
    return factor


def _scale(moments: Moments) -> Tensor:
    """Standard deviation of each feature; infinite where it is constant, so that it has no part in anything."""
    square = moments.products.diagonal(dim1=-2, dim2=-1) / moments.counts.sum()
    variance = square - moments.mean.square()
    return torch.where(variance > CONSTANT * square, variance.clamp_min(0).sqrt(), torch.inf)


def _outer(one: Tensor, two: Tensor) -> Tensor:
    return one[..., :, None] * two[..., None, :]
