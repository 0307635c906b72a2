"""Changes to a pass, made through the same tap that looks at it.

A junction computes `sum = skip + branch`; an attention `output = weights @ values`. Each intervention names a site of
the subject's anatomy (or, to replace an operation, a module) and says what is computed there instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from eyechart.sites import Address


@dataclass(frozen=True)
class Scale:
    """sum = `skip` · skip + `branch` · branch"""

    site: str
    skip: float = 1.0
    branch: float = 1.0

    def combine(self, skip: Tensor, branch: Tensor) -> Tensor:
        if self.skip == 0:
            return branch if self.branch == 1 else branch * self.branch
        if self.branch == 0:
            return skip if self.skip == 1 else skip * self.skip
        return skip * self.skip + branch * self.branch


def RemoveSkip(site: str) -> Scale:
    """sum = branch"""
    return Scale(site, skip=0.0)


def Lesion(site: str) -> Scale:
    """sum = skip: the branch is cut out."""
    return Scale(site, branch=0.0)


@dataclass(frozen=True)
class ReplaceAttention:
    """output = change(weights) @ values, with weights (image, window, head, query, key)."""

    site: str
    change: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ReplaceOperation:
    """What a module returns becomes `change(its first input)`; at an address, `change(operands…)` of that operation."""

    at: str | Address
    change: Callable[..., Any]


Intervention = Scale | ReplaceAttention | ReplaceOperation
