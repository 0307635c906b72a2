"""What a measure asks of the forward pass that all measures share: which view, at which sites.

A *view* is a reduction taken inside the tap, while the tensor exists: raw activations never leave a pass. Views are
shared by name: two measures that ask for the same view of the same site get one computation. What needs passes of its
own (gradients, removed skips, other pictures) is an experiment: see `tracing/bench.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eyechart.sites import Anatomy, Site

if TYPE_CHECKING:
    import torch

    from eyechart.tracing.views import Look


@dataclass(frozen=True)
class View:
    """A named reduction of what a tap sees.

    `take` gets one micro-batch and returns a tensor whose leading axis is the image. `reduce`, where given, needs all
    images of the statistical batch at once (a Gram matrix does): it is applied inside the tap when the batch runs
    whole, and to the concatenated pieces when it had to be cut. `before` views look at a junction's operands before the
    addition runs, because `x += shortcut` destroys one of them.
    """

    name: str
    take: Callable[[Look], torch.Tensor]
    reduce: Callable[[torch.Tensor], torch.Tensor] | None = None
    before: bool = False


@dataclass(frozen=True)
class Need:
    view: View
    sites: Callable[[Anatomy], Sequence[Site]]
