"""SPEC Appendix A, M7: the map of the global mean is a dome on natural pictures, and flat once patches are shuffled."""

from __future__ import annotations

import numpy as np
import torch

from eyechart.measures.localisation.measure import Localisation
from eyechart.methods.places import cut
from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, measure_tensors, scene, site

CELLS = (8, 8)


def natural(count: int, side: int, generator: torch.Generator) -> torch.Tensor:
    """Noise whose amplitude falls as 1/frequency, cut out of larger pictures, so that nothing wraps around."""
    y, x = torch.meshgrid(torch.fft.fftfreq(2 * side), torch.fft.fftfreq(2 * side), indexing="ij")
    spectrum = torch.fft.fft2(torch.randn(count, 3, 2 * side, 2 * side, generator=generator))
    pictures = torch.fft.ifft2(spectrum / torch.hypot(y, x).clamp_min(0.5 / side)).real
    return pictures[..., :side, :side]


def map_of_the_global_mean(pictures: torch.Tensor) -> np.ndarray:
    """CKA (row, column) with every patch of a token that is the mean of all patches."""
    token = cut(pictures, CELLS).flatten(2).mean(1, keepdim=True).expand(-1, 64, -1)
    place = site("last", grid=CELLS)
    who = anatomy("v", [place])
    looks = {("v", "last"): Look(place, output=token), ("v", who.input.name): Look(who.input, output=pictures)}
    finding = measure_tensors(Localisation(), scene(who, images=len(pictures), block=64), looks, 64)
    table: np.ndarray = finding.cka.values[0, 0].reshape(CELLS)
    return table


def shuffled(pictures: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The patches of 2×2 pixels of every picture in an order of its own."""
    count, side = len(pictures), pictures.shape[-1] // 2
    patches = pictures.unfold(2, 2, 2).unfold(3, 2, 2).flatten(2, 3)  # (image, colour, patch, y, x)
    order = torch.rand(count, side * side, generator=generator).argsort(1)[:, None, :, None, None]
    mixed = torch.take_along_dim(patches, order, dim=2).unflatten(2, (side, side))
    return mixed.permute(0, 1, 2, 4, 3, 5).reshape(pictures.shape)


def test_the_global_mean_is_a_dome_on_natural_pictures_and_flat_on_shuffled_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    pictures = natural(2048, 16, generator)
    dome, flat = map_of_the_global_mean(pictures), map_of_the_global_mean(shuffled(pictures, generator))
    corners = dome[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners.max() + 0.15 < dome[3:5, 3:5].min()
    assert flat.max() - flat.min() < 0.06
    assert flat.min() > 0.1  # the mean holds a little of every patch
