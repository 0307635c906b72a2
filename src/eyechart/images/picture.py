"""One picture: bytes → RGB, or a reason why not. Everything that can be wrong with a file is met here.

What comes out is always 8-bit RGB, turned as its Exif orientation says. Grey, palette, CMYK and YCbCr pictures are
converted; 16-bit grey keeps its high byte; transparent pixels are laid over white. Colour profiles are not applied:
neither do the training pipelines of the models that will look at it. Of an animation, the first frame counts.
"""

from __future__ import annotations

from functools import cache
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

SMALLEST_SIDE = 8
"""Pixels. A thumbnail below this has nothing to see; the 8×8 digits of scikit-learn still pass."""

LARGEST_PICTURE = 89_000_000
"""Pixels, just below where Pillow starts to warn. Refused by the header, before a byte of it is unpacked."""

#: Pillow knows more, among them EPS, which it hands to Ghostscript: a program inside a picture would run.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")


class Unreadable(Exception):
    """The message is the reason, to be listed beside the file's name."""


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def open_header(stream: BinaryIO) -> Image.Image:
    """The picture's size and mode, nothing decoded; raises Unreadable for what is no picture or an absurd one."""
    if not stream.read(1):
        raise Unreadable("the file is empty")
    stream.seek(0)
    try:
        image = Image.open(stream, formats=_formats())
    except UnidentifiedImageError:
        raise Unreadable("not a picture in a known format") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable(f"more than {LARGEST_PICTURE // 1_000_000} million pixels (a decompression bomb?)") from None
    except Exception as error:  # Pillow's readers raise OSError, SyntaxError, struct.error, … on damaged headers
        raise Unreadable(f"damaged: {_words(error)}") from None
    check_size(*image.size)
    if image.mode == "F":
        raise Unreadable("floating-point pixels, whose range is not stated in the file")
    return image


def check_size(width: int, height: int) -> None:
    if min(width, height) < SMALLEST_SIDE:
        raise Unreadable(f"{width}×{height} pixels, smaller than {SMALLEST_SIDE} on a side")
    if width * height > LARGEST_PICTURE:
        raise Unreadable(f"{width}×{height} pixels, more than {LARGEST_PICTURE // 1_000_000} million in all")


def decode(stream: BinaryIO, *, quick: bool = False) -> Image.Image:
    """The whole picture as RGB. `quick` reads all of a JPEG's data but unpacks it at an eighth of its size: enough to
    know that it is sound, in a third of the time."""
    image = open_header(stream)
    try:
        if quick:
            image.draft(image.mode, (1, 1))
        # Decodes, and gives a picture that no longer hangs on the stream.
        return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # as above: the readers have no common exception
        raise Unreadable(f"damaged: {_words(error)}") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of a picture in any mode; transparency over white.

    >>> to_rgb(Image.new("RGBA", (8, 8), (0, 0, 255, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I"):
        # Pillow's "I" and "I;16…" hold 16-bit grey, and its own conversion to 8 bits clips instead of scaling.
        high_byte = np.clip(np.asarray(image).astype(np.int64), 0, 65535) >> 8
        return Image.fromarray(high_byte.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return image.convert("RGB")


def square(width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the largest central square."""
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def common_crop(picture: Image.Image) -> Image.Image:
    """The largest central square: what every subject sees of a picture, so that positions correspond.

    >>> common_crop(Image.new("RGB", (640, 480))).size
    (480, 480)
    """
    return picture if picture.width == picture.height else picture.crop(square(*picture.size))


def resized(picture: Image.Image, size: tuple[int, int], interpolation: str) -> Image.Image:
    """RGB of `size` (y, x) by one of Pillow's filters, which are antialiased.

    >>> resized(Image.new("L", (64, 48)), (32, 40), "bicubic").size
    (40, 32)
    """
    if picture.mode != "RGB":
        picture = picture.convert("RGB")
    height, width = size
    if picture.size == (width, height):
        return picture
    return picture.resize((width, height), Image.Resampling[interpolation.upper()])


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
