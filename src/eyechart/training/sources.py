"""Where training data comes from: an `.npz` (x_train, y_train, x_test, y_test and, if wanted, classes), a folder of
sheet archives (train-*.zip, test.zip), a folder of pictures (train/CLASS/…, test/CLASS/…, or CLASS/… alone), or the
names `cifar10` and `cifar100`, which torchvision downloads.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eyechart.errors import ImagesError, UsageError
from eyechart.files import open_regular
from eyechart.images.arrays import LARGEST_NPZ, read_member
from eyechart.images.picture import decode
from eyechart.images.source import MOST_CLASSES
from eyechart.phrases import count
from eyechart.training.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES, CIFAR100_FIRST_LABELS
from eyechart.training.data import TrainingData

SHEET_ROWS, SHEET_COLUMNS = 25, 40
TRAIN_FOLDERS = ("train", "training")
TEST_FOLDERS = ("test", "testing", "val", "valid", "validation")
LARGEST_SHEET = 256 << 20  # bytes of one sheet of pictures
TEST_SHARE = 5  # one picture in so many is for testing where a folder does not say which

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Arrays = tuple[Pixels, Labels, Pixels, Labels]


def load_data(source: str, image_size: int | None = None) -> TrainingData:
    """Training data from a path or a name. `image_size` is what pictures of all sizes are brought to."""
    path = Path(source).expanduser()
    name = "cifar10" if "cifar10" in path.stem and "cifar100" not in path.stem else path.stem
    if path.suffix == ".npz" and path.is_file():
        return _read_npz(path, name)
    if path.is_dir() and list(path.glob("train*.zip")):
        return _labelled(name, _read_sheets(path), None)
    if path.is_dir():
        return _read_pictures(path, image_size)
    if source in ("cifar10", "cifar100"):
        return _download(source)
    raise ImagesError(
        f"{source!r} is not training data: a .npz with x_train, y_train, x_test and y_test, a folder of sheets "
        "(train-0.zip …, test.zip), a folder of pictures, cifar10 or cifar100 was expected."
    )


def load_data_once(source: str, image_size: int | None = None) -> TrainingData:
    """The same, read once for all trainings of a process; a file or folder of archives that changed is read again."""
    path = Path(source).expanduser()
    files = [path] if path.is_file() else sorted(path.glob("*.zip")) if path.is_dir() else []
    if not files:  # a folder of pictures, a name, or nothing at all
        return load_data(source, image_size)
    return _read_once(source, image_size, tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@lru_cache(maxsize=3)  # a study of transfer trains on three
def _read_once(source: str, image_size: int | None, stamp: tuple[tuple[int, int], ...]) -> TrainingData:
    return load_data(source, image_size)


def _labelled(name: str, arrays: Arrays, classes: Sequence[str] | None) -> TrainingData:
    x_train, x_test = arrays[0], arrays[2]
    y_train, y_test = _numbers(name, "training", arrays[1]), _numbers(name, "test", arrays[3])
    count = int(max(y_train.max(initial=0), y_test.max(initial=0))) + 1
    if classes is None and name == "cifar10":
        classes = CIFAR10_CLASSES
    elif classes is None and name == "cifar100" and count == 100:
        classes = CIFAR100_CLASSES
        if tuple(y_train[:5]) != CIFAR100_FIRST_LABELS:
            name = "cifar100 (re-split)"  # its test part is not the literature's, and every number should say so
    elif classes is None:
        classes = tuple(str(label) for label in range(count))
    return TrainingData(
        name,
        tuple(classes),
        _tensor(x_train),
        torch.from_numpy(y_train),
        _tensor(x_test),
        torch.from_numpy(y_test),
    )


def _numbers(name: str, part: str, labels: NDArray[Any]) -> Labels:
    """Labels (image,), or in one column as Keras stores them, as int64."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ImagesError(
            f"Labels must be one whole number for each image; the {part} labels of {name} are an array "
            f"{labels.shape} of "
            f"{labels.dtype}."
        )
    return labels.astype(np.int64)


def _tensor(images: Pixels) -> Tensor:
    """(image, y, x, channel) → (image, channel, y, x)."""
    if images.ndim != 4:
        raise ImagesError(f"Images must be an array (image, y, x, 3); got one with {images.ndim} dimensions.")
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _read_npz(path: Path, name: str) -> TrainingData:
    try:
        with open_regular(path, LARGEST_NPZ) as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise ImagesError(
                    f"{path} is a single array (.npy); an .npz with x_train, y_train, x_test and y_test is needed."
                )
            with zipfile.ZipFile(file) as archive:
                held = {member.removesuffix(".npy") for member in archive.namelist()}
                missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in held]
                if missing:
                    raise ImagesError(f"{path} must hold x_train, y_train, x_test and y_test; it has no {missing[0]}.")
                read = partial(read_member, archive)
                arrays = (read("x_train"), read("y_train"), read("x_test"), read("y_test"))
                named = np.atleast_1d(read("classes")) if "classes" in held else None
                if named is not None and (named.ndim != 1 or len(named) > MOST_CLASSES):
                    raise ValueError(f"classes is no list of at most {MOST_CLASSES:,} names")
                classes = None if named is None else tuple(map(str, named))
    except ImagesError:
        raise
    except Exception as error:  # zip files, deflate and headers of arrays fail in a dozen ways
        raise ImagesError(f"{path} cannot be read as .npz ({error}).") from error
    return _labelled(name, arrays, classes)


