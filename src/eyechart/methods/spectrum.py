"""Frequencies of feature maps and pictures: spectra, rings of noise, filters, and the swap of amplitude and phase.

Frequencies are in radians a sample, from 0 to π, and true: bin k of a side of n is 2πk/n, so an even side ends at
Nyquist (π) and an odd one at π(n−1)/n. Only half of the plane is kept (`rfft2`), the rest being its mirror image.

>>> noise = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
>>> bool(torch.allclose(band_energies(noise).sum(1), noise.square().mean((1, 2, 3))))  # Parseval
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Literal

import torch
from torch import Tensor

Average = Literal["power", "paper"]
FLOOR = 1e-6
"""What Park and Kim's code adds to an amplitude before its logarithm."""
BANDS = ("constant", "low", "middle", "high")
"""Zero frequency, then thirds of (0, π] by the larger of the two frequencies."""
AT_ONCE = 1 << 22  # numbers transformed at a time: their spectra fit the processor's cache


def radians(side: int) -> Tensor:
    """|frequency| of each bin of a side, in the order of an FFT.

    >>> (radians(4) / math.pi).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    bins: Tensor = torch.fft.fftfreq(side, dtype=torch.float64)
    return bins.abs() * 2 * math.pi


def larger_frequency(height: int, width: int) -> Tensor:
    """max(|f_y|, |f_x|) of each bin of the half plane, (height, width // 2 + 1): its level sets are square rings."""
    return torch.maximum(radians(height)[:, None], radians(width)[None, : width // 2 + 1])


def radial_frequency(height: int, width: int) -> Tensor:
    """sqrt(f_y² + f_x²) of each bin of the half plane; π√2 in its corner."""
    return torch.hypot(radians(height)[:, None], radians(width)[None, : width // 2 + 1])


def copies(width: int) -> Tensor:
    """How often each column of the half plane occurs in the whole one: twice, but once for 0 and Nyquist."""
    columns = torch.arange(width // 2 + 1)
    return torch.where((columns == 0) | (2 * columns == width), 1.0, 2.0).double()


def diagonal(grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns of the half diagonal from zero to the highest frequency, and its frequencies.

    A grid that is not square has no bins with f_y = f_x: there the nearest ones are taken, of two the lower.

    >>> rows, columns, frequencies = diagonal((7, 7))
    >>> (frequencies / math.pi).round(decimals=3).tolist()
    [0.0, 0.286, 0.571, 0.857]
    """
    shorter = min(grid)
    steps = torch.arange(shorter // 2 + 1)
    rows, columns = ((2 * steps * side + shorter - 1) // (2 * shorter) for side in grid)
    return rows, columns, 2 * math.pi * steps.double() / shorter


@cache
def band_masks(height: int, width: int) -> Tensor:
    """(bin of the half plane, band): the share of each bin in each band's energy, so that all add up to mean square."""
    place = larger_frequency(height, width)
    # 1e-9 against rounding: a frequency of exactly 2π/3 belongs to the middle third.
    edges = torch.tensor([0.0, 1 / 3, 2 / 3]) * math.pi + 1e-9
    band = torch.bucketize(place, edges.double())
    weight = copies(width).expand(height, -1) / (height * width) ** 2
    return (torch.nn.functional.one_hot(band, len(BANDS)) * weight[..., None]).flatten(0, 1).float()


def in_parts(reduce: Callable[[Tensor], Tensor], maps: Tensor) -> Tensor:
    """`reduce` of the half-plane spectra, (image, channel, y, x), of some images at a time."""
    size = max(1, AT_ONCE // max(1, maps[0].numel()))
    return torch.cat([reduce(torch.fft.rfft2(part.float())) for part in torch.split(maps, size)])


def power_of(spectra: Tensor) -> Tensor:
    """|F|² averaged over channels, (image, height, width // 2 + 1)."""
    return (spectra.real.square() + spectra.imag.square()).mean(1)


def band_energies(maps: Tensor) -> Tensor:
    """(image, band): the mean square of a map (image, channel, y, x), split by frequency."""
    masks = band_masks(*maps.shape[-2:]).to(maps.device)
    return in_parts(lambda spectra: power_of(spectra).flatten(1) @ masks, maps)


def describe(maps: Tensor, average: Average) -> Tensor:
    """(image, frequency + band): the half diagonal's spectrum averaged over channels, then the band energies.

    "power" averages |F|²; "paper" averages log(|F| + 1e-6), whose mean over images is already a log amplitude.
    """
    height, width = maps.shape[-2:]
    rows, columns, _ = (each.to(maps.device) for each in diagonal((height, width)))
    masks = band_masks(height, width).to(maps.device)

    def reduce(spectra: Tensor) -> Tensor:
        power = power_of(spectra)
        if average == "paper":
            along = (spectra[..., rows, columns].abs() + FLOOR).log().mean(1)
        else:
            along = power[:, rows, columns]
        return torch.cat([along, power.flatten(1) @ masks], dim=1)

    return in_parts(reduce, maps)


def log_amplitude(mean: Tensor, average: Average) -> Tensor:
    """From a mean over images to a log amplitude: half the log of mean power, or the paper's mean of logs as it is."""
    return mean if average == "paper" else mean.log() / 2


# --- pictures ---------------------------------------------------------------------------------------------------


def rings(height: int, width: int, count: int) -> Tensor:
    """Which of `count` square rings each bin of the half plane is in: [0, π/count), …, the last one with π itself.

    >>> rings(4, 4, 2)
    tensor([[0, 1, 1],
            [1, 1, 1],
            [1, 1, 1],
            [1, 1, 1]])
    """
    place = (larger_frequency(height, width) * count / math.pi + 1e-9).floor().long()
    return place.clamp_max(count - 1)


def share_of_ring(height: int, width: int, count: int) -> Tensor:
    """(ring,): the share of all bins of the plane that lie in each ring."""
    times = copies(width).expand(height, -1).flatten()
    areas = torch.zeros(count, dtype=torch.float64)
    return areas.index_add_(0, rings(height, width, count).flatten(), times) / (height * width)


def filtered(images: Tensor, transfer: Tensor) -> Tensor:
    """Images (…, y, x) with each frequency multiplied by the real `transfer` of the half plane."""
    spectra = torch.fft.rfft2(images.float()) * transfer.to(images.device, torch.float32)
    result: Tensor = torch.fft.irfft2(spectra, s=images.shape[-2:])
    return result


def with_rms(noise: Tensor, rms: float) -> Tensor:
    """Each image's noise, all channels together, scaled to exactly this root mean square."""
    return noise * (rms / noise.square().mean((1, 2, 3), keepdim=True).sqrt())


def split(images: Tensor, cutoff: float) -> tuple[Tensor, Tensor]:
    """Low- and high-passed images, which add up to the images. Half of the amplitude passes at the `cutoff`.

    The low-pass is a Gaussian of radial frequency, 2^−(f/cutoff)²: a sharp edge would ring.
    """
    low = filtered(images, 2 ** -(radial_frequency(*images.shape[-2:]) / cutoff).square())
    return low, images.float() - low


def swapped(phase_of: Tensor, amplitude_of: Tensor) -> Tensor:
    """Pictures with the phases of one and the amplitudes of the other, channel by channel."""
    phase, amplitude = torch.fft.rfft2(phase_of.float()), torch.fft.rfft2(amplitude_of.float()).abs()
    result: Tensor = torch.fft.irfft2(torch.polar(amplitude, phase.angle()), s=phase_of.shape[-2:])
    return result
