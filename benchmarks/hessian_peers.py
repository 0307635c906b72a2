"""The five largest Hessian eigenvalues by eyechart, by its peers, and in float64. Peers are only called.

Each way returns the values, the largest magnitude first, and how many Hessian-vector products it took.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from eyechart.curvature import Hessian, eigenvalues_of
from eyechart.curvature.hessian import twice_differentiable

TOP = 5
TOLERANCE = 1e-4
Found = tuple[np.ndarray, int]


def loss_of(model: nn.Module) -> Callable[..., Tensor]:
    return lambda weights, images, labels: F.cross_entropy(functional_call(model, weights, (images,)), labels)


def eyechart(model: nn.Module, images: Tensor, targets: Tensor) -> Found:
    found = eigenvalues_of(Hessian(loss_of(model), dict(model.named_parameters()), images, targets))
    return found.values, found.products


def float64(model: nn.Module, images: Tensor, targets: Tensor) -> Found:
    """ARPACK to 1e-10 over products in float64: what the others are checked by."""
    parameters = {name: parameter.double() for name, parameter in model.named_parameters()}
    operator = Hessian(loss_of(model), parameters, images.double(), targets)
    return by_arpack(
        lambda vector: operator.multiply(torch.from_numpy(vector.reshape(1, -1)).to(images.device))[0].cpu().numpy(),
        operator.parameters,
        np.dtype(np.float64),
        1e-10,
    )


def by_arpack(multiply: Callable[[np.ndarray], np.ndarray], size: int, dtype: np.dtype[Any], tolerance: float) -> Found:
    from scipy.sparse.linalg import LinearOperator, eigsh

    products = 0

    def counted(vector: np.ndarray) -> np.ndarray:
        nonlocal products
        products += 1
        return multiply(vector)

    linear = LinearOperator((size, size), matvec=counted, dtype=dtype)
    start = np.random.default_rng(0).standard_normal(size).astype(dtype)
    values = eigsh(linear, k=TOP, which="LM", tol=tolerance, v0=start, return_eigenvectors=False)
    return in_order(values), products


def in_order(values: np.ndarray) -> np.ndarray:
    return values[np.argsort(-np.abs(values))]


def pyhessian(model: nn.Module, images: Tensor, targets: Tensor) -> Found:
    """With its defaults."""
    import pyhessian as package

    counted = 0
    multiply = package.hessian.__init__.__globals__["hessian_vector_product"]

    def counting(*arguments: Any) -> Any:
        nonlocal counted
        counted += 1
        return multiply(*arguments)

    package.hessian.__init__.__globals__["hessian_vector_product"] = counting
    try:
        with twice_differentiable():
            found = package.hessian(model, F.cross_entropy, data=(images, targets), cuda=images.is_cuda)
            values, _ = found.eigenvalues(top_n=TOP)
    finally:
        package.hessian.__init__.__globals__["hessian_vector_product"] = multiply
        model.zero_grad(set_to_none=True)
    return np.array(values), counted


def curvlinops(model: nn.Module, images: Tensor, targets: Tensor) -> Found:
    """Its operator under SciPy's eigsh, as its manual shows, to the accuracy asked for."""
    from curvlinops import HessianLinearOperator

    with twice_differentiable():
        operator = HessianLinearOperator(model, nn.CrossEntropyLoss(), list(model.parameters()), [(images, targets)])
        linear = operator.to_scipy()
        return by_arpack(linear.matvec, linear.shape[0], np.dtype(np.float32), TOLERANCE)


def eigenthings(steps: int | None) -> Callable[[nn.Module, Tensor, Tensor], Found]:
    """Its Lanczos with so many steps; None: its default, twice as many as eigenvalues."""

    def way(model: nn.Module, images: Tensor, targets: Tensor) -> Found:
        import hessian_eigenthings as package

        with twice_differentiable():
            operator = package.HessianOperator(model, [(images, targets)], package.supervised_loss(F.cross_entropy))
            multiply, products = operator.matvec, 0

            def counted(vector: Tensor) -> Tensor:
                nonlocal products
                products += 1
                return multiply(vector)

            operator.matvec = counted
            found = package.lanczos(operator, k=TOP, max_iter=steps, tol=TOLERANCE, seed=0)
        return in_order(found.eigenvalues.detach().cpu().double().numpy()), products

    return way


WAYS: dict[str, Callable[[nn.Module, Tensor, Tensor], Found]] = {
    "eyechart": eyechart,
    "PyHessian": pyhessian,
    "curvlinops + eigsh": curvlinops,
    "hessian-eigenthings": eigenthings(None),
    "hessian-eigenthings, 40 steps": eigenthings(40),
}
IMPORTED = {
    "PyHessian": "pyhessian",
    "curvlinops + eigsh": "curvlinops",
    "hessian-eigenthings": "hessian_eigenthings",
    "hessian-eigenthings, 40 steps": "hessian_eigenthings",
}


def ways_here() -> list[str]:
    """Those whose packages are installed."""
    return [way for way in WAYS if way not in IMPORTED or find_spec(IMPORTED[way]) is not None]
