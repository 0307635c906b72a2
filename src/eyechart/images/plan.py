"""Which picture is in which block, shard and fold. Decided here once, so that any number of workers agree.

The *choice* of pictures under a limit is class-balanced; their *order* is random and does not look at classes. A
stratified order would keep pictures of one class out of each other's block, and the unbiased HSIC of CKA needs blocks
that are exchangeable draws: with 100 classes, blocks of 62 and features that know nothing but the class it reads .08
where random blocks read .35 and one large batch .33. A folder read in order errs the other way: one-class blocks.

Random numbers are SHA-256 digests of seed and position, not a library's generator, so a plan is the same on every
machine and under every version of numpy.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from eyechart.errors import RunFolderError, UsageError
from eyechart.images.source import Images
from eyechart.scene import Batch

SMALLEST_BLOCK = 4
"""Unbiased HSIC divides by n - 3."""
LARGEST_BLOCK = 256
FOLDS = 16
SHARDS = 16
"""At most, unless asked otherwise: what a killed run has to repeat is a sixteenth of it."""


@dataclass(frozen=True)
class BatchPlan:
    """The order of the pictures and how it is cut. Blocks are equal; what is left over is a last batch, not `whole`.

    Written out in full, about 10 bytes a picture: a run can then be resumed and read without its pictures and even
    if a later version shuffles otherwise.

    >>> plan = plan_order(None, 70, "", folds=16)
    >>> plan.block, plan.blocks, plan.left_over, plan.batch(17).whole
    (4, 17, 2, False)
    """

    order: tuple[int, ...]
    """Positions in the source. With a limit, only the chosen ones."""
    labels: tuple[int, ...] | None
    """Class of each picture of `order`, -1 unknown."""
    block: int
    folds: int
    shards: tuple[tuple[int, ...], ...]
    """Batch indices of each shard."""
    seed: int
    fingerprint: str
    """Of the images it was made for."""

    def __len__(self) -> int:
        return len(self.order)

    @property
    def blocks(self) -> int:
        """How many whole blocks there are."""
        return len(self.order) // self.block

    @property
    def left_over(self) -> int:
        """Pictures in no whole block: statistics of blocks do not use them, sums over pictures do."""
        return len(self.order) - self.blocks * self.block

    def batch(self, index: int) -> Batch:
        start = index * self.block
        images = np.array(self.order[start : start + self.block], np.int64)
        if not len(images):
            raise UsageError(f"The plan has {self.blocks + bool(self.left_over)} batches; got number {index}.")
        return Batch(
            index=index,
            start=start,
            images=images,
            labels=None if self.labels is None else np.array(self.labels[start : start + self.block], np.int64),
            fold=index % self.folds,
            image_folds=np.arange(start, start + len(images)) % self.folds,
            whole=len(images) == self.block,
        )

    def batches(self, shard: int) -> list[Batch]:
        return [self.batch(index) for index in self.shards[shard]]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BatchPlan:
        try:
            labels = data["labels"]
            plan = cls(
                order=tuple(map(int, data["order"])),
                labels=None if labels is None else tuple(map(int, labels)),
                block=int(data["block"]),
                folds=int(data["folds"]),
                shards=tuple(tuple(map(int, shard)) for shard in data["shards"]),
                seed=int(data["seed"]),
                fingerprint=str(data["fingerprint"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"The batch plan of this run is damaged ({error!r}); run the exam again into a new folder."
            ) from error
        planned = [index for shard in plan.shards for index in shard]
        if (
            planned != list(range(plan.blocks + bool(plan.left_over)))
            or len(set(plan.order)) != len(plan.order)
            or (plan.labels is not None and len(plan.labels) != len(plan.order))
        ):
            raise RunFolderError(
                "The batch plan of this run is damaged (its shards do not cover it); run the exam again into a "
                "new folder."
            )
        return plan


def plan_batches(
    images: Images,
    *,
    limit: int | None = None,
    seed: int = 0,
    folds: int = FOLDS,
    block: int | None = None,
    blocks_per_shard: int | None = None,
    shards: int | None = None,
) -> BatchPlan:
    """The plan for these images; `limit` takes a class-balanced subset (a smaller one is part of a larger one)."""
    return plan_order(
        images.labels,
        len(images),
        images.fingerprint,
        limit=limit,
        seed=seed,
        folds=folds,
        block=block,
        blocks_per_shard=blocks_per_shard,
        shards=shards,
    )


def plan_order(
    labels: np.ndarray | None,
    count: int,
    fingerprint: str,
    *,
    limit: int | None = None,
    seed: int = 0,
    folds: int = FOLDS,
    block: int | None = None,
    blocks_per_shard: int | None = None,
    shards: int | None = None,
) -> BatchPlan:
    """`plan_batches` for a number of pictures and their labels."""
    for name, value, least in (
        ("seed", seed, None),
        ("limit", limit, 1),
        ("folds", folds, 2),
        ("block", block, SMALLEST_BLOCK),
        ("blocks_per_shard", blocks_per_shard, 1),
        ("shards", shards, 1),
    ):
        if value is not None and not isinstance(value, Integral):
            raise UsageError(f"{name} must be a whole number; got {value!r}.")
        if value is not None and least is not None and value < least:
            raise UsageError(f"{name} must be at least {least}; got {value}.")
    order = seeded_order([0] * count if labels is None else labels.tolist(), seed, limit)
    size = block or max(SMALLEST_BLOCK, min(LARGEST_BLOCK, len(order) // 16))
    blocks = len(order) // size
    step = blocks_per_shard or max(1, -(-blocks // (shards or SHARDS)))
    cut = [tuple(range(start, min(start + step, blocks))) for start in range(0, blocks, step)] or [()]
    if blocks * size < len(order):
        cut[-1] += (blocks,)
    return BatchPlan(
        order=tuple(order),
        labels=None if labels is None else tuple(labels[order].tolist()),
        block=size,
        folds=folds,
        shards=tuple(cut),
        seed=seed,
        fingerprint=fingerprint,
    )


def seeded_order(labels: Sequence[int], seed: int, limit: int | None = None) -> list[int]:
    """Positions of `labels` in random order; with a limit, as many of each class as there are, up to an equal share.

    >>> order = seeded_order([0, 0, 0, 0, 1, 1], seed=0, limit=4)
    >>> sorted([0, 0, 0, 0, 1, 1][index] for index in order)
    [0, 0, 1, 1]
    """
    draws = [_draw(seed, "picture", index) for index in range(len(labels))]
    chosen: Sequence[int] = range(len(labels))
    if limit is not None and limit < len(labels):
        rank: dict[int, int] = {}
        taken: Counter[int] = Counter()
        for index in sorted(chosen, key=lambda index: (draws[index][0], index)):
            rank[index] = taken[labels[index]]
            taken[labels[index]] += 1
        # One of each class, then a second of each, …: equally many as far as a class reaches.
        turn = {label: _draw(seed, "class", label)[0] for label in taken}
        chosen = sorted(chosen, key=lambda index: (rank[index], turn[labels[index]], labels[index]))[:limit]
    return sorted(chosen, key=lambda index: (draws[index][1], index))


def _draw(seed: int, what: str, number: int) -> tuple[int, float]:
    """Two independent random numbers: 64 bits, and a fraction in [0, 1)."""
    digest = hashlib.sha256(f"eyechart order 1, seed {seed}, {what} {number}".encode()).digest()
    return int.from_bytes(digest[:8], "big"), (int.from_bytes(digest[8:16], "big") >> 11) * 2.0**-53
