"""How strong each corruption is at severities 1 to 5: the constants of the published sets.

Hendrycks & Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations"; the
numbers are those of the scripts that made CIFAR-10-C (32 pixels) and ImageNet-C (224 pixels), as published in their
repository (`make_cifar_c.py`, `make_imagenet_c.py`).

They were chosen by how hard they are, not by how far they lead from the clean picture: of glass_blur, frost and
elastic_transform a higher severity may lie nearer to it, and motion_blur 3 and 4 of CIFAR-10-C lie equally far.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Set = Literal["CIFAR-10-C", "ImageNet-C"]
SMALL = 64
"""Up to this many pixels a side the constants of CIFAR-10-C are used: ImageNet-C's would leave nothing to see."""

STRENGTHS: Mapping[Set, Mapping[str, tuple[Any, ...]]] = {
    "CIFAR-10-C": {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),  # standard deviation
        "shot_noise": (500, 250, 100, 75, 50),  # photons of a white pixel
        "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),  # share of the values
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),  # radius, softness of its edge
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),  # sigma, reach, rounds
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, sigma
        "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),  # end, step
        "snow": (  # mean and spread of the flakes, their size, threshold, radius and sigma of their fall, dulling
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),  # of the picture, of the frost
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # amount, decay from coarse to fine
        "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),  # added to the value
        "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),  # what is left of it
        "elastic_transform": (  # in widths of the picture: stretch, its smoothness, shift of three corners
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ),
        "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),  # of the width
        "jpeg_compression": (80, 65, 58, 50, 40),  # quality
    },
    "ImageNet-C": {
        "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": (60, 25, 12, 5, 3),
        "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        "snow": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": (  # the script says 244 where the width is 224; so it is here
            (244 / 224 * 2, 244 / 224 * 0.7, 244 / 224 * 0.1),
            (244 / 224 * 2, 244 / 224 * 0.08, 244 / 224 * 0.2),
            (244 / 224 * 0.05, 244 / 224 * 0.01, 244 / 224 * 0.02),
            (244 / 224 * 0.07, 244 / 224 * 0.01, 244 / 224 * 0.02),
            (244 / 224 * 0.12, 244 / 224 * 0.01, 244 / 224 * 0.02),
        ),
        "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": (25, 18, 15, 10, 7),
    },
}

GROUPS: Mapping[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
TYPES: tuple[str, ...] = tuple(name for group in GROUPS.values() for name in group)
SEVERITIES = 5


def set_for(height: int, width: int) -> Set:
    """Whose constants fit pictures of this size.

    >>> set_for(32, 32), set_for(224, 224)
    ('CIFAR-10-C', 'ImageNet-C')
    """
    return "CIFAR-10-C" if min(height, width) <= SMALL else "ImageNet-C"
