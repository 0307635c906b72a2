"""Intervals over seeds: what would other trainings of the same arms have given?

A contrast is Σₐ wₐ · mean over seeds of arm a. Few seeds tell little about their own spread, so where the arms of a
study share a recipe their variances are pooled (degrees of freedom summed):

    half-width = t(Σ(nₐ−1)) · s · sqrt(Σ wₐ²/nₐ),    s² = Σₐ Σₛ (xₐₛ − x̄ₐ)² / Σ(nₐ−1)

unless Bartlett's test finds the variances unequal (p < .05), the arms of the contrast vary more than the others (F
test, p < .1), or an arm does not vary at all; then each arm of the contrast keeps its own variance and the degrees of
freedom are Welch and Satterthwaite's. `tests/studies/test_seeds.py`
counts how often these 95 % intervals hold the truth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc, fdtrc, stdtrit

from eyechart.methods.ranks import rank_correlation

CONFIDENCE = 0.95
LEAST_SEEDS = 3
MOST_DRAWS = 20_000
"""Ways to take one seed of each arm: all of them up to 3 seeds of 9 arms, beyond that so many at random."""
UNEQUAL = 0.05
"""Variances count as unequal below this p of Bartlett's test."""

Values = Mapping[str, np.ndarray]
"""Of each arm, one number a seed."""


NOTHING_COMPARED = "Nothing is compared while every seed chooses the same arm on both sides"
ALL_ALIKE = "More seeds would hardly narrow its interval"


@dataclass(frozen=True)
class OverSeeds:
    """A contrast with its interval over seeds."""

    value: float
    low: float
    high: float
    seeds: int
    """Of the arm that has fewest."""
    freedom: float
    pooled: int = 0
    """How many arms the variance is pooled over; 0 where each arm keeps its own."""
    draws: int = 0
    """Of how many ways to take one seed of each arm it is the middle 95 %; 0: it is a t interval."""
    arms: int = 0
    """Over how many arms it is Fisher's interval of a correlation; 0: it is none."""
    one_a_seed: bool = False
    """Whether each seed gave one number, so that no arm has a variance of its own."""
    of_runs: bool = False
    """Whether it is wider by the intervals within runs, because seeds of an arm do not differ at all."""
    same_arms: bool = False
    """Whether the same arm was chosen on both sides in every seed, so that nothing is compared."""
    pictures: str = ""
    """What each run was measured on: "1,024 test images"."""

    @property
    def folds(self) -> int:
        """One more than its degrees of freedom, rounded down; of an interval without any, as many as it has draws."""
        return int(self.freedom) + 1 if self.freedom else self.arms or self.seeds

    @property
    def all_alike(self) -> bool:
        """Whether all seeds give the same number: the interval is that of a run, and more seeds do not narrow it."""
        return not (self.freedom or self.draws or self.arms or math.isnan(self.low))

    @property
    def without_more(self) -> str:
        """Why more seeds would give it no interval, or none that is narrower; empty where they would."""
        return NOTHING_COMPARED if self.same_arms else ALL_ALIKE if self.all_alike else ""

    @property
    def unit(self) -> str:
        """Of what more would narrow it."""
        return "arms" if self.arms else "seeds"

    @property
    def words(self) -> str:
        """How the interval was made and what each run was measured on, for the page."""
        return f"{self.made}; each run on {self.pictures}" if self.pictures else self.made

    @property
    def made(self) -> str:
        if self.same_arms:
            return f"no interval: the same arm is chosen on both sides in all {self.seeds} seeds"
        if math.isnan(self.low):
            return f"no interval: {self.seeds} of at least {LEAST_SEEDS} seeds"
        if self.arms:
            return f"Fisher's interval over {self.arms} arms, each the mean of at least {self.seeds} seeds"
        if self.all_alike:
            return f"all {self.seeds} seeds give the same number: the interval is that of one run"
        if self.draws:
            return f"middle 95 % of {self.draws} ways to take one of {self.seeds} seeds of each arm"
        how = f"variance pooled over {self.pooled} arms" if self.pooled else "each arm with its own variance"
        how = "one number a seed" if self.one_a_seed else how
        freedom = f"{self.freedom:.1f}".removesuffix(".0")
        more = "; wider by the runs' own, where all seeds of an arm are alike" if self.of_runs else ""
        return f"t interval over {self.seeds} seeds, {how} ({freedom} degrees of freedom){more}"


def contrast_over_seeds(weights: Mapping[str, float], values: Values, pool: Values) -> OverSeeds:
    """Σ wₐ · mean of arm a, with its interval. `pool` holds the arms that share a recipe with those of the contrast.

    >>> values = {"a": np.array([1.0, 1.1, 0.9]), "b": np.array([0.5, 0.6, 0.4])}
    >>> found = contrast_over_seeds({"a": 1, "b": -1}, values, values)
    >>> f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}], {found.freedom:.0f} degrees of freedom"
    '0.50 [0.27, 0.73], 4 degrees of freedom'
    """
    used = {arm: weight for arm, weight in weights.items() if weight}
    value = float(sum(weight * values[arm].mean() for arm, weight in used.items()))
    seeds = min(len(values[arm]) for arm in used)
    if seeds < LEAST_SEEDS or not math.isfinite(value):
        return OverSeeds(value, math.nan, math.nan, seeds, 0)
    counted = {arm: numbers for arm, numbers in pool.items() if len(numbers) > 1}
    if set(used) <= set(counted) and equal_variances(counted) and not noisier(set(used), counted):
        freedom = float(sum(len(numbers) - 1 for numbers in counted.values()))
        spread = sum(float(((numbers - numbers.mean()) ** 2).sum()) for numbers in counted.values()) / freedom
        error = math.sqrt(spread * sum(weight**2 / len(values[arm]) for arm, weight in used.items()))
        return OverSeeds(value, *ends(value, error, freedom), seeds, freedom, len(counted))
    shares = {arm: weight**2 * float(values[arm].var(ddof=1)) / len(values[arm]) for arm, weight in used.items()}
    total = sum(shares.values())
    if total == 0:
        return OverSeeds(value, value, value, seeds, 0)
    freedom = total**2 / sum(share**2 / (len(values[arm]) - 1) for arm, share in shares.items())
    return OverSeeds(value, *ends(value, math.sqrt(total), freedom), seeds, freedom)


