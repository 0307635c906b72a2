"""Attention as a kernel: weights that depend less on the picture, and how much they change from picture to picture.

Weights are the intact network's, (image, window, head, query, key), of one group of pictures.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

HIDDEN = 1e-20  # a key that gets less from every picture and head is masked (beyond a shifted window)


def even(weights: Tensor) -> Tensor:
    """The same for every key the query may see, prefix tokens included.

    >>> even(torch.tensor([[[[[0.7, 0.3, 0.0]]]]])).flatten().tolist()
    [0.5, 0.5, 0.0]
    """
    seen = (weights.amax((0, 2), keepdim=True) > HIDDEN).to(weights.dtype)
    return (seen / seen.sum(-1, keepdim=True).clamp_min(1)).expand_as(weights)


def mean_of_others(weights: Tensor) -> Tensor:
    """For each picture the mean over the others of its group, for each head and query."""
    return (weights.sum(0, keepdim=True) - weights) / (len(weights) - 1)


def of_another(weights: Tensor) -> Tensor:
    """The next picture's; its order in the exam is random."""
    return weights.roll(-1, 0)


EVEN, MEAN, OTHER = "even", "mean of others", "another picture's"
REPLACEMENTS: dict[str, Callable[[Tensor], Tensor]] = {EVEN: even, MEAN: mean_of_others, OTHER: of_another}


def kernel_spread(weights: Tensor) -> Tensor:
    """(image, head, 3): Σ_keys A², Σ_keys Var_pictures(A), Σ_keys Var_heads(A), means over windows and queries.

    The variance over pictures is unbiased: (n-1)/n of the squared distance from the mean of the others.
    """
    count, weights = len(weights), weights.float()
    power = weights.square().sum(-1)
    pictures = (weights - mean_of_others(weights)).square().sum(-1) * ((count - 1) / count)
    heads = (weights - weights.mean(2, keepdim=True)).square().sum(-1)
    return torch.stack([power, pictures, heads], -1).double().mean((1, 3))
