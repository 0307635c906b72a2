"""Reading ahead: while a subject looks at one batch, the next is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from PIL import Image

from eyechart.images.picture import common_crop
from eyechart.images.source import THREADS, Images
from eyechart.scene import Batch

Prepared = TypeVar("Prepared")


def iterate(
    images: Images, batches: Iterable[Batch], prepare: Callable[[Image.Image], Prepared], *, ahead: int = 1
) -> Generator[tuple[Batch, list[Prepared]], None, None]:
    """Each batch with what `prepare` makes of the common crop of each of its pictures, in order.

    `prepare` runs in the reading threads, picture by picture, so a full-size photograph lives only until it has become
    a small tensor: in memory are THREADS photographs and `ahead` + 1 prepared batches (256 photographs of 12 megapixels
    kept as read would be 9 GB).

    >>> from eyechart.images import open_images, plan_batches
    >>> sample = open_images("sample")
    >>> plan = plan_batches(sample, limit=64)
    >>> [len(crops) for batch, crops in iterate(sample, plan.batches(0), lambda crop: crop.resize((8, 8)))]
    [4]
    """

    def load(index: int) -> Prepared:
        return prepare(common_crop(images.picture(index)))

    waiting: deque[tuple[Batch, list[Future[Prepared]]]] = deque()
    with ThreadPoolExecutor(THREADS, thread_name_prefix="pictures") as pool:
        try:
            for batch in batches:
                waiting.append((batch, [pool.submit(load, int(index)) for index in batch.images]))
                if len(waiting) > ahead:
                    yield _finished(*waiting.popleft())
            while waiting:
                yield _finished(*waiting.popleft())
        finally:
            # On an error or when the caller stops: do not decode what nobody will look at.
            pool.shutdown(wait=False, cancel_futures=True)


def _finished(batch: Batch, futures: list[Future[Prepared]]) -> tuple[Batch, list[Prepared]]:
    return batch, [future.result() for future in futures]
