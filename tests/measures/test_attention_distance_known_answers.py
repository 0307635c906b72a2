"""SPEC Appendix A, M2: a shift by one cell is exactly one patch width for interior queries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eyechart.measures.attention_distance.measure import AttentionDistance
from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, full_grid, measure_tensors, scene, site


@pytest.mark.parametrize("step", [-8, -1, 1, 8])
def test_a_shift_by_one_cell_is_one_patch_width_for_interior_queries(step: int) -> None:
    """Each interior patch looks at its neighbour; those at the edge give all to the class token, and do not count."""
    rows, columns = np.divmod(np.arange(64), 8)
    inside = (rows % 7 > 0) & (columns % 7 > 0)
    weights = torch.zeros(65, 65)
    weights[0, 0] = 1
    weights[1:, 0] = torch.as_tensor(~inside).float()
    queries = np.flatnonzero(inside)
    weights[1 + queries, 1 + queries + step] = 1
    place = site("attention", "attention", "attention", heads=1, prefix=1, attention=full_grid(8, 4, prefix=1))
    look = Look(place, weights=lambda: weights.expand(64, 1, 1, -1, -1))
    finding = measure_tensors(AttentionDistance(), scene(anatomy("v", [place], cls=0)), {("v", "attention"): look}, 4)
    assert float(finding.distance[0, 0]) == pytest.approx(4, rel=1e-6)
    assert float(finding.prefix_mass[0, 0]) == pytest.approx(28 / 64)
