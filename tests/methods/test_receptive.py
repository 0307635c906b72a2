"""Receptive fields: gradients against sign vectors written out, radii against discs, windows by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from eyechart.methods.receptive import (
    RINGS,
    centres_of_mass,
    exact_map,
    fixed_weights,
    largest_step,
    persistence,
    projected_map,
    radius_of_share,
    ring_masses,
    ring_width,
    summary,
    window_shares,
)


def features_of(images: torch.Tensor) -> torch.Tensor:
    """Three channels that see different pixels, without a line through 0."""
    weights = torch.randn(3, 3 * 4 * 5, generator=torch.Generator().manual_seed(1))
    return (images.flatten(1) @ weights.T).tanh()


def jacobian(images: torch.Tensor) -> torch.Tensor:
    """(image, channel, colour, y, x), an image at a time."""
    each = [torch.autograd.functional.jacobian(lambda x: features_of(x[None])[0], image) for image in images]
    return torch.stack([torch.as_tensor(one) for one in each])


@pytest.fixture
def images() -> torch.Tensor:
    return 0.1 * torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))


def test_exact_is_the_mean_over_channels_and_colours(images: torch.Tensor) -> None:
    expected = jacobian(images).abs().mean((1, 2))
    images.requires_grad_()
    torch.testing.assert_close(exact_map(features_of(images), images), expected)


def test_all_sign_vectors_together_give_the_root_mean_square(images: torch.Tensor) -> None:
    expected = jacobian(images).square().mean((1, 2)).sqrt()
    signs = torch.tensor(list(itertools.product((-1, 1), repeat=3)))[:, None].expand(-1, 2, -1)
    images.requires_grad_()
    torch.testing.assert_close(projected_map(features_of(images), images, signs), expected)


def test_channels_of_a_layer_norm_are_seen_although_their_sum_is_constant(images: torch.Tensor) -> None:
    images.requires_grad_()
    features = nn.functional.layer_norm(features_of(images), (3,))
    summed = torch.autograd.grad(features.sum(), images, retain_graph=True)[0]
    signs = torch.tensor([1, -1, 1]).expand(1, 2, 3)
    assert summed.abs().max() < 1e-4
    assert projected_map(features, images, signs).max() > 0.1


def test_what_does_not_depend_on_the_picture_has_an_empty_map(images: torch.Tensor) -> None:
    images.requires_grad_()
    assert exact_map(torch.ones(2, 3), images).abs().max() == 0


def test_weights_ask_for_gradients_again_afterwards() -> None:
    module = nn.Linear(2, 2)
    module.bias.requires_grad_(False)
    with fixed_weights(module):
        assert not module.weight.requires_grad
    assert module.weight.requires_grad
    assert not module.bias.requires_grad


def test_half_of_a_disc_lies_within_its_radius_over_root_two() -> None:
    y, x = np.indices((64, 64)) + 0.5
    disc = torch.tensor(np.hypot(y - 30, x - 35) < 20)[None].double()
    rings = ring_masses(disc, torch.tensor([[30.0, 35.0]]))
    width = ring_width((64, 64))
    assert float(rings.sum()) == pytest.approx(float(disc.sum()))
    assert float(radius_of_share(rings, torch.tensor([width]))[0]) == pytest.approx(20 / math.sqrt(2), abs=0.15)


def test_pixels_are_cut_by_rings() -> None:
    """A uniform patch of 4×4 pixels holds half of its mass within sqrt(8/π) pixels."""
    patch = torch.zeros(1, 32, 32).double()
    patch[0, 16:20, 16:20] = 1
    rings = ring_masses(patch, torch.tensor([[18.0, 18.0]]))
    assert rings.shape == (1, RINGS)
    width = torch.tensor([ring_width((32, 32))])
    assert float(radius_of_share(rings, width)[0]) == pytest.approx(math.sqrt(8 / math.pi), abs=0.03)


def test_nothing_has_no_radius() -> None:
    assert torch.isnan(radius_of_share(torch.zeros(1, 4), torch.tensor([1.0]))[0])


def test_a_window_takes_parts_of_pixels() -> None:
    maps = torch.arange(16.0).reshape(1, 4, 4)
    share = window_shares(maps, torch.tensor([[1.0, 2.0]]), (2.0, 1.0))
    assert float(share) == pytest.approx(0.5 * (1 + 5) + 0.5 * (2 + 6))
    assert float(window_shares(maps, torch.tensor([[0.0, 0.0]]), (2.0, 2.0))) == 0  # hangs over the corner: pixel 0


def test_the_centre_of_mass() -> None:
    maps = torch.zeros(2, 4, 6)
    maps[0, 1, 2], maps[0, 1, 4] = 1, 3
    assert centres_of_mass(maps).tolist() == [[1.5, 4.0], [2.0, 3.0]]


def test_the_largest_step_is_read_at_common_depths() -> None:
    gradual, jump = np.linspace(0, 1, 9), np.repeat([0.0, 1.0], [5, 4])
    assert largest_step(gradual, 5) == pytest.approx(1 / 4)
    assert largest_step(jump, 9) == 1
    assert math.isnan(largest_step(-gradual, 9))  # never grows


def test_persistence_is_the_correlation_with_the_map_before() -> None:
    one = np.random.default_rng(0).random((4, 4))
    maps = np.stack([one, 3 * one + 1, -one, one.T])
    found = persistence(maps, [("a", "block"), ("a", "block"), ("a", "block"), ("b", "block")])
    assert found[1] == pytest.approx(1)
    assert found[2] == pytest.approx(-1)
    assert np.isnan(found[[0, 3]]).all()


def test_maps_are_read_about_their_cell_and_about_their_own_centre() -> None:
    """A field of one pixel at the corner of its cell, as padded strides make it, is not a wide one."""
    maps = torch.zeros(1, 32, 32)
    maps[0, 16, 16] = 1
    kept = summary(maps, (4, 4))  # the middle cell: rows and columns 16 to 24
    radii = radius_of_share(kept["ring"][0], torch.tensor(ring_width((32, 32))))
    assert radii.tolist() == pytest.approx([3.5 * math.sqrt(2), math.sqrt(0.5 / math.pi)], abs=0.15)
    assert kept["own"][0].tolist() == [1, 1]
