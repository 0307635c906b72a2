"""A training that does not notice an exam in its midst: everything that could change its next step is put back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Inside, an exam may run on the module; afterwards module and process are as they were, bit for bit.

    Parameters, buffers and their `requires_grad`, gradients (set aside meanwhile), train or eval mode of every part,
    the random numbers of torch (every device), NumPy and Python, and the precision of products. Autocast, `no_grad`
    and `inference_mode` of the caller are suspended.

    >>> part = nn.Dropout().train()
    >>> with untouched(part):
    ...     drawn = torch.rand(1), part.eval().training
    >>> part.training, bool(torch.rand(1) == drawn[0])
    (True, True)
    """
    with ExitStack() as stack:
        for put_back in (_random_numbers(), _precision(), _modes(module), _tensors(module)):
            stack.callback(put_back)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in {"cpu", *(tensor.device.type for tensor in module.parameters())} - {"meta"}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


PutBack = Callable[[], None]


def _random_numbers() -> PutBack:
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        if mps is not None:
            torch.mps.set_rng_state(mps)

    return put_back


def _modes(module: nn.Module) -> PutBack:
    before = [(part, part.training) for part in module.modules()]

    def put_back() -> None:
        for part, training in before:
            part.training = training  # not `train()`: some modules keep parts of theirs in eval mode

    return put_back


def _tensors(module: nn.Module) -> PutBack:
    """Parameters and buffers: which they are, what they hold, whether they learn; gradients wait outside."""
    places = [
        (held, name, tensor)
        for part in module.modules()
        for held in (part._parameters, part._buffers)
        for name, tensor in held.items()
    ]
    tensors = {id(tensor): tensor for _, _, tensor in places if tensor is not None}.values()
    before = [(tensor, tensor.detach().clone(), tensor.requires_grad) for tensor in tensors]
    gradients = [(tensor, tensor.grad) for tensor in tensors if tensor.is_leaf]
    for tensor, _ in gradients:
        tensor.grad = None

    def put_back() -> None:
        for held, name, tensor in places:
            held[name] = tensor  # type: ignore[assignment]
        for tensor, value, learns in before:
            tensor.data.copy_(value)  # by .data: autograd does not count it as a change
            if tensor.requires_grad != learns:
                tensor.requires_grad_(learns)
        for tensor, gradient in gradients:
            tensor.grad = gradient

    return put_back


def _precision() -> PutBack:
    """TF32 and its like. torch has two sets of switches over one state; the old ones raise where the new were used."""
    backends = torch.backends
    old: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [
        (lambda: backends.cuda.matmul.allow_tf32, lambda on: setattr(backends.cuda.matmul, "allow_tf32", on)),
        (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),  # after the line above, which is coarser
        (lambda: backends.cudnn.allow_tf32, lambda on: setattr(backends.cudnn, "allow_tf32", on)),
    ]
    switches: list[Any] = [backends.cuda.matmul, getattr(backends.mkldnn, "matmul", None)]
    switches += [getattr(backends.cudnn, name, None) for name in ("conv", "rnn")]
    before = [_or_none(read) for read, _ in old]
    finer = [(each, each.fp32_precision) for each in switches if hasattr(each, "fp32_precision")]

    def put_back() -> None:
        for (_, write), value in zip(old, before, strict=True):
            if value is not None:
                write(value)
        for each, value in finer:
            if each.fp32_precision != value:
                each.fp32_precision = value

    return put_back


def _or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:
        return None
