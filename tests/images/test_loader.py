"""Reading ahead: order, overlap, bounded memory, errors."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eyechart.errors import ImagesError
from eyechart.images import common_crop, iterate, open_images, plan_batches
from eyechart.images.arrays import ArrayImages
from eyechart.images.source import THREADS


def test_batches_come_in_order_with_their_own_pictures() -> None:
    images = open_images("sample")
    plan = plan_batches(images, limit=100, block=8, blocks_per_shard=5)
    seen = list(iterate(images, plan.batches(1), np.asarray))
    assert [batch.index for batch, _ in seen] == [5, 6, 7, 8, 9]
    for batch, crops in seen:
        expected = images.array(batch.images)
        assert expected is not None
        assert np.array_equal(np.stack(crops), expected)
    assert len(list(iterate(images, plan.batches(1), np.asarray, ahead=3))) == 5


def test_pictures_are_cropped_before_they_are_prepared() -> None:
    pictures = [Image.new("RGB", (30, 20)) for _ in range(4)]
    images = open_images(pictures)
    ((_, sizes),) = iterate(images, plan_batches(images).batches(0), lambda crop: crop.size)
    assert sizes == [common_crop(pictures[0]).size] * 4 == [(20, 20)] * 4


def test_the_next_batch_is_read_meanwhile_but_no_more() -> None:
    images = open_images("sample")
    plan = plan_batches(images, limit=40, block=4, blocks_per_shard=10)
    read: list[int] = []
    for ahead in (1, 3):
        read.clear()
        reader = iterate(images, plan.batches(0), lambda crop: read.append(1), ahead=ahead)
        next(reader)
        for _ in range(100):  # the reading goes on without our asking
            if len(read) == 4 * (1 + ahead):
                break
            time.sleep(0.02)
        time.sleep(0.05)
        assert len(read) == 4 * (1 + ahead)
        reader.close()


def test_photographs_do_not_pile_up() -> None:
    """At most THREADS pictures are open at a time, however large the batch."""
    lock = threading.Lock()
    now, most = 0, 0

    class Watched(ArrayImages):
        def picture(self, index: int) -> Image.Image:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            return super().picture(index)

    def prepare(crop: Image.Image) -> None:
        nonlocal now
        time.sleep(0.002)
        with lock:
            now -= 1

    images = Watched("zeros", np.zeros((64, 8, 8, 3), np.uint8))
    list(iterate(images, plan_batches(images, block=32).batches(0), prepare))
    assert 0 < most <= THREADS


def test_stopping_early_ends_the_threads() -> None:
    images = open_images("sample")
    plan = plan_batches(images, limit=400, block=100, blocks_per_shard=4)
    read: list[Image.Image] = []

    def prepare(crop: Image.Image) -> None:
        time.sleep(0.002)
        read.append(crop)

    reader = iterate(images, plan.batches(0), prepare, ahead=3)
    next(reader)
    reader.close()
    assert len(read) < 300  # what nobody will look at is not decoded
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pictures")]


def test_a_picture_that_went_bad_stops_the_run_with_its_name(tmp_path: Path) -> None:
    for place in range(8):
        Image.new("RGB", (16, 16), (place, 0, 0)).save(tmp_path / f"{place}.png")
    images = open_images(tmp_path)
    plan = plan_batches(images)
    bad = plan.order[6]
    (tmp_path / f"{bad}.png").write_bytes(b"")
    with pytest.raises(ImagesError, match=f"{bad}.png in .* cannot be read now .the file is empty.; repair or remove"):
        list(iterate(images, [plan.batch(0), plan.batch(1)], np.asarray))


def test_pictures_keep_the_order_asked_for(tmp_path: Path) -> None:
    for place in range(20):
        Image.new("RGB", (16, 16), (place, 0, 0)).save(tmp_path / f"{place:02d}.png")
    pixels = [picture.getpixel((0, 0)) for picture in open_images(tmp_path).pictures([7, 3, 19, 3])]
    assert pixels == [(7, 0, 0), (3, 0, 0), (19, 0, 0), (3, 0, 0)]
