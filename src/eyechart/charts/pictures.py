"""Pictures that stand in the page itself."""

from __future__ import annotations

import base64
import io
from typing import Literal

import numpy as np
from PIL import Image


def data_uri(pixels: np.ndarray, kind: Literal["PNG", "JPEG"] = "PNG", times: int = 1) -> str:
    """Pixels (y, x, channel) of 8 bits, each `times` enlarged: some viewers of PDF smooth what they enlarge themselves.

    >>> data_uri(np.zeros((1, 1, 3), np.uint8))[:26]
    'data:image/png;base64,iVBO'
    """
    file = io.BytesIO()
    image = Image.fromarray(pixels.repeat(times, axis=0).repeat(times, axis=1))
    image.save(file, kind, quality=88, optimize=True)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(file.getvalue()).decode()
