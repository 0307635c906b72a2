"""Make the bundled sample from CIFAR-10 in the official order:

    python scripts/make_sample.py CIFAR10.npz        (x_train, y_train, x_test, y_test in uint8)

Writes test.webp, train.webp and sample.json into src/eyechart/images/sample_data and compares every pixel.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from eyechart.images.sample import CREDIT, lay_out, open_sample

FOLDER = Path(__file__).parents[1] / "src" / "eyechart" / "images" / "sample_data"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
PER_CLASS = {"test": 100, "train": 50}


def main(path: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    splits: dict[str, dict[str, object]] = {}
    chosen: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for split, count in PER_CLASS.items():
            pixels, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
            official = np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(10)]))
            chosen[split] = pixels[official], labels[official]
            sheet = Image.fromarray(lay_out(pixels[official]))
            sheet.save(FOLDER / f"{split}.webp", lossless=True, quality=100, method=6, exact=True)
            splits[split] = {
                "pixels_sha256": hashlib.sha256(pixels[official].tobytes()).hexdigest(),
                "labels": labels[official].tolist(),
                "official": official.tolist(),
            }
    card = {"credit": CREDIT, "classes": CLASSES, "splits": splits}
    (FOLDER / "sample.json").write_text(json.dumps(card, separators=(",", ":")) + "\n")
    for split, (pixels, labels) in chosen.items():
        sample = open_sample(split)
        if sample.labels is None or sample.labels.tolist() != labels.tolist():
            sys.exit(f"The {split} labels are not those of the source.")
        if not np.array_equal(sample.array(range(len(sample))), pixels):
            sys.exit(f"The {split} sheet is not lossless.")
        print(f"{split}: {len(sample)} pictures, {(FOLDER / f'{split}.webp').stat().st_size:,} bytes, exact")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
