"""SPEC Appendix A, M1, what `test_cka` leaves out: what a biased estimator and a sorted folder would give."""

from __future__ import annotations

import pytest
import torch

from eyechart.measures.cka.measure import Cka
from eyechart.tracing.views import Look
from tests.measures.staging import anatomy, measure_tensors, scene, site


def minibatch_cka(x: torch.Tensor, y: torch.Tensor, block: int) -> float:
    places = [site("one"), site("two", block=1)]
    where = scene(anatomy("a", places), images=len(x), block=block)
    looks = {("a", "one"): Look(places[0], output=x[:, None]), ("a", "two"): Look(places[1], output=y[:, None])}
    return float(measure_tensors(Cka(), where, looks, block).cka[0, 1])


def biased_cka(x: torch.Tensor, y: torch.Tensor) -> float:
    x, y = (z - z.mean(0) for z in (x, y))
    return float((x.T @ y).square().sum() / ((x.T @ x).norm() * (y.T @ y).norm()))


def test_independent_gaussians_are_about_0_where_the_biased_estimator_gives_three_quarters() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 256, 768, generator=generator, dtype=torch.float64).unbind(0)
    assert biased_cka(x, y) == pytest.approx(768 / (256 + 768), abs=0.02)
    assert abs(minibatch_cka(x, y, 256)) < 0.02


def test_minibatches_are_near_the_full_batch_once_shuffled_and_far_from_it_sorted_by_class() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(1024) // 64
    centres = 3 * torch.randn(16, 20, generator=generator)
    x, y = (centres[labels] + torch.randn(1024, 20, generator=generator) for _ in range(2))
    whole, order = minibatch_cka(x, y, 1024), torch.randperm(1024, generator=generator)
    assert whole > 0.7
    assert minibatch_cka(x[order], y[order], 64) == pytest.approx(whole, abs=0.02)
    assert minibatch_cka(x, y, 64) < 0.1  # within a class the two are independent
