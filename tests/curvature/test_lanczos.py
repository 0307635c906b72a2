"""Eigenvalues with their errors: spectra that are known, dense Hessians, and saddles that fool power iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from eyechart import zoo
from eyechart.curvature import Hessian, Hessians, Penalty, eigenvalues_of, krylov_spaces, spectra
from eyechart.curvature.lanczos import Krylov, inner


def quadratic(eigenvalues: list[float] | Tensor, seed: int = 0, dtype: torch.dtype = torch.float64) -> Hessian:
    """½ x'Ax with a known spectrum, at a random place."""
    values = torch.as_tensor(eigenvalues, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(len(values), len(values), generator=generator, dtype=torch.float64))
    matrix = (turn * values) @ turn.T
    place = torch.randn(len(values), generator=generator, dtype=torch.float64)
    return Hessian(lambda weights: weights["x"] @ matrix.to(dtype) @ weights["x"] / 2, {"x": place.to(dtype)})


def test_a_quadratic_shows_its_spectrum() -> None:
    bulk = torch.linspace(-1, 1, 300, dtype=torch.float64)
    found = eigenvalues_of(
        quadratic(torch.cat([torch.tensor([9.0, -7.0, 5.0, 4.0, -3.0]).double(), bulk])), tolerance=1e-9, most=60
    )
    np.testing.assert_allclose(found.values, [9, -7, 5, 4, -3], rtol=1e-8)
    assert found.lowest == pytest.approx(-7)
    assert found.highest == pytest.approx(9)
    assert (found.residuals < 1e-3).all()


def test_a_saddle_has_one_negative_eigenvalue_of_the_right_size() -> None:
    saddle = Hessian(lambda w: w["x"] ** 2 - 0.5 * w["y"] ** 2, {"x": torch.tensor(0.0), "y": torch.tensor(0.0)})
    found = eigenvalues_of(saddle, top=2)
    np.testing.assert_allclose(found.values, [2, -1], rtol=1e-6)  # the gradient is zero here: the start is random


@pytest.mark.parametrize("seed", range(8))
def test_nearly_equal_eigenvalues_of_both_signs_are_told_apart(seed: int) -> None:
    """Power iteration stops between 9 and -8.9 at anything, such as 1.28 (SPEC T6)."""
    values = torch.cat([torch.tensor([9.0, -8.9]), torch.linspace(-2, 2, 80)])
    found = eigenvalues_of(quadratic(values, seed), top=2, tolerance=1e-6)
    np.testing.assert_allclose(found.values, [9, -8.9], rtol=1e-6)


@pytest.mark.parametrize("seed", [4, 18])
def test_a_value_that_settles_late_is_waited_for(seed: int) -> None:
    """+5.9 lies among others and settles after −5.6 at the end of the spectrum, which is not one of the five."""
    above = torch.tensor([20, 12, 8.2, -7.4, 5.9, -5.6, 5.2, -5.0, 4.4, 4.0, -3.6], dtype=torch.float64)
    values = torch.cat([above, torch.linspace(-3, 3.4, 200, dtype=torch.float64)])
    found = eigenvalues_of(quadratic(values, seed), tolerance=1e-3, most=60)
    np.testing.assert_allclose(found.values, above[:5], rtol=1e-2)
    assert (found.errors <= 1e-3 * abs(found.values)).all()
    early = eigenvalues_of(quadratic(values, seed), tolerance=1e-3, most=14)
    assert early.errors[-1] > 1e-2 * abs(early.values[-1])


def test_residuals_are_the_true_ones_and_bound_the_error() -> None:
    generator, near = np.random.default_rng(0), []
    for seed in range(10):
        values = generator.standard_cauchy(120)
        operator = quadratic(torch.from_numpy(values), seed)
        (space,) = krylov_spaces(operator, top=3, tolerance=1e-2, most=25)
        found, vectors = space.eigenvalues(3), space.vectors(3)
        truth = np.array([values[np.argmin(np.abs(values - value))] for value in found.values])
        off, rounding = np.abs(found.values - truth), 1e-12 * np.abs(truth)
        assert (off <= found.residuals + rounding).all()
        near += (off <= found.errors + rounding).tolist()
        moved = torch.cat([operator.multiply(vector[None]) for vector in vectors])
        residual = (moved - torch.from_numpy(found.values)[:, None] * vectors).norm(dim=1)
        np.testing.assert_allclose(residual, found.residuals, rtol=1e-6, atol=1e-9 * abs(values).max())
    assert np.mean(near) > 0.9  # the errors are estimates


def test_what_is_not_known_after_the_last_product_is_not_called_settled() -> None:
    flat = quadratic(torch.linspace(1, 2, 400))
    found = eigenvalues_of(flat, most=6, tolerance=1e-6)
    assert found.products == 6
    assert not found.settled(1e-6).any()


