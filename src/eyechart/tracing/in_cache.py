"""Reductions of large tensors on a CPU, some images at a time, so that results in between stay in its cache.

A product or difference of a whole batch of features goes to memory and comes back. Worse, above 32 MB the C library
takes its memory from the system and gives it back every time: the same reduction of 64 images took 3 times as long for
each image as that of 8. An accelerator gains by fewer, larger steps and gets the batch whole.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

AT_ONCE = 1 << 19
"""Numbers, 2 MB in float32. With 1 MB the many small steps cost what is gained, with 8 MB nothing is gained."""


def images_at_once(numbers: int) -> int:
    """How many images with so many numbers each are worked on at a time."""
    return max(1, AT_ONCE // max(1, numbers))


def by_images(work: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """`work` on some images of all tensors at a time, joined; images are the first axis of tensors and results.

    >>> by_images(lambda one, other: (one * other).sum(1), torch.ones(3, 2), torch.ones(3, 2))
    tensor([2., 2., 2.])
    """
    first = tensors[0]
    size = images_at_once(first[:1].numel())
    if first.device.type != "cpu" or len(first) <= size:
        return work(*tensors)
    return torch.cat([work(*parts) for parts in zip(*(torch.split(tensor, size) for tensor in tensors), strict=True)])
