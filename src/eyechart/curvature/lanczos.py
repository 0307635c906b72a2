"""Outermost eigenvalues of symmetric operators that can only be multiplied with: Lanczos with full reorthogonalisation.

    v₀ = start;   w = H v_j − Σ_i (v_i · H v_j) v_i;   v_{j+1} = w / ‖w‖

After m products the eigenvalues θ of the m × m matrix V H V' ("Ritz values") approach the outermost ones of H from
within, those far from their neighbours first. All earlier vectors are projected out twice at each step: without that,
rounding lets found eigenvalues come back as copies. Coefficients and the small eigenvalue problem are float64, whatever
the precision of the products.

How good a Ritz pair (θ, y) is can be read off: its residual r = ‖H y − θ y‖ costs no product, an eigenvalue of H
certainly lies within r of θ, and about as near as r² / gap where the next one is `gap` away as far as the Ritz values
tell. The search stops when both are small, so nothing depends on how many steps someone thought enough. Park & Kim's
power iteration asks for the same values, the largest in *magnitude*, but compares only successive estimates: between +9
and −8.9 it stops at anything (SPEC T6).

What no method of one chain finds is a second copy of a repeated eigenvalue, except where the chain ends and a new one
begins (few distinct eigenvalues, few parameters); then all `most` products are spent on looking for more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

Vectors = np.ndarray[Any, np.dtype[np.float64]]
CERTAIN = 20.0
"""How many tolerances away from a settled value an eigenvalue may lie at worst (residual); the error is one of them."""
RIVAL = 5.0
"""How many residuals beyond the first Ritz value left out an eigenvalue is looked for that belongs among the chosen.

A residual tells how near *some* eigenvalue is, not that of the same rank, so one is too few. Of simulated spectra of
both signs, settled lists lacked a value in 4–5 of 100 without this rule, in 2–3 with 1 residual, in under 1 with 6.
"""
NOISE = 1e-6
"""Of the largest eigenvalue: what rounding of float32 products leaves undecided."""
PIECE = 8192
"""Entries of a vector that one part of a GPU takes at a time."""


class Operators(Protocol):
    """Symmetric operators, multiplied all at once; `Hessians` is one such."""

    @property
    def gradient(self) -> Tensor:
        """(operator, parameter): where to start; it lies mostly along the steep directions."""
        ...

    def multiply(self, vectors: Tensor) -> Tensor: ...


class Addition(Protocol):
    """A known symmetric matrix D added to an operator; `Penalty` is one such."""

    def multiply(self, vectors: Tensor) -> Tensor: ...

    def sandwich(self, basis: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Eigenvalues:
    """Largest in magnitude first. Residuals ‖H y − θ y‖ are certain bounds, errors the estimates min(r, r² / gap).

    Where an eigenvalue that has not shown itself yet may belong in a value's place, the error is at least how far that
    may lie beyond it: of +5.9 and −5.7 the second can be there first.
    """

    values: Vectors
    residuals: Vectors
    errors: Vectors
    lowest: float
    """The algebraically smallest eigenvalue, and below the largest; each with its error."""
    lowest_error: float
    highest: float
    highest_error: float
    products: int

    def with_products(self, products: int) -> Eigenvalues:
        return replace(self, products=products)

    def settled(self, tolerance: float) -> np.ndarray:
        """Which values are known to this relative tolerance, or to rounding where they are next to nothing."""
        allowed = self._allowed(self.values, tolerance)
        return np.asarray((self.errors <= allowed) & (self.residuals <= CERTAIN * allowed))

    def extremes_settled(self, tolerance: float) -> bool:
        ends = np.array([self.lowest, self.highest])
        return bool((np.array([self.lowest_error, self.highest_error]) <= self._allowed(ends, tolerance)).all())

    def _allowed(self, values: Vectors, tolerance: float) -> Vectors:
        return np.asarray(np.maximum(tolerance * np.abs(values), NOISE * np.abs(self.values).max(initial=0.0)))


@dataclass(frozen=True)
class Krylov:
    """What a chain of products leaves: orthonormal rows V, the matrix V H V', and what left the rows at the end."""

    basis: Tensor
    """(vector, parameter)"""
    matrix: Vectors
    """(vector, vector)"""
    remainder: Tensor
    """(parameter,): the part of H v of the last vector outside the basis."""
    length: float
    """Of the remainder."""

    def eigenvalues(self, top: int, added: Addition | None = None) -> Eigenvalues:
        """The outermost eigenvalues of H, or of H + D without any new product: H y and D y are both known here.

        The basis was made for H, so the residual of H + D holds what D moves out of it; where D is small beside the
        gaps of H nothing more is needed, and where it is not the errors tell.
        """
        if added is None:
            values, vectors = np.linalg.eigh(self.matrix)
            return outermost(values, self.length * np.abs(vectors[-1]), top, len(self.matrix))
        values, vectors = np.linalg.eigh(self.matrix + added.sandwich(self.basis).numpy())
        outside = np.full(len(values), np.nan)
        chosen = by_magnitude(values)[:top]
        for index in {*chosen, *rivals(values, chosen), 0, len(values) - 1}:
            outside[index] = self._outside(vectors[:, index], added)
        # The residuals of the others only say how near a neighbour may be: that of H itself and the shift bound them.
        return outermost(values, np.where(np.isnan(outside), np.nanmax(outside), outside), top, len(self.matrix))

    def _outside(self, weights: Vectors, added: Addition) -> float:
        small = torch.from_numpy(weights).to(self.basis)
        moved = added.multiply((small @ self.basis)[None])[0]
        for _ in range(2):
            moved -= (self.basis @ moved) @ self.basis
        return float((moved + float(weights[-1]) * self.remainder).double().norm())

    def vectors(self, top: int) -> Tensor:
        """Approximate eigenvectors (value, parameter) of the values largest in magnitude."""
        values, vectors = np.linalg.eigh(self.matrix)
        return torch.from_numpy(vectors[:, by_magnitude(values)[:top]].T.copy()).to(self.basis) @ self.basis


