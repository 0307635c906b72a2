"""Ridge readouts against the textbook formula written out in numpy (SPEC Appendix A, M8/M14)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eyechart.methods import ridge
from eyechart.methods.ridge import PENALTIES, Moments, choose, dual, fit, primal, solve, squared_errors

CLASSES = 4


def data(count: int, width: int, seed: int = 0, offset: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of two probes (image, 2, width), correlated and of unlike scale, and labels they tell a little about."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    centres = torch.randn(CLASSES, width, generator=torch.Generator().manual_seed(99))
    mix = torch.randn(width, width, generator=torch.Generator().manual_seed(98)) / width**0.5
    x = centres[labels] + torch.randn(count, width, generator=generator) @ mix
    x = x * torch.logspace(-2, 2, width) + offset
    return torch.stack([x, x.flip(1) ** 3 / 10 if offset == 0 else x.flip(1)], dim=1), labels


def reference(x: np.ndarray, labels: np.ndarray, penalty: float, test: np.ndarray) -> np.ndarray:
    """Scores of the textbook ridge: standardise, centre the targets, solve the normal equations."""
    mean, scale = x.mean(0), x.std(0)
    z, y = (x - mean) / scale, 2.0 * np.eye(CLASSES)[labels] - 1
    weights = np.linalg.solve(z.T @ z + len(x) * penalty * np.eye(x.shape[1]), z.T @ (y - y.mean(0)))
    return np.asarray((test - mean) / scale @ weights + y.mean(0))


@pytest.mark.parametrize(("count", "width"), [(200, 12), (20, 50)])
@pytest.mark.parametrize("penalty", [1e-3, 0.3])
def test_fit_equals_the_reference(count: int, width: int, penalty: float) -> None:
    x, labels = data(count, width)
    test, _ = data(30, width, seed=1)
    readout = fit(Moments.of(x, labels, CLASSES), torch.tensor([penalty, penalty], dtype=torch.float64))
    for probe in range(2):
        expected = reference(x[:, probe].double().numpy(), labels.numpy(), penalty, test[:, probe].double().numpy())
        np.testing.assert_allclose(readout.scores(test)[:, probe].numpy(), expected, rtol=1e-7, atol=1e-8)


def test_moments_of_parts_are_those_of_the_whole() -> None:
    x, labels = data(60, 7)
    parts = [Moments.of(x[rows], labels[rows], CLASSES) for rows in (slice(0, 11), slice(11, 40), slice(40, 60))]
    whole, joined = Moments.of(x, labels, CLASSES), parts[2] + (parts[0] + parts[1])
    for name in ("products", "sums", "counts"):
        torch.testing.assert_close(getattr(joined, name), getattr(whole, name), rtol=1e-13, atol=1e-13)


def test_squared_errors_from_sums_are_those_of_the_scores() -> None:
    (x, labels), (other, other_labels) = data(80, 10), data(50, 10, seed=5)
    found = squared_errors(Moments.of(x, labels, CLASSES), Moments.of(other, other_labels, CLASSES))
    y = 2.0 * np.eye(CLASSES)[other_labels.numpy()] - 1
    for probe in range(2):
        for column, penalty in enumerate(PENALTIES.tolist()):
            scores = reference(x[:, probe].double().numpy(), labels.numpy(), penalty, other[:, probe].double().numpy())
            expected = ((y - scores) ** 2).sum(1).mean()
            assert float(found[probe, column]) == pytest.approx(expected, rel=1e-7)


def test_the_chosen_penalty_is_large_for_noise_and_small_for_signal() -> None:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(120) % CLASSES
    clear = torch.nn.functional.one_hot(labels, CLASSES) + 0.01 * torch.randn(120, CLASSES, generator=generator)
    noise = torch.randn(120, CLASSES, generator=generator)
    x = torch.stack([clear, noise], dim=1)
    even = torch.arange(120) % 8 < 4
    one, two = Moments.of(x[even], labels[even], CLASSES), Moments.of(x[~even], labels[~even], CLASSES)
    signal, none = choose(one, two)
    assert signal < 0.01 < 3 < none


@pytest.mark.parametrize(("count", "width"), [(30, 80), (80, 30)])
def test_primal_equals_dual(count: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = data(count, width)
    z = (x[:, 0].double() - x[:, 0].double().mean(0)) / x[:, 0].double().std(0)
    y = 2 * torch.nn.functional.one_hot(labels, CLASSES).double() - 1
    expected = np.linalg.solve((z.T @ z + 5.0 * torch.eye(width)).numpy(), (z.T @ y).numpy())
    for form in (primal, dual, solve):
        np.testing.assert_allclose(form(z, y, 5.0).numpy(), expected, rtol=1e-8, atol=1e-11)
    used = "dual" if count < width else "primal"
    monkeypatch.setattr(ridge, used, lambda *_: "this one")
    assert solve(z, y, 5.0) == "this one"


@pytest.mark.parametrize(("count", "width"), [(40, 60), (200, 12)])
def test_streamed_fit_agrees_with_the_dual(count: int, width: int) -> None:
    """Sums over images against the kernel form, which never builds a feature-by-feature matrix."""
    x, labels = data(count, width)
    readout = fit(Moments.of(x, labels, CLASSES), torch.tensor([0.1, 0.1], dtype=torch.float64))
    one = x[:, 0].double()
    z = (one - one.mean(0)) / one.std(0, correction=0)
    y = 2 * torch.nn.functional.one_hot(labels, CLASSES).double() - 1
    torch.testing.assert_close(readout.weights[0], dual(z, y - y.mean(0), 0.1 * count), rtol=1e-8, atol=1e-10)


def test_large_offsets_and_constant_features_do_no_harm() -> None:
    x, labels = data(300, 6)
    x = x / x.std(0)
    shifted = torch.cat([x.double() + 1e4, torch.full((300, 2, 2), 7.3, dtype=torch.float64)], dim=-1)
    penalty = torch.tensor([0.01, 0.01], dtype=torch.float64)
    plain, other = (fit(Moments.of(each, labels, CLASSES), penalty) for each in (x.double(), shifted))
    torch.testing.assert_close(other.scores(shifted), plain.scores(x), rtol=1e-5, atol=1e-5)
    assert float(other.weights[:, -2:].abs().max()) == 0
