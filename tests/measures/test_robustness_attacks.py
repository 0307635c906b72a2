"""Attacks on models whose worst case is known in closed form, and pictures with patches missing or moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from eyechart.measures.robustness.attacks import Strength, fgsm, gradient_of, pgd, withstands
from eyechart.methods.patches import cells, dropped, orders, shuffled

EPSILON = 0.03


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def linear() -> tuple[Tensor, Tensor, Tensor]:
    """Weights of two logits, pictures well inside 0 … 1, and the class each is given."""
    weights = torch.randn(2, 3 * 6 * 6, generator=dice())
    pixels = 0.3 + 0.4 * torch.rand(64, 3, 6, 6, generator=dice(1))
    return weights, pixels, (pixels.flatten(1) @ weights.T).argmax(1)


def logits_of(weights: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda pixels: pixels.flatten(1) @ weights.T


def margin(weights: Tensor, pixels: Tensor, targets: Tensor) -> Tensor:
    """How much higher the logit of the target is than the other one."""
    found = pixels.flatten(1) @ weights.T
    return found.gather(1, targets[:, None])[:, 0] - found.gather(1, 1 - targets[:, None])[:, 0]


def test_fgsm_moves_every_pixel_by_epsilon_and_raises_the_loss(linear: tuple[Tensor, Tensor, Tensor]) -> None:
    weights, pixels, targets = linear
    find = gradient_of(logits_of(weights))
    logits, gradient = find(pixels, targets)
    moved = fgsm(pixels, gradient, EPSILON)
    assert torch.allclose((moved - pixels).abs(), torch.tensor(EPSILON), atol=1e-6)
    before, after = (torch.nn.functional.cross_entropy(find(at, targets)[0], targets) for at in (pixels, moved))
    assert after > before
    assert torch.equal(fgsm(pixels, gradient, 0.0), pixels)
    edge = fgsm(torch.ones_like(pixels), gradient, EPSILON)
    assert edge.max() <= 1
    assert torch.equal(logits, pixels.flatten(1) @ weights.T)


def test_the_direction_is_the_cross_entropy_s_but_does_not_vanish() -> None:
    weights = torch.randn(4, 12, generator=dice(), dtype=torch.float64)
    pixels = torch.rand(5, 3, 2, 2, generator=dice(), dtype=torch.float64).requires_grad_()
    targets = torch.tensor([0, 1, 2, 3, 0])
    loss = torch.nn.functional.cross_entropy(pixels.flatten(1) @ weights.T, targets, reduction="sum")
    (plain,) = torch.autograd.grad(loss, pixels)
    _, found = gradient_of(logits_of(weights))(pixels, targets)
    ratio = (plain / found).flatten(1)
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-3)
    assert (ratio > 0).all()
    sure = gradient_of(lambda at: 1000 * at.flatten(1) @ weights.T.float())
    best = (pixels.detach().flatten(1) @ weights.T).argmax(1)
    assert (sure(pixels.detach().float(), best)[1].abs() > 1).all()


def test_on_a_linear_model_both_reach_the_closed_form_worst_case(linear: tuple[Tensor, Tensor, Tensor]) -> None:
    """The margin of a linear model falls by ε Σ|w₀ − w₁| at most."""
    weights, pixels, targets = linear
    find = gradient_of(logits_of(weights))
    worst = margin(weights, pixels, targets) - EPSILON * (weights[0] - weights[1]).abs().sum()
    once = fgsm(pixels, find(pixels, targets)[1], EPSILON)
    assert torch.allclose(margin(weights, once, targets), worst, atol=1e-4)
    start = 2 * torch.rand(pixels.shape, generator=dice(3)) - 1
    moved, fooled = pgd(find, pixels, targets, Strength(EPSILON, EPSILON / 4, 10), start)
    assert 0 < int(fooled.sum()) < 64
    assert torch.equal(fooled, worst < 0)
    standing = ~fooled
    assert torch.allclose(margin(weights, moved, targets)[standing], worst[standing], atol=1e-4)
    assert (margin(weights, moved, targets)[fooled] < 0).all()


def test_pgd_stays_in_the_ball_and_in_the_picture(linear: tuple[Tensor, Tensor, Tensor]) -> None:
    weights, pixels, targets = linear
    pixels = (3 * pixels - 1).clamp(0, 1)  # many values at 0 and 1
    start = 2 * torch.rand(pixels.shape, generator=dice(3)) - 1
    find = gradient_of(logits_of(weights))
    moved, _ = pgd(find, pixels, targets, Strength(0.1, 0.5, 7), start)
    assert (moved - pixels).abs().max() <= 0.1 + 1e-6
    assert moved.min() >= 0
    assert moved.max() <= 1
    still, fooled = pgd(find, pixels, targets, Strength(0.0, 0.1, 3), start)
    assert torch.equal(still, pixels)
    assert torch.equal(fooled, find(pixels, targets)[0].argmax(1) != targets)


def test_what_falls_in_a_small_ball_has_fallen_in_a_large_one(linear: tuple[Tensor, Tensor, Tensor]) -> None:
    weights, pixels, targets = linear
    asked: list[int] = []

    def counting(at: Tensor) -> Tensor:
        asked.append(len(at))
        return at.flatten(1) @ weights.T

    strengths = [Strength(epsilon, epsilon / 4, 10) for epsilon in (0.0, 0.01, 0.03, 0.1)]
    known = torch.ones(64, 4, dtype=torch.bool)
    known[5, 2] = False  # misread by another attack within the third ball
    found = withstands(gradient_of(counting), pixels, targets, strengths, known, dice())
    worst = [
        margin(weights, pixels, targets) - each.epsilon * (weights[0] - weights[1]).abs().sum() for each in strengths
    ]
    expected = torch.stack(worst, dim=1) > 0
    expected[5, 2:] = False
    assert torch.equal(found, expected)
    assert sum(asked) < 0.8 * 64 * 11 * 4  # the fallen are not attacked again


def test_a_misreading_that_a_larger_step_would_miss_still_counts() -> None:
    """A narrow place of misreading at .51: small steps find it, large ones jump over it."""

    def narrow(at: Tensor) -> Tensor:
        value = at.flatten(1)[:, 0]
        return torch.stack([0 * value, 1 - ((value - 0.51) / 0.005) ** 2], dim=1)

    find, pixels, targets = gradient_of(narrow), torch.full((1, 1, 1, 1), 0.5), torch.tensor([0])
    small, large = Strength(0.02, 0.005, 10), Strength(0.4, 0.13, 4)
    known = torch.ones(1, 1, dtype=torch.bool)
    assert not withstands(find, pixels, targets, [small], known, dice()).any()
    assert withstands(find, pixels, targets, [large], known, dice()).all()
    assert not withstands(find, pixels, targets, [small, large], known.expand(1, 2), dice()).any()


def test_what_is_not_a_number_does_not_withstand() -> None:
    """Once an attack has led out of a format's range, `argmax` would go on naming class 0, rightly or not."""

    def overflowing(at: Tensor) -> Tensor:
        value = at.flatten(1)[:, 0]
        return torch.stack([torch.where(value < 0.5, value, torch.nan), 0 * value - 1], dim=1)

    known = torch.ones(1, 1, dtype=torch.bool)
    pixels, targets = torch.full((1, 1, 1, 1), 0.4), torch.tensor([0])
    start = torch.ones(1, 1, 1, 1)
    _, fooled = pgd(gradient_of(overflowing), pixels, targets, Strength(0.2, 0.05, 4), start)
    assert fooled.all()
    assert withstands(gradient_of(overflowing), pixels, targets, [Strength(0.05, 0.01, 4)], known, dice()).all()


