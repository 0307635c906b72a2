"""How far attention looks, and what the tokens of a ViT are made of."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from eyechart.site_choice import attentions
from eyechart.sites import Anatomy, AttentionGeometry
from eyechart.tracing.needs import View
from eyechart.tracing.views import Look

Cls = Literal["drop", "keep"]
VANISHED = 1e-6  # a row with less than this on patches says nothing about distance: counted, not averaged
AT_ONCE = 1 << 24  # attention weights multiplied at a time, so that the product never doubles the peak memory


def how_far(look: Look, cls: Cls = "drop") -> torch.Tensor:
    """(image, head, 4): distance in pixels, mass on prefix tokens, coverage, share of rows that had mass on patches.

    Prefix tokens have no position. With cls="drop" they are left out and rows are renormalised over patches; with
    "keep" rows stay, and attention to prefix tokens counts as distance 0. Coverage is over patches in both cases. The
    padding of windows has no position either and is always dropped.

    Coverage is the spread of the mean attention map relative to that of the whole grid. It separates a head that looks
    everywhere (uniform: 1, each query at itself: 1) from one that always looks at the same place (0), whose distance
    alone is 0.74 to 1.39 of uniform attention.
    """
    geometry = look.site.attention
    assert geometry is not None
    weights = look.weights[:, :, :, geometry.query_prefix :, geometry.key_prefix :]
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    asked, seen, distance, moments, spread_of_grid = look.constant(
        ("places", weights.device, weights.dtype), lambda: places_of(geometry, weights)
    )
    if seen is not None:
        weights = weights * seen[None, :, None, None]
    on_prefix = look.weights[:, :, :, geometry.query_prefix :, : geometry.key_prefix].to(weights).sum(-1)
    results, size = [], max(1, AT_ONCE // max(1, weights[0].numel()))
    for part, beside in zip(torch.split(weights, size), torch.split(on_prefix, size), strict=True):
        mass = part.sum(-1)  # (image, window, head, query)
        # Talking heads may subtract: then a row is no shares of attention, and has no mean distance.
        proper = asked[:, None] & (part.amin(-1) >= -VANISHED)
        counted = (mass > VANISHED) & proper
        per_row = torch.where(counted, 1 / mass.clamp_min(VANISHED), 0)
        rows = counted.sum((1, 3)).clamp_min(1)
        far = (part * distance[None, :, None]).sum(-1)
        all_of_it = mass + beside  # 1 after softmax; talking heads add up to something else
        per_token = torch.where(proper, 1 / all_of_it.clamp_min(VANISHED), 0)
        per_token = per_token / proper.sum((1, 3), keepdim=True).clamp_min(1)
        far = (far * per_row).sum((1, 3)) / rows if cls == "drop" else (far * per_token).sum((1, 3))
        mean_map = (per_row.unsqueeze(-2) @ part).squeeze(-2)  # (image, window, head, key), summed over queries
        place = torch.einsum("nwhk,wkm->nhm", mean_map, moments) / rows[..., None]
        spread = (place[..., 2] - place[..., :2].square().sum(-1)).clamp_min(0)
        coverage = (spread / spread_of_grid).sqrt()
        share = counted.sum((1, 3)) / asked.sum()
        results.append(torch.stack([far, (beside * per_token).sum((1, 3)), coverage, share], dim=-1))
    return torch.cat(results)


def places_of(
    geometry: AttentionGeometry, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where queries and keys lie, on the device and in the precision of `like`.

    Which queries have a place (window, query); which keys have one (window, key), None where all do; how far they are
    apart (window, query, key); y, x and y² + x² of the keys from the middle of the grid (window, key, 3); the mean of
    the last over the grid.
    """
    queries = torch.as_tensor(geometry.query_yx)[:, geometry.query_prefix :].to(like.dtype)
    keys = torch.as_tensor(geometry.key_yx)[:, geometry.key_prefix :].to(like.dtype)
    asked, seen = (~positions[..., 0].isnan() for positions in (queries, keys))
    distance = torch.cdist(queries, keys).nan_to_num()
    centred = (keys - keys[seen].mean(0)).nan_to_num()
    squares = centred.square().sum(-1, keepdim=True)
    moments, spread = torch.cat([centred, squares], dim=-1), squares[seen].mean()
    there = like.device
    some = None if bool(seen.all()) else seen.to(there)
    return asked.to(there), some, distance.to(there), moments.to(there), spread.to(there)


HOW_FAR = View("attention distance", how_far)
HOW_FAR_WITH_PREFIX = View("attention distance, prefix tokens kept", partial(how_far, cls="keep"))


def tokens_from(anatomy: Anatomy) -> str:
    """What a ViT's tokens are: patches, or the cells of a CNN's map (a hybrid); nothing of the kind for others."""
    attention = [site.attention for site in attentions(anatomy) if site.attention is not None]
    first = min((site.block for site in attentions(anatomy)), default=0)
    one_grid = all(each.kind == "global" and each.cell == attention[0].cell for each in attention)
    later = [site.kind for site in anatomy.pick("block") if site.block >= first]
    if not attention or not one_grid or "conv" in later:
        return ""
    if anatomy.cnn_stem or first > 0:
        return "a CNN"
    return "patches" if anatomy.family == "vit" else ""
