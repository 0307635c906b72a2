"""Tensors, datasets, loaders and lists of paths: what is in them is what is examined, and what is not is said."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from eyechart.errors import ImagesError, UsageError
from eyechart.images import open_images, plan_batches
from eyechart.images.torch_data import DatasetImages

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
LABELS = [0, 1, 0, 1, 2, -1]
TENSOR = torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255


class Photos(Dataset[Any]):
    """As torchvision's are: (PIL picture, label), with names."""

    classes = ("ape", "bee", "cat")

    def __init__(self, transform: Any = lambda picture: picture) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.fromarray(PIXELS[index])), LABELS[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        both = zip(PIXELS, LABELS, strict=True)
        return ({"image": Image.fromarray(pixels), "label": label} for pixels, label in both)


def as_tensor(picture: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1) / 255


def shown(images: Any) -> np.ndarray:
    return np.stack([np.asarray(images.picture(index)) for index in range(len(images))])


@pytest.mark.parametrize(
    "source",
    [
        TENSOR,
        (TENSOR * 255).round().to(torch.uint8),
        TensorDataset(TENSOR, torch.tensor(LABELS)),
        Photos(),
        Photos(as_tensor),
        DataLoader(Photos(as_tensor), batch_size=4, shuffle=True),
        Stream(),
        DataLoader(Stream(), batch_size=2),
    ],
    ids=["floats", "bytes", "tensor dataset", "photos", "photos as tensors", "loader", "stream", "stream's loader"],
)
def test_every_source_shows_the_same_pixels(source: Any) -> None:
    assert np.array_equal(shown(open_images(source)), PIXELS)


def test_labels_and_class_names_come_along() -> None:
    images = open_images(Photos())
    assert images.labels is not None
    assert images.labels.tolist() == LABELS
    assert images.classes == ("ape", "bee", "cat")
    part = open_images(Subset(Photos(), [4, 1]))
    assert part.labels is not None
    assert (part.labels.tolist(), part.classes) == ([2, 1], ("ape", "bee", "cat"))
    given = open_images((TENSOR, torch.tensor(LABELS)), classes=["a", "b", "c"])
    assert given.labels is not None
    assert (given.labels.tolist(), given.classes) == (LABELS, ("a", "b", "c"))
    assert open_images(TENSOR).labels is None
    assert open_images(Stream()).classes == ("0", "1", "2")


def test_the_hash_follows_contents_labels_and_names() -> None:
    def mark(source: Any) -> str:
        return open_images(source).fingerprint

    other = TENSOR.clone()
    other[3, 0, 0, 0] = 1 - other[3, 0, 0, 0]
    assert mark(TENSOR) == mark(TENSOR.clone())
    assert mark(TENSOR) != mark(other)
    assert mark(Photos()) == mark(Photos(as_tensor)) == mark(DataLoader(Photos(), shuffle=True))
    assert mark(Photos()) != mark(Subset(Photos(), range(5)))
    renamed = Photos()
    renamed.classes = ("ape", "bee", "cow")
    assert mark(Photos()) != mark(renamed)


def test_a_loader_over_a_part_gives_that_part_and_chance_is_refused() -> None:
    loader = DataLoader(Photos(), sampler=SubsetRandomSampler([5, 0, 2]))
    assert np.array_equal(shown(open_images(loader)), PIXELS[[0, 2, 5]])
    with pytest.raises(UsageError, match="WeightedRandomSampler, so which pictures it gives depends on chance"):
        open_images(DataLoader(Photos(), sampler=WeightedRandomSampler([1.0] * 6, 6)))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ((TENSOR - 0.5) / 0.2, "got values from -2.5 to 2.5. Each subject normalises by itself"),
        (TENSOR * 255, "got values from 0 to 255"),
        (TENSOR * float("nan"), "got values from nan"),
        (TENSOR.permute(0, 2, 3, 1), r"channels last: use \.permute"),
        (TENSOR[:, :1], r"one channel: use \.expand"),
        ((TENSOR * 255).long(), "or uint8; got int64"),
        (Photos(lambda picture: as_tensor(picture) * 4 - 2), r"Photos\[0\]: expected RGB .* got values from -2 to 2"),
        (Photos(lambda picture: "cat"), r"Photos\[0\]: expected a PIL picture, a tensor or an array; got a str"),
        (TensorDataset(TENSOR, TENSOR), "must be a whole number or a name; got a Tensor"),
        (Subset(Photos(), []), "holds no picture that can be used: it is empty"),
        (Photos(lambda picture: 1 // 0), r"Photos\[0\] could not be read \(ZeroDivisionError"),
    ],
)
def test_what_is_no_picture_is_said(source: Any, sentence: str) -> None:
    with pytest.raises(ImagesError, match=sentence):
        open_images(source)


def test_augmentation_is_found_out() -> None:
    def noisy(picture: Image.Image) -> torch.Tensor:
        return as_tensor(picture) * torch.rand(())

    with pytest.raises(ImagesError, match="another picture each time it is read"):
        open_images(Photos(noisy))


def test_small_pictures_of_a_dataset_are_listed_and_their_labels_go() -> None:
    class Odd(Photos):
        def __getitem__(self, index: int) -> Any:
            picture, label = super().__getitem__(index)
            return (picture.resize((4, 4)) if index == 1 else picture), label

    images = open_images(Odd(), labels=LABELS, classes=["a", "b", "c"])
    assert [problem.path for problem in images.problems] == ["Odd[1]"]
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 1, 2, -1]
    assert images.origin(1) == "Odd[2]"


def test_a_dataset_can_be_sent_to_a_worker() -> None:
    images = DatasetImages(TensorDataset(TENSOR, torch.tensor(LABELS)))
    again = pickle.loads(pickle.dumps(images))
    assert np.array_equal(shown(again), PIXELS)
    assert plan_batches(again).as_json() == plan_batches(images).as_json()


def test_paths(tmp_path: Path) -> None:
    paths = []
    for index, pixels in enumerate(PIXELS):
        paths.append(tmp_path / f"{index}.png")
        Image.fromarray(pixels).save(paths[-1])
    assert np.array_equal(shown(open_images(paths)), PIXELS)
    named = open_images((list(map(str, paths)), ["dog", "cat", "dog", "cat", "cat", "dog"]))
    assert named.labels is not None
    assert (named.labels.tolist(), named.classes) == ([1, 0, 1, 0, 0, 1], ("cat", "dog"))
    assert len(open_images((str(paths[0]), str(paths[1])))) == 2
    with pytest.raises(ImagesError, match=r"1 of 2 pictures are not there, the first .*none\.png"):
        open_images([paths[0], tmp_path / "none.png"])
    with pytest.raises(UsageError, match="must contain PIL pictures or paths"):
        open_images([paths[0], 3])
    with pytest.raises(UsageError, match="a torch dataset or loader; got a int"):
        open_images(3)
