"""How far attention looks, and what the tokens of a ViT are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch

from eyechart.site_choice import attentions
from eyechart.sites import Anatomy, AttentionGeometry
from eyechart.tracing.needs import View
from eyechart.tracing.views import Look

Cls = Literal["drop", "keep"]
VANISHED = 1e-6  # a row with less than this on patches says nothing about distance: counted, not averaged
AT_ONCE = 1 << 24  # attention weights multiplied at a time, so that the product never doubles the peak memory
IN_CACHE = 1 << 18  # on a CPU: 1 MB, or one image


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
    parts = [over_keys(look, some[:, :, :, geometry.query_prefix :]) for some in look.some_weights(IN_CACHE, AT_ONCE)]
    mass, far, beside, proper, counted, per_row, moments = (torch.cat(each) for each in zip(*parts, strict=True))
    places = places_of(look, mass)
    rows = counted.sum((1, 3)).clamp_min(1)
    all_of_it = mass + beside  # 1 after softmax; talking heads add up to something else
    per_token = torch.where(proper, 1 / all_of_it.clamp_min(VANISHED), 0)
    per_token = per_token / proper.sum((1, 3), keepdim=True).clamp_min(1)
    far = (far * per_row).sum((1, 3)) / rows if cls == "drop" else (far * per_token).sum((1, 3))
    place = moments / rows[..., None]
    spread = (place[..., 2] - place[..., :2].square().sum(-1)).clamp_min(0)
    coverage = (spread / places.spread).sqrt()
    share = counted.sum((1, 3)) / places.asked.sum()
    return torch.stack([far, (beside * per_token).sum((1, 3)), coverage, share], dim=-1)


def over_keys(look: Look, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """All that is read of the weights of some images, each (image, window, head, query) but the last, (image, head, 3).

    Mass on patches, distance times weight, mass on prefix tokens, whether a row is shares of attention, whether it
    counts, what it is multiplied with then, and the moments of the mean map.
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    places = places_of(look, weights)
    mass, far, beside, placed = (in_one_product if weights.is_cuda else one_by_one)(weights, places)
    on_patches = weights[..., places.prefix :]
    least = (on_patches if places.seen is None else on_patches * places.seen[:, None, None]).amin(-1)
    # Talking heads may subtract: then a row is no shares of attention, and has no mean distance.
    proper = places.asked[:, None] & (least >= -VANISHED)
    counted = (mass > VANISHED) & proper
    per_row = torch.where(counted, 1 / mass.clamp_min(VANISHED), 0)
    return mass, far, beside, proper, counted, per_row, placed(per_row)


@dataclass(frozen=True)
class Places:
    """Where queries and keys lie, on one device and in one precision."""

    prefix: int
    """Keys without a place before the patches."""
    asked: torch.Tensor
    """Which queries have a place, (window, query)."""
    seen: torch.Tensor | None
    """Which patches have one, (window, key) as 0 or 1; None where all do."""
    distance: torch.Tensor
    """(window, query, key), 0 where there is none."""
    moments: torch.Tensor
    """y, x and y² + x² of the patches from the middle of the grid, (window, key, 3)."""
    spread: torch.Tensor
    """The mean of the last over the grid."""

    @classmethod
    def of(cls, geometry: AttentionGeometry, like: torch.Tensor) -> Places:
        queries = torch.as_tensor(geometry.query_yx)[:, geometry.query_prefix :].to(like.dtype)
        keys = torch.as_tensor(geometry.key_yx)[:, geometry.key_prefix :].to(like.dtype)
        asked, seen = (~positions[..., 0].isnan() for positions in (queries, keys))
        distance = torch.cdist(queries, keys).nan_to_num()
        centred = (keys - keys[seen].mean(0)).nan_to_num()
        squares = centred.square().sum(-1, keepdim=True)
        moments, spread = torch.cat([centred, squares], dim=-1), squares[seen].mean()
        there = like.device
        some = None if bool(seen.all()) else seen.to(like)
        return cls(geometry.key_prefix, asked.to(there), some, distance.to(there), moments.to(there), spread.to(there))

    @cached_property
    def columns(self) -> torch.Tensor:
        """What a weight counts for in every sum over the keys of a query, (window, query, key, sum).

        1 on a patch, its distance, 1 on a prefix token, and its moments.
        """
        windows, queries, patches = self.distance.shape
        columns = self.distance.new_zeros(windows, queries, self.prefix + patches, 6)
        columns[:, :, self.prefix :, 0] = 1 if self.seen is None else self.seen[:, None]
        columns[:, :, self.prefix :, 1] = self.distance
        columns[:, :, : self.prefix, 2] = 1
        columns[:, :, self.prefix :, 3:] = self.moments[:, None]
        return columns


def places_of(look: Look, like: torch.Tensor) -> Places:
    geometry = look.site.attention
    assert geometry is not None
    return look.constant(("places", like.device, like.dtype), lambda: Places.of(geometry, like))


SumsOverKeys = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]
"""Mass on patches, distance times weight, mass on prefix tokens, each (image, window, head, query); and the moments
(image, head, 3) of the mean map, once it is known what each query counts for."""


def in_one_product(weights: torch.Tensor, places: Places) -> SumsOverKeys:
    """It reads the weights once, which is what takes long on a GPU."""
    sums = torch.einsum("nwhqk,wqkc->nwhqc", weights, places.columns)
    mass, far, beside = sums[..., :3].unbind(-1)
    return mass, far, beside, lambda per_row: (sums[..., 3:] * per_row[..., None]).sum((1, 3))


def one_by_one(weights: torch.Tensor, places: Places) -> SumsOverKeys:
    """Twice as fast as the product on a CPU."""
    beside, part = weights[..., : places.prefix].sum(-1), weights[..., places.prefix :]
    if places.seen is not None:
        part = part * places.seen[:, None, None]

    def placed(per_row: torch.Tensor) -> torch.Tensor:
        mean_map = (per_row.unsqueeze(-2) @ part).squeeze(-2)  # (image, window, head, key), summed over queries
        return torch.einsum("nwhk,wkm->nhm", mean_map, places.moments)

    return part.sum(-1), (part * places.distance[None, :, None]).sum(-1), beside, placed


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
