"""Calibration and robustness: advantages with known truths, each erring by one point."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import xarray

from eyechart.claims.table import CLAIMS
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import noisy_finding

MEASURES = {"calibration": "calibration", "corruption": "corruption", "occlusion": "robustness", "attack": "robustness"}

ADVANTAGES = [part.quantity for part in CLAIMS["C69"].tests[0].parts]


def with_advantages(**other: float) -> Callable[[int], Mapping[str, xarray.Dataset]]:
    """A ViT five points better than the CNN in everything but these."""
    truths = {**dict.fromkeys(ADVANTAGES, 0.05), **other}

    def found(seed: int) -> Mapping[str, xarray.Dataset]:
        parts: dict[str, dict[str, float]] = {}
        for name, truth in truths.items():
            word = next(word for word in MEASURES if word in name)
            parts.setdefault(MEASURES[word], {})[name] = truth
        pair = ["vit", "cnn"]
        return {
            measure: noisy_finding(mine, pair, 0.01, seed + 1000 * place)
            for place, (measure, mine) in enumerate(parts.items())
        }

    return found


alike = with_advantages(**dict.fromkeys(ADVANTAGES, 0.0))
no_better_under_attack = with_advantages(attack_advantage=0.0)
only_less_to_lose = with_advantages(relative_corruption_advantage=0.0)
errors_that_cancel = with_advantages(calibration_error_advantage=-0.05)
better_in_everything = with_advantages()

CASES: tuple[Case, ...] = (
    Case("C69", "a ViT and a CNN that are alike", "holds", findings=alike, draws=40),
    Case("C69", "a ViT that is better in all but attacks", "holds", findings=no_better_under_attack, draws=100),
    Case("C69", "a ViT that is better only where it has more to lose", "holds", findings=only_less_to_lose, draws=100),
    Case("C69", "a ViT whose errors of confidence cancel", "holds", findings=errors_that_cancel, draws=40),
    Case("C69", "a ViT that is better in everything", "fails", findings=better_in_everything, draws=40),
)
