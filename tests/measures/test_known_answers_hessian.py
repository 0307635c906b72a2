"""M16 above 5,000 parameters, where no dense Hessian is at hand: converged `eigsh` is the oracle (SPEC, Appendix A)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor
from torch.func import functional_call

from eyechart import zoo
from eyechart.curvature import Hessian, eigenvalues_of


def test_a_trained_vit_agrees_with_converged_eigsh_within_30_products() -> None:
    """In float32 and with at most 30 products, to 1e-4 of float64 `eigsh` of tolerance 1e-10."""
    torch.manual_seed(0)
    model = zoo.build("vit", width=24, depth=2, heads=2, patch=4, image_size=8).train()
    images, labels = torch.randn(16, 3, 8, 8), torch.arange(16) % 10
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(30):
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
    model.eval()

    def loss(weights: dict[str, Tensor], images: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (images,)), labels)

    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    exact = Hessian(loss, {name: weight.double() for name, weight in weights.items()}, images.double())
    assert exact.parameters > 10_000
    found = eigenvalues_of(Hessian(loss, weights, images), top=5)

    def multiply(vector: np.ndarray) -> np.ndarray:
        return exact.multiply(torch.from_numpy(vector.ravel())[None])[0].numpy()

    size = (exact.parameters, exact.parameters)
    start = np.random.default_rng(0).standard_normal(exact.parameters)
    operator = LinearOperator(size, matvec=multiply, dtype=np.float64)
    truth = {
        which: eigsh(operator, k=k, which=which, tol=1e-10, v0=start, return_eigenvectors=False)
        for which, k in (("LM", 5), ("LA", 1), ("SA", 1))
    }
    largest = truth["LM"][np.argsort(-np.abs(truth["LM"]))]
    assert found.products <= 30
    np.testing.assert_allclose(found.values, largest, rtol=1e-4)
    assert found.highest == pytest.approx(truth["LA"][0], rel=1e-4)
    # The lowest is 250 times smaller and close to others: it takes more products, and until then its error says so.
    off = abs(found.lowest - truth["SA"][0])
    assert off <= found.lowest_error
    assert not found.extremes_settled(1e-3)
    more = eigenvalues_of(Hessian(loss, weights, images), top=5, most=80)
    assert more.extremes_settled(1e-3)
    assert more.lowest == pytest.approx(truth["SA"][0], rel=1e-3)
