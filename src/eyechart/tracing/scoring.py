"""What counts as right on changed pictures: the class, or else what the subject itself said of the intact one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from eyechart.measures.measure import Scene
    from eyechart.tracing.bench import Bench

Scored = Literal["accuracy", "agreement"]


def scored(scene: Scene, subject: str) -> Scored:
    """Agreement with the intact answer says nothing of right or wrong, so no claim is decided by it."""
    return "accuracy" if subject in scene.label_maps else "agreement"


def wanted(bench: Bench, intact: Tensor) -> Tensor:
    """The answer (image,) that counts as right, -1 where none does; `intact` are the logits of the intact pictures."""
    return intact.argmax(1) if bench.targets is None else bench.targets.cpu()


def right(logits: Tensor, target: Tensor) -> Tensor:
    """1.0 where an answer is the wanted one, (image,); 0 where none is known: `known` counts those out."""
    return (logits.argmax(1) == target).double()


def known(target: Tensor) -> Tensor:
    return (target >= 0).to(torch.float64)
