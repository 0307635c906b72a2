"""How often do 95 % intervals hold the truth? Every kind of statistic a measure reports, on data whose truth is known.

Each case simulates 1,000 exams of 16 folds. Asked is 90–98 %. The measured share of a true 95 % errs by 0.7 points (one
standard error), so what is truly 92–97 % passes, and z = 1.96 or the jackknife of a minimum does not. Seeds are fixed.
`pytest -s` prints the shares.
"""

# numpy's stubs call an indexed array Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from eyechart.claims.judge import LEAST_IMAGES
from eyechart.intervals import (
    DRAWS,
    SMALL_DRAWS,
    bootstrap,
    bootstrap_weights,
    jackknife,
    leave_one_out_weights,
    small_size,
)

pytestmark = pytest.mark.all_draws

FOLDS = 16
Statistic = Callable[[np.ndarray], np.ndarray]
"""Sums (…, field) to a number (…)."""
Bounds = tuple[np.ndarray, np.ndarray]
Exams = tuple[np.ndarray, Statistic, float]
"""Fold sums (exam, fold, field), the statistic of their total, and the truth."""


def combine(weights: torch.Tensor, sums: np.ndarray) -> np.ndarray:
    return np.einsum("wf,ef...->we...", weights.numpy(), sums)


def jackknifed(sums: np.ndarray, statistic: Statistic) -> Bounds:
    weights = leave_one_out_weights(torch.ones(sums.shape[1]))
    return jackknife(statistic(sums.sum(1)), statistic(combine(weights, sums)))


def bootstrapped(sums: np.ndarray, statistic: Statistic) -> Bounds:
    lows, highs = [], []
    for some in np.array_split(sums, 10):  # 250 draws of all exams at once would take a gigabyte.
        draws = statistic(combine(bootstrap_weights(FOLDS, DRAWS, 0), some))
        small = statistic(combine(bootstrap_weights(FOLDS, SMALL_DRAWS, 1, small_size(FOLDS)), some))
        low, high = bootstrap(statistic(some.sum(1)), draws, small, FOLDS)
        lows.append(low)
        highs.append(high)
    return np.concatenate(lows), np.concatenate(highs)


def covered(name: str, truth: float, bounds: Bounds) -> float:
    low, high = bounds
    share = float(np.mean((low <= truth + 1e-12) & (truth - 1e-12 <= high)))
    print(f"\n{name:50s} {share:.3f}   mean width {np.mean(high - low):.3g}", end="")
    return share


