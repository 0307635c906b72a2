"""Spectra of many minibatches, with and without a weight penalty, as many at once as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eyechart.curvature.hessian import Hessians, Parameters
from eyechart.curvature.l2 import Penalty
from eyechart.curvature.lanczos import Eigenvalues, krylov_spaces
from eyechart.tracing.pieces import PieceSize

LARGEST_BASIS = 2 << 30
"""Bytes of one minibatch's basis in float64; vectors too long for that are kept in float32."""
GRAPH_PER_BASIS = 2.0
"""Memory of a minibatch's graph and working vectors, in parts of its basis. A guess: groups are halved if it fails."""


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of one minibatch's loss, and of the loss with the penalty."""

    plain: Eigenvalues
    penalised: Eigenvalues


@dataclass(frozen=True)
class Sum:
    """H + D, multiplied anew: for a penalty too strong for the space that was made for H."""

    loss: Hessians
    penalty: Penalty

    @property
    def gradient(self) -> Tensor:
        return self.loss.gradient

    def multiply(self, vectors: Tensor) -> Tensor:
        return self.loss.multiply(vectors) + self.penalty.multiply(vectors)


def spectra(
    loss: Callable[..., Tensor],
    parameters: Parameters,
    batches: Sequence[Tensor],
    penalty: Penalty,
    *,
    top: int = 5,
    tolerance: float = 1e-3,
    most: int = 40,
) -> list[Spectrum]:
    """One spectrum a minibatch, which is the first axis of every tensor in `batches`."""
    count, size = len(batches[0]), sum(parameter.numel() for parameter in parameters.values())
    dtype = torch.float64 if 8 * size * (most + 1) <= LARGEST_BASIS else torch.float32

    def work(group: int) -> list[Spectrum]:
        spectra: list[Spectrum] = []
        for start in range(0, count, group):
            part = [tensor[start : start + group] for tensor in batches]
            spaces = krylov_spaces(
                Hessians(loss, parameters, part), top=top, tolerance=tolerance, most=most, dtype=dtype
            )
            plain = [space.eigenvalues(top) for space in spaces]
            penalised = [space.eigenvalues(top, penalty) for space in spaces]
            del spaces  # their bases are most of the memory, and the next chains need as much
            unsettled = [index for index, each in enumerate(penalised) if not each.settled(10 * tolerance).all()]
            if unsettled:
                # All at once: one by one they took 2 s each on a GPU that was nearly idle.
                again = Hessians(loss, parameters, [tensor[unsettled] for tensor in part])
                own = krylov_spaces(Sum(again, penalty), top=top, tolerance=tolerance, most=most, dtype=dtype)
                for index, space in zip(unsettled, own, strict=True):
                    alone = space.eigenvalues(top)
                    penalised[index] = alone.with_products(alone.products + plain[index].products)
            spectra += map(Spectrum, plain, penalised)
        return spectra

    at_once = many_at_once(batches[0].device, dtype.itemsize * size * (most + 1), count)
    return PieceSize(at_once).fit(at_once, work)


def many_at_once(device: torch.device, basis: int, count: int) -> int:
    """A CPU is busy with one minibatch; a GPU is idle with one, and takes what fits its free memory."""
    if device.type != "cuda":
        return 1
    free, whole = torch.cuda.mem_get_info(device)
    share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)  # torch ≥ 2.9 has it
    free = min(free, int(share * whole) - torch.cuda.memory_reserved(device))
    most = max(1, min(count, int(0.9 * free / ((1 + GRAPH_PER_BASIS) * basis))))
    groups = -(-count // most)
    return -(-count // groups)  # equal groups: 8 and 8 rather than 15 and 1
