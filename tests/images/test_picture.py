"""Every kind of file that has made a run fail, and every pixel format, against known colours."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from eyechart.images.picture import LARGEST_PICTURE, Unreadable, common_crop, decode, open_header, to_rgb


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def noise(width: int = 64, height: int = 48) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds almost no data: a decompression bomb in 60 bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


JPEG = encoded(noise(), "JPEG")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"this is no picture", "not a picture in a known format"),
        (JPEG[:200], "damaged"),
        (JPEG[: len(JPEG) // 2], "damaged.*truncated"),
        (encoded(noise(), "PNG")[:-2000], "damaged"),
        (encoded(noise(1, 1), "PNG"), "1×1 pixels, smaller than 8"),
        (encoded(noise(500, 7), "PNG"), "500×7 pixels"),
        (png_header(10_000, 8_901), "10000×8901 pixels, more than 89 million"),
        (png_header(60_000, 60_000), "more than 89 million"),
        (encoded(Image.new("F", (16, 16)), "TIFF"), "floating-point"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\n", "not a picture in a known format"),
    ],
)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bad_files_have_a_reason(data: bytes, reason: str, quick: bool) -> None:
    with pytest.raises(Unreadable, match=reason):
        decode(io.BytesIO(data), quick=quick)


@pytest.mark.parametrize("width", [10_000, 60_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused_before_decoding(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)  # other packages switch Pillow's own guard off
    with pytest.raises(Unreadable, match="more than 89 million"):
        decode(io.BytesIO(png_header(width, LARGEST_PICTURE // width + 1)))


def test_the_largest_and_smallest_pass_the_header() -> None:
    assert open_header(io.BytesIO(png_header(10_000, 8_900))).size == (10_000, 8_900)
    assert decode(io.BytesIO(encoded(noise(8, 8), "PNG"))).size == (8, 8)


def test_a_quick_look_finds_what_a_full_one_finds() -> None:
    """Cut a JPEG anywhere: both agree, so that a picture that passed the check can be read later."""
    big = encoded(noise(160, 160), "JPEG", progressive=True)
    for end in range(100, len(big), len(big) // 50):
        outcomes = []
        for quick in (False, True):
            try:
                decode(io.BytesIO(big[:end]), quick=quick)
                outcomes.append("sound")
            except Unreadable:
                outcomes.append("damaged")
        assert outcomes[0] == outcomes[1] == "damaged", end


def test_exif_orientation_is_applied() -> None:
    picture = Image.new("RGB", (40, 20), "blue")
    picture.paste("red", (0, 0, 40, 4))  # a red strip along the top …
    exif = Image.Exif()
    exif[0x0112] = 6  # … which the camera says lies on the right
    turned = decode(io.BytesIO(encoded(picture, "PNG", exif=exif)))
    assert turned.size == (20, 40)
    assert turned.getpixel((19, 20)) == (255, 0, 0)
    assert turned.getpixel((0, 20)) == (0, 0, 255)


def colour(picture: Image.Image) -> tuple[int, ...]:
    assert picture.mode == "RGB"
    value = picture.getpixel((0, 0))
    assert isinstance(value, tuple)
    return value


def test_every_mode_becomes_rgb() -> None:
    grey16 = Image.fromarray(np.full((8, 8), 0x80FF, np.uint16))
    assert grey16.mode == "I;16"
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    see_through = palette.copy()
    see_through.info["transparency"] = 1
    half = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    grey_half = Image.new("LA", (8, 8), (0, 128))
    assert colour(to_rgb(Image.new("L", (8, 8), 7))) == (7, 7, 7)
    assert colour(to_rgb(Image.new("1", (8, 8), 1))) == (255, 255, 255)
    assert colour(to_rgb(grey16)) == (0x80, 0x80, 0x80)
    assert colour(to_rgb(grey16.convert("I"))) == (0x80, 0x80, 0x80)
    assert colour(to_rgb(palette)) == (10, 20, 30)
    assert colour(to_rgb(see_through)) == (255, 255, 255)
    assert colour(to_rgb(half)) == (127, 127, 127)
    assert colour(to_rgb(grey_half)) == (127, 127, 127)
    assert colour(to_rgb(Image.new("CMYK", (8, 8), (255, 0, 0, 0)))) == (0, 255, 255)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_a_16_bit_file_keeps_its_high_byte(kind: str) -> None:
    ramp = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    read = np.asarray(decode(io.BytesIO(encoded(Image.fromarray(ramp), kind))))
    assert np.array_equal(read[..., 0], ramp // 256)


def test_an_rgb_png_with_a_transparent_colour_is_laid_over_white() -> None:
    data = encoded(Image.new("RGB", (8, 8), (0, 0, 0)), "PNG", transparency=(0, 0, 0))
    assert colour(decode(io.BytesIO(data))) == (255, 255, 255)


@pytest.mark.parametrize(("size", "box"), [((11, 8), (1, 0, 9, 8)), ((8, 13), (0, 2, 8, 10)), ((9, 9), (0, 0, 9, 9))])
def test_common_crop_is_the_central_square(size: tuple[int, int], box: tuple[int, int, int, int]) -> None:
    picture = noise(*size)
    left, top, right, bottom = box
    assert np.array_equal(np.asarray(common_crop(picture)), np.asarray(picture)[top:bottom, left:right])
