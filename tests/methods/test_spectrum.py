"""Spectra, rings, filters and swaps against answers known on paper (SPEC, Appendix A: M18, M21, M25)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from eyechart.methods.spectrum import (
    BANDS,
    Average,
    band_energies,
    describe,
    diagonal,
    filtered,
    larger_frequency,
    log_amplitude,
    rings,
    share_of_ring,
    split,
    swapped,
    with_rms,
)

SIDES = (7, 8, 14, 16)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def delta(maps: Tensor, average: Average = "power") -> Tensor:
    """Δ log amplitude along the half diagonal."""
    along = describe(maps, average)[:, : -len(BANDS)].double().mean(0)
    level = log_amplitude(along, average)
    return level - level[0]


@pytest.mark.parametrize("side", SIDES)
def test_white_noise_is_flat(side: int) -> None:
    assert delta(noise(4096, 16, side, side)).abs().max() < 0.01


@pytest.mark.parametrize("side", SIDES)
def test_white_noise_under_the_papers_mean_of_logs(side: int) -> None:
    found = delta(noise(4096, 16, side, side), "paper")
    expected = torch.full_like(found, math.log(2) / 2)
    expected[0] = 0  # zero frequency and Nyquist are their own conjugates
    if side % 2 == 0:
        expected[-1] = 0
    assert torch.allclose(found, expected, atol=0.015)


@pytest.mark.parametrize("side", SIDES)
def test_a_circular_box_blur(side: int) -> None:
    maps = noise(64, 8, side, side)
    blurred = (maps + maps.roll(1, 2) + maps.roll(1, 3) + maps.roll((1, 1), (2, 3))) / 4
    frequencies = diagonal((side, side))[2]
    # ln cos²(ω/2) = −∞ at Nyquist, which float32 reaches to about −14.
    gain = delta(blurred) - delta(maps)
    inside = frequencies < math.pi - 1e-6
    assert torch.allclose(gain[inside], (frequencies[inside] / 2).cos().square().log(), atol=1e-4)
    assert (gain[~inside] < -10).all()


@pytest.mark.parametrize("side", [8, 14])
def test_a_checkerboard_peaks_at_nyquist(side: int) -> None:
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    board = (-1.0) ** (rows + columns)
    spectrum = describe(board.expand(2, 3, side, side), "power")[0, : -len(BANDS)]
    assert spectrum.argmax() == len(spectrum) - 1
    assert diagonal((side, side))[2][-1] == pytest.approx(math.pi)
    assert spectrum[:-1].max() < 1e-6 * spectrum[-1]
    energies = band_energies(board.expand(2, 3, side, side))[0]
    assert torch.allclose(energies, torch.tensor([0.0, 0.0, 0.0, 1.0]), atol=1e-6)


def test_a_constant_changes_only_the_zero_of_the_raw_spectrum() -> None:
    maps = noise(16, 4, 8, 8)
    plain, lifted = (describe(each, "power")[:, : -len(BANDS)] for each in (maps, maps + 3))
    assert torch.allclose(plain[:, 1:], lifted[:, 1:], rtol=1e-4)
    assert (lifted[:, 0] > 2 * plain[:, 0]).all()
    # … but moves the whole curve relative to it, which is why band energies stand beside it.
    assert (delta(maps) - delta(maps + 3))[1:].min() > 2
    assert torch.allclose(band_energies(maps)[:, 1:], band_energies(maps + 3)[:, 1:], rtol=1e-4)


@pytest.mark.parametrize("average", ["power", "paper"])
@pytest.mark.parametrize("grid", [(8, 8), (7, 7), (6, 9), (12, 5)])
def test_the_diagonal_is_that_of_a_plain_transform(grid: tuple[int, int], average: Average) -> None:
    maps = noise(3, 5, *grid)
    plane = torch.fft.fft2(maps.double())
    found = describe(maps, average)[:, : -len(BANDS)].double()
    for place, frequency in enumerate(diagonal(grid)[2].tolist()):
        row, column = (round(frequency / (2 * math.pi) * side - 1e-9) for side in grid)
        here = plane[..., row, column].abs()
        expected = here.square().mean(1) if average == "power" else (here + 1e-6).log().mean(1)
        assert torch.allclose(found[:, place], expected, rtol=1e-4, atol=1e-5)


def test_frequencies_are_true() -> None:
    assert (diagonal((14, 14))[2][-1] / math.pi).item() == pytest.approx(1.0)
    assert (diagonal((14, 14))[2][-2] / math.pi).item() == pytest.approx(0.857, abs=1e-3)  # what P labels 1.0
    assert (diagonal((7, 7))[2][-1] / math.pi).item() == pytest.approx(6 / 7)
    assert (diagonal((4, 4))[2] / math.pi).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("grid", [(8, 8), (7, 7), (6, 9), (5, 12)])
def test_band_energies_add_up_to_the_mean_square_and_are_those_of_the_bands(grid: tuple[int, int]) -> None:
    maps = noise(4, 6, *grid) + 0.5
    energies = band_energies(maps)
    assert torch.allclose(energies.sum(1), maps.square().mean((1, 2, 3)), rtol=1e-5)
    plane = torch.fft.fft2(maps.double()).abs().square().mean(1) / (grid[0] * grid[1]) ** 2
    largest = torch.maximum(torch.fft.fftfreq(grid[0]).abs()[:, None], torch.fft.fftfreq(grid[1]).abs()[None]).double()
    for band, (low, high) in enumerate([(-1, 0), (0, 1 / 6), (1 / 6, 1 / 3), (1 / 3, 1 / 2)]):
        inside = (largest > low + 1e-6 * (low >= 0)) & (largest <= high + 1e-6)
        assert torch.allclose(energies[:, band].double(), (plane * inside).sum((1, 2)), rtol=1e-4, atol=1e-8)


def test_spectra_do_not_depend_on_how_many_maps_are_transformed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = noise(9, 4, 8, 8)
    whole = describe(maps, "power")
    monkeypatch.setattr("eyechart.methods.spectrum.AT_ONCE", 600)
    assert torch.equal(describe(maps, "power"), whole)


# --- noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(32, 32), (33, 33), (28, 36)])
def test_ring_noise_is_real_of_the_stated_strength_and_nowhere_else(size: tuple[int, int]) -> None:
    signs = noise(2, 3, *size).sign()
    height, width = size
    place = torch.maximum(
        torch.fft.fftfreq(height).abs()[:, None].double(), torch.fft.fftfreq(width).abs()[None].double()
    )
    for ring in range(10):
        made = with_rms(filtered(signs, rings(height, width, 10) == ring), 0.3)
        assert made.dtype == torch.float32
        assert torch.allclose(made.square().mean((1, 2, 3)).sqrt(), torch.tensor(0.3), rtol=1e-5)
        inside = (place * 2 >= ring / 10 - 1e-9) & ((place * 2 < (ring + 1) / 10 - 1e-9) | (ring == 9))
        power = torch.fft.fft2(made.double()).abs().square().mean((0, 1))
        assert power[~inside].max() < 1e-10 * power.max()
        assert power[inside].min() > 0


@pytest.mark.parametrize("size", [(32, 32), (33, 33), (28, 36), (224, 224)])
@pytest.mark.parametrize("count", [5, 10])
def test_rings_partition_the_plane(size: tuple[int, int], count: int) -> None:
    assert share_of_ring(*size, count).sum().item() == pytest.approx(1.0)
    signs = noise(1, 1, *size).sign()
    parts = [filtered(signs, rings(*size, count) == ring) for ring in range(count)]
    assert torch.allclose(torch.stack(parts).sum(0), signs, atol=1e-4)


def test_half_open_rings_take_their_lower_edge() -> None:
    edges = larger_frequency(20, 20)[0] / math.pi  # multiples of a tenth
    assert torch.allclose(edges, torch.arange(11).double() / 10)
    assert rings(20, 20, 10)[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]


# --- filters and swaps --------------------------------------------------------------------------------------------


def test_low_and_high_pass_add_up_and_keep_what_they_should() -> None:
    pictures = noise(2, 3, 33, 32).sigmoid()
    low, high = split(pictures, math.pi / 4)
    assert torch.allclose(low + high, pictures, atol=1e-6)
    assert torch.allclose(low.mean((2, 3)), pictures.mean((2, 3)), atol=1e-5)
    assert high.mean((2, 3)).abs().max() < 1e-5
    assert split(pictures, 1e-3)[0].std((2, 3)).max() < 1e-5  # nothing but the mean is left


def test_half_of_the_amplitude_passes_at_the_cutoff() -> None:
    wave = (torch.arange(32) * 2 * math.pi * 4 / 32).cos().expand(1, 1, 32, 32)  # frequency π/4
    low, _ = split(wave, math.pi / 4)
    assert torch.allclose(low, wave / 2, atol=1e-5)


@pytest.mark.parametrize("size", [(32, 32), (33, 31)])
def test_swapping_amplitude_and_phase(size: tuple[int, int]) -> None:
    one, other = noise(2, 3, *size).sigmoid(), noise(2, 3, *size, seed=1).sigmoid()
    assert torch.allclose(swapped(one, one), one, atol=1e-5)
    mixed = swapped(one, other)
    assert torch.allclose(torch.fft.fft2(mixed).abs(), torch.fft.fft2(other).abs(), rtol=1e-3, atol=1e-3)
    turned = torch.fft.fft2(mixed) / torch.fft.fft2(one)
    assert turned.imag.abs().max() < 1e-3 * turned.abs().max()
    assert (turned.real > 0).all()
