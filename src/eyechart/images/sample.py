"""The bundled pictures: 1,000 of CIFAR-10's test set (100 a class) and 500 of its training set (50 a class).

Credit: Alex Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. Made by scripts/make_sample.py:
the first ones of each class in the official order, in that order, as lossless WebP sheets of 20 pictures a row.
"""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
from PIL import Image

from eyechart.errors import UsageError
from eyechart.images.arrays import ArrayImages

CREDIT = 'CIFAR-10: Alex Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009'
COLUMNS = 20


def open_sample(split: str = "test") -> ArrayImages:
    """`sample` (test) or `sample:train`."""
    folder = files("eyechart.images") / "sample_data"
    card = json.loads((folder / "sample.json").read_text(encoding="utf-8"))
    if split not in card["splits"]:
        raise UsageError(f"The bundled sample has the splits {', '.join(card['splits'])}; got {split!r}.")
    with (folder / f"{split}.webp").open("rb") as stream, Image.open(stream) as sheet:
        pixels = cut(np.asarray(sheet.convert("RGB")))
    about = card["splits"][split]
    return ArrayImages(
        "sample" if split == "test" else f"sample:{split}",
        pixels,
        about["labels"],
        card["classes"],
        origin=lambda index: f"CIFAR-10 {split} {about['official'][index]}",
    )


def lay_out(pixels: np.ndarray) -> np.ndarray:
    """Pictures (image, y, x, channel) as one sheet, row by row."""
    count, height, width, channels = pixels.shape
    rows = pixels.reshape(count // COLUMNS, COLUMNS, height, width, channels)
    return rows.transpose(0, 2, 1, 3, 4).reshape(count // COLUMNS * height, COLUMNS * width, channels)


def cut(sheet: np.ndarray) -> np.ndarray:
    """The reverse of `lay_out`, for square pictures."""
    side = sheet.shape[1] // COLUMNS
    rows = sheet.reshape(-1, side, COLUMNS, side, 3)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3, 4)).reshape(-1, side, side, 3)
