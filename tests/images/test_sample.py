"""The bundled sample, and that images need no torch."""

import hashlib
import json
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

from eyechart.images import open_images
from eyechart.images.sample import CREDIT, cut, lay_out


@pytest.mark.parametrize(("split", "each"), [("test", 100), ("train", 50)])
def test_the_sample_is_cifar10_bit_for_bit(split: str, each: int) -> None:
    """The hash was written by scripts/make_sample.py from the original arrays."""
    card = json.loads((files("eyechart.images") / "sample_data" / "sample.json").read_text())
    images = open_images(f"sample:{split}")
    pixels = images.array(range(len(images)))
    assert pixels is not None
    assert pixels.shape == (each * 10, 32, 32, 3)
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == card["splits"][split]["pixels_sha256"]
    assert images.labels is not None
    assert np.bincount(images.labels).tolist() == [each] * 10
    official = card["splits"][split]["official"]
    assert official == sorted(set(official))
    assert card["credit"] == CREDIT
    assert "Krizhevsky" in CREDIT


def test_known_pictures_of_the_test_set() -> None:
    """The official test set starts with a cat, two ships, an airplane and two frogs."""
    images = open_images("sample")
    assert images.labels is not None
    assert images.classes is not None
    first = [images.classes[label] for label in images.labels[:6]]
    assert first == ["cat", "ship", "ship", "airplane", "frog", "frog"]
    assert images.origin(0) == "CIFAR-10 test 0"
    assert images.picture(0).getpixel((0, 0)) == (158, 112, 49)
    # Sky and sea are blue, frogs are not: pictures and labels belong together.
    pixels = images.array(range(1000))
    assert pixels is not None
    mean = np.array([pixels[images.labels == label].mean((0, 1, 2)) for label in range(10)])
    by_blue = [images.classes[label] for label in np.argsort(mean[:, 2] / mean.sum(1))]
    assert set(by_blue[-2:]) == {"airplane", "ship"}
    assert by_blue[0] == "frog"


def test_fingerprints_are_frozen() -> None:
    assert open_images("sample").fingerprint.startswith("2694a563a8d75c38")
    assert open_images("sample:train").fingerprint.startswith("3cb7a69b4829dea8")


def test_sheets_are_cut_where_they_were_joined() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3), np.uint8)
    sheet = lay_out(pixels)
    assert np.array_equal(sheet[4:8, 8:12], pixels[22])
    assert np.array_equal(cut(sheet), pixels)


def test_images_do_not_import_torch() -> None:
    code = "import sys, eyechart.images as i; i.plan_batches(i.open_images('sample')); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
