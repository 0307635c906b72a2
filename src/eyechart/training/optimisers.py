"""Optimisers, the learning-rate schedule, sharpness-aware minimisation and the average of the weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from eyechart.training.recipes import Recipe


def make_optimiser(module: nn.Module, recipe: Recipe, head: Collection[str] = (), scale: float = 1.0) -> Optimizer:
    """The recipe's optimiser over what is not frozen; weight decay acts on matrices and kernels only.

    Parameters not named in `head` learn at `scale` times the rate. On a GPU the learning rate is a tensor: a captured
    step reads it anew at every replay.
    """
    groups = decay_groups(module, recipe.weight_decay, head, scale)
    on_gpu = next(module.parameters()).is_cuda
    if recipe.optimiser == "adamw":
        if on_gpu:
            groups = [{**group, "lr": torch.tensor(recipe.learning_rate, device="cuda")} for group in groups]
        return AdamW(groups, lr=recipe.learning_rate, fused=on_gpu, capturable=on_gpu)
    return SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, fused=on_gpu)


TABLES = ("pos_embed", "position", "token", "bias")  # in names: what is looked up or added, not multiplied


def decay_groups(
    module: nn.Module, weight_decay: float, head: Collection[str] = (), scale: float = 1.0
) -> list[dict[str, Any]]:
    """Parameters that decay (matrices, kernels), and those that do not: biases, norms, scales, position tables, CLS.

    With a `scale` other than 1, each is split again into the head and the rest.
    """
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            plain = parameter.squeeze().ndim < 2 or any(word in name.split(".")[-1] for word in TABLES)
            groups.setdefault((1.0 if name in head else scale, plain), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": 0.0 if plain else weight_decay, "scale": times}
        for (times, plain), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up, then half a cosine to 0, per step. The first step has a positive rate, the last nearly none.

    >>> schedule = Schedule(peak=1.0, warm=2, total=6)
    >>> [round(schedule.rate(step), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """

    peak: float
    warm: int
    total: int

    def rate(self, step: int) -> float:
        if step < self.warm:
            return self.peak * (step + 1) / self.warm
        return self.peak * 0.5 * (1 + math.cos(math.pi * (step - self.warm) / (self.total - self.warm)))


def set_learning_rate(optimiser: Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        scaled = rate * group.get("scale", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled


class Sam:
    """Sharpness-aware minimisation: climb to w + ρ g/‖g‖, take the gradient there, step from w (SPEC 1.10).

    `buffers` are set back with the weights: running statistics follow the batch at w, not at the climbed point too.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], radius: float, buffers: Iterable[Tensor] = ()) -> None:
        self.parameters = list(parameters)
        self.buffers = list(buffers)
        self.radius = radius
        self.before: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def climb(self) -> None:
        moved: list[Tensor] = [parameter for parameter in self.parameters if parameter.grad is not None]
        gradients = [tensor.grad for tensor in moved if tensor.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        self.before = [(tensor, tensor.clone()) for tensor in (*moved, *self.buffers)]
        torch._foreach_add_(moved, list(torch._foreach_mul(gradients, self.radius / (norm + 1e-12))))

    @torch.no_grad()
    def descend(self) -> None:
        """Back to w, to the last bit; the gradients stay those of the climbed point."""
        for tensor, before in self.before:
            tensor.copy_(before)


class Average:
    """An exponential average of all weights and float buffers: a ← a + (1 − decay)(w − a)."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
        self.mean = {name: tensor.clone() for name, tensor in self.live.items()}

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(list(self.mean.values()), list(self.live.values()), 1 - self.decay)

    def state_dict(self, module: nn.Module) -> dict[str, Tensor]:
        """The module's state with the averages in place of the weights."""
        return {**module.state_dict(), **self.mean}
