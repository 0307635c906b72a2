"""Example pictures and the attention paid to them: which are chosen, how much of it is kept, how it is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from eyechart.measures.attention_maps.rows import (
    SIDES,
    Kept,
    coded,
    count_keys,
    count_queries,
    kept_rows,
    rollout,
    why_no_rollout,
)
from eyechart.scene import Batch
from eyechart.sites import Site
from eyechart.tracing.bench import Bench
from eyechart.tracing.needs import View
from eyechart.tracing.views import Look

MOST, FEWEST = 6, 4  # pictures; before fewer than four would fit, queries are thinned
ROOM = 45_000_000  # bytes of maps kept of a subject: every patch of 16×16 in 4 pictures of a ViT-B
LARGEST_PICTURE = 256  # pixels a side of the pictures kept beside the maps


def bytes_of_picture(sites: Sequence[Site], size: tuple[int, int], side: int) -> int:
    """What the maps and the rollout of one picture take."""
    return sum(
        ((site.heads or 1) + 1) * count_queries(site.attention, size, side) * (count_keys(site.attention) + 4)
        for site in sites
        if site.attention is not None
    )


def thinning(sites: Sequence[Site], size: tuple[int, int]) -> tuple[int, int]:
    """(rows and columns of queries, pictures) that are kept of a subject with these attentions."""
    for side in SIDES:
        pictures = ROOM // bytes_of_picture(sites, size, side)
        if pictures >= FEWEST:
            break
    return side, max(1, min(MOST, pictures))


def spread_over_classes(batch: Batch, count: int) -> Tensor:
    """Which images of a batch are examples."""
    return torch.tensor(in_turns([-1] * len(batch.images) if batch.labels is None else batch.labels.tolist())[:count])


def in_turns(labels: Sequence[int]) -> list[int]:
    """The first image of each class, then the second of each, …

    >>> in_turns([5, 5, 2, 5, 2, 9])
    [0, 2, 5, 1, 4, 3]
    """
    seen: dict[int, int] = {}
    turns = []
    for label in labels:
        turns.append(seen.get(label, 0))
        seen[label] = turns[-1] + 1
    return sorted(range(len(turns)), key=lambda index: (turns[index], index))


def look_at_rows(kept: Mapping[str, Kept], with_rollout: bool) -> View:
    """(image, head + 1, query, key): the kept rows of every head and, last, of the rollout up to here."""
    first = next(iter(kept))
    before: Tensor | None = None  # sites are met in the order of execution, so one matrix is held and not all

    def take(look: Look) -> Tensor:
        nonlocal before
        rows, weights = kept[look.site.name], look.weights.float()
        of_heads = rows.rows(weights)
        if not with_rollout:
            return torch.cat([of_heads, torch.zeros_like(of_heads[:, :1])], dim=1)
        before = rollout(weights[:, 0], None if look.site.name == first else before)
        return torch.cat([of_heads, rows.rows(before[:, None, None])], dim=1)

    return View("kept rows of attention", take)


def take_examples(bench: Bench, sites: Sequence[Site]) -> dict[str, Tensor]:
    """Some pictures of this batch; "maps of SITE" (image, head, query, key) as `coded`, its "peak of SITE", …"""
    side, count = thinning(sites, bench.anatomy.input_size)
    bench = bench.picked(spread_over_classes(bench.batch, count))
    kept = {site.name: kept_rows(site.attention, side) for site in sites if site.attention is not None}
    view = look_at_rows(kept, with_rollout=not why_no_rollout(bench.anatomy, sites))
    seen = bench.look({name: [view] for name in kept})
    labels = torch.full((len(bench),), -1) if bench.batch.labels is None else torch.as_tensor(bench.batch.labels)
    examples = {"image": torch.as_tensor(bench.batch.images), "label": labels, "picture": pictures_of(bench)}
    for name, rows in kept.items():
        codes, peak, beside = coded(seen[name][view.name], torch.as_tensor(rows.placed))
        examples |= {
            f"maps of {name}": codes[:, :-1],
            f"peak of {name}": peak[:, :-1],
            f"beside of {name}": beside[:, :-1],
            f"rollout of {name}": codes[:, -1],
            f"rollout_peak of {name}": peak[:, -1],
            f"rollout_beside of {name}": beside[:, -1],
            f"query_place of {name}": torch.as_tensor(rows.queries),
            f"key_place of {name}": torch.as_tensor(rows.keys),
            f"grids of {name}": torch.tensor(rows.grids),
        }
    return examples


def picture_size(size: tuple[int, int]) -> tuple[int, int]:
    """Of the pictures kept: as the subject is fed, but at most 256 pixels on the longer side.

    >>> picture_size((32, 32)), picture_size((224, 224)), picture_size((512, 256))
    ((32, 32), (224, 224), (256, 128))
    """
    shrink = max(1.0, max(size) / LARGEST_PICTURE)
    return round(size[0] / shrink), round(size[1] / shrink)


def pictures_of(bench: Bench) -> Tensor:
    """(image, y, x, channel) in whole numbers to 255, as the subject is fed.

    Where its transform cannot be undone, colours are stretched over what there is.
    """
    if bench.subject.colours is None:
        low, high = bench.images.amin((1, 2, 3), keepdim=True), bench.images.amax((1, 2, 3), keepdim=True)
        pixels = (bench.images - low) / (high - low).clamp_min(1e-6)
    else:
        pixels = bench.pixels()
    small = F.interpolate(pixels.float().cpu(), picture_size(bench.anatomy.input_size), mode="bilinear", antialias=True)
    return (small.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
