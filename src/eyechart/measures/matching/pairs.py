"""How alike two pictures are by their tokens, in four ways, and how well that tells pictures of one class.

For pictures with tokens x_1 … x_T and y_1 … y_T, each less the mean of all tokens of the block and of length one:

    patches matched    ½ (mean_t max_u x_t·y_u + mean_u max_t x_t·y_u)
    patches in place   mean_t x_t·y_t
    mean of patches    cosine of the two means
    class token        cosine of the two class tokens

Pictures are compared in groups of 16: every token with every other of a whole block would cost more than the pass.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from eyechart.methods.places import cell_means, cells_of
from eyechart.tracing.views import Look

WAYS = ("patches matched", "patches in place", "mean of patches", "class token")
GROUP = 16
FINEST = 8
"""Tokens a side: maps finer than that are averaged into cells."""
PANEL = 4
"""Pictures compared at a time with those from the first of them on: the rest of the table is its mirror image."""


def tokens_and_class_token(look: Look) -> Tensor:
    """(image, token, channel): patches, or cells of a fine map, then the class token, zeros where there is none."""
    output, site = look.output, look.site
    assert site.grid is not None
    tokens = look.tokens(output)
    spatial = tokens[:, site.layout.prefix :]
    cells = cells_of(site.grid, FINEST)
    if cells != site.grid:
        spatial = cell_means(look.map(output), cells).flatten(2).transpose(1, 2)
    token = tokens[:, :1] if site.layout.prefix else torch.zeros_like(spatial[:, :1])
    return torch.cat([spatial, token], dim=1)


def similarities(features: Tensor) -> Tensor:
    """(image, token, channel) → (image, way, other): how alike each picture is to those of its group, itself included.

    What a group that is not full lacks is zero.
    """
    images, features = len(features), features.float()
    size = min(GROUP, images)
    tokens, token = features[:, :-1], features[:, -1]
    tokens = in_groups(tokens - tokens.mean((0, 1)), size)
    pooled, class_token = F.normalize(tokens.mean(2), dim=-1), in_groups(token - token.mean(0), size)
    class_token = F.normalize(class_token, dim=-1)
    ways = [*token_by_token(F.normalize(tokens, dim=-1)), pooled @ pooled.mT, class_token @ class_token.mT]
    return F.pad(torch.stack(ways, dim=2).flatten(0, 1)[:images], (0, GROUP - size))


def token_by_token(each: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens of length one, (group, image, token, channel) → the first two ways, (group, image, other) each.

    Both are symmetric. Panels spare a CPU a third of the products; an accelerator gains by one large product.
    """
    groups, size, count, _ = each.shape
    flat = each.flatten(1, 2)
    matched, in_place = each.new_empty(2, groups, size, size)
    panel = PANEL if each.device.type == "cpu" else size
    for first in range(0, size, panel):
        rows, rest = slice(first, first + panel), slice(first, None)
        cosine = flat[:, first * count : (first + panel) * count] @ flat[:, first * count :].mT
        cosine = cosine.view(groups, -1, count, size - first, count)
        best = (cosine.amax(4).mean(2) + cosine.amax(2).mean(3)) / 2
        for table, part in ((matched, best), (in_place, cosine.diagonal(dim1=2, dim2=4).mean(-1))):
            table[:, rest, rows], table[:, rows, rest] = part.mT, part
    return matched, in_place


def in_groups(values: Tensor, size: int) -> Tensor:
    """(image, …) → (group, image, …), groups of this size."""
    missing = -len(values) % size
    return F.pad(values, (0, 0) * (values.ndim - 1) + (0, missing)).view(-1, size, *values.shape[1:])


def to_compare(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(image, other): which of its group a picture shares its class with, and which have another; -1 is unknown."""
    padded = np.concatenate([labels, np.full(-len(labels) % GROUP, -1)]).reshape(-1, GROUP)
    known = (padded[:, :, None] >= 0) & (padded[:, None, :] >= 0)
    alike = padded[:, :, None] == padded[:, None, :]
    itself = np.eye(GROUP, dtype=bool)
    same, other = known & alike & ~itself, known & ~alike
    return same.reshape(-1, GROUP)[: len(labels)], other.reshape(-1, GROUP)[: len(labels)]


def by_rank(alike: Tensor, same: Tensor, other: Tensor) -> Tensor:
    """(…, image, way): how often one of the same class is more alike than one of another, minus how often less.

    `alike` is (…, image, way, other). Of a picture that has nothing to compare it is 0.
    """
    pairs = (same[:, :, None] & other[:, None, :]).double()[:, None]  # (image, way, one, other)
    signs = (alike[..., :, None] - alike[..., None, :]).sign().double()
    return (signs * pairs).sum((-2, -1)) / pairs.sum((-2, -1)).clamp_min(1)
