"""Pictures in memory: arrays, `.npz` files, lists of PIL pictures."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from eyechart.errors import ImagesError
from eyechart.files import open_regular
from eyechart.images.picture import Unreadable, check_size, common_crop, square, to_rgb
from eyechart.images.source import LONGEST_NAME, MOST_CLASSES, Images, Problem, fingerprint, number_classes, readable

#: Names of pictures and labels in an .npz, first match first. "FILE.npz:train" asks for x_train and y_train alone.
ARRAY_NAMES = (
    ("x_test", "y_test"),
    ("x", "y"),
    ("images", "labels"),
    ("image", "label"),
    ("data", "labels"),
    ("x_train", "y_train"),
    ("arr_0", "arr_1"),
)
LARGEST_NPZ = 64 << 30
"""Bytes of an .npz, packed or unpacked: ImageNet at 64 pixels has 16 GB. It is held in memory."""
FREELY_UNPACKED, MOST_PACKED = 1 << 28, 100
"""Beyond 256 MB, pictures that shrink a hundredfold are none: photographs halve, and drawn digits shrink tenfold."""

CLASS_NAMES = ("classes", "class_names", "label_names")


class ArrayImages(Images):
    """uint8 pictures of one size as (image, y, x, channel), or (image, y, x) for grey; 1, 3 or 4 channels.

    >>> images = ArrayImages("noise", np.zeros((5, 32, 32, 3), np.uint8), labels=[0, 1, 0, 1, -1], classes=["a", "b"])
    >>> len(images), images.picture(0).size, images.array([0, 1]).shape
    (5, (32, 32), (2, 32, 32, 3))
    """

    def __init__(
        self,
        name: str,
        pixels: np.ndarray,
        labels: Sequence[int] | np.ndarray | None = None,
        classes: Sequence[str] | None = None,
        *,
        origin: Callable[[int], str] | None = None,
    ) -> None:
        self.name = name
        self.problems = []
        self._pixels = _checked_pixels(name, pixels)
        self.labels, self.classes = checked_labels(name, len(self._pixels), labels, classes)
        self._origins = [origin(index) for index in range(len(self))] if origin else None
        shape = repr(self._pixels.shape[1:]).encode()
        digests = (hashlib.sha256(shape + image.tobytes()).digest() for image in self._pixels)
        self.fingerprint = fingerprint("arrays", digests, self.labels, self.classes)

    def __len__(self) -> int:
        return len(self._pixels)

    def picture(self, index: int) -> Image.Image:
        return to_rgb(Image.fromarray(self._pixels[index]))

    def pictures(self, indices: Iterable[int]) -> list[Image.Image]:
        return [self.picture(int(index)) for index in indices]

    def origin(self, index: int) -> str:
        return self._origins[index] if self._origins else f"{self.name}[{index}]"

    def array(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        if self._pixels.ndim == 3 or self._pixels.shape[3] != 3:
            return np.stack([np.asarray(common_crop(picture)) for picture in self.pictures(indices)])
        height, width = self._pixels.shape[1:3]
        left, top, right, bottom = square(width, height)
        return self._pixels[np.asarray(indices), top:bottom, left:right]


class PictureListImages(Images):
    """PIL pictures in a list, each in its own size."""

    def __init__(
        self,
        name: str,
        pictures: Sequence[Image.Image],
        labels: Sequence[int] | np.ndarray | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        numbers, self.classes = checked_labels(name, len(pictures), labels, classes)
        self.name = name
        self.problems = []
        self._pictures: dict[int, Image.Image] = {}
        for index, picture in enumerate(pictures):
            try:
                check_size(*picture.size)
                self._pictures[index] = to_rgb(picture)
            except (Unreadable, OSError, ValueError) as reason:
                self.problems.append(Problem(f"{name}[{index}]", str(reason)))
        if not self._pictures:
            raise ImagesError(f"None of the {len(pictures)} pictures in {name} can be used: {self.problems[0].reason}.")
        self._indices = list(self._pictures)
        self.labels = None if numbers is None else numbers[self._indices]
        digests = (
            hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).digest()
            for picture in self._pictures.values()
        )
        self.fingerprint = fingerprint("pictures", digests, self.labels, self.classes)

    def __len__(self) -> int:
        return len(self._indices)

    def picture(self, index: int) -> Image.Image:
        return self._pictures[self._indices[index]]

    def origin(self, index: int) -> str:
        return f"{self.name}[{self._indices[index]}]"


def open_npz(path: Path, split: str | None = None) -> ArrayImages:
    """`x_test`/`y_test`, `x`/`y`, `images`/`labels`, … of an .npz file; class names from `classes` if it is there."""
    names = ARRAY_NAMES if split is None else ((f"x_{split}", f"y_{split}"),)
    try:
        with open_regular(path, LARGEST_NPZ) as file, zipfile.ZipFile(file) as archive:
            held = [member.removesuffix(".npy") for member in archive.namelist()]
            pair = next((pair for pair in names if pair[0] in held), None)
            if pair is None:
                wanted = ", ".join(pair[0] for pair in names)
                raise ImagesError(
                    f"{path.name} holds the arrays {', '.join(held[:20]) or '(none)'}; "
                    f"expected the pictures under one of the names {wanted}."
                )
            pixels = read_member(archive, pair[0])
            labels = read_member(archive, pair[1]) if pair[1] in held else None
            named = next((name for name in CLASS_NAMES if name in held), None)
            if named and labels is not None:
                listed = read_member(archive, named)
                if listed.ndim != 1 or len(listed) > MOST_CLASSES:
                    raise ValueError(f"{named} is no list of at most {MOST_CLASSES:,} names")
                classes = [_text(name) for name in listed.tolist()]
            else:
                classes = None
    except ImagesError:
        raise
    except Exception as error:  # zip files, deflate and headers of arrays fail in a dozen ways
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ImagesError(f"{path.name} is not an .npz file of plain arrays that can be read: {reason}.") from error
    if labels is not None and labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # Keras keeps CIFAR labels as a column
    name = path.name if split is None else f"{path.name}:{split}"
    return ArrayImages(name, pixels, labels, classes, origin=f"{pair[0]}[{{}}]".format)


def read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an .npz. What it claims to be is compared with what the file holds before memory is taken for it."""
    held = archive.NameToInfo
    member = held[f"{name}.npy"] if f"{name}.npy" in held else held[name]
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"{name} has version {version} of numpy's format, which is not read")
        shape, _, dtype = read(stream)
        begin = stream.tell()
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which could run code")
    size = math.prod(shape) * dtype.itemsize
    if any(side < 0 or side > LARGEST_NPZ for side in shape) or begin + size != member.file_size:
        raise ValueError(f"{name} claims {size:,} bytes, but the file holds {member.file_size - begin:,} of it")
    if size > FREELY_UNPACKED and size > MOST_PACKED * member.compress_size:
        raise ValueError(f"{name} would unpack to {size:,} bytes, {MOST_PACKED} times what the file has (a zip bomb?)")
    if size > LARGEST_NPZ:
        raise ValueError(f"{name} has {size:,} bytes, more than {LARGEST_NPZ:,}; give a folder or .tar files")
    with archive.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def checked_labels(
    name: str, count: int, labels: Sequence[int] | np.ndarray | None, classes: Sequence[str] | None
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels as int64 and the class names, or an ImagesError that says what does not fit."""
    if labels is None:
        return None, None
    numbers = np.asarray(labels)
    if numbers.dtype.kind == "U" and classes is None:  # names of classes
        numbered = number_classes(numbers.tolist(), name)
        numbers, classes = (np.array(numbered[0]), numbered[1]) if numbered else (numbers, None)
    if numbers.shape != (count,):
        raise ImagesError(f"{name} has {count} pictures, so {count} labels were expected; got shape {numbers.shape}.")
    if not np.issubdtype(numbers.dtype, np.integer):
        raise ImagesError(f"The labels of {name} must be whole numbers (-1 for unknown); got {numbers.dtype}.")
    if numbers.size and int(numbers.max()) >= MOST_CLASSES:
        raise ImagesError(
            f"The labels of {name} must number its classes, from 0 to {MOST_CLASSES - 1:,}; got {numbers.max()}."
        )
    numbers = np.maximum(numbers.astype(np.int64), -1)
    if classes is None:
        numbered = number_classes(numbers.tolist(), name)
        return (None, None) if numbered is None else (numbers, numbered[1])
    if numbers.max(initial=-1) >= len(classes):
        raise ImagesError(f"{name} has a label {numbers.max()} but names only {len(classes)} classes.")
    return numbers, tuple(map(str, classes))


def _checked_pixels(name: str, pixels: np.ndarray) -> np.ndarray:
    expected = "expected uint8 pictures of shape (image, y, x, 3)"
    if pixels.dtype != np.uint8:
        raise ImagesError(f"{name}: {expected}; got {pixels.dtype} (values from 0 to 1 must be multiplied by 255).")
    if pixels.ndim == 4 and pixels.shape[1] in (1, 3) and pixels.shape[3] not in (1, 3, 4):
        raise ImagesError(f"{name}: {expected}; got {pixels.shape} (channels first: use .transpose(0, 2, 3, 1)).")
    if pixels.ndim not in (3, 4) or (pixels.ndim == 4 and pixels.shape[3] not in (1, 3, 4)):
        raise ImagesError(f"{name}: {expected}; got {pixels.shape}.")
    if not len(pixels):
        raise ImagesError(f"{name} holds no pictures: its array has shape {pixels.shape}.")
    try:
        check_size(pixels.shape[2], pixels.shape[1])
    except Unreadable as reason:
        raise ImagesError(f"The pictures of {name} cannot be used: {reason}.") from None
    return pixels[..., 0] if pixels.ndim == 4 and pixels.shape[3] == 1 else pixels


def _text(name: object) -> str:
    return (name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else readable(str(name)))[:LONGEST_NAME]