def test_repeated_eigenvalues_come_back_where_the_chain_ends() -> None:
    found = eigenvalues_of(quadratic([4.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0]), top=3)
    np.testing.assert_allclose(found.values, [4, 4, 4], rtol=1e-8)


def test_more_values_than_parameters_is_no_error() -> None:
    assert len(eigenvalues_of(quadratic([3.0, -1.0]), top=5).values) == 2


def test_a_linear_loss_has_no_curvature() -> None:
    line = Hessian(
        lambda w: (w["x"] * torch.arange(4.0)).sum() + 0 * w["unused"].sum(),
        {"x": torch.ones(4), "unused": torch.ones(2)},
    )
    assert np.abs(eigenvalues_of(line, top=3).values).max() == 0


@pytest.mark.parametrize("seed", range(3))
def test_logistic_regression_is_convex(seed: int) -> None:
    """Float32 rounding makes some eigenvalues negative; none lies beyond 1e-4 of the largest and its own residual."""
    generator = torch.Generator().manual_seed(seed)
    images, labels = torch.randn(16, 50, generator=generator), torch.randint(0, 10, (16,), generator=generator)
    weights = {"w": 0.3 * torch.randn(10, 50, generator=generator), "b": torch.zeros(10)}
    loss = lambda w: F.cross_entropy(images @ w["w"].T + w["b"], labels)  # noqa: E731
    found = eigenvalues_of(Hessian(loss, weights), top=40, most=120)
    beyond = np.maximum(1e-4 * np.abs(found.values[0]), found.residuals)
    assert (found.values < -beyond).sum() == 0
    assert (found.values > beyond).sum() > 20


def test_half_the_squared_norm_shifts_the_spectrum_and_its_ends() -> None:
    values = [6.0, -5.0, 3.0, 2.5, -2.0, 1.0, 0.5, 0.1]
    operator = quadratic(values)
    place = {"x": torch.ones(8, dtype=torch.float64)}
    (space,) = krylov_spaces(operator, top=8)
    shifted = space.eigenvalues(8, Penalty("half", 4.0, place))
    np.testing.assert_allclose(np.sort(shifted.values), np.sort(values) + 4, rtol=1e-12)
    assert (shifted.lowest, shifted.highest) == pytest.approx((-1, 10))
    top = space.eigenvalues(3, Penalty("half", 4.0, place)).values
    np.testing.assert_allclose(top, [10, 7, 6.5])  # -5 + 4 is no longer among the largest


@dataclass(frozen=True)
class Case:
    """A trained ViT on 16 pictures, with its dense Hessian in float64 (for fewer than 5,000 parameters)."""

    model: nn.Module
    images: Tensor
    labels: Tensor

    @property
    def weights(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.model.named_parameters()}

    def loss(self, weights: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(self.model, dict(weights), (images,)), labels)

    @cached_property
    def dense(self) -> Tensor:
        names, weights = list(self.weights), [weight.double() for weight in self.weights.values()]
        sizes = [weight.numel() for weight in weights]

        def of_flat(vector: Tensor) -> Tensor:
            parts = zip(names, torch.split(vector, sizes), weights, strict=True)
            shaped = {name: part.view_as(weight) for name, part, weight in parts}
            return self.loss(shaped, self.images.double(), self.labels)

        flat = torch.cat([weight.reshape(-1) for weight in weights])
        with sdpa_kernel([SDPBackend.MATH]):
            pull = torch.func.vjp(torch.func.grad(of_flat), flat)[1]
            rows: Tensor = torch.func.vmap(pull, chunk_size=128)(torch.eye(len(flat), dtype=torch.float64))[0]
        return rows


def trained_vit(width: int, depth: int) -> Case:
    torch.manual_seed(0)
    model = zoo.build("vit", width=width, depth=depth, heads=2, patch=4, image_size=8).train()
    images, labels = torch.randn(16, 3, 8, 8), torch.arange(16) % 10
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
    return Case(model.eval(), images, labels)


@pytest.fixture(scope="module")
def case() -> Case:
    return trained_vit(width=12, depth=1)


def largest(matrix: Tensor) -> np.ndarray:
    values = torch.linalg.eigvalsh(matrix).numpy()
    return np.asarray(values[np.argsort(-np.abs(values))])


def test_a_trained_vit_agrees_with_its_dense_hessian_within_30_products(case: Case) -> None:
    assert 2000 < len(case.dense) <= 5000
    assert torch.allclose(case.dense, case.dense.T, atol=1e-10)
    truth = largest(case.dense)
    found = eigenvalues_of(Hessian(case.loss, case.weights, case.images, case.labels))
    assert found.products <= 30
    np.testing.assert_allclose(found.values, truth[:5], rtol=1e-4)
    assert (found.lowest, found.highest) == pytest.approx((truth.min(), truth.max()), rel=1e-3)