def by_magnitude(values: Vectors) -> np.ndarray:
    return np.argsort(-np.abs(values), kind="stable")


def outermost(values: Vectors, residuals: Vectors, top: int, products: int) -> Eigenvalues:
    """Ritz `values`, rising, with their residuals, as the outermost eigenvalues with error bounds."""
    apart = np.abs(values[:, None] - values[None]) - residuals[None]  # a neighbour may lie nearer by its own residual
    np.fill_diagonal(apart, np.inf)
    gaps = apart.min(1, initial=np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(gaps > 0, np.minimum(residuals, residuals**2 / gaps), residuals)
    chosen = by_magnitude(values)[:top]
    others = rivals(values, chosen)
    reach = (np.abs(values[others]) + RIVAL * residuals[others]).max(initial=0.0)
    return Eigenvalues(
        values=values[chosen],
        residuals=residuals[chosen],
        errors=np.maximum(errors[chosen], reach - np.abs(values[chosen])),
        lowest=float(values[0]),
        lowest_error=float(errors[0]),
        highest=float(values[-1]),
        highest_error=float(errors[-1]),
        products=products,
    )


def rivals(values: Vectors, chosen: np.ndarray) -> np.ndarray:
    """Of rising values, the lowest negative and the highest positive one that were not chosen, as far as there are any.

    >>> rivals(np.array([-8.0, -5.0, 1.0, 4.0, 9.0]), chosen=np.array([4, 0]))
    array([1, 3])
    """
    left = np.setdiff1d(np.arange(len(values)), chosen)
    return np.concatenate([left[values[left] < 0][:1], left[values[left] > 0][-1:]])


def krylov_spaces(
    operators: Operators,
    *,
    top: int = 5,
    tolerance: float = 1e-4,
    most: int = 30,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    enough: Callable[[Krylov], bool] | None = None,
) -> list[Krylov]:
    """For each operator the space in which its `top` eigenvalues are known to `tolerance`, or that of `most` products.

    The extremes must be known to ten times that. `enough` replaces this rule. An operator that is done keeps its
    space; the others go on. `dtype` is that of the basis.
    """
    enough = enough or (lambda space: are_settled(space.eigenvalues(top), top, tolerance))
    generator = generator or torch.Generator().manual_seed(0)
    start = operators.gradient.to(dtype)
    count, size = start.shape
    most = min(most, size)
    basis = torch.zeros(count, most + 1, size, dtype=dtype, device=start.device)
    # Half gradient, half random: the gradient alone may be blind to a direction, or zero.
    basis[:, 0] = unit(unit(start) + random_like(start, generator))
    matrix = np.zeros((count, most, most))
    spaces: list[Krylov | None] = [None] * count
    ended = np.zeros(count, dtype=bool)
    for step in range(most):
        rows = basis[:, : step + 1]
        outside = operators.multiply(basis[:, step]).to(dtype)
        coefficients = torch.zeros(count, step + 1, dtype=torch.float64, device=start.device)
        for _ in range(2):
            along = without(outside, rows)
            coefficients += along.double()
        matrix[:, : step + 1, step] = matrix[:, step, : step + 1] = coefficients.cpu().numpy()
        length, scale = outside.double().norm(dim=1), coefficients.norm(dim=1)
        lengths, scales = length.tolist(), scale.tolist()
        for index in range(count):
            if spaces[index] is None:
                here = matrix[index, : step + 1, : step + 1].copy()
                space = Krylov(rows[index], here, outside[index], lengths[index])
                ended[index] |= lengths[index] <= NOISE * scales[index]
                done = step + 1 == most or (not ended[index] and enough(space))
                spaces[index] = space if done else None
        if all(spaces):
            break
        basis[:, step + 1] = continued(outside, length, scale, rows, generator)
    return [space for space in spaces if space is not None]


def are_settled(eigenvalues: Eigenvalues, top: int, tolerance: float) -> bool:
    enough = len(eigenvalues.values) >= top and bool(eigenvalues.settled(tolerance).all())
    return enough and eigenvalues.extremes_settled(10 * tolerance)


def eigenvalues_of(
    operator: Operators, *, top: int = 5, tolerance: float = 1e-4, most: int = 30, **options: Any
) -> Eigenvalues:
    """The `top` eigenvalues of one operator, largest magnitude first."""
    (space,) = krylov_spaces(operator, top=top, tolerance=tolerance, most=most, **options)
    return space.eigenvalues(top)


def continued(outside: Tensor, length: Tensor, scale: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """The next vectors: what was outside, or, where nothing was, a random direction that is new to the chain."""
    ended = length <= NOISE * scale
    following = outside / torch.where(ended, 1.0, length)[:, None].to(outside)
    if bool(ended.any()):
        fresh = random_like(outside, generator).clone()
        for _ in range(2):
            without(fresh, rows)
            fresh = unit(fresh)
        following = torch.where(ended[:, None], fresh, following)
    return following


def without(vectors: Tensor, bases: Tensor) -> Tensor:
    """Take out of each vector, in place, its parts along its known rows; returns those parts, (operator, row)."""
    along = torch.stack([inner(rows, vector) for rows, vector in zip(bases, vectors, strict=True)])
    for rows, vector, parts in zip(bases, vectors, along, strict=True):
        vector -= parts @ rows
    return along


def inner(rows: Tensor, vector: Tensor) -> Tensor:
    """Inner products of some long rows with a vector.

    On a GPU in pieces, summed afterwards: its own kernel works on few rows with few of its processors.
    """
    if not vector.is_cuda:
        return rows @ vector
    even = len(vector) - len(vector) % PIECE
    pieces = rows[:, :even].view(len(rows), -1, PIECE).transpose(0, 1)
    sums = torch.bmm(pieces, vector[:even].reshape(-1, PIECE, 1)).sum(0)[:, 0]
    return sums + rows[:, even:] @ vector[even:]


def random_like(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """A random direction, the same for every operator, so that none depends on which others are multiplied with it.

    Drawn on the CPU, so that it is the same on every machine.
    """
    return unit(torch.randn(1, vectors.shape[1], generator=generator).to(vectors)).expand_as(vectors)


def unit(vectors: Tensor) -> Tensor:
    lengths = vectors.double().norm(dim=1, keepdim=True)
    return vectors / torch.where(lengths > 0, lengths, 1.0).to(vectors)