def mean_over_seeds(numbers: np.ndarray) -> OverSeeds:
    """The mean of one number a seed: a t interval by itself."""
    return replace(contrast_over_seeds({"": 1.0}, {"": numbers}, {}), one_a_seed=True)


def rank_over_seeds(pairs: Sequence[np.ndarray]) -> OverSeeds:
    """Spearman's correlation over arms; `pairs` holds for each arm two numbers a seed.

    Trainings of different arms share nothing but the number of their seed, so every way to take one seed of each arm is
    as good a draw as any other. The value is that of the means over seeds.

    >>> arms = [np.array([[1.0, 10.0], [1.2, 11.0], [1.1, 12.0]]) * factor for factor in (1, 2, 3, 4)]
    >>> over_seeds = rank_over_seeds(arms)
    >>> over_seeds.value, over_seeds.low, over_seeds.draws
    (1.0, 1.0, 81)
    """
    seeds = min(len(each) for each in pairs)
    value = rank_correlation(*np.array([each.mean(0) for each in pairs]).T)
    if seeds < LEAST_SEEDS:
        return OverSeeds(value, math.nan, math.nan, seeds, 0)
    counts = [len(each) for each in pairs]
    ways: Iterable[Sequence[int]] = itertools.product(*map(range, counts))
    if math.prod(counts) > MOST_DRAWS:
        ways = np.random.default_rng(0).integers(counts, size=(MOST_DRAWS, len(counts))).tolist()
    draws = [rank_correlation(*np.array([each[at] for each, at in zip(pairs, way, strict=True)]).T) for way in ways]
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="closest_observation")
    return OverSeeds(value, float(low), float(high), seeds, 0, draws=len(draws))


def partial_over_arms(numbers: np.ndarray, held: np.ndarray, seeds: int) -> OverSeeds:
    """Pearson's correlation, over arms, of what a linear map of `held` (arm, factor) leaves of two `numbers` (arm, 2).

    Arms are the draws here, so more seeds do not narrow its interval: Fisher's z with as many draws less as are held.

    >>> line = np.arange(8.0)
    >>> partial_over_arms(np.column_stack([line, line**2]), line[:, None] ** 0, 3).value > 0.9
    True
    """
    table = np.column_stack([np.ones(len(numbers)), held])
    left = numbers - table @ np.linalg.lstsq(table, numbers, rcond=None)[0]
    value = float(np.corrcoef(left.T)[0, 1])
    count = len(numbers) - held.shape[1]
    if seeds < LEAST_SEEDS or count <= 3 or not math.isfinite(value):
        return OverSeeds(value, math.nan, math.nan, seeds, 0)
    return OverSeeds(value, *fisher(value, count), seeds, 0, arms=len(numbers))


def fisher(r: float, count: int) -> tuple[float, float]:
    """The 95 % interval of Pearson's r by Fisher's z.

    >>> [round(end, 2) for end in fisher(0.5, 28)]
    [0.16, 0.74]
    """
    z, half = math.atanh(max(min(r, 1 - 1e-12), -1 + 1e-12)), 1.959964 / math.sqrt(count - 3)
    return math.tanh(z - half), math.tanh(z + half)


def ends(value: float, error: float, freedom: float) -> tuple[float, float]:
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return value - half, value + half


def noisier(used: Collection[str], values: Values) -> bool:
    """Whether some arms vary more than the others together (F test): with 3 seeds Bartlett's test overlooks it.

    Four arms that vary 3.3 times as much as 16 others had intervals that covered .89 without this.
    """
    freedoms, squares = [0.0, 0.0], [0.0, 0.0]
    for arm, numbers in values.items():
        freedoms[arm in used] += len(numbers) - 1
        squares[arm in used] += float(((numbers - numbers.mean()) ** 2).sum())
    if not freedoms[0] or not squares[0]:
        return False
    ratio = (squares[1] / freedoms[1]) / (squares[0] / freedoms[0])
    return bool(fdtrc(freedoms[1], freedoms[0], ratio) < 2 * UNEQUAL)


def equal_variances(values: Values) -> bool:
    """Whether Bartlett's test lets the variances of these arms pass for equal. An arm that never varies does not.

    >>> equal_variances({"a": np.array([1.0, 2.0, 3.0]), "b": np.array([100.0, 300.0, 900.0])})
    False
    """
    sizes = np.array([len(numbers) - 1 for numbers in values.values()], float)
    variances = np.array([numbers.var(ddof=1) for numbers in values.values()])
    if len(values) < 2:
        return True
    if (variances == 0).any() or not np.isfinite(variances).all():
        return False
    whole = sizes.sum()
    pooled = (sizes * variances).sum() / whole
    statistic = whole * math.log(pooled) - (sizes * np.log(variances)).sum()
    correction = 1 + ((1 / sizes).sum() - 1 / whole) / (3 * (len(sizes) - 1))
    return bool(chdtrc(len(sizes) - 1, statistic / correction) >= UNEQUAL)
