"""Pictures as torch hands them out: tensors, datasets, loaders. What they hold is looked at, never guessed.

A tensor is taken as RGB, (image, 3, y, x), with values from 0 to 1 (or uint8). Each subject resizes and normalises by
itself, so what was normalised already is refused with a sentence, and so is a dataset whose pictures change from one
reading to the next (random augmentation): the plan hashes contents, and a resumed exam must meet the same ones.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from eyechart.errors import ImagesError, UsageError
from eyechart.images.arrays import PictureListImages, checked_labels
from eyechart.images.picture import Unreadable, check_size, to_rgb
from eyechart.images.source import Images, Problem, fingerprint, number_classes

if TYPE_CHECKING:
    from torch import Tensor

PICTURE_KEYS, LABEL_KEYS = ("image", "img", "pixel_values"), ("label", "labels", "fine_label")
"""Under which names an item that is a dictionary has its picture and its label."""
LARGEST_STREAM = 8 << 30
"""Bytes of pictures that are kept of a dataset that can only be read from front to back."""
EXPECTED = "expected RGB with values from 0 to 1, or uint8"


def pixels_of(name: str, tensor: Tensor) -> np.ndarray:
    """(image, 3, y, x) or (3, y, x) → uint8 with the channels last. Values of 0 … 1 are rounded to 255ths.

    >>> import torch
    >>> pixels_of("grey", torch.full((1, 3, 1, 1), 0.5)).tolist()
    [[[[128, 128, 128]]]]
    """
    import torch

    shape = tuple(tensor.shape)
    if len(shape) not in (3, 4) or shape[-3] != 3:
        hint = " (one channel: use .expand)" if len(shape) in (3, 4) and shape[-3] == 1 else ""
        hint = " (channels last: use .permute)" if len(shape) in (3, 4) and shape[-1] == 3 else hint
        raise ImagesError(f"{name}: {EXPECTED}, of shape (image, 3, y, x); got {shape}{hint}.")
    tensor = tensor.detach().cpu()
    if tensor.dtype != torch.uint8:
        if not tensor.is_floating_point():
            raise ImagesError(f"{name}: {EXPECTED}; got {str(tensor.dtype).removeprefix('torch.')}.")
        low, high = (float(tensor.amin()), float(tensor.amax())) if tensor.numel() else (0.0, 1.0)
        if not (low >= 0 and high <= 1):  # NaN is neither
            raise ImagesError(
                f"{name}: {EXPECTED}; got values from {low:.3g} to {high:.3g}. Each subject normalises by itself, so "
                "leave Normalize out of the transform, or divide values of 0 to 255 by 255."
            )
        tensor = (tensor.float() * 255).round().to(torch.uint8)
    return tensor.movedim(-3, -1).contiguous().numpy()


def picture_from(name: str, thing: Any) -> Image.Image:
    """A picture as an item of a dataset holds it: PIL, a tensor (3, y, x), or a uint8 array (y, x, 3)."""
    if isinstance(thing, Image.Image):
        return to_rgb(thing)
    if isinstance(thing, np.ndarray):
        if thing.dtype != np.uint8 or thing.ndim not in (2, 3) or (thing.ndim == 3 and thing.shape[2] not in (3, 4)):
            raise ImagesError(f"{name}: expected a uint8 array (y, x, 3); got {thing.dtype} of shape {thing.shape}.")
        return to_rgb(Image.fromarray(thing))
    if hasattr(thing, "detach"):
        if thing.ndim != 3:
            raise ImagesError(f"{name}: expected one picture, (3, y, x); got the shape {tuple(thing.shape)}.")
        return Image.fromarray(pixels_of(name, thing))
    raise ImagesError(f"{name}: expected a PIL picture, a tensor or an array; got a {type(thing).__name__}.")


def parts_of(name: str, item: Any) -> tuple[Any, int | str | None]:
    """The picture and the label of an item: a pair, a dictionary, or a picture alone."""
    if isinstance(item, Mapping):
        key = next((key for key in PICTURE_KEYS if key in item), None)
        if key is None:
            held = ", ".join(map(str, item))
            raise ImagesError(f"{name} is a dictionary of {held}; expected its picture as {', '.join(PICTURE_KEYS)}.")
        picture, label = item[key], next((item[key] for key in LABEL_KEYS if key in item), None)
    elif isinstance(item, tuple | list):
        if not item:
            raise ImagesError(f"{name} is empty; expected a picture, or a picture and its label.")
        picture, label = item[0], item[1] if len(item) > 1 else None
    else:
        picture, label = item, None
    return picture, _label(name, label)


def _label(name: str, label: Any) -> int | str | None:
    if label is None or isinstance(label, str):
        return label
    try:
        number = label.item() if hasattr(label, "item") else label
    except (RuntimeError, ValueError):  # a vector
        number = label
    if isinstance(number, bool) or not isinstance(number, int):
        raise ImagesError(
            f"{name}: the label behind the picture must be a whole number or a name; got a {type(label).__name__}."
        )
    return number


class DatasetImages(Images):
    """A dataset of torch (or of Hugging Face): anything with a length whose items are pictures or (picture, label).

    Every item is read once when it is opened, for its hash; later readings must give the same picture. Items are read
    one at a time, for a dataset need not bear several threads.
    """

    def __init__(
        self,
        dataset: Any,
        labels: Sequence[int] | np.ndarray | None = None,
        classes: Sequence[str] | None = None,
        *,
        indices: Sequence[int] | None = None,
    ) -> None:
        self.name = type(dataset).__name__
        self.problems = []
        self._dataset, self._lock = dataset, threading.Lock()
        every = range(len(dataset)) if indices is None else indices
        self._indices: list[int] = []
        self._digests: list[bytes] = []
        read: list[int | str | None] = []
        for index in every:
            picture, label = self._item(index)
            try:
                check_size(*picture.size)
            except Unreadable as reason:
                self.problems.append(Problem(f"{self.name}[{index}]", str(reason)))
                continue
            self._indices.append(index)
            self._digests.append(digest_of(picture))
            read.append(label)
        if not self._indices:
            why = self.problems[0].reason if self.problems else "it is empty"
            raise ImagesError(f"{self.name} holds no picture that can be used: {why}.")
        for place in range(min(2, len(self))):
            self.picture(place)  # a second reading of the first ones, before anything is planned
        if labels is not None:
            given, self.classes = checked_labels(self.name, len(every), labels, classes)
            kept = [place for place, index in enumerate(every) if index in set(self._indices)]
            self.labels = None if given is None else given[kept]
        else:
            self.labels, self.classes = _labels(self.name, read, classes or names_in(dataset))
        self.fingerprint = fingerprint("dataset", self._digests, self.labels, self.classes)

    def __len__(self) -> int:
        return len(self._indices)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def _item(self, index: int) -> tuple[Image.Image, int | str | None]:
        name = f"{self.name}[{index}]"
        try:
            with self._lock:
                item = self._dataset[index]
        except Exception as error:  # a user's dataset: anything may happen in it
            raise ImagesError(f"{name} could not be read ({type(error).__name__}: {error}).") from error
        picture, label = parts_of(name, item)
        return picture_from(name, picture), label

    def picture(self, index: int) -> Image.Image:
        picture, _ = self._item(self._indices[index])
        if digest_of(picture) != self._digests[index]:
            raise ImagesError(
                f"{self.origin(index)} is another picture each time it is read; leave random augmentation out of the "
                "dataset's transform, for an exam must be able to meet the same pictures again."
            )
        return picture

    def origin(self, index: int) -> str:
        return f"{self.name}[{self._indices[index]}]"


def digest_of(picture: Image.Image) -> bytes:
    return hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).digest()


def _labels(
    name: str, read: Sequence[int | str | None], classes: Sequence[str] | None
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    numbered = number_classes(read, name)
    if numbered is None:
        return None, None
    numbers, own = numbered
    named_by_number = all(isinstance(label, int) for label in read if label is not None)
    return checked_labels(name, len(read), np.array(numbers, np.int64), classes if classes and named_by_number else own)


def names_in(dataset: Any) -> Sequence[str] | None:
    """The names of its classes, as torchvision's and Hugging Face's datasets have them; also those of a subset's."""
    while dataset is not None:
        features = getattr(dataset, "features", None)
        described = [features.get(key) for key in LABEL_KEYS] if isinstance(features, Mapping) else []
        for names in (getattr(dataset, "classes", None), *(getattr(each, "names", None) for each in described)):
            if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
                return names
        dataset = getattr(dataset, "dataset", None)
    return None