def test_dropped_patches_have_the_mean_colour_and_the_rest_stays() -> None:
    pixels = torch.rand(5, 3, 32, 48, generator=dice())
    order = orders(5, 8, dice(1))
    found = dropped(pixels, order, 3 / 8)
    changed = (found != pixels).any(1)
    grid = cells(32, 48, 8)
    for image in range(5):
        gone = set(order[image, :24].tolist())
        assert set(grid[changed[image]].tolist()) == gone
        inside = torch.isin(grid, order[image, :24])
        mean = pixels[image].mean((1, 2))
        assert torch.allclose(found[image][:, inside], mean[:, None])
    assert torch.equal(dropped(pixels, order, 0.0), pixels)
    more = (dropped(pixels, order, 5 / 8) != pixels).any(1)
    assert bool((more | ~changed).all())  # what was missing is missing


def test_shuffled_patches_are_the_same_patches() -> None:
    pixels = torch.rand(4, 3, 32, 40, generator=dice())
    order = orders(4, 4, dice(1))
    found = shuffled(pixels, order)
    for image, place in ((0, 0), (3, 7)):
        from_cell = int(order[image, place])
        (y, x), (there, across) = divmod(place, 4), divmod(from_cell, 4)
        expected = pixels[image, :, there * 8 : there * 8 + 8, across * 10 : across * 10 + 10]
        assert torch.equal(found[image, :, y * 8 : y * 8 + 8, x * 10 : x * 10 + 10], expected)
    assert torch.equal(found.flatten(2).sort(2).values, pixels.flatten(2).sort(2).values)
    same = torch.arange(16).expand(4, 16)
    assert torch.equal(shuffled(pixels, same), pixels)
    odd = torch.rand(1, 3, 33, 33, generator=dice())
    assert torch.equal(shuffled(odd, orders(1, 2, dice()))[..., 32, :], odd[..., 32, :])
