"""The bundled pictures as data for `eyechart train`, for the figures of measures that follow a training: FILE.npz"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from eyechart import open_images


def main(path: Path) -> None:
    if path.exists():
        return
    arrays = {}
    for part in ("train", "test"):
        images = open_images(f"sample:{part}")
        arrays[f"x_{part}"] = np.stack([np.asarray(images.picture(index)) for index in range(len(images))])
        arrays[f"y_{part}"] = np.asarray(images.labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, classes=list(images.classes or ()), **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
