"""A subject's loss as a function of its parameters: what derivatives in the weights are taken of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from eyechart.errors import DoesNotApply
from eyechart.subjects.subject import Subject
from eyechart.training.step import soft_cross_entropy


def weights_and_loss(subject: Subject) -> tuple[dict[str, Tensor], Callable[..., Tensor]]:
    """The parameters, and the mean soft-target cross-entropy as `loss(parameters, images, targets)`.

    In float32 where the subject runs in less: half precision has too few digits for second derivatives.
    """
    caller = Caller(subject)
    weights = {name: at_least_float32(parameter.detach()) for name, parameter in caller.named_parameters()}
    buffers = {name: at_least_float32(buffer) for name, buffer in caller.named_buffers()}

    def loss(weights: Mapping[str, Tensor], images: Tensor, targets: Tensor) -> Tensor:
        logits = functional_call(caller, {**buffers, **weights}, (at_least_float32(images),))
        return soft_cross_entropy(logits, targets)

    return weights, loss


class Caller(nn.Module):
    """A subject as a module from images to logits, however it is called and wherever it keeps them."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.module, self._subject = subject.module, subject

    def forward(self, images: Tensor) -> Tensor:
        logits = self._subject.logits(self._subject.call(images))
        if logits is None:
            raise DoesNotApply(f"{self._subject.name} has no logits.")
        return logits


def at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def no_second_derivative(error: RuntimeError) -> bool:
    """Whether torch refused because an operation can be differentiated only once (hard sigmoid, some fused kernels)."""
    words = str(error)
    return ("is not implemented" in words and "derivative" in words) or "once_differentiable" in words
