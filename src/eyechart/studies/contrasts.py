"""Numbers made of one quantity of several arms with equal seed, as a study's `[[contrast]]` entries write them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Scale = Literal["plain", "log", "ratio"]


@dataclass(frozen=True)
class Choice:
    """The best of several arms. For each seed the other seeds choose it, so that no seed chooses for itself."""

    by: tuple[str, ...]
    """Arms to choose from: the one with the highest mean over the other seeds, or with the lowest."""
    take: tuple[str, ...]
    """For each of these arms, the arm whose number counts when it is chosen: itself, or its partner."""
    highest: bool = True

    def of_seeds(self, numbers: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
        """The number of each seed that all arms have.

        >>> both = {"a": {0: 0.9, 1: 0.5, 2: 0.5}, "b": {0: 0.6, 1: 0.6, 2: 0.6}}
        >>> Choice(("a", "b"), ("a", "b")).of_seeds(both)
        {0: 0.6, 1: 0.5, 2: 0.5}
        """
        seeds = sorted(set.intersection(*(set(numbers.get(arm, {})) for arm in (*self.by, *self.take))))
        result = {}
        for seed in seeds if len(seeds) > 1 else []:
            means = [sum(numbers[arm][other] for other in seeds if other != seed) for arm in self.by]
            best = means.index(max(means) if self.highest else min(means))
            result[seed] = numbers[self.take[best]][seed]
        return result


@dataclass(frozen=True)
class Contrast:
    """Σ weight · quantity over arms of equal seed; on the scale "log" of its logarithm, on "ratio" the exponential of
    that."""

    name: str
    quantity: str
    words: str
    weights: Mapping[str, float]
    """By arm, by "one | other" for a quantity of two arms, or by the name of a choice."""
    scale: Scale = "plain"
    chosen: Mapping[str, Choice] = field(default_factory=dict)
    ranked_with: str = ""
    """A rank correlation in place of a sum: with the weights ("weights"), or with this quantity of the same arms."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Every arm it is about."""
        arms: list[str] = []
        for key in self.weights:
            choice = self.chosen.get(key)
            arms += arms_of(key) if choice is None else (*choice.by, *choice.take)
        return tuple(dict.fromkeys(arms))


NEXT_SEED = ", next seed"
"""What a training that comes along with its next seed is called after its arm."""


def arms_of(key: str) -> tuple[str, ...]:
    """
    >>> arms_of("vit"), arms_of("vit-10-percent | vit"), arms_of("vit | vit, next seed")
    (('vit',), ('vit-10-percent', 'vit'), ('vit', 'vit'))
    """
    return tuple(arm.removesuffix(NEXT_SEED) for arm in key.split(" | "))


def read_contrasts(entry: Mapping[str, Any]) -> list[Contrast]:
    """One contrast; or one of every two arms, each called and worded after its two arms."""
    if "each_pair_of" not in entry:
        contrasts = [_contrast(entry, _weights(entry))]
    else:
        contrasts = [
            _contrast(
                {**entry, "name": f"{entry['name']}: {one}, {other}"}, {one: 1, other: -1}, f"{one} minus {other}"
            )
            for one, other in itertools.combinations(entry["each_pair_of"], 2)
        ]
    return contrasts


def _contrast(entry: Mapping[str, Any], weights: Mapping[str, float], which: str = "") -> Contrast:
    chosen = {
        name: Choice(tuple(by), tuple(choice.get("take", by)), highest="highest" in choice)
        for name, choice in entry.get("chosen", {}).items()
        for by in [choice["highest"] if "highest" in choice else choice["lowest"]]
    }
    words = f"{entry['words']}, {which}" if which else entry["words"]
    ranks = entry.get("ranks", "")
    ranked_with = ranks if isinstance(ranks, str) else "weights"
    return Contrast(entry["name"], entry["quantity"], words, weights, entry.get("scale", "plain"), chosen, ranked_with)


def _weights(entry: Mapping[str, Any]) -> dict[str, float]:
    if "weights" in entry:
        return {**entry["weights"]}
    if "ranks" in entry:
        return {**entry["ranks"]} if isinstance(entry["ranks"], Mapping) else dict.fromkeys(entry["over"], 1.0)
    if "per_unit_of" in entry:
        return slope_weights(entry["per_unit_of"])
    weights = slope_weights(doublings(entry["per_doubling_of"]))
    for arm, weight in slope_weights(doublings(entry.get("less_per_doubling_of", {}))).items():
        weights[arm] = weights.get(arm, 0.0) - weight
    return weights


def doublings(numbers: Mapping[str, float]) -> dict[str, float]:
    return {arm: math.log2(number) for arm, number in numbers.items()}


def slope_weights(values: Mapping[str, float]) -> dict[str, float]:
    """Weights whose sum over arms is the least-squares slope over a number that each arm has.

    >>> slope_weights(doublings({"one": 1, "two": 2, "four": 4}))
    {'one': -0.5, 'two': 0.0, 'four': 0.5}
    """
    if not values:
        return {}
    # fsum, because these weights are hashed: sum() rounds otherwise from Python 3.12 on.
    middle = math.fsum(values.values()) / len(values)
    spread = math.fsum((value - middle) ** 2 for value in values.values())
    if not spread:
        raise ValueError(f"a slope needs arms with different numbers; got those of {', '.join(values)}")
    return {arm: (value - middle) / spread for arm, value in values.items()}
