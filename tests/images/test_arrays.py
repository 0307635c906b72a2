"""Arrays, .npz files and lists of pictures."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from eyechart.errors import ImagesError, UsageError
from eyechart.images import common_crop, open_images

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 10, 13, 3), np.uint8)
LABELS = np.array([0, 2, 1, 0, -1, 2])


@pytest.mark.parametrize(
    ("pictures", "labels"), [("x_test", "y_test"), ("x", "y"), ("images", "labels"), ("arr_0", "arr_1")]
)
def test_npz_names(tmp_path: Path, pictures: str, labels: str) -> None:
    arrays: dict[str, Any] = {pictures: PIXELS, labels: LABELS}
    np.savez(tmp_path / "set.npz", **arrays)
    images = open_images(tmp_path / "set.npz")
    assert images.name == "set.npz"
    assert images.origin(2) == f"{pictures}[2]"
    assert images.labels is not None
    assert images.labels.tolist() == LABELS.tolist()
    assert images.classes == ("0", "1", "2")
    assert np.array_equal(np.asarray(images.picture(3)), PIXELS[3])


def test_npz_splits_columns_and_class_names(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "set.npz",
        x_train=PIXELS[:2],
        y_train=LABELS[:2, None],
        x_test=PIXELS[2:],
        y_test=LABELS[2:, None].astype(np.int8),
        classes=np.array(["ape", "bat", "cat"]),
    )
    train, test = open_images(f"{tmp_path}/set.npz:train"), open_images(f"{tmp_path}/set.npz")
    assert (len(train), len(test)) == (2, 4)
    assert train.labels is not None
    assert train.labels.tolist() == [0, 2]
    assert train.classes == test.classes == ("ape", "bat", "cat")
    assert train.fingerprint != test.fingerprint
    with pytest.raises(ImagesError, match=r"holds the arrays x_train, .*expected .* x_other"):
        open_images(f"{tmp_path}/set.npz:other")


def test_npz_never_runs_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "sprung",)

    np.savez(tmp_path / "trap.npz", x=np.array([Trap()], object))
    with pytest.raises(ImagesError, match=r"trap.npz is not an .npz file of plain arrays"):
        open_images(tmp_path / "trap.npz")
    assert not (tmp_path / "sprung").exists()


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=PIXELS)
    whole = (tmp_path / "set.npz").read_bytes()
    for cut in (0, 10, len(whole) // 2):
        (tmp_path / "set.npz").write_bytes(whole[:cut])
        with pytest.raises(ImagesError, match=r"set.npz is not an .npz file"):
            open_images(tmp_path / "set.npz")
    (tmp_path / "set.npz").write_bytes(whole[:200] + bytes(200) + whole[400:])
    with pytest.raises(ImagesError, match=r"set.npz is not an .npz file"):
        open_images(tmp_path / "set.npz")


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (PIXELS / np.float32(255), "expected uint8 .* got float32"),
        (PIXELS.transpose(0, 3, 1, 2), r"channels first: use .transpose\(0, 2, 3, 1\)"),
        (PIXELS[0, 0], r"got \(13, 3\)"),
        (PIXELS[..., :2], r"got \(6, 10, 13, 2\)"),
        (PIXELS[:0], "holds no pictures"),
        (PIXELS[:, :1, :1], "1×1 pixels"),
    ],
)
def test_wrong_arrays_say_what_was_expected(pixels: np.ndarray, sentence: str) -> None:
    with pytest.raises(ImagesError, match=sentence):
        open_images(pixels)


@pytest.mark.parametrize(
    ("labels", "classes", "sentence"),
    [
        (LABELS[:5], None, "6 pictures, so 6 labels were expected"),
        (LABELS * 0.5, None, "whole numbers"),
        (LABELS, ["a", "b"], "a label 2 but names only 2 classes"),
    ],
)
def test_wrong_labels_say_what_was_expected(labels: np.ndarray, classes: list[str] | None, sentence: str) -> None:
    with pytest.raises(ImagesError, match=sentence):
        open_images(PIXELS, labels=labels, classes=classes)


def test_arrays_in_memory() -> None:
    images = open_images((PIXELS, LABELS))
    assert images.labels is not None
    assert images.labels.tolist() == LABELS.tolist()
    assert open_images(images) is images
    crops = images.array([4, 1])
    assert crops is not None
    expected = [np.asarray(common_crop(picture)) for picture in images.pictures([4, 1])]
    assert np.array_equal(crops, np.stack(expected))
    assert crops.shape == (2, 10, 10, 3)
    assert open_images(PIXELS).labels is None
    assert open_images(PIXELS, labels=[-1] * 6).labels is None
    assert pickle.loads(pickle.dumps(images)).fingerprint == images.fingerprint


@pytest.mark.parametrize("grey", [PIXELS[..., 0], PIXELS[..., :1]])
def test_grey_arrays(grey: np.ndarray) -> None:
    images = open_images(grey)
    assert np.array_equal(np.asarray(images.picture(5))[..., 2], PIXELS[5, ..., 0])
    crops = images.array([5])
    assert crops is not None
    assert np.array_equal(crops[0, ..., 1], PIXELS[5, :, 1:11, 0])


def test_fingerprint_of_arrays() -> None:
    first = open_images(PIXELS, labels=LABELS).fingerprint
    assert open_images(np.asfortranarray(PIXELS), labels=LABELS.astype(np.int8)).fingerprint == first
    changed = PIXELS.copy()
    changed[3, 2, 1, 0] ^= 1
    others = [
        open_images(changed, labels=LABELS),
        open_images(PIXELS, labels=LABELS[::-1]),
        open_images(PIXELS),
        open_images(PIXELS[::-1], labels=LABELS),
        open_images(PIXELS, labels=LABELS, classes=["a", "b", "c"]),
        open_images(PIXELS.reshape(6, 13, 10, 3), labels=LABELS),
    ]
    assert len({images.fingerprint for images in others} | {first}) == 7


def test_a_list_of_pictures() -> None:
    pictures = [Image.new("RGB", (20, 10), "red"), Image.new("L", (1, 1)), Image.new("L", (8, 9), 7)]
    images = open_images(pictures, labels=[0, 0, 1], classes=["a", "b"])
    assert len(images) == 2
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1]
    assert images.picture(1).getpixel((0, 0)) == (7, 7, 7)
    assert images.origin(1) == "pictures[2]"
    assert [problem.path for problem in images.problems] == ["pictures[1]"]
    assert images.fingerprint != open_images(pictures[::-1], labels=[1, 1, 0], classes=["a", "b"]).fingerprint
    with pytest.raises(ImagesError, match="None of the 1 pictures"):
        open_images([pictures[1]])
    two = open_images((pictures[0], pictures[2]))  # a tuple of pictures is not (pictures, labels)
    assert len(two) == 2


@pytest.mark.parametrize("source", [[], [1, 2], 7, None, {"x": PIXELS}])
def test_what_is_no_source_is_refused(source: object) -> None:
    with pytest.raises(UsageError):
        open_images(source)
    with pytest.raises(UsageError, match="has its own labels"):
        open_images("sample", labels=[1])
