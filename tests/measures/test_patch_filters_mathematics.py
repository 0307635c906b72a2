"""Principal components and frequencies of filters whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from eyechart.measures.patch_filters.filters import (
    principal_components,
    random_centroids,
    smoothness,
    spectral_centroid,
    without_mean,
)


def cosine_basis(side: int) -> torch.Tensor:
    """The tiles of a 2-D cosine transform in one colour, orthonormal: (side², 3, side, side)."""
    at = torch.arange(side, dtype=torch.float64) + 0.5
    line = torch.stack([torch.cos(math.pi * at * k / side) for k in range(side)])
    line = line / line.norm(dim=1, keepdim=True)
    tiles = torch.einsum("iy,jx->ijyx", line, line).reshape(-1, 1, side, side)
    return torch.cat([tiles, torch.zeros(side**2, 2, side, side, dtype=torch.float64)], dim=1)


def test_filters_built_from_cosines_are_recovered_up_to_sign_and_order() -> None:
    basis = cosine_basis(4)[:12]
    # Exactly uncorrelated coefficients of mean zero: columns of an orthogonal matrix, orthogonal to ones.
    noise = torch.randn(64, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise[:, 0] = 1
    coefficients = torch.linalg.qr(noise).Q[:, 1:] * torch.arange(1, 13)  # distinct variances, the last one largest
    filters = torch.einsum("fc,c...->f...", coefficients, basis)
    tiles, shares = principal_components(filters, most=28)
    expected = basis.flip(0)
    likeness = (tiles[:12].flatten(1) @ expected.flatten(1).T).abs()
    torch.testing.assert_close(likeness, torch.eye(12, dtype=torch.float64), atol=1e-9, rtol=0)
    squares = torch.arange(12, 0, -1, dtype=torch.float64).square()
    torch.testing.assert_close(shares[:12], squares / squares.sum())
    assert float(shares[12:].sum()) == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(
        principal_components(filters + 3 * basis[4], most=28)[1], shares
    )  # all alike: no variance


def test_as_many_components_as_there_can_be() -> None:
    assert len(principal_components(torch.randn(160, 3, 2, 2), 28)[0]) == 12
    assert len(principal_components(torch.randn(8, 3, 4, 4), 28)[0]) == 7  # the mean is gone
    assert len(principal_components(torch.randn(160, 3, 16, 16), 28)[0]) == 28


def test_frequencies_of_known_tiles() -> None:
    chequers = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat(3, 4, 4)
    stripes = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(3, 8, 2)
    plain = torch.full((3, 8, 8), 0.3)
    found = spectral_centroid(torch.stack([plain, stripes, chequers]))
    np.testing.assert_allclose(found, [0, 0.5, math.sqrt(2)], atol=1e-9)
    np.testing.assert_allclose(smoothness(torch.stack([plain, chequers])), [1, -1])
    noise = torch.randn(400, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    assert abs(float(smoothness(noise).mean())) < 0.01


def test_a_whole_basis_has_one_mean_frequency_whatever_it_is() -> None:
    """So the mean over all components says nothing, and the claim asks for 28 of more than 28."""
    random = random_centroids((3, 4, 4), 48, 3, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(random.mean(1), spectral_centroid(torch.eye(48).reshape(48, 3, 4, 4)).mean(), rtol=1e-9)


@pytest.mark.parametrize("law", ["normal", "uniform", "standardised"])
def test_components_of_drawn_filters_are_random_directions(law: str) -> None:
    """What the reference rests on: filters drawn and analysed, against directions drawn at once."""
    dice = torch.Generator().manual_seed(2)
    drawn = []
    for _ in range(150):
        filters = torch.randn(64, 3, 4, 4, generator=dice, dtype=torch.float64)
        if law == "uniform":
            filters = torch.rand(64, 3, 4, 4, generator=dice, dtype=torch.float64) - 0.5
        if law == "standardised":
            filters = filters - filters.mean((1, 2, 3), keepdim=True)
            assert without_mean(filters)
        drawn.append(spectral_centroid(principal_components(filters, 28)[0]).mean())
    reference = random_centroids((3, 4, 4), 28, 150, dice, centred=law == "standardised").mean(1)
    one, other = torch.stack(drawn), reference
    error = math.sqrt(float(one.var() / 150 + other.var() / 150))
    assert abs(float(one.mean() - other.mean())) < 3.5 * error
    assert 0.8 < float(one.std() / other.std()) < 1.25
