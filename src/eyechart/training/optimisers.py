"""Optimisers, the learning-rate schedule, sharpness-aware minimisation and the average of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from eyechart.training.recipes import Recipe


def make_optimiser(module: nn.Module, recipe: Recipe) -> Optimizer:
    """The recipe's optimiser; weight decay acts on matrices and kernels only.

    On a GPU the learning rate is a tensor: a captured step reads it anew at every replay.
    """
    groups = decay_groups(module, recipe.weight_decay)
    on_gpu = next(module.parameters()).is_cuda
    rate: float | Tensor = torch.tensor(recipe.learning_rate, device="cuda") if on_gpu else recipe.learning_rate
    if recipe.optimiser == "adamw":
        return AdamW(groups, lr=rate, fused=on_gpu, capturable=on_gpu)
    return SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, fused=on_gpu)


def decay_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameters that decay (matrices, kernels), and those that do not: biases, norms, position table, CLS token."""
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        plain = parameter.ndim < 2 or name.split(".")[-1] in ("pos_embed", "cls_token")
        (kept if plain else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """Linear warm-up, then half a cosine to 0, per step. The first step has a positive rate, the last nearly none.

    >>> from eyechart.training.recipes import find_recipe
    >>> recipe = find_recipe("zoo").changed(epochs=3, warmup_epochs=1, learning_rate=1.0)
    >>> [round(learning_rate(recipe, step, 2), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    warm, total = recipe.warmup_epochs * steps_per_epoch, recipe.epochs * steps_per_epoch
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def set_learning_rate(optimiser: Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Sam:
    """Sharpness-aware minimisation: climb to w + ρ g/‖g‖, take the gradient there, step from w (SPEC 1.10)."""

    def __init__(self, parameters: Iterable[nn.Parameter], radius: float) -> None:
        self.parameters = list(parameters)
        self.radius = radius
        self.moves: list[tuple[nn.Parameter, Tensor]] = []

    @torch.no_grad()
    def climb(self) -> None:
        gradients = {p: p.grad for p in self.parameters if p.grad is not None}
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients.values()]))
        self.moves = [(p, gradient * (self.radius / (norm + 1e-12))) for p, gradient in gradients.items()]
        for parameter, move in self.moves:
            parameter.add_(move)

    @torch.no_grad()
    def descend(self) -> None:
        """Back to w; the gradients stay those of the climbed point."""
        for parameter, move in self.moves:
            parameter.sub_(move)


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
