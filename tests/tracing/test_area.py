"""Means over cells that the locations do not divide."""

import pytest
import torch

from eyechart.tracing.area import area_means


@pytest.mark.parametrize("cells", [(4, 4), (3, 5), (7, 2)])
def test_no_location_counts_more_than_another(cells: tuple[int, int]) -> None:
    maps = torch.rand(2, 3, 7, 10, dtype=torch.float64)
    fine = maps.repeat_interleave(cells[0], 2).repeat_interleave(cells[1], 3)  # every location cut into equal parts
    blocks = fine.reshape(2, 3, cells[0], 7, cells[1], 10)
    assert torch.allclose(area_means(maps, cells), blocks.mean((3, 5)), atol=1e-7)
    assert torch.allclose(area_means(maps, cells).mean((2, 3)), maps.mean((2, 3)), atol=1e-7)
