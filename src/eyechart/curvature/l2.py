"""The weight penalty in a Hessian: three forms, all known in closed form, so that none costs a derivative.

    none     nothing
    norms    c Σ_t ‖p_t‖        over tensors t: what Park & Kim's code adds. Hessian c (I − p p'/‖p‖²) / ‖p‖ per tensor
    half     c/2 Σ_t ‖p_t‖²     the usual L2 penalty. Hessian c I: the whole spectrum shifts by c

The un-squared norm has no second derivative at 0 and an endless one near it, so tensors whose entries are all but zero
(root mean square below `SMALLEST`) are left out; `Penalty.left_out` names them.

AdamW's decay is decoupled from the loss: no form is the objective that it minimises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from eyechart.errors import UsageError

Form = Literal["none", "norms", "half"]
SMALLEST = 1e-4
"""Root mean square of a tensor's entries below which its norm counts as zero."""


@dataclass(frozen=True)
class Penalty:
    """A weight penalty at given parameters (name → tensor), in the order that `Hessian` lays them out.

    >>> import torch
    >>> penalty = Penalty("norms", 2.0, {"p": torch.tensor([3.0, 4.0]), "zero": torch.zeros(1)})
    >>> penalty.left_out
    ('zero',)
    >>> penalty.multiply(torch.tensor([[3.0, 4.0, 1.0], [4.0, -3.0, 1.0]]))  # along p nothing, across p 2 / ‖p‖
    tensor([[ 0.0000,  0.0000,  0.0000],
            [ 1.6000, -1.2000,  0.0000]])
    """

    form: Form
    weight: float
    parameters: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise UsageError(f"The weight of a penalty must be at least 0; got {self.weight}.")

    def value(self) -> float:
        """What it adds to the loss."""
        norms = [float(tensor.double().norm()) for tensor in self.parameters.values()]
        if self.form == "norms":
            return self.weight * sum(norms)
        return self.weight / 2 * sum(norm**2 for norm in norms) if self.form == "half" else 0.0

    @property
    def left_out(self) -> tuple[str, ...]:
        """Tensors too near to zero for the form "norms"."""
        if self.form != "norms":
            return ()
        return tuple(name for name, tensor in self.parameters.items() if all_but_zero(tensor))

    def multiply(self, vectors: Tensor) -> Tensor:
        """The penalty's Hessian times each row of (vector, parameter)."""
        if self.form == "none":
            return torch.zeros_like(vectors)
        if self.form == "half":
            return self.weight * vectors
        result = torch.zeros_like(vectors)
        for part, direction, curvature in self._tensors(vectors):
            own = vectors[:, part]
            result[:, part] = curvature * (own - torch.outer(own @ direction, direction))
        return result

    def sandwich(self, basis: Tensor) -> Tensor:
        """B D B' of a basis (vector, parameter) and the penalty's Hessian D: (vector, vector) float64 on the CPU."""
        size = len(basis)
        if self.form != "norms":
            gram = basis @ basis.T if self.form == "half" else basis.new_zeros(size, size)
            return (self.weight * gram).double().cpu()
        total = torch.zeros(size, size, dtype=torch.float64, device=basis.device)
        for part, direction, curvature in self._tensors(basis):
            own = basis[:, part]
            along = own @ direction
            total += curvature * (own @ own.T - torch.outer(along, along)).double()
        return total.cpu()

    @property
    def steepest_repeated(self) -> float:
        """The largest eigenvalue that the penalty alone repeats: a Lanczos chain finds one copy of such a value."""
        if self.form != "norms":
            return 0.0  # a shift repeats nothing that the loss did not repeat
        return max((curvature for _, direction, curvature in self._directions if len(direction) > 2), default=0.0)

    def _tensors(self, like: Tensor) -> Iterator[tuple[slice, Tensor, float]]:
        return ((part, direction.to(like), curvature) for part, direction, curvature in self._directions)

    @cached_property
    def _directions(self) -> list[tuple[slice, Tensor, float]]:
        """Where each tensor lies among the parameters, its direction, and the weight divided by its norm."""
        directions, start = [], 0
        for tensor in self.parameters.values():
            part = slice(start, start := start + tensor.numel())
            if not all_but_zero(tensor):
                norm = float(tensor.double().norm())
                directions.append((part, tensor.detach().reshape(-1).double() / norm, self.weight / norm))
        return directions


def all_but_zero(tensor: Tensor) -> bool:
    return float(tensor.detach().double().square().mean().sqrt()) < SMALLEST