def in_folds(images: np.ndarray) -> np.ndarray:
    """(exam, image, field) to sums (exam, fold, field), with the number of images as the last field."""
    exams, count, fields = images.shape
    sums = images.reshape(exams, FOLDS, count // FOLDS, fields).sum(2)
    return np.concatenate([sums, np.full((exams, FOLDS, 1), count // FOLDS)], axis=2)


def mean(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., -1]


def ratio(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


# Sums over images


def mean_over_images(count: int) -> Exams:
    """Skewed: a gamma of shape 2."""
    images = np.random.default_rng(0).gamma(2.0, size=(1000, count, 1))
    return in_folds(images), mean, 2.0


def accuracy(probability: float, count: int) -> Exams:
    images = np.random.default_rng(1).random((1000, count, 1)) < probability
    return in_folds(images.astype(float)), mean, probability


def attention_distance() -> Exams:
    """Bounded, and most images near the upper bound."""
    images = np.random.default_rng(2).beta(5, 1.5, size=(1000, 256, 1))
    return in_folds(images), mean, 5 / 6.5


def mean_of_ratios(spread: float) -> Exams:
    """Skip ratio: a mean of per-image ratios, which are skewed."""
    images = np.random.default_rng(3).lognormal(0.0, spread, size=(1000, 512, 1))
    return in_folds(images), mean, float(np.exp(spread**2 / 2))


def ratio_of_means() -> Exams:
    """Two quantities of the same images, correlated by .8."""
    generator = np.random.default_rng(4)
    normal = generator.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=(1000, 256))
    return in_folds(np.exp(0.7 * normal)), ratio, 1.0


def variance_ratio() -> Exams:
    """Feature-map variance over mean square: each image has its own scale, which is in both."""
    generator = np.random.default_rng(5)
    scale = generator.gamma(3.0, size=(1000, 256))
    variance = scale * generator.beta(2, 6, size=scale.shape)
    return in_folds(np.stack([variance, scale], axis=2)), ratio, 2 / 8


def log_variance_change() -> Exams:
    """By what factor a sub-layer changes the variance: a logarithm of a ratio of means."""
    generator = np.random.default_rng(6)
    before = generator.gamma(3.0, size=(1000, 256))
    after = before * generator.gamma(4.0, 0.2, size=before.shape)
    return in_folds(np.stack([after, before], axis=2)), lambda sums: np.log(ratio(sums)), float(np.log(0.8))


def interaction() -> Exams:
    """(class token − other tokens) × (early − late): a contrast of four skewed means of the same images."""
    generator = np.random.default_rng(7)
    shared = generator.normal(size=(1000, 256, 1))
    images = np.exp(np.array([0.6, 0.1, 0.2, 0.3]) + 0.5 * shared + 0.3 * generator.normal(size=(1000, 256, 4)))
    means = np.exp(np.array([0.6, 0.1, 0.2, 0.3]) + (0.5**2 + 0.3**2) / 2)
    contrast = np.array([1, -1, -1, 1])
    return in_folds(images), lambda sums: sums[..., :4] @ contrast / sums[..., 4], float(means @ contrast)


@pytest.mark.parametrize(
    "case",
    [
        partial(mean_over_images, 64),
        partial(mean_over_images, 1024),
        partial(accuracy, 0.5, 256),
        partial(accuracy, 0.9, 256),
        partial(accuracy, 0.97, 256),
        partial(accuracy, 0.97, 1024),
        attention_distance,
        partial(mean_of_ratios, 0.5),
        partial(mean_of_ratios, 1.0),
        ratio_of_means,
        variance_ratio,
        log_variance_change,
        interaction,
    ],
    ids=lambda case: name_of(case),
)
def test_sums_over_images(case: Callable[[], Exams]) -> None:
    sums, statistic, truth = case()
    assert 0.90 <= covered(name_of(case), truth, jackknifed(sums, statistic)) <= 0.98


def test_with_half_of_the_least_number_of_images_an_accuracy_is_not_covered() -> None:
    """Of a subject that names 95 % right: of 64 images in most folds of four is no error, intervals too narrow."""
    exams = ((images, *accuracy(0.95, images)) for images in (LEAST_IMAGES // 2, LEAST_IMAGES))
    few, least = (covered(f"accuracy .95, {n} images", truth, jackknifed(sums, mean)) for n, sums, mean, truth in exams)
    assert few < 0.90 <= least


def name_of(case: Callable[[], Exams]) -> str:
    return f"{case.func.__name__}{case.args}" if isinstance(case, partial) else getattr(case, "__name__", str(case))


# Minibatch CKA


def unbiased_hsic(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Of features (…, image, channel), by the formula of Song et al.; not the code of the measure."""
    images = one.shape[-2]
    hollow = 1 - np.eye(images)
    first, second = one @ one.swapaxes(-1, -2) * hollow, two @ two.swapaxes(-1, -2) * hollow
    trace = (first * second).sum((-1, -2))
    sums = first.sum((-1, -2)) * second.sum((-1, -2)) / ((images - 1) * (images - 2))
    cross = 2 / (images - 2) * (first.sum(-1) * second.sum(-1)).sum(-1)
    return (trace + sums - cross) / (images * (images - 3))


def cka_exams(truths: list[float], exams: int = 1000, images: int = 32, seed: int = 0) -> np.ndarray:
    """HSIC sums (exam, fold, [xx, then xy and yy for each truth]); a fold is one block of `images`.

    Unbiased HSIC with a linear kernel estimates ‖cov(x, y)‖². For y = √c·x + √(1−c)·e, with e like x and independent
    of it, cov(x, y) = √c·cov(x) and cov(y) = cov(x); so CKA = c, at every block size. All y share one e: two subjects
    examined on the same images.
    """
    generator = np.random.default_rng(seed)
    spectrum = 1 / np.sqrt(np.arange(1, 9))
    parts = []
    for _ in range(exams // 100):
        x = generator.normal(size=(100, FOLDS, images, 8)) * spectrum
        e = generator.normal(size=x.shape) * spectrum
        columns = [unbiased_hsic(x, x)]
        for c in truths:
            y = np.sqrt(c) * x + np.sqrt(1 - c) * e
            columns += [unbiased_hsic(x, y), unbiased_hsic(y, y)]
        parts.append(np.stack(columns, axis=2))
    return np.concatenate(parts)


def cka(sums: np.ndarray, which: int = 0) -> np.ndarray:
    return sums[..., 1 + 2 * which] / np.sqrt(sums[..., 0] * sums[..., 2 + 2 * which])


TRUTHS = [0.0, 0.3, 0.8, 0.97]


@pytest.fixture(scope="module")
def hsic() -> np.ndarray:
    return cka_exams(TRUTHS)


@pytest.mark.parametrize("which", range(len(TRUTHS)), ids=[f"truth {truth}" for truth in TRUTHS])
def test_cka(hsic: np.ndarray, which: int) -> None:
    bounds = jackknifed(hsic, partial(cka, which=which))
    assert 0.90 <= covered(f"CKA {TRUTHS[which]}, blocks of 32", TRUTHS[which], bounds) <= 0.98


@pytest.mark.parametrize("which", range(2), ids=["truth 0.3", "truth 0.97"])
def test_cka_of_the_smallest_blocks(which: int) -> None:
    sums = cka_exams([0.3, 0.97], images=8, seed=1)
    truth = [0.3, 0.97][which]
    assert 0.90 <= covered(f"CKA {truth}, blocks of 8", truth, jackknifed(sums, partial(cka, which=which))) <= 0.98


def test_difference_of_ckas_is_covered_jointly_and_much_narrower() -> None:
    sums = cka_exams([0.80, 0.78], seed=2)
    low, high = jackknifed(sums, lambda each: cka(each, 0) - cka(each, 1))
    assert 0.90 <= covered("difference of two CKAs, jointly", 0.02, (low, high)) <= 0.98
    separate = sum(np.mean(np.subtract(*jackknifed(sums, partial(cka, which=which))[::-1])) for which in (0, 1))
    assert separate > 5 * np.mean(high - low)


def test_mean_of_a_cka_table(hsic: np.ndarray) -> None:
    """Uniformity, block contrast: sums and differences of several CKAs."""

    def contrast(sums: np.ndarray) -> np.ndarray:
        return (cka(sums, 3) + cka(sums, 2)) / 2 - (cka(sums, 1) + cka(sums, 0)) / 2

    bounds = jackknifed(hsic, contrast)
    assert 0.90 <= covered("block contrast of CKAs", (0.97 + 0.8 - 0.3) / 2, bounds) <= 0.98


# Statistics that are not smooth: of tables of values, each with standard error 1


def table(truth: np.ndarray, covariance: np.ndarray, exams: int = 1000, seed: int = 0) -> np.ndarray:
    """Fold sums (exam, fold, value): their total estimates `truth` with the given covariance."""
    factor = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(truth)))
    noise = np.random.default_rng(seed).normal(size=(exams, FOLDS, len(truth))) @ factor.T
    counts = np.ones((exams, FOLDS, 1))
    return np.concatenate([truth + np.sqrt(FOLDS) * noise, counts], axis=2)


def means(sums: np.ndarray) -> np.ndarray:
    return sums[..., :-1] / sums[..., -1:]


def equal_correlation(size: int, correlation: float) -> np.ndarray:
    return np.eye(size) * (1 - correlation) + correlation


def smooth_noise(size: int, length: float = 2.0) -> np.ndarray:
    """Neighbouring layers err alike."""
    place = np.arange(size)
    return np.exp(-0.5 * ((place[:, None] - place) / length) ** 2)


def lowest(sums: np.ndarray) -> np.ndarray:
    return means(sums).min(-1)


def highest(sums: np.ndarray) -> np.ndarray:
    return means(sums).max(-1)


def lowest_quarter(sums: np.ndarray) -> np.ndarray:
    heads = np.sort(means(sums), axis=-1)
    return heads[..., : max(1, heads.shape[-1] // 4)].mean(-1)


def lag(sums: np.ndarray, rows: int = 6) -> np.ndarray:
    """Mean over rows of the depth of the highest column."""
    values = means(sums)
    values = values.reshape(*values.shape[:-1], rows, -1)
    return (values.argmax(-1) / (values.shape[-1] - 1)).mean(-1)


def rank_trend(sums: np.ndarray) -> np.ndarray:
    """Spearman's correlation with depth."""
    values = means(sums)
    ranks = values.argsort(-1).argsort(-1)
    size = values.shape[-1]
    return 1 - 6 * ((ranks - np.arange(size)) ** 2).sum(-1) / (size * (size**2 - 1))


def share_below(sums: np.ndarray) -> np.ndarray:
    """Local heads, or the part of depth where one subject is above another."""
    return (means(sums) < 0).mean(-1)


def difference_of_highest(sums: np.ndarray) -> np.ndarray:
    values = means(sums)
    half = values.shape[-1] // 2
    return values[..., :half].max(-1) - values[..., half:].max(-1)


def companion_of_highest(sums: np.ndarray) -> np.ndarray:
    """What the farthest quarter of heads gives to the class token: chosen by one value, read in another."""
    distance, mass = np.split(means(sums), 2, axis=-1)
    chosen = distance.argsort(-1)[..., -(distance.shape[-1] // 4) :]
    return np.take_along_axis(mass, chosen, -1).mean(-1)


def sign_test(sums: np.ndarray) -> np.ndarray:
    """z of the number of sub-layers that go down, corrected for continuity."""
    steps = means(sums)
    excess = (steps < 0).sum(-1) - steps.shape[-1] / 2
    return np.sign(excess) * np.maximum(np.abs(excess) - 0.5, 0) / (np.sqrt(steps.shape[-1]) / 2)


def bump(columns: int, peak: float, curvature: float) -> np.ndarray:
    return -curvature * (np.arange(columns) - peak) ** 2


def lag_truth(curvature: float) -> np.ndarray:
    return np.concatenate([bump(12, peak, curvature) for peak in np.linspace(1.2, 5.3, 6)])


SPACED = np.arange(12.0)
WOBBLING = np.array([3.0, 9, 2, 5, 1, 8, 6, 12, 7, 4, 11, 10]) / 2
COMPANIONS = np.concatenate([SPACED / 2, 10 - SPACED])
ALIKE = equal_correlation(12, 0.5)
"""A picture that makes one head look far makes the others look far as well."""
LAG_NOISE = np.kron(equal_correlation(6, 0.5), smooth_noise(12))
CKA_NOISE = np.kron(smooth_noise(4), smooth_noise(16))


def cka_ridge(curvature: float) -> np.ndarray:
    return (bump(4, 1.3, curvature)[:, None] + bump(16, 5.0, curvature)).ravel()


def two_ridges(curvature: float) -> np.ndarray:
    return np.concatenate([bump(32, 10, curvature) + 2, bump(32, 20, curvature)])


Case = tuple[str, Statistic, np.ndarray, np.ndarray]
NOT_SMOOTH: list[Case] = [
    ("lowest of 12 heads, 4 s.e. apart", lowest, SPACED * 4, ALIKE),
    ("lowest of 12 heads, 1 s.e. apart", lowest, SPACED, ALIKE),
    ("lowest of 12 heads, 1/2 s.e. apart", lowest, SPACED / 2, ALIKE),
    ("lowest of 12 heads, all equal", lowest, np.zeros(12), ALIKE),
    ("highest of 64 CKAs, peaked", highest, cka_ridge(0.3), CKA_NOISE),
    ("highest of 64 CKAs, flat", highest, cka_ridge(0.02), CKA_NOISE),
    ("difference of two highest, peaked", difference_of_highest, two_ridges(0.5), smooth_noise(64)),
    ("difference of two highest, flat", difference_of_highest, two_ridges(0.05), smooth_noise(64, 4)),
    ("lag map, flat", lag, lag_truth(0.05), LAG_NOISE),
    ("lag map, less flat", lag, lag_truth(0.2), LAG_NOISE),
    ("lag of one layer, flat", partial(lag, rows=1), bump(12, 4.2, 0.1), smooth_noise(12)),
    ("class-token mass of the farthest heads", companion_of_highest, COMPANIONS, np.kron(np.eye(2), ALIKE)),
    ("rank correlation with depth, little resolved", rank_trend, WOBBLING, np.eye(12)),
    ("share of 36 heads below, 1/4 s.e. apart", share_below, np.linspace(-4, 6, 36), equal_correlation(36, 0.5)),
]
FEW_STEPS: list[tuple[str, Statistic, np.ndarray, np.ndarray, float]] = [
    ("lag map, peaked", lag, lag_truth(2.0), LAG_NOISE, 1),
    ("rank correlation with depth, 1 s.e. a block", rank_trend, SPACED, np.eye(12), 2),
    ("share of 12 heads below, 1 s.e. apart", share_below, SPACED - 4.4, ALIKE, 1),
    ("sign test over 12 sub-layers", sign_test, WOBBLING - 4, np.eye(12), 2 * 5.5 / np.sqrt(3)),
]


def exact(statistic: Statistic, truth: np.ndarray) -> float:
    return float(statistic(np.append(truth, 1.0)))


@pytest.mark.parametrize(("name", "statistic", "truth", "noise"), NOT_SMOOTH, ids=[case[0] for case in NOT_SMOOTH])
def test_not_smooth(name: str, statistic: Statistic, truth: np.ndarray, noise: np.ndarray) -> None:
    share = covered(name, exact(statistic, truth), bootstrapped(table(truth, noise), statistic))
    assert 0.90 <= share <= 0.98


@pytest.mark.parametrize(
    ("name", "statistic", "truth", "noise", "span"), FEW_STEPS, ids=[case[0] for case in FEW_STEPS]
)
def test_few_steps(name: str, statistic: Statistic, truth: np.ndarray, noise: np.ndarray, span: float) -> None:
    """A statistic with few values has intervals of a step or two, and they hold the truth more often than asked.

    They still say something: they are narrower than half of what is possible. The jackknife, also narrow, covers .77 of
    the lag maps and .81 of the shares.
    """
    low, high = bootstrapped(table(truth, noise), statistic)
    assert covered(name, exact(statistic, truth), (low, high)) >= 0.90
    assert np.mean(high - low) < span / 2


@pytest.mark.parametrize("noise", [np.eye(12), ALIKE], ids=["independent", "alike"])
@pytest.mark.parametrize("apart", [0.25, 1.0, 4.0])
def test_the_lowest_quarter_of_heads_is_smooth_enough_for_the_jackknife(apart: float, noise: np.ndarray) -> None:
    """Unless all heads are equal within a small part of their standard errors (.44 and .86)."""
    bounds = jackknifed(table(SPACED * apart, noise), lowest_quarter)
    assert 0.90 <= covered(f"lowest quarter, {apart} s.e. apart", exact(lowest_quarter, SPACED * apart), bounds) <= 0.98


# What is not used, and why


def test_z_quantiles_do_not_cover() -> None:
    """With four folds 1.96 standard errors cover .85 of the means, t(3) = 3.18 of them .95."""
    values = np.random.default_rng(0).normal(size=(4000, 4, 1))
    sums = np.concatenate([values, np.ones_like(values)], axis=2)
    low, high = jackknifed(sums, mean)
    shorter = (high - low) / 2 * stats.norm.ppf(0.975) / stats.t.ppf(0.975, 3)
    middle = (high + low) / 2
    assert 0.90 <= covered("mean of 4 folds, t", 0, (low, high)) <= 0.98
    assert covered("mean of 4 folds, z", 0, (middle - shorter, middle + shorter)) < 0.90


def test_the_jackknife_of_an_extreme_does_not_cover() -> None:
    truth = cka_ridge(0.02)
    bounds = jackknifed(table(truth, CKA_NOISE), highest)
    assert covered("highest of 64 CKAs, flat, jackknife", exact(highest, truth), bounds) < 0.85


def test_percentiles_of_an_extreme_do_not_cover() -> None:
    sums = table(np.zeros(12), ALIKE)
    draws = lowest(combine(bootstrap_weights(FOLDS, DRAWS), sums))
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    assert covered("lowest of 12 equal heads, percentiles", 0.0, (low, high)) < 0.60


def test_many_equal_and_independent_values_are_the_known_limit() -> None:
    """Said in `bootstrap`: if this one day covers, say so there."""
    share = covered("lowest of 48 equal independent heads", 0.0, bootstrapped(table(np.zeros(48), np.eye(48)), lowest))
    assert 0.70 < share < 0.90
