"""Mathematics of filters: their principal components, and how smooth a tile of pixels is.

A tile is (colour, y, x). Frequencies are in units of Nyquist along an axis: 0 a plain colour, 1 stripes one pixel wide,
√2 a chequerboard.
"""

from __future__ import annotations

import torch
from torch import Tensor


def principal_components(filters: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The leading components of (filter, colour, y, x) as tiles of the same axes, and their shares of variance.

    The mean filter is removed first, so there are at most filters − 1 of them. Signs are arbitrary: the largest value
    of a tile is made positive. Shares are of the variance of all components.

    >>> tiles, shares = principal_components(torch.randn(20, 3, 4, 4), most=28)
    >>> tiles.shape[0], bool(shares.sum() > 0.999)
    (19, True)
    """
    rows = filters.double().flatten(1)
    _, values, directions = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    count = min(most, len(rows) - 1, rows.shape[1])
    leading = directions[:count]
    largest = leading.gather(1, leading.abs().argmax(1, keepdim=True))
    tiles = (leading * largest.sign()).reshape(count, *filters.shape[1:])
    return tiles, values[:count].square() / values.square().sum().clamp_min(torch.finfo(torch.float64).tiny)


def spectral_centroid(tiles: Tensor) -> Tensor:
    """Mean frequency of each tile (…, colour, y, x), weighted by power: Σ f |F|² / Σ |F|², over all colours.

    >>> stripes = torch.tensor([1.0, -1.0]).repeat(3, 4, 2)
    >>> spectral_centroid(torch.stack([stripes, torch.ones(3, 4, 4)])).tolist()
    [1.0, 0.0]
    """
    height, width = tiles.shape[-2:]
    down, across = (2 * torch.fft.fftfreq(size, dtype=torch.float64, device=tiles.device) for size in (height, width))
    frequency = torch.hypot(down[:, None], across[None])
    power = torch.fft.fft2(tiles.double()).abs().square().sum(-3)
    centroid: Tensor = (power * frequency).sum((-2, -1)) / power.sum((-2, -1))
    return centroid


def smoothness(tiles: Tensor) -> Tensor:
    """How alike neighbouring pixels of each tile are: Σ a·b / Σ (a² + b²)/2 over all pairs side by side.

    1 for a plain colour, 0 on average for white noise, −1 for a chequerboard.

    >>> smoothness(torch.ones(3, 4, 4)).item()
    1.0
    """
    tiles = tiles.double()
    sides = [(tiles[..., 1:, :], tiles[..., :-1, :]), (tiles[..., 1:], tiles[..., :-1])]
    product = torch.stack([(one * other).sum((-3, -2, -1)) for one, other in sides]).sum(0)
    energy = torch.stack([(one**2 + other**2).sum((-3, -2, -1)) / 2 for one, other in sides]).sum(0)
    alike: Tensor = product / energy
    return alike


def without_mean(filters: Tensor) -> bool:
    """Is every filter's mean removed, as weight standardisation does?"""
    rows = filters.double().flatten(1)
    return bool((rows.mean(1).abs() <= 1e-4 * rows.std(1)).all())


def random_centroids(
    shape: tuple[int, int, int], count: int, draws: int, generator: torch.Generator, centred: bool = False
) -> Tensor:
    """Spectral centroids of the principal components of freshly initialised filters, (draw, component).

    Initialisations draw every weight alone. If they are normal, the cloud of filters looks the same from every side, so
    its principal components are orthonormal vectors in random directions, however many filters there are: they are
    drawn as such. (Uniform weights are the same to a good approximation; a test compares.) `centred`: filters whose own
    mean is removed.
    """
    size, centroids = shape[0] * shape[1] * shape[2], []
    for _ in range(draws):
        noise = torch.randn(size, count, generator=generator, dtype=torch.float64)
        directions = torch.linalg.qr(noise - noise.mean(0) if centred else noise).Q
        centroids.append(spectral_centroid(directions.T.reshape(count, *shape)))
    return torch.stack(centroids)
