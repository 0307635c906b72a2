"""The blur by its frequency response, its edge and its bounds."""

import math

import pytest
import torch

from eyechart.zoo.smoothing import Smoothing


def test_its_frequency_response_is_that_of_a_2x2_box() -> None:
    """|H(w)| = cos(w_y / 2) cos(w_x / 2) on a map that wraps around; its values are positive, so ReLU does nothing."""
    maps = torch.rand(2, 3, 8, 8, dtype=torch.float64) + 0.5
    out = Smoothing(scale=1e6, padding="circular")(maps)
    response = (torch.fft.fft2(out) / torch.fft.fft2(maps)).abs()
    half = torch.fft.fftfreq(8, dtype=torch.float64) * math.pi
    expected = half.cos()[:, None] * half.cos()[None]
    torch.testing.assert_close(response, expected.expand(2, 3, 8, 8), atol=1e-9, rtol=1e-6)


def test_it_keeps_the_size_and_repeats_the_edge() -> None:
    maps = torch.tensor([[[[0.0, 4.0], [8.0, 0.0]]]])
    expected = [(0 + 4 + 8 + 0) / 4, (4 + 4 + 0 + 0) / 4, (8 + 0 + 8 + 0) / 4, 0.0]
    assert Smoothing(scale=1e4)(maps)[0, 0].flatten().tolist() == pytest.approx(expected, abs=1e-3)
    assert Smoothing()(torch.randn(2, 5, 7, 4)).shape == (2, 5, 7, 4)


def test_values_are_bounded_between_0_and_t() -> None:
    maps = torch.tensor([-100.0, 5.0, 1e6]).reshape(3, 1, 1, 1).expand(3, 1, 4, 4)
    assert Smoothing(scale=10)(maps)[:, 0, 0, 0].tolist() == pytest.approx([0, 10 * math.tanh(0.5), 10])
