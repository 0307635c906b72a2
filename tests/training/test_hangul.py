"""The unlike target: drawn glyphs become seeded pictures that a training reads. Drawn here with Pillow's own font."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ImageFont

from eyechart.training.sources import load_data

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hangul() -> Any:
    found = importlib.util.spec_from_file_location("hangul", ROOT / "scripts" / "hangul.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def masks(hangul: Any) -> np.ndarray:
    fonts = [ImageFont.load_default(size) for size in (40, 48)]
    drawn: np.ndarray = hangul.glyph_masks("LTOI", fonts)
    return drawn


def test_a_hundred_syllables_all_different(hangul: Any) -> None:
    names = hangul.syllables()
    assert len(set(names)) == 100
    assert all("가" <= name <= "힣" for name in names)
    assert {"가", "넌", "힌"} <= set(names)


def test_glyphs_are_drawn_in_the_middle_and_differ(hangul: Any, masks: np.ndarray) -> None:
    assert masks.shape == (4, 2, 64, 64)
    ink = masks[0, 1].astype(float)
    rows, columns = np.nonzero(ink > 128)
    assert abs(rows.mean() - 32) < 10
    assert abs(columns.mean() - 32) < 10
    assert not np.array_equal(masks[0, 0], masks[1, 0])
    assert (masks[0, 1] > 128).sum() > (masks[0, 0] > 128).sum(), "the larger font"


def test_without_jitter_and_noise_a_picture_is_its_glyph_in_two_colours(hangul: Any, masks: np.ndarray) -> None:
    data = hangul.data_of(masks[:, :1], train=3, test=1, jitter=0.0, noise=0.0)
    seen = ((np.arange(64) + 0.5) / 32 - 1) * 1.1 * 32 + 31.5  # the raster shows 1.1 times as much as the glyph's own
    index = seen.round().astype(int)
    inside = (index >= 0) & (index < 64)
    for picture, label in zip(data["x_train"], data["y_train"], strict=True):
        fine = masks[label, 0][np.ix_(index.clip(0, 63), index.clip(0, 63))] * np.outer(inside, inside)
        glyph = fine.reshape(32, 2, 32, 2).mean((1, 3)) / 255
        channel = picture[..., 0].astype(float)
        shape = abs(channel - channel[0, 0]) / abs(channel - channel[0, 0]).max()
        assert np.corrcoef(shape.flatten(), glyph.flatten())[0, 1] > 0.97


def test_pictures_are_seeded_balanced_and_jittered(hangul: Any, masks: np.ndarray) -> None:
    one, again, other = (hangul.data_of(masks, train=6, test=2, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["x_train"], other["x_train"])
    assert np.bincount(one["y_train"]).tolist() == [6] * 4
    assert np.bincount(one["y_test"]).tolist() == [2] * 4
    same = one["x_train"][one["y_train"] == 2].astype(float)
    assert np.abs(same[0] - same[1]).mean() > 10
    assert len(np.unique(one["y_train"][:8])) > 1, "in a random order"


def test_more_noise_is_more_noise(hangul: Any, masks: np.ndarray) -> None:
    def roughness(noise: float) -> float:
        pixels = hangul.data_of(masks, train=16, test=1, noise=noise)["x_train"].astype(float)
        return float(np.abs(np.diff(pixels[:, :, :4], axis=1)).mean())  # the left edge is paper

    assert roughness(0.0) < 3 < roughness(1.0) < roughness(3.0)


def test_what_is_written_is_read_as_training_data(hangul: Any, masks: np.ndarray, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "glyphs.npz", masks=masks[:, :, ::2, ::2], classes=np.array(list("가나다라")))
    hangul.main(["data", str(tmp_path / "glyphs.npz"), str(tmp_path / "hangul.npz")])
    data = load_data(str(tmp_path / "hangul.npz"))
    assert (data.name, data.classes, data.image_size) == ("hangul", ("가", "나", "다", "라"), 32)
    assert (len(data.x_train), len(data.x_test)) == (2000, 400)
