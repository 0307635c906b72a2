"""Folders of pictures as training data."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eyechart.errors import ImagesError, UsageError
from eyechart.training.sources import load_data


def write(folder: Path, count: int, colour: tuple[int, int, int], size: tuple[int, int] = (30, 20)) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", size, colour).save(folder / f"{number}.png")


def test_train_and_test_folders(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("val", 2)):
        write(tmp_path / "set" / part / "red", count, (200, 0, 0))
        write(tmp_path / "set" / part / "blue", count, (0, 0, 200))
    (tmp_path / "set" / "train" / "red" / "broken.png").write_bytes(b"no picture")
    data = load_data(str(tmp_path / "set"), image_size=8)
    assert (data.name, data.classes) == ("set", ("blue", "red"))
    assert data.x_train.shape == (8, 3, 8, 8)
    assert data.x_test.shape == (4, 3, 8, 8)
    assert data.x_train[data.y_train == 1].float().mean(dim=(0, 2, 3)).tolist() == [200, 0, 0]
    assert data.notices[0].startswith("1 file skipped, the first red/broken.png")


def test_pictures_are_cut_to_the_central_square(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, 2, (0, 0, 0))
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 255  # white in the middle third only
    Image.fromarray(pixels).save(tmp_path / "a" / "0.png")
    data = load_data(str(tmp_path), image_size=10)
    assert int(data.x_train[0].min()) == 255


def test_without_parts_the_last_fifth_of_each_class_is_the_test(tmp_path: Path) -> None:
    write(tmp_path / "cats", 10, (1, 1, 1))
    write(tmp_path / "dogs", 5, (2, 2, 2))
    data = load_data(str(tmp_path), image_size=4)
    assert data.y_train.tolist() == [0] * 8 + [1] * 4
    assert data.y_test.tolist() == [0] * 2 + [1]
    assert "the last fifth of each class is the test part" in data.notices[-1]


def test_refusals(tmp_path: Path) -> None:
    write(tmp_path / "set" / "train" / "red", 2, (200, 0, 0))
    write(tmp_path / "set" / "train" / "blue", 2, (0, 0, 200))
    write(tmp_path / "set" / "test" / "red", 2, (200, 0, 0))
    with pytest.raises(UsageError, match="give --image-size"):
        load_data(str(tmp_path / "set"))
    with pytest.raises(ImagesError, match="'blue' is only in one"):
        load_data(str(tmp_path / "set"), image_size=4)
    write(tmp_path / "flat", 3, (0, 0, 0))
    with pytest.raises(ImagesError, match="one folder for each class"):
        load_data(str(tmp_path / "flat"), image_size=4)
