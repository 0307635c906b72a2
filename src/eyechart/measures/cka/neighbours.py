"""A second index beside CKA: do two layers name the same pictures as each other's nearest?

Each layer names the k nearest others of every image, among the n of its block. With m(A, B) the mean share of the k
that both layers name, and k/(n-1) what chance alone gives,

    likeness(A, B) = (m(A, B) - k/(n-1)) / (1 - k/(n-1))

Only the order of distances counts, so a few outlying images cannot dominate the likeness, as they can in CKA; but
the value depends on n, where CKA does not.
"""

from __future__ import annotations

import torch

NEAREST = 5
ROUNDING = 1e-6
"""Of |a|² + |b|², of which a distance is a part: Gram matrices are of float32, which is no more exact."""


def neighbour_table(grams: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """Neighbours shared by every two layers of a stack of Gram matrices (site, n, n), less those that chance gives.

    Divided by the roots of its own diagonal it is the likeness. A layer in which all images coincide names none before
    others: its row is zero.
    """
    one = _nearest(grams)
    other = one if others is None else _nearest(others)
    return one @ other.T


def _nearest(grams: torch.Tensor) -> torch.Tensor:
    """(site, image × other image): 1 for the k nearest others of each image, less the k/(n-1) that chance gives each.

    Others at the same distance share what is left of k: taking the first of them, two layers in which many images
    coincide would agree because images have an order.
    """
    n = grams.shape[1]
    k = min(NEAREST, (n - 1) // 2)
    layers = []
    for gram in grams.double():
        squares = gram.diagonal()
        sizes = squares[:, None] + squares
        distances, same = sizes - 2 * gram, ROUNDING * sizes
        distances.fill_diagonal_(torch.inf)
        farthest = distances.kthvalue(k, dim=1, keepdim=True).values
        nearer = (distances < farthest - same).double()
        tied = ((distances - farthest).abs() <= same).double()
        named = nearer + tied * ((k - nearer.sum(1, keepdim=True)) / tied.sum(1, keepdim=True))
        layers.append((named - k / (n - 1)).fill_diagonal_(0).flatten())
    return torch.stack(layers)