def open_torch(source: Any, labels: Sequence[int] | np.ndarray | None, classes: Sequence[str] | None) -> Images | None:
    """A dataset or a loader of torch as images; None where it is neither.

    Of a loader the dataset is read, item by item: its order, its batches and how it collates them do not matter, since
    the plan of an exam makes its own.
    """
    from torch.utils.data import DataLoader, IterableDataset

    if isinstance(source, DataLoader):
        if isinstance(source.dataset, IterableDataset):
            return _streamed(source.dataset, labels, classes)
        return DatasetImages(source.dataset, labels, classes, indices=_indices_of(source))
    if isinstance(source, IterableDataset):
        return _streamed(source, labels, classes)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, str | bytes | Mapping):
        return DatasetImages(source, labels, classes)
    return None


def _indices_of(loader: Any) -> Sequence[int] | None:
    """Which items a loader takes of its dataset; None: all."""
    from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler

    sampler, size = loader.sampler, len(loader.dataset)
    if isinstance(sampler, SubsetRandomSampler):
        return sorted({int(index) for index in sampler.indices})
    whole = isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == size
    if whole or isinstance(sampler, SequentialSampler):
        return None
    raise UsageError(
        f"The loader draws its items by a {type(sampler).__name__}, so which pictures it gives depends on chance; give "
        "its dataset instead, or a torch.utils.data.Subset of it."
    )


def _streamed(dataset: Any, labels: Sequence[int] | np.ndarray | None, classes: Sequence[str] | None) -> Images:
    """A dataset that can only be read from front to back: once, into memory."""
    name, size = type(dataset).__name__, 0
    pictures: list[Image.Image] = []
    read: list[int | str | None] = []
    for index, item in enumerate(_items(name, dataset)):
        thing, label = parts_of(f"{name}[{index}]", item)
        pictures.append(picture_from(f"{name}[{index}]", thing))
        read.append(label)
        size += 3 * pictures[-1].width * pictures[-1].height
        if size > LARGEST_STREAM:
            raise ImagesError(
                f"{name} can only be read from front to back and holds more than {LARGEST_STREAM >> 30} GiB of "
                "pictures; give a folder, .tar files or a dataset with a length."
            )
    if not pictures:
        raise ImagesError(f"{name} gave no pictures; one that was read before may have to be made anew.")
    if labels is None:
        labels, classes = _labels(name, read, classes or names_in(dataset))
    return PictureListImages(name, pictures, labels, classes)


def _items(name: str, dataset: Any) -> Iterator[Any]:
    try:
        yield from dataset
    except ImagesError:
        raise
    except Exception as error:  # a user's dataset: anything may happen in it
        raise ImagesError(f"{name} could not be read ({type(error).__name__}: {error}).") from error
