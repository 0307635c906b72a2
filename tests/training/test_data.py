"""Reading, checking and cutting training data."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from eyechart.errors import ImagesError, UsageError
from eyechart.training.cifar import CIFAR10_CLASSES
from eyechart.training.sources import load_data

from .toys import toy_run


def arrays(count: int = 40, classes: int = 4) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        "x_train": draw.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8),
        "y_train": (np.arange(count) % classes).astype(np.uint8),
        "x_test": draw.integers(0, 256, (8, 8, 8, 3), dtype=np.uint8),
        "y_test": (np.arange(8) % classes).astype(np.uint8),
    }


def test_npz(tmp_path: Path) -> None:
    data = arrays()
    np.savez(tmp_path / "toys.npz", **data)
    read = load_data(str(tmp_path / "toys.npz"))
    assert (read.name, read.classes) == ("toys", ("0", "1", "2", "3"))
    assert read.x_train.dtype == torch.uint8
    assert int(read.x_train[5, 2, 3, 4]) == data["x_train"][5, 3, 4, 2]
    assert read.y_train.tolist() == data["y_train"].tolist()
    assert read.normalisation().mean[1] == pytest.approx(data["x_train"][..., 1].mean() / 255)


def test_sheets_are_read_in_order_over_archives(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (2000, 4, 4, 3), dtype=np.uint8)
    labels = (np.arange(2000) % 10).astype(np.uint8)

    def write(name: str, sheets: dict[str, np.ndarray], with_labels: np.ndarray | None) -> None:
        with zipfile.ZipFile(folder / name, "w") as archive:
            for sheet, cells in sheets.items():
                pixels = cells.reshape(25, 40, 4, 4, 3).transpose(0, 2, 1, 3, 4).reshape(100, 160, 3)
                file = io.BytesIO()
                Image.fromarray(pixels).save(file, "WEBP", lossless=True, exact=True)
                archive.writestr(sheet, file.getvalue())
            if with_labels is not None:
                file = io.BytesIO()
                np.save(file, with_labels)
                archive.writestr("labels.npy", file.getvalue())

    write("train-0.zip", {"sheet_000.webp": images[:1000]}, labels)
    write("train-1.zip", {"sheet_001.webp": images[1000:]}, None)
    write("test.zip", {"sheet_000.webp": images[:1000]}, labels[:1000])
    read = load_data(str(folder))
    assert np.array_equal(read.x_train.permute(0, 2, 3, 1).numpy(), images)
    assert read.y_test.tolist() == labels[:1000].tolist()
    assert read.classes == CIFAR10_CLASSES
    (folder / "test.zip").unlink()
    with pytest.raises(ImagesError, match="is missing"):
        load_data(str(folder))
    (folder / "test.zip").write_bytes(b"no archive")
    with pytest.raises(
        ImagesError, match=r"test.zip cannot be read as an archive of sheets \(File is not a zip file\)"
    ):
        load_data(str(folder))


def test_a_label_outside_the_range_is_named(tmp_path: Path) -> None:
    data = arrays()
    data["y_train"][7] = 10
    np.savez(tmp_path / "cifar10.npz", **data)
    with pytest.raises(ImagesError, match="must be 0 to 9; training image 7 has label 10"):
        load_data(str(tmp_path / "cifar10.npz"))


def test_labels_in_one_column_are_those_of_a_row(tmp_path: Path) -> None:
    data = arrays()
    np.savez(tmp_path / "toys.npz", **{**data, "y_train": data["y_train"][:, None]})
    assert load_data(str(tmp_path / "toys.npz")).y_train.tolist() == data["y_train"].tolist()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"y_train": np.arange(40) / 10}, r"training labels of toys are an array \(40,\) of float64"),
        ({"y_test": np.array(["cat"] * 8)}, r"test labels of toys are an array \(8,\) of <U3"),
        ({"y_train": np.eye(40, dtype=int)}, r"training labels of toys are an array \(40, 40\) of int64"),
        ({"y_train": np.array(3)}, r"training labels of toys are an array \(\) of int64"),
        ({"x_test": np.zeros((8, 6, 6, 3), np.uint8)}, "training images of toys are 8×8 and its test images 6×6"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, np.ndarray], sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "toys.npz", **{**arrays(), **changes})
    with pytest.raises(ImagesError, match=sentence):
        load_data(str(tmp_path / "toys.npz"))


def test_every_class_needs_a_training_image_and_a_classifier_two_classes(tmp_path: Path) -> None:
    data = arrays()
    np.savez(tmp_path / "toys.npz", **{**data, "y_train": data["y_train"] + 1, "y_test": data["y_test"] + 1})
    gap = load_data(str(tmp_path / "toys.npz"))
    with pytest.raises(ImagesError, match="The class '0' of toys has no training image; number labels from 0"):
        gap.cut(toy_run("", tmp_path))
    assert len(gap.cut(toy_run("", tmp_path, classes=("1", "2", "3", "4"))).x_train) == 40
    np.savez(tmp_path / "toys.npz", **arrays(classes=1))
    with pytest.raises(ImagesError, match="toys has the one class '0'; two or more are needed"):
        load_data(str(tmp_path / "toys.npz")).cut(toy_run("", tmp_path))


def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImagesError, match="was expected"):
        load_data(str(tmp_path / "nothing"))
    with pytest.raises(ImagesError, match="holds no pictures"):
        load_data(str(tmp_path), image_size=8)
    np.savez(tmp_path / "half.npz", x_train=np.zeros(3))
    with pytest.raises(ImagesError, match="it has no y_train"):
        load_data(str(tmp_path / "half.npz"))


def test_a_damaged_archive_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "toys.npz"
    path.touch()
    with pytest.raises(ImagesError, match=r"toys.npz cannot be read as .npz \(File is not a zip file"):
        load_data(str(path))
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ImagesError, match="is a single array"):
        load_data(str(path))
    np.savez_compressed(path, **{**arrays(), "x_train": arrays()["x_train"] // 64})
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(byte ^ 0x5A for byte in content[200:400])
    path.write_bytes(content)
    with pytest.raises(ImagesError, match=r"toys.npz cannot be read as .npz \(Error -3 while decompressing"):
        load_data(str(path))


def test_a_fraction_is_stratified_seeded_and_never_empties_a_class(tmp_path: Path) -> None:
    np.savez(tmp_path / "toys.npz", **arrays())
    data = load_data(str(tmp_path / "toys.npz"))
    part = data.part(0.3, seed=1)
    assert torch.bincount(part.y_train).tolist() == [3, 3, 3, 3]
    assert torch.equal(part.x_train, data.part(0.3, seed=1).x_train)
    assert not torch.equal(part.x_train, data.part(0.3, seed=2).x_train)
    assert data.part(1.0, seed=0) is data
    with pytest.raises(UsageError, match=r"leaves the class '0' \(10 images\) empty"):
        data.part(0.01, seed=0)
    with pytest.raises(UsageError, match="above 0"):
        data.part(0.0, seed=0)