def test_a_larger_trained_vit_agrees_with_converged_eigsh_within_30_products() -> None:
    """In float32 and with at most 30 products, to 1e-4 of float64 `eigsh` of tolerance 1e-10 (SPEC, Appendix A)."""
    case = trained_vit(width=24, depth=2)
    doubled = {name: weight.double() for name, weight in case.weights.items()}
    exact = Hessian(case.loss, doubled, case.images.double(), case.labels)
    assert exact.parameters > 10_000

    def multiply(vector: np.ndarray) -> np.ndarray:
        return exact.multiply(torch.from_numpy(vector.ravel())[None])[0].numpy()

    operator = LinearOperator((exact.parameters, exact.parameters), matvec=multiply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(exact.parameters)
    ends: dict[Literal["LM", "LA", "SA"], int] = {"LM": 5, "LA": 1, "SA": 1}
    truth = {
        which: eigsh(operator, k=k, which=which, tol=1e-10, v0=start, return_eigenvectors=False)
        for which, k in ends.items()
    }
    operands = (case.loss, case.weights, case.images, case.labels)
    found = eigenvalues_of(Hessian(*operands))
    assert found.products <= 30
    np.testing.assert_allclose(found.values, truth["LM"][np.argsort(-np.abs(truth["LM"]))], rtol=1e-4)
    assert found.highest == pytest.approx(truth["LA"][0], rel=1e-4)
    # The lowest is far smaller and close to others: it takes more products, and until then its error says so.
    assert abs(found.lowest - truth["SA"][0]) <= found.lowest_error
    assert not found.extremes_settled(1e-3)
    more = eigenvalues_of(Hessian(*operands), most=80)
    assert more.extremes_settled(1e-3)
    assert more.lowest == pytest.approx(truth["SA"][0], rel=1e-3)


@pytest.mark.parametrize("weight", [0.01, 5.0])
def test_the_paper_penalty_agrees_with_the_dense_sum(case: Case, weight: float) -> None:
    """A weak one costs no product; a strong one moves the eigenvectors out of the space, and gets its own chain."""
    weights = {name: tensor.double() for name, tensor in case.weights.items()}
    penalty = Penalty("norms", weight, weights)
    batches = [case.images.double()[None], case.labels[None]]
    (found,) = spectra(case.loss, weights, batches, penalty, tolerance=1e-4, most=100)
    truth = largest(case.dense + penalty.multiply(torch.eye(len(case.dense), dtype=torch.float64)))
    # Of an eigenvalue that the penalty repeats one copy is found.
    for value, residual in zip(found.penalised.values, found.penalised.residuals, strict=True):
        assert np.abs(truth - value).min() <= residual + 1e-6 * truth[0]
    if weight < 1:
        np.testing.assert_allclose(found.penalised.values, truth[:5], rtol=1e-3)
        assert found.penalised.products == found.plain.products
        assert np.abs(found.penalised.values / found.plain.values - 1).max() > 1e-5
    else:
        assert found.penalised.values[0] == pytest.approx(truth[0], rel=1e-3)
        assert found.penalised.products > found.plain.products


def test_minibatches_together_are_those_alone(case: Case) -> None:
    batches = case.images.reshape(4, 4, 3, 8, 8), case.labels.reshape(4, 4)
    together = krylov_spaces(Hessians(case.loss, case.weights, batches), most=60)
    for space, images, labels in zip(together, *batches, strict=True):
        alone = eigenvalues_of(Hessian(case.loss, case.weights, images, labels), most=60)
        np.testing.assert_allclose(space.eigenvalues(5).values, alone.values, rtol=1e-4)
        assert abs(len(space.matrix) - alone.products) <= 1


def test_inner_products_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    import eyechart.curvature.lanczos as lanczos

    class Elsewhere(Tensor):
        is_cuda = True

    monkeypatch.setattr(lanczos, "PIECE", 7)
    rows, vector = torch.randn(3, 40, dtype=torch.float64), torch.randn(40, dtype=torch.float64)
    in_pieces = inner(rows, vector.as_subclass(Elsewhere))
    assert torch.allclose(in_pieces.as_subclass(Tensor), rows @ vector)


def test_a_space_knows_its_vectors() -> None:
    (space,) = krylov_spaces(quadratic([5.0, -4.0, 1.0, 0.5]), top=2)
    assert isinstance(space, Krylov)
    assert torch.allclose(space.vectors(2) @ space.vectors(2).T, torch.eye(2, dtype=torch.float64))
