"""What the taps expect of a module before they look into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from eyechart.errors import SubjectError


def bare(module: nn.Module) -> nn.Module:
    """The module itself: compiled ones are unwrapped, scripted and traced ones refused."""
    inner = getattr(module, "_orig_mod", module)
    for part in inner.modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise SubjectError(
                f"{type(inner).__name__} was scripted or traced, which hides its operations from the taps;"
                " load it as a plain nn.Module instead."
            )
    return inner


@contextmanager
def plain_attention() -> Iterator[None]:
    """`nn.MultiheadAttention` without its fused fast path, which skips the operations a tap sees."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
