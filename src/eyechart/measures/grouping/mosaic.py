"""Two pictures in one, patch by patch at random, and how much attention stays within one of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from eyechart.methods.attention_distance import VANISHED


def sources(images: int, patches: int, generator: torch.Generator) -> Tensor:
    """(image, patch): whether a patch comes from the partner; half of them do, each half as likely as any other.

    >>> sources(3, 8, torch.Generator().manual_seed(0)).sum(1).tolist()
    [4, 4, 4]
    """
    return torch.rand(images, patches, generator=generator).argsort(1) < patches // 2


def mosaics(pictures: Tensor, partner: Tensor, borrowed: Tensor, grid: tuple[int, int]) -> Tensor:
    """Each picture (image, 3, y, x) with the borrowed patches of its partner; a patch stays in its place."""
    (height, width), (rows, columns) = pictures.shape[-2:], grid
    mask = borrowed.view(-1, 1, rows, columns).to(pictures.device)
    mask = mask.repeat_interleave(height // rows, 2).repeat_interleave(width // columns, 3)
    return torch.where(mask, pictures[partner.to(pictures.device)], pictures)


def grouping(weights: Tensor, borrowed: Tensor) -> Tensor:
    """How much attention (image, head, query, key) between patches stays within a query's own picture, in two ways.

    By mass: a query's share on other patches of its picture, s, against e, the share of such patches among all others:
    (s − e) / (1 − e). By rank: how much more often one of them gets more than one of the other picture than the other
    way round, which no temperature of the softmax changes. Weights that do not depend on what patches show have 0 in
    the mean over mosaics, wherever they look; 1 means that the own picture gets everything, or always more. A query's
    weight on itself is left out, for it would count as its own picture.

    Returns means over queries (image, head, 3): by mass, by rank, and whether any query had something to count.
    """
    patches = borrowed.shape[1]
    others = ~torch.eye(patches, dtype=torch.bool, device=weights.device)
    same = (borrowed[:, :, None] == borrowed[:, None, :]).to(weights.device) & others  # (image, query, key)
    own = same.sum(-1, dtype=weights.dtype)[:, None]
    mass = (weights * others).sum(-1)
    counted = (mass > VANISHED) & (weights.amin(-1) >= -VANISHED)  # talking heads may subtract: no shares of attention
    expected = own / (patches - 1)
    within = (weights * same[:, None]).sum(-1)
    by_mass = (within / mass.clamp_min(VANISHED) - expected) / (1 - expected)
    # The query itself is put below all others. Equal weights are ranked by place, which is as good as by lot here.
    rank = weights.masked_fill(~others, -1).argsort(dim=-1, stable=True).argsort(-1).to(mass.dtype)
    above = (rank * same[:, None]).sum(-1) - own * (own + 1) / 2  # of own × strange pairs, those where the own is above
    by_rank = 2 * above / (own * (patches - 1 - own)) - 1
    queries = counted.sum(-1)
    means = [torch.where(counted, each, 0).sum(-1) / queries.clamp_min(1) for each in (by_mass, by_rank)]
    return torch.stack([*means, (queries > 0).to(mass.dtype)], -1)


def without_parameters(tokens: Tensor) -> Tensor:
    """softmax(X Xᵀ / √d) of standardised tokens (image, token, channel), one head, each token's own weight left out.

    Tokens are standardised as a LayerNorm without parameters does, because that is what attention is given.
    """
    tokens = F.layer_norm(tokens.to(torch.promote_types(tokens.dtype, torch.float32)), tokens.shape[-1:])
    alike = tokens @ tokens.mT / tokens.shape[-1] ** 0.5
    itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    weights: Tensor = alike.masked_fill(itself, -torch.inf).softmax(-1)
    return weights.unsqueeze(1)