def _read_sheets(folder: Path) -> Arrays:
    x_train, y_train = _read_archives(sorted(folder.glob("train*.zip")))
    x_test, y_test = _read_archives([folder / "test.zip"])
    return x_train, y_train, x_test, y_test


def _read_archives(files: Sequence[Path]) -> tuple[Pixels, Labels]:
    """Sheets of 1,000 images (25 rows of 40) in the order of their names, and the labels.npy of one of the archives."""
    sheets: dict[str, Pixels] = {}
    labels: Labels | None = None
    for file in files:
        if not file.is_file():
            raise ImagesError(f"{file} is missing; a folder of sheets has train-0.zip, train-1.zip … and test.zip.")
        try:
            with zipfile.ZipFile(file) as archive:
                for about in archive.infolist():
                    member = about.filename
                    if about.file_size > LARGEST_SHEET:
                        raise ValueError(f"{member:.100} has {about.file_size:,} bytes, more than {LARGEST_SHEET:,}")
                    if member == "labels.npy":
                        labels = read_member(archive, "labels")
                    else:
                        pixels = np.asarray(decode(io.BytesIO(archive.read(about))))
                        side = pixels.shape[0] // SHEET_ROWS
                        cells = pixels.reshape(SHEET_ROWS, side, SHEET_COLUMNS, side, 3).transpose(0, 2, 1, 3, 4)
                        sheets[member] = cells.reshape(-1, side, side, 3)
        except Exception as error:  # as above, and pictures in as many more
            raise ImagesError(f"{file} cannot be read as an archive of sheets ({error}).") from error
    if labels is None:
        raise ImagesError(f"None of {', '.join(file.name for file in files)} holds labels.npy.")
    return np.concatenate([sheets[member] for member in sorted(sheets)]), labels


def _download(name: str) -> TrainingData:
    from torchvision import datasets

    kind = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    folder = Path.home() / ".cache" / "eyechart"
    try:
        train, test = (kind(folder, train=train, download=True) for train in (True, False))
    except Exception as error:
        raise ImagesError(
            f"torchvision could not download {name} ({error}); give a .npz or a folder of sheets by its path."
        ) from error
    arrays = (train.data, np.array(train.targets), test.data, np.array(test.targets))
    return _labelled(name, arrays, tuple(train.classes))


def _read_pictures(folder: Path, size: int | None) -> TrainingData:
    """A folder of pictures, each cut to its central square and brought to one size."""
    if size is None:
        raise UsageError(f"The pictures in {folder} have sizes of their own; give --image-size.")
    inside = {subfolder.name.lower(): subfolder for subfolder in sorted(folder.iterdir()) if subfolder.is_dir()}
    train = next((inside[name] for name in TRAIN_FOLDERS if name in inside), None)
    test = next((inside[name] for name in TEST_FOLDERS if name in inside), None)
    if train is None or test is None:
        return _split(folder, size)
    x_train, y_train, classes, notices = _read_classes(train, size)
    x_test, y_test, test_classes, more = _read_classes(test, size)
    if classes != test_classes:
        odd = sorted(set(classes) ^ set(test_classes))[0]
        raise ImagesError(f"{train.name} and {test.name} in {folder} have different classes: {odd!r} is only in one.")
    return TrainingData(folder.name, classes, x_train, y_train, x_test, y_test, notices=(*notices, *more))


def _split(folder: Path, size: int) -> TrainingData:
    x, y, classes, notices = _read_classes(folder, size)
    test = torch.zeros(len(y), dtype=torch.bool)
    for label, name in enumerate(classes):
        members = (y == label).nonzero().squeeze(1)
        if len(members) < 2:
            raise ImagesError(f"The class {name!r} of {folder} has one picture; training and testing need one each.")
        test[members[-max(1, len(members) // TEST_SHARE) :]] = True
    said = f"{folder.name} has no train and test folders: the last fifth of each class is the test part."
    return TrainingData(folder.name, classes, x[~test], y[~test], x[test], y[test], notices=(*notices, said))


def _read_classes(folder: Path, size: int) -> tuple[Tensor, Tensor, tuple[str, ...], list[str]]:
    from PIL import Image

    from eyechart.images import common_crop
    from eyechart.images.folder import FolderImages
    from eyechart.images.source import THREADS

    images = FolderImages(folder)
    if images.classes is None or images.labels is None or (images.labels < 0).any():
        raise ImagesError(f"{folder} must hold one folder for each class; there are pictures outside of such folders.")

    def read(index: int) -> Pixels:
        square = common_crop(images.picture(index))
        return np.asarray(square.resize((size, size), Image.Resampling.BICUBIC))

    with ThreadPoolExecutor(THREADS) as pool:
        pixels = np.stack(list(pool.map(read, range(len(images)))))
    notices = []
    if images.problems:
        first = images.problems[0]
        notices.append(f"{count(len(images.problems), 'file')} skipped, the first {first.path}: {first.reason}.")
    return _tensor(pixels), torch.from_numpy(images.labels.copy()), images.classes, notices
