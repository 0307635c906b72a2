"""Hessian-vector products and weight penalties against autograd's own dense Hessians."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from eyechart.curvature import Hessian, Hessians, Penalty
from eyechart.curvature.l2 import Form
from eyechart.errors import UsageError


def test_products_are_those_of_the_dense_hessian() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 3)).double().eval()
    images, labels = torch.randn(6, 5, dtype=torch.float64), torch.arange(6) % 3
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    flat = torch.cat([weight.reshape(-1) for weight in weights.values()])

    def of_flat(vector: torch.Tensor) -> torch.Tensor:
        parts = torch.split(vector, [weight.numel() for weight in weights.values()])
        shaped = {name: part.view_as(weight) for (name, weight), part in zip(weights.items(), parts, strict=True)}
        return F.cross_entropy(functional_call(model, shaped, (images,)), labels)

    truth = torch.autograd.functional.hessian(of_flat, flat)
    operator = Hessian(lambda w: F.cross_entropy(functional_call(model, w, (images,)), labels), weights)
    vector = torch.randn(1, len(flat), dtype=torch.float64)
    assert torch.allclose(operator.multiply(vector), vector @ truth)
    assert torch.allclose(operator.multiply(vector), operator.multiply(vector))  # the graph is kept
    assert torch.allclose(operator.gradient[0], torch.autograd.functional.jacobian(of_flat, flat))
    assert float(operator.losses) == pytest.approx(float(of_flat(flat)))


def test_the_module_is_left_as_it_was() -> None:
    model = nn.Linear(3, 2).requires_grad_(False)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    images = torch.randn(4, 3)
    Hessian(lambda w: functional_call(model, w, (images,)).square().sum(), dict(model.named_parameters())).multiply(
        torch.ones(1, 8)
    )
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])
        assert weight.grad is None
        assert not weight.requires_grad


def test_fused_attention_and_tf32_are_off_only_inside() -> None:
    queries = torch.randn(1, 2, 4, 8)
    tf32 = torch.backends.cudnn.allow_tf32
    attend = lambda w: F.scaled_dot_product_attention(w["q"], w["q"], w["q"]).square().sum()  # noqa: E731
    operator = Hessian(attend, {"q": queries})
    assert operator.multiply(torch.ones(1, 64)).isfinite().all()
    assert torch.backends.cudnn.allow_tf32 == tf32
    assert torch.backends.cuda.flash_sdp_enabled()


def test_several_minibatches_have_a_block_each() -> None:
    weights = {"w": torch.randn(3, dtype=torch.float64)}
    points = torch.randn(5, 4, 3, dtype=torch.float64)
    loss = lambda w, x: (x @ w["w"]).sin().sum()  # noqa: E731
    together = Hessians(loss, weights, [points])
    vectors = torch.randn(5, 3, dtype=torch.float64)
    for number in range(5):
        alone = Hessian(loss, weights, points[number])
        assert torch.allclose(together.multiply(vectors)[number], alone.multiply(vectors[number : number + 1])[0])


@pytest.mark.parametrize("form", ["none", "norms", "half"])
def test_penalties_are_second_derivatives(form: Form) -> None:
    torch.manual_seed(1)
    weights = {"a": torch.randn(3, 2, dtype=torch.float64), "b": torch.randn(4, dtype=torch.float64)}
    penalty = Penalty(form, 0.7, weights)

    def value(w: dict[str, torch.Tensor]) -> torch.Tensor:
        norms = [tensor.norm() for tensor in w.values()]
        return {"none": 0 * norms[0], "norms": 0.7 * sum(norms), "half": 0.35 * sum(n**2 for n in norms)}[form]

    by_autograd = Hessian(value, weights)
    vectors = torch.randn(2, 10, dtype=torch.float64)
    for vector in vectors:
        assert torch.allclose(penalty.multiply(vector[None]), by_autograd.multiply(vector[None]), atol=1e-12)
    assert torch.allclose(penalty.sandwich(vectors), vectors @ penalty.multiply(vectors).T)
    assert penalty.value() == pytest.approx(float(value(weights)))


def test_tensors_next_to_zero_are_left_out_and_named() -> None:
    weights = {"bias": torch.zeros(4), "tiny": torch.full((4,), 1e-6), "w": torch.ones(4)}
    penalty = Penalty("norms", 1.0, weights)
    assert penalty.left_out == ("bias", "tiny")
    assert penalty.multiply(torch.ones(1, 12))[0, :8].abs().max() == 0
    assert penalty.steepest_repeated == pytest.approx(0.5)
    assert Penalty("half", 1.0, weights).left_out == ()


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 0"):
        Penalty("half", -1.0, {})
