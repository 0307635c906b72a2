"""SPEC Appendix A, M13: a sinusoidal 2-D table is monotone along rows and columns, and not in Euclidean distance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from eyechart.measures.position_embeddings.tables import cosines, nearness


def sinusoids(side: int) -> np.ndarray:
    """(channel, y, x), written out place by place: 96 numbers for the row and 96 for the column."""
    rates = [10000 ** (-k / 48) for k in range(48)]
    line = [[wave(at * rate) for rate in rates for wave in (np.sin, np.cos)] for at in range(side)]
    return np.array([[[*line[y], *line[x]] for x in range(side)] for y in range(side)]).transpose(2, 0, 1)


@pytest.mark.parametrize("side", range(3, 9))
def test_a_sinusoidal_table(side: int) -> None:
    cosine = cosines(sinusoids(side))
    place = np.stack(np.divmod(np.arange(side * side), side), axis=1)
    distance = np.linalg.norm(place[:, None] - place[None], axis=2)
    grid = cosine.reshape(side, side, side, side)
    for y, x in place:
        for along in (grid[y, x, y], grid[y, x, :, x]):  # its row, its column
            middle = int(along.argmax())
            assert (np.diff(along[: middle + 1]) > 0).all()
            assert (np.diff(along[middle:]) < 0).all()
    one, other = np.triu_indices(side * side, k=1)
    rank = nearness(cosine, (side, side), np.ones(side * side))
    assert rank > 0.8
    assert rank == pytest.approx(spearmanr(cosine[one, other], -distance[one, other].round(9)).statistic)
    if side > 3:
        by_distance = cosine[0][np.argsort(distance[0], kind="stable")]
        assert (np.diff(by_distance) > 1e-6).any()  # somewhere a farther patch is the more alike
