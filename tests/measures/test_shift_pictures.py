"""Moving pictures and comparing their maps, by hand."""

from __future__ import annotations

import pytest
import torch

from eyechart.measures.shift.shifts import compare, inner, positions, similarity


def ramp(size: int = 16) -> torch.Tensor:
    """A picture whose pixel says where it is: (1, 2, y, x), first channel the row, second the column."""
    place = torch.arange(float(size))
    return torch.stack([place[:, None].expand(size, size), place[None].expand(size, size)])[None]


@pytest.mark.parametrize("axis", [2, 3])
def test_a_crop_moves_along_one_axis_by_whole_pixels_of_the_enlarged_picture(axis: int) -> None:
    still, one, four = positions(ramp(), [1, 4], axis, "crop")
    assert still.shape == four.shape == (1, 2, 16, 16)
    torch.testing.assert_close(one.narrow(axis, 0, 15), still.narrow(axis, 1, 15))
    torch.testing.assert_close(four.narrow(axis, 0, 12), still.narrow(axis, 4, 12))
    other = 3 - axis  # the channel of the axis along which nothing moves
    torch.testing.assert_close(four[:, other], still[:, other])
    assert (four[:, axis - 2] > still[:, axis - 2]).any()


def test_wrapping_keeps_every_pixel() -> None:
    still, moved = positions(ramp(4), [1], 3, "wrap")
    assert torch.equal(still, ramp(4))
    assert sorted(moved.flatten().tolist()) == sorted(still.flatten().tolist())
    assert moved[0, 1, 0].tolist() == [1, 2, 3, 0]


def test_sums_of_a_map_that_moves_along() -> None:
    still = torch.randn(2, 3, 8, 8).double()
    moved = still.roll(-1, 3)
    moved[..., -1] = 99  # new on the right: not compared
    moved[:, :, 0] = 99  # at the border: not compared either
    (sums, both) = compare(still, moved, 1, 3, "crop")
    old, new = still[:, :, 2:6, 3:6], still[:, :, 2:6, 2:5]
    assert sums[:, 0].abs().max() == 0
    torch.testing.assert_close(sums[:, 1], (old - new).square().sum((1, 2, 3)))
    torch.testing.assert_close(sums[:, 2], 2 * old.square().sum((1, 2, 3)))
    assert sums[:, 3].tolist() == [12, 12]
    torch.testing.assert_close(both, 2 * old.sum((2, 3)))


def test_the_inner_half() -> None:
    assert [inner(torch.zeros(1, 1, count, 1), 2).shape[2] for count in (4, 7, 8, 14)] == [2, 5, 4, 8]


def test_similarity_is_1_for_equal_0_for_unrelated_and_ignores_a_common_offset() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = 50 + torch.randn(2, 64, 5, 8, 8, generator=generator)

    def of(a: torch.Tensor, b: torch.Tensor) -> float:
        sums, both = compare(a, b, 0, 3, "wrap")
        total = sums.sum(0)
        return float(similarity(total[0], total[2], both.sum(0), total[3]))

    assert of(one, one) == 1
    assert of(one, other) == pytest.approx(0, abs=0.02)
    assert of(one, 0.5 * (one + other)) == pytest.approx(1 - 0.5 / 1.5, abs=0.02)
    assert of(torch.ones_like(one), torch.ones_like(one)) != of(one, one)  # constant: no spread, no number
