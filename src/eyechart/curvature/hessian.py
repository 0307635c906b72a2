"""Hessian-vector products of a loss in a module's parameters.

The gradient is computed once with its own graph, and each product H v = ∇(∇L · v) walks that graph backwards: no
forward pass is repeated. `Hessians` does so for many minibatches at once: every minibatch gets its own view of the
same parameters, so that the gradient in all views together has a block-diagonal Hessian, one block a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Parameters = Mapping[str, Tensor]


class Hessians:
    """Hessians of the same loss on several minibatches, multiplied all at once.

    `loss(parameters, *batch)` gives one number; each tensor of `batches` has the minibatch as its first axis. It works
    in the parameters' precision. Parameters that the loss does not depend on have zero rows.
    """

    def __init__(self, loss: Callable[..., Tensor], parameters: Parameters, batches: Sequence[Tensor]) -> None:
        self.count = len(batches[0])
        self.sizes = [tensor.numel() for tensor in parameters.values()]
        views = {name: spread(tensor, self.count) for name, tensor in parameters.items()}
        with twice_differentiable():
            if self.count == 1:  # no vectorising: it has a price, and some modules refuse it
                alone = {name: tensor[0] for name, tensor in views.items()}
                total = loss(alone, *(part[0] for part in batches))
                self.losses = total.detach()[None]
            else:
                each = torch.vmap(loss, randomness="different")(views, *batches)
                total, self.losses = each.sum(), each.detach()
            self._views = list(views.values())
            gradients = torch.autograd.grad(total, self._views, create_graph=True, allow_unused=True)
        self.gradient = self._flat(gradients)
        #: A gradient that depends on no parameter (a linear loss) has no graph to walk.
        self._gradients = [gradient for gradient in gradients if gradient is not None and gradient.requires_grad]
        self._curved = [gradient is not None and gradient.requires_grad for gradient in gradients]

    @property
    def parameters(self) -> int:
        return sum(self.sizes)

    def multiply(self, vectors: Tensor) -> Tensor:
        """H v of every minibatch: (minibatch, parameter) in and out."""
        if not self._gradients:
            return torch.zeros_like(vectors)
        parts = torch.split(vectors.to(self._views[0].dtype), self.sizes, dim=1)
        shaped = [
            part.view_as(view) for part, view, curved in zip(parts, self._views, self._curved, strict=True) if curved
        ]
        with twice_differentiable():
            products = torch.autograd.grad(
                self._gradients, self._views, grad_outputs=shaped, retain_graph=True, allow_unused=True
            )
        return self._flat(products).to(vectors.dtype)

    def _flat(self, tensors: Sequence[Tensor | None]) -> Tensor:
        columns = [
            torch.zeros(self.count, size, dtype=view.dtype, device=view.device)
            if tensor is None
            else tensor.detach().reshape(self.count, size)
            for tensor, view, size in zip(tensors, self._views, self.sizes, strict=True)
        ]
        return torch.cat(columns, dim=1)


class Hessian(Hessians):
    """The Hessian of one loss; `batch` is whatever the loss takes after the parameters.

    >>> import torch
    >>> square = Hessian(lambda weights: (weights["w"] ** 2).sum(), {"w": torch.ones(3)})
    >>> square.multiply(torch.tensor([[1.0, 0.0, 2.0]]))
    tensor([[2., 0., 4.]])
    """

    def __init__(self, loss: Callable[..., Tensor], parameters: Parameters, *batch: Any) -> None:
        super().__init__(lambda weights, _: loss(weights, *batch), parameters, [torch.zeros(1, 0)])


def spread(tensor: Tensor, count: int) -> Tensor:
    """`count` copies of a tensor to differentiate by, along a new first axis, which share its memory."""
    return tensor.detach().expand(count, *tensor.shape).requires_grad_()


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention in plain products, because fused kernels have no second derivative; no TF32, which keeps 10 bits."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.enable_grad(), sdpa_kernel([SDPBackend.MATH]):
            yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
