"""Entropy, rollout and kept rows on attention whose answer is known, and against explicit loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from eyechart.measures.attention_maps.rows import (
    LEVELS,
    MEAN,
    MOST_KEYS,
    NOTHING,
    PREFIX,
    coded,
    count_keys,
    count_queries,
    decoded,
    entropy,
    kept_rows,
    mean_entropy,
    rollout,
)
from eyechart.sites import AttentionGeometry
from tests.measures.staging import full_grid


def random_rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).mul(2).softmax(-1)


def geometry_of(places: np.ndarray, keys: np.ndarray | None = None, prefix: int = 0) -> AttentionGeometry:
    """(window, query, 2) in pixels of a picture of 32×32."""
    keys = places if keys is None else keys
    ys, xs = (np.unique(places[..., axis][~np.isnan(places[..., axis])]) for axis in (0, 1))
    return AttentionGeometry(
        "windowed" if len(places) > 1 else "global",
        None,
        len(places),
        prefix,
        prefix,
        (32 / len(ys), 32 / len(xs)),
        1.0,
        places.shape[1] - prefix,
        places,
        keys,
        keys=keys.shape[1],
    )


# --- entropy ----------------------------------------------------------------------------------------------------------


def test_identity_has_no_entropy_and_uniform_attention_ln_n() -> None:
    assert torch.equal(entropy(torch.eye(7)), torch.zeros(7))
    assert entropy(torch.full((3, 65), 1 / 65)).tolist() == pytest.approx([math.log(65)] * 3, rel=1e-6)


def test_entropy_agrees_with_a_loop_and_normalises() -> None:
    rows = random_rows(5, 9)
    expected = [-sum(p * math.log(p) for p in row) for row in rows.tolist()]
    assert entropy(rows).tolist() == pytest.approx(expected, rel=1e-12)
    assert entropy(3 * rows).tolist() == pytest.approx(expected, rel=1e-12)


def test_negative_weights_have_no_entropy() -> None:
    assert entropy(torch.tensor([[0.5, 0.7, -0.2], [0.5, 0.5, 0.0]])).isnan().tolist() == [True, False]


def test_queries_without_a_place_do_not_count() -> None:
    weights = torch.stack([torch.eye(4), torch.full((4, 4), 0.25)])[None, :, None]  # (image, window, head, query, key)
    placed = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert mean_entropy(weights, placed).item() == pytest.approx(math.log(4) / 4)


# --- rollout ----------------------------------------------------------------------------------------------------------


def test_rollout_of_uniform_attention_keeps_half_of_each_step() -> None:
    """Ã = (U + I)/2 and U² = U, so that after l blocks R = I/2^l + (1 - 1/2^l) U, by hand."""
    n, uniform = 6, torch.full((1, 4, 6, 6), 1 / 6)
    found = None
    for block in range(1, 6):
        found = rollout(uniform, found)
        expected = torch.eye(n) / 2**block + (1 - 1 / 2**block) / n
        assert torch.allclose(found[0], expected, atol=1e-6)


def test_rollout_of_identity_is_identity() -> None:
    assert torch.equal(
        rollout(torch.eye(5).expand(1, 2, 5, 5), rollout(torch.eye(5).expand(1, 2, 5, 5)))[0], torch.eye(5)
    )


def test_rollout_agrees_with_explicit_products_and_rows_sum_to_one() -> None:
    blocks = list(random_rows(3, 2, 3, 5, 5))
    found = None
    for weights in blocks:
        found = rollout(weights, found)
    for image in range(2):
        product = np.eye(5)
        for weights in blocks:
            mixed = sum(weights[image, head].numpy() for head in range(3)) / 3 / 2 + np.eye(5) / 2
            product = mixed @ product
        assert found is not None
        assert found[image].numpy() == pytest.approx(product, abs=1e-12)
    assert found is not None
    assert found.sum(-1).numpy() == pytest.approx(np.ones((2, 5)), abs=1e-12)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_kept_weights_are_off_by_four_thousandths_of_the_largest_on_a_patch() -> None:
    rows, placed = random_rows(4, 3, 50), torch.ones(3, 50, dtype=torch.bool)
    codes, peak, beside = coded(rows, placed)
    assert codes.max() == LEVELS
    assert beside.max() == 0
    back = decoded(codes.numpy(), peak.numpy(), beside.numpy(), placed.numpy())
    assert (np.abs(back - rows.numpy()).max(-1) <= rows.numpy().max(-1) * (1 / LEVELS + 2**-10)).all()
    assert torch.equal(peak, peak.half().float())  # as the page carries it


def test_a_class_token_that_takes_most_of_a_row_leaves_all_shades_to_the_map() -> None:
    """As in DINOv2: with 74 % on the class token, hundredths of the row's largest showed three colours."""
    patches = torch.linspace(0.0, 1.0, 256)
    row = torch.cat([torch.tensor([0.74]), 0.26 * patches / patches.sum()])[None]
    placed = torch.arange(257)[None] > 0
    codes, peak, beside = coded(row, placed)
    assert len(codes[0, 1:].unique()) > 150
    back = decoded(codes.numpy(), peak.numpy(), beside.numpy(), placed.numpy())
    assert back[0, 0] == pytest.approx(0.74, rel=1e-3)
    assert back[0, 1:] == pytest.approx(row[0, 1:].numpy(), abs=0.005 * float(row[0, -1]))


