import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def picture(seed: int, width: int = 24, height: int = 16) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, int], Path]:
    """Writes a lossless picture of its own for each seed into the test's folder."""

    def put(name: str, seed: int) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(seed)))
        return path

    return put
