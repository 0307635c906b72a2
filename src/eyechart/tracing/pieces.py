"""Work that fits the memory: when it runs out, the micro-batch is halved. The statistical batch never changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


class PieceSize:
    """How many images go through a subject at once. It only ever shrinks, and is remembered between batches."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def fit(self, images: int, work: Callable[[int], Result]) -> Result:
        """`work(size)` with the largest size that memory allows, at most `images`."""
        size = min(self.most or images, images)
        while True:
            try:
                return work(size)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not out_of_memory(error) or size == 1:
                    raise
            size = (size + 1) // 2
            self.most = size
            torch.cuda.empty_cache()  # does nothing where CUDA was never used


def out_of_memory(error: BaseException) -> bool:
    """CUDA has an exception of its own; the CPU allocator raises a RuntimeError with these words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