def test_a_row_of_nothing_stays_nothing() -> None:
    codes, peak, beside = coded(torch.zeros(1, 3), torch.tensor([[False, True, True]]))
    assert codes.sum() == 0
    assert peak.item() == beside.item() == 0


def test_a_small_grid_is_kept_whole() -> None:
    geometry = full_grid(4, 8, prefix=1)
    weights = random_rows(2, 1, 3, 17, 17)
    kept = kept_rows(geometry, 8)
    rows = kept.rows(weights)
    assert kept.queries[:3].tolist() == [[PREFIX, 0, 0], [MEAN, 0, 0], [0, 0, 0]]
    assert kept.queries[-1].tolist() == [3, 3, 0]
    assert kept.grids == (4, 4, 4, 4, 1)
    assert torch.equal(rows[:, :, 0], weights[:, 0, :, 0])
    assert torch.allclose(rows[:, :, 1], weights[:, 0, :, 1:].mean(2))
    assert torch.equal(rows[:, :, 2:], weights[:, 0, :, 1:])
    assert kept.keys[0, [0, 1, 6]].tolist() == [[PREFIX, 0], [0, 0], [1, 1]]
    assert len(kept.queries) == count_queries(geometry, (32, 32), 8)


def test_a_fine_grid_is_thinned_from_edge_to_edge() -> None:
    geometry = full_grid(14, 16)
    kept = kept_rows(geometry, 4)
    assert kept.queries[1:, 0].tolist() == [0] * 4 + [4] * 4 + [9] * 4 + [13] * 4
    assert len(kept.queries) == count_queries(geometry, (224, 224), 4) == 17
    weights = random_rows(1, 1, 1, 196, 196)
    assert torch.equal(kept.rows(weights)[0, 0, 6], weights[0, 0, 0, 4 * 14 + 4])
    assert torch.allclose(kept.rows(weights)[0, 0, 0], weights[0, 0, 0].mean(0))  # the mean is over all, not the kept


def test_many_keys_are_summed_in_square_groups() -> None:
    geometry = full_grid(25, 2, prefix=1)
    weights = random_rows(1, 1, 2, 626, 626)
    kept = kept_rows(geometry, 8)
    rows = kept.rows(weights)
    assert kept.grids == (25, 25, 25, 25, 2)
    assert rows.shape[-1] == 1 + 13 * 13
    assert rows.shape[-1] <= 1 + MOST_KEYS
    corner = kept.keys[0].tolist().index([12, 12])  # a single key in the corner: 25 is odd
    assert torch.equal(rows[0, 1, 0, corner], weights[0, 0, 1, 0, -1])
    at = kept.keys[0].tolist().index([1, 2])
    grid = weights[0, 0, 1, 0, 1:].reshape(25, 25)
    assert rows[0, 1, 0, at].item() == pytest.approx(grid[2:4, 4:6].sum().item())
    assert rows.sum(-1).numpy() == pytest.approx(np.ones(rows.shape[:-1]))


def test_windows_keep_their_own_keys_where_they_lie() -> None:
    """Two windows side by side in a 2×4 grid; the second lists its cells backwards."""
    left = np.array([[4.0, 4], [4, 12], [20, 4], [20, 12]])
    places = np.stack([left, (left + np.array([0, 16]))[::-1]])
    weights = random_rows(1, 2, 1, 4, 4)
    kept = kept_rows(geometry_of(places), 8)
    rows = kept.rows(weights)
    assert kept.queries.tolist() == [
        [0, 0, 0],
        [0, 1, 0],
        [0, 2, 1],
        [0, 3, 1],
        [1, 0, 0],
        [1, 1, 0],
        [1, 2, 1],
        [1, 3, 1],
    ]
    seen = dict(zip(map(tuple, kept.keys[1].tolist()), rows[0, 0, 3].tolist(), strict=True))
    # The query in row 1, column 4 is the third token of the second window (its cells run backwards).
    own = weights[0, 1, 0, 2].tolist()
    assert seen == {(1, 3): own[0], (1, 2): own[1], (0, 3): own[2], (0, 2): own[3]}
    assert MEAN not in kept.queries[:, 0]


def test_padding_of_a_window_is_one_key_without_a_place() -> None:
    places = np.array(
        [[[4.0, 4], [4, 12], [np.nan, np.nan], [np.nan, np.nan]], [[4.0, 20], [4, 28], [12, 20], [12, 28]]]
    )
    kept = kept_rows(geometry_of(places), 8)
    rows = kept.rows(random_rows(1, 2, 1, 4, 4))
    assert kept.keys[0].tolist() == [[PREFIX, PREFIX], [0, 0], [0, 1], [NOTHING, 0]]
    assert rows.sum(-1).numpy() == pytest.approx(np.ones(rows.shape[:-1]))


def test_pooled_keys_have_a_grid_of_their_own() -> None:
    fine, coarse = full_grid(4, 8).query_yx, full_grid(2, 16).query_yx
    assert fine is not None
    geometry = geometry_of(fine, coarse)
    kept = kept_rows(geometry, 8)
    assert kept.grids == (4, 4, 2, 2, 1)
    assert count_keys(geometry) == 4
    assert kept.rows(random_rows(1, 1, 1, 16, 4)).shape == (1, 1, 17, 4)
