"""HSIC against the U-statistic it estimates, and where other implementations of CKA go wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from eyechart.methods.hsic import AT_ONCE, PANEL, PIECE, gram, gram_in_pieces, hsic_table, packed


def u_statistic(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
    """HSIC by its definition: the mean over all ordered 4-tuples of different images."""
    terms = [k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]) for i, j, q, r in itertools.permutations(range(len(k)), 4)]
    return float(np.mean(terms))


def cka(x: torch.Tensor, y: torch.Tensor) -> float:
    table = hsic_table(torch.stack([gram(x), gram(y)])).numpy()
    return float(table[0, 1] / np.sqrt(table[0, 0] * table[1, 1]))


def reference(x: torch.Tensor, y: torch.Tensor) -> float:
    """The same in float64 throughout, features centred."""
    x, y = (z.double() - z.double().mean(0) for z in (x, y))
    table = hsic_table(torch.stack([x @ x.T, y @ y.T])).numpy()
    return float(table[0, 1] / np.sqrt(table[0, 0] * table[1, 1]))


@pytest.mark.parametrize("n", [4, 7])
def test_hsic_is_the_u_statistic_over_all_4_tuples(n: int) -> None:
    x, y = torch.randn(n, 5, dtype=torch.float64), torch.randn(n, 3, dtype=torch.float64)
    k, l = (x @ x.T), (y @ y.T)  # noqa: E741
    table = hsic_table(torch.stack([k, l]))
    assert table[0, 1].item() == pytest.approx(u_statistic(k.numpy(), l.numpy()), abs=1e-12)
    assert table[0, 0].item() == pytest.approx(u_statistic(k.numpy(), k.numpy()), abs=1e-12)


@pytest.mark.parametrize("offset", [0, 3, 10, 30, 1000])
def test_an_offset_does_no_harm(offset: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 300, generator=generator)
    y = x[:, :100] + 0.5 * torch.randn(64, 100, generator=generator)
    assert cka(x + offset, y + offset) == pytest.approx(reference(x + offset, y + offset), abs=1e-4)
    assert cka(x + offset, y + offset) == pytest.approx(reference(x, y), abs=1e-4)


def test_invariances() -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(40, 30, generator=generator), torch.randn(40, 30, generator=generator)
    y = x + y
    rotation = torch.linalg.qr(torch.randn(30, 30, generator=generator)).Q
    assert cka(x, x) == pytest.approx(1, abs=1e-6)
    assert cka(x, y) == pytest.approx(cka(y, x), abs=1e-12)
    assert cka(7 * x @ rotation + torch.randn(30, generator=generator), y) == pytest.approx(cka(x, y), abs=1e-5)


def test_independent_features_have_none_in_common() -> None:
    # The biased estimator would give about p / (n + p) = 0.75 here.
    generator = torch.Generator().manual_seed(3)
    assert abs(cka(torch.randn(256, 768, generator=generator), torch.randn(256, 768, generator=generator))) < 0.02


def test_wide_features_are_multiplied_in_pieces() -> None:
    x = torch.randn(5, 3, 150, 150)
    centred = (x - x.mean(0)).flatten(1)
    torch.testing.assert_close(gram(x), centred @ centred.T, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
@pytest.mark.parametrize("images", [1, PANEL, 2 * PANEL + 7])
def test_a_gram_matrix_is_made_in_panels_and_mirrored(images: int, offset: float) -> None:
    features = torch.randn(images, 3 * AT_ONCE // images + 5, generator=torch.Generator().manual_seed(0)) + offset
    in_full = features.double() - features.double().mean(0)
    found, expected = gram(features), in_full @ in_full.T
    assert torch.equal(found, found.T)
    assert (found - expected).abs().max() <= 2e-6 * max(1.0, offset / 10) * expected.abs().max()


@pytest.mark.parametrize("width", [5, PIECE, 3 * PIECE + 11])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_an_accelerator_s_pieces_add_up_to_the_same(
    width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eyechart.methods.hsic.THERE_AT_ONCE", 2 * PIECE * 6)  # several steps of several pieces
    features = (torch.randn(6, width, generator=torch.Generator().manual_seed(0)) + 1000).to(dtype)
    in_full = features.double()
    expected = (in_full - in_full.mean(0)) @ (in_full - in_full.mean(0)).T
    wide = torch.promote_types(dtype, torch.float32)
    found = gram_in_pieces(features, wide)
    assert found.dtype == wide
    assert (found - expected).abs().max() < (1e-12 if dtype == torch.float64 else 1e-3) * expected.abs().max()


def test_packed_vectors_multiply_to_the_unbiased_hsic() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(9, 3, 5, generator=generator) + 100
    vectors = packed(tokens).double()
    expected = hsic_table(torch.stack([gram(tokens[:, t]) for t in range(3)]))
    torch.testing.assert_close(vectors @ vectors.T, expected, rtol=1e-5, atol=1e-5)


def test_many_tokens_are_packed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.randn(6, 5, 4)
    whole = packed(tokens)
    monkeypatch.setattr("eyechart.methods.hsic.AT_ONCE", 6 * 6 * 2)
    torch.testing.assert_close(packed(tokens), whole)


def test_a_short_last_batch_is_packed_to_nothing() -> None:
    assert packed(torch.randn(3, 2, 4)).abs().sum() == 0
    assert packed(torch.randn(1, 2, 4)).shape == (2, 0)
