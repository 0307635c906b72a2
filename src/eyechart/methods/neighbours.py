"""A second index beside CKA: do two layers name the same pictures as each other's nearest?

Each layer names the k nearest others of every image, among the n of its block. With m(A, B) the mean share of the k
that both layers name, and k/(n-1) what chance alone gives,

    likeness(A, B) = (m(A, B) - k/(n-1)) / (1 - k/(n-1))

Only the order of distances counts, so a few far-off images cannot make up a likeness as they can in a covariance; but
the value depends on n, where CKA does not.
"""

from __future__ import annotations

import torch

NEAREST = 5


def neighbour_table(grams: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """Neighbours shared by every two layers of a stack of Gram matrices (site, n, n), less those that chance gives.

    Divided by its own diagonal it is the likeness. A layer in which all images coincide names none: its row is zero.
    """
    n = grams.shape[1]
    k = min(NEAREST, (n - 1) // 2)
    one = _nearest(grams, k)
    other = one if others is None else _nearest(others, k)
    named = torch.outer(one.sum((1, 2)) > 0, other.sum((1, 2)) > 0)
    shared = one.flatten(1) @ other.flatten(1).T
    return torch.where(named, shared - n * k**2 / (n - 1), 0.0)


def _nearest(grams: torch.Tensor, k: int) -> torch.Tensor:
    """(site, image, other image): 1 for the k nearest others of each image."""
    own = grams.double().diagonal(dim1=1, dim2=2)
    distances = own[:, :, None] + own[:, None, :] - 2 * grams.double()
    apart = distances.amax((1, 2)) > 0
    distances.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    named = torch.zeros_like(distances).scatter_(2, distances.topk(k, largest=False).indices, 1.0)
    return named * apart[:, None, None]
