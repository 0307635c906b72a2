"""Training data: labelled uint8 images in memory, moved to the device once.

Sources: an `.npz` (x_train, y_train, x_test, y_test), a folder of sheet archives (train-*.zip, test.zip), or the name
`cifar10` / `cifar100`, which torchvision downloads.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eyechart.errors import ImagesError, UsageError
from eyechart.training.augment import Normalisation

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHEET_ROWS, SHEET_COLUMNS = 25, 40


@dataclass(frozen=True)
class TrainingData:
    """Images (N, 3, H, W) uint8 and labels (N,) int64, for training and for testing."""

    name: str
    classes: tuple[str, ...]
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            if len(x) != len(y) or not len(x):
                raise ImagesError(
                    f"{self.name} has {len(x)} {part} images and {len(y)} labels; one label an image is needed."
                )
            wrong = ((y < 0) | (y >= len(self.classes))).nonzero()
            if len(wrong):
                raise ImagesError(
                    f"Labels of {self.name} must be 0 to {len(self.classes) - 1}; "
                    f"{part} image {int(wrong[0])} has label {int(y[wrong[0]])}."
                )

    @property
    def image_size(self) -> int:
        return int(self.x_train.shape[-1])

    def normalisation(self) -> Normalisation:
        """Means and deviations of the training images; for CIFAR-10 the usual four digits, whatever the fraction."""
        if self.name == "cifar10":
            return Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
        pixels = self.x_train.float() / 255
        mean, std = pixels.mean(dim=(0, 2, 3)).tolist(), pixels.std(dim=(0, 2, 3)).tolist()
        return Normalisation((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))

    def to(self, device: torch.device) -> TrainingData:
        moved = {name: getattr(self, name).to(device) for name in ("x_train", "y_train", "x_test", "y_test")}
        return replace(self, **moved)

    def part(self, fraction: float, seed: int) -> TrainingData:
        """A seeded, stratified part of the training images: every class keeps the same share, rounded."""
        if not 0 < fraction <= 1:
            raise UsageError(f"A fraction of the training images lies above 0 and up to 1; {fraction} came.")
        if fraction == 1:
            return self
        generator = torch.Generator().manual_seed(seed)
        kept = []
        for label, name in enumerate(self.classes):
            members = (self.y_train == label).nonzero().squeeze(1)
            count = round(fraction * len(members))
            if not count:
                raise UsageError(
                    f"A fraction of {fraction:g} leaves the class {name!r} ({len(members)} images) empty; take more."
                )
            kept.append(members[torch.randperm(len(members), generator=generator)[:count]])
        chosen = torch.cat(kept).sort().values
        return replace(self, x_train=self.x_train[chosen], y_train=self.y_train[chosen])


def load_data(source: str, classes: Sequence[str] | None = None) -> TrainingData:
    """Training data from a path or a name."""
    path = Path(source)
    if path.suffix == ".npz" and path.is_file():
        arrays = _read_npz(path)
    elif path.is_dir() and list(path.glob("train*.zip")):
        arrays = _read_sheets(path)
    elif source in ("cifar10", "cifar100"):
        return _download(source)
    else:
        raise ImagesError(
            f"{source!r} is no training data: a .npz with x_train, y_train, x_test and y_test, a folder of sheets "
            "(train-0.zip …, test.zip), cifar10 or cifar100 was expected."
        )
    name = "cifar10" if "cifar10" in path.stem and "cifar100" not in path.stem else path.stem
    return _labelled(name, arrays, classes)


Arrays = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]


def _labelled(name: str, arrays: Arrays, classes: Sequence[str] | None) -> TrainingData:
    x_train, y_train, x_test, y_test = arrays
    if classes is None:
        count = int(max(y_train.max(), y_test.max())) + 1
        classes = CIFAR10_CLASSES if name == "cifar10" else tuple(str(label) for label in range(count))

    def pictures(array: NDArray[np.uint8]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))

    return TrainingData(
        name,
        tuple(classes),
        pictures(x_train),
        torch.from_numpy(y_train.astype(np.int64)),
        pictures(x_test),
        torch.from_numpy(y_test.astype(np.int64)),
    )


def _read_npz(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in file]
        if missing:
            raise ImagesError(f"{path} must hold x_train, y_train, x_test and y_test; it has no {missing[0]}.")
        return file["x_train"], file["y_train"], file["x_test"], file["y_test"]


def _read_sheets(folder: Path) -> Arrays:
    x_train, y_train = _read_archives(sorted(folder.glob("train*.zip")))
    x_test, y_test = _read_archives([folder / "test.zip"])
    return x_train, y_train, x_test, y_test


def _read_archives(files: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Sheets of 1,000 images (25 rows of 40) in the order of their names, and the labels.npy of one of the archives."""
    from PIL import Image

    sheets: dict[str, NDArray[np.uint8]] = {}
    labels: NDArray[np.int64] | None = None
    for file in files:
        if not file.is_file():
            raise ImagesError(f"{file} is missing; a folder of sheets has train-0.zip, train-1.zip … and test.zip.")
        with zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                if member == "labels.npy":
                    labels = np.load(io.BytesIO(archive.read(member)), allow_pickle=False)
                else:
                    pixels = np.asarray(Image.open(io.BytesIO(archive.read(member))).convert("RGB"))
                    side = pixels.shape[0] // SHEET_ROWS
                    cells = pixels.reshape(SHEET_ROWS, side, SHEET_COLUMNS, side, 3).transpose(0, 2, 1, 3, 4)
                    sheets[member] = cells.reshape(-1, side, side, 3)
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
