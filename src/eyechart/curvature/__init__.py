"""Curvature of a loss: exact Hessian-vector products, and its outermost eigenvalues with their errors.

A room of its own, which knows nothing of exams: any module and loss will do. READ FIRST: `lanczos.py`.

>>> import torch
>>> from eyechart.curvature import Hessian, eigenvalues_of
>>> saddle = lambda weights: weights["x"][0] ** 2 - 0.5 * weights["x"][1] ** 2
>>> found = eigenvalues_of(Hessian(saddle, {"x": torch.zeros(2, dtype=torch.float64)}), top=2)
>>> found.values.round(9).tolist()
[2.0, -1.0]
"""

from eyechart.curvature.hessian import Hessian, Hessians
from eyechart.curvature.l2 import Penalty
from eyechart.curvature.lanczos import Eigenvalues, Krylov, eigenvalues_of, krylov_spaces
from eyechart.curvature.minibatches import Spectrum, spectra

__all__ = [
    "Eigenvalues",
    "Hessian",
    "Hessians",
    "Krylov",
    "Penalty",
    "Spectrum",
    "eigenvalues_of",
    "krylov_spaces",
    "spectra",
]
