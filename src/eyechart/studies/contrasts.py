"""Numbers made of one quantity of several arms with equal seed, as a study's `[[contrast]]` entries write them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

Scale = Literal["plain", "log", "ratio"]


@dataclass(frozen=True)
class Choice:
    """The best of several arms. For each seed the other seeds choose it, so that no seed chooses for itself."""

    by: tuple[str, ...]
    """Arms to choose from: the one with the highest mean over the other seeds, or with the lowest."""
    take: tuple[str, ...]
    """For each of these arms, the arm whose number counts when it is chosen: itself, or its partner."""
    highest: bool = True

    def of_seeds(self, numbers: Mapping[str, Mapping[int, float]], every_seed: bool = False) -> dict[int, float]:
        """The number of each seed that all arms have; with `every_seed`, of each that the chosen arm has.

        >>> both = {"a": {0: 0.9, 1: 0.5, 2: 0.5}, "b": {0: 0.6, 1: 0.6, 2: 0.6, 3: 0.7}}
        >>> Choice(("a", "b"), ("a", "b")).of_seeds(both)
        {0: 0.6, 1: 0.5, 2: 0.5}
        >>> Choice(("b", "a"), ("b", "a"), highest=False).of_seeds(both, every_seed=True)
        {0: 0.9, 1: 0.6, 2: 0.6, 3: 0.7}
        """
        arms = (*self.by, *self.take)
        shared = set.intersection(*(set(numbers.get(arm, {})) for arm in arms))
        seeds = set.union(*(set(numbers.get(arm, {})) for arm in self.take)) if every_seed else shared
        result = {}
        for seed in sorted(seeds):
            if others := sorted(shared - {seed}):
                means = [sum(numbers[arm][other] for other in others) for arm in self.by]
                best = self.take[means.index(max(means) if self.highest else min(means))]
                if seed in numbers[best]:
                    result[seed] = numbers[best][seed]
        return result


@dataclass(frozen=True)
class Design:
    """How much of each factor every arm has, as a study's `[design.NAME]` writes it."""

    arms: Mapping[str, Mapping[str, float]]
    doublings: tuple[str, ...] = ()
    """Factors that count by how often they were doubled: images, classes."""

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Design:
        return cls({**entry["arms"]}, tuple(entry.get("doublings", ())))

    def amounts(self, arms: Sequence[str], factors: Sequence[str]) -> np.ndarray:
        """(arm, factor)"""
        rows = [[float(self.arms[arm][factor]) for factor in factors] for arm in arms]
        for column, factor in enumerate(factors):
            if factor in self.doublings:
                for row in rows:
                    row[column] = math.log2(row[column])
        return np.array(rows)

    def effect_weights(self, factor: str, arms: Sequence[str]) -> dict[str, float]:
        """Weights whose sum over arms is the least-squares effect of one factor, all others that vary being held.

        >>> arms = {"a": {"x": 0, "y": 0}, "b": {"x": 1, "y": 0}, "c": {"x": 1, "y": 1}}
        >>> Design(arms).effect_weights("x", ["a", "b", "c"])
        {'a': -1.0, 'b': 1.0, 'c': 0.0}
        """
        names = sorted({name for arm in arms for name in self.arms[arm]})
        varying = [name for name in names if np.ptp(self.amounts(arms, [name])) > 0]
        if factor not in varying:
            raise ValueError(f"the factor {factor!r} does not vary among {', '.join(arms)}")
        table = np.column_stack([np.ones(len(arms)), self.amounts(arms, varying)])
        if np.linalg.matrix_rank(table) < table.shape[1]:
            raise ValueError(f"the factors {', '.join(varying)} cannot be told apart by {', '.join(arms)}")
        # Rounded, because these weights are hashed: the last digits differ from machine to machine.
        row = np.linalg.pinv(table)[1 + varying.index(factor)].round(9) + 0.0
        return dict(zip(arms, row.tolist(), strict=True))


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
    correlated_with: str = ""
    """A partial correlation over arms in place of a sum, with this quantity of theirs, `held` being held."""
    paired: bool = False
    """Trainings of equal seed share more than its number (source, subset), so each seed gives one sum of them."""
    every_seed: bool = False
    """A chosen arm counts with all its seeds, also where the arms it was chosen from have fewer."""
    held: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By arm, the amounts of what a partial correlation holds."""
    added: str = ""
    """ "after the runs" where their numbers were known when it was written; the page says so."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Every arm it is about."""
        arms: list[str] = []
        for key in self.weights:
            choice = self.chosen.get(key)
            arms += arms_of(key) if choice is None else (*choice.by, *choice.take)
        return tuple(dict.fromkeys(arms))


AFTER = "after the runs"

NEXT_SEED = ", next seed"
"""What a training that comes along with its next seed is called after its arm."""


def arms_of(key: str) -> tuple[str, ...]:
    """
    >>> arms_of("vit"), arms_of("vit-10-percent | vit"), arms_of("vit | vit, next seed")
    (('vit',), ('vit-10-percent', 'vit'), ('vit', 'vit'))
    """
    return tuple(arm.removesuffix(NEXT_SEED) for arm in key.split(" | "))


def read_contrasts(entry: Mapping[str, Any], designs: Mapping[str, Design]) -> list[Contrast]:
    """One contrast; or one of every two arms, each called and worded after its two arms."""
    if "design" in entry:
        contrasts = [_of_design(entry, designs[entry["design"]])]
    elif "each_pair_of" not in entry:
        contrasts = [_contrast(entry, _weights(entry))]
    else:
        contrasts = [
            _contrast(
                {**entry, "name": f"{entry['name']}: {one}, {other}"}, {one: 1, other: -1}, f"{one} minus {other}"
            )
            for one, other in itertools.combinations(entry["each_pair_of"], 2)
        ]
    return contrasts


def _of_design(entry: Mapping[str, Any], design: Design) -> Contrast:
    """The effect of one factor, or a correlation of two quantities with some factors held."""
    arms = list(entry.get("among", design.arms))
    if "effect_of" in entry:
        return _contrast(entry, design.effect_weights(entry["effect_of"], arms))
    amounts = design.amounts(arms, entry["holding"])
    held = {arm: tuple(row) for arm, row in zip(arms, amounts.round(9).tolist(), strict=True)}
    weights = dict.fromkeys(arms, 1.0)
    return replace(_contrast(entry, weights), correlated_with=entry["correlated_with"], held=held)


def _contrast(entry: Mapping[str, Any], weights: Mapping[str, float], which: str = "") -> Contrast:
    chosen = {
        name: Choice(tuple(by), tuple(choice.get("take", by)), highest="highest" in choice)
        for name, choice in entry.get("chosen", {}).items()
        for by in [choice["highest"] if "highest" in choice else choice["lowest"]]
    }
    words = f"{entry['words']}, {which}" if which else entry["words"]
    ranks = entry.get("ranks", "")
    ranked_with = ranks if isinstance(ranks, str) else "weights"
    plain = Contrast(entry["name"], entry["quantity"], words, weights, entry.get("scale", "plain"), chosen, ranked_with)
    added = entry.get("added", "")
    if added not in ("", AFTER):
        raise ValueError(f"a contrast is added {AFTER!r} or says nothing; {entry['name']!r} has {added!r}")
    return replace(plain, paired=entry.get("paired", False), every_seed=entry.get("every_seed", False), added=added)


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
