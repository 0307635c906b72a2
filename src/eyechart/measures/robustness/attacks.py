"""Pictures made to be misread: the fast gradient sign method (FGSM) and projected gradient descent (PGD).

Both move every value of a picture (0 … 1) by at most ε, so as to raise the cross-entropy L of its class:

    FGSM   x' = clip(x + ε sign ∇L(x))
    PGD    x ← clip(project(x + α sign ∇L(x))), from a random point of the ball |x' − x| ≤ ε, several times

Only signs of gradients are used, so that of the log-odds against the class, log Σ_{c≠t} exp z_c − z_t, serves as well:
it is the cross-entropy's times a positive number, and that number is rounded to 0 where a subject is very sure, which
would pass for robustness. Whose methods: Goodfellow et al. 2015; Madry et al. 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from eyechart.methods.scoring import answers_of

Gradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""pixels, targets → logits there, and the gradient of the log-odds against the targets by the pixels."""


def gradient_of(logits: Callable[[Tensor], Tensor]) -> Gradient:
    """The gradient through a function from pixels to logits.

    >>> find = gradient_of(lambda pixels: torch.stack([pixels.sum((1, 2, 3)), 0 * pixels.sum((1, 2, 3))], dim=1))
    >>> find(torch.zeros(1, 1, 1, 2), torch.tensor([0]))[1]  # more of everything would make class 0 likelier
    tensor([[[[-1., -1.]]]])
    """

    def find(pixels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            free = pixels.detach().requires_grad_()
            scores = logits(free).float()
            chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(1, targets[:, None], True)
            against = scores.masked_fill(chosen, -torch.inf).logsumexp(1) - scores[chosen]
            (gradient,) = torch.autograd.grad(against.sum(), free)
        return scores.detach(), gradient

    return find


def fgsm(pixels: Tensor, gradient: Tensor, epsilon: float) -> Tensor:
    """One step of ε in the direction of the gradient's signs."""
    return (pixels + epsilon * gradient.sign()).clamp(0, 1)


def into_ball(moved: Tensor, pixels: Tensor, epsilon: float) -> Tensor:
    """The nearest picture that is within ε of the original one, and a picture."""
    return torch.minimum(torch.maximum(moved, pixels - epsilon), pixels + epsilon).clamp(0, 1)


@dataclass(frozen=True)
class Strength:
    """How far PGD may go, and in which steps."""

    epsilon: float
    alpha: float
    steps: int


def pgd(find: Gradient, pixels: Tensor, targets: Tensor, strength: Strength, start: Tensor) -> tuple[Tensor, Tensor]:
    """The last picture of each, and which were misread on the way: a picture that is misread moves no further.

    What is not a number is no answer, so it counts as misread. `start` holds −1 … 1 for every value: where in the ball
    it begins.
    """
    epsilon = strength.epsilon
    moved = into_ball(pixels + epsilon * start, pixels, epsilon)
    fooled = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
    for step in range(strength.steps + 1):  # the last round only looks
        going = (~fooled).nonzero().flatten()
        if not len(going):
            break
        logits, gradient = find(moved[going], targets[going])
        misread = answers_of(logits).to(targets.device) != targets[going]
        fooled[going[misread]] = True
        if step < strength.steps:
            on, ascent = going[~misread], gradient[~misread].sign()
            moved[on] = into_ball(moved[on] + strength.alpha * ascent, pixels[on], epsilon)
    return moved, fooled


def withstands(
    find: Gradient,
    pixels: Tensor,
    targets: Tensor,
    strengths: Sequence[Strength],
    standing: Tensor,
    generator: Generator,
) -> Tensor:
    """Which pictures are read right (image, strength) under PGD of each strength, in ascending order.

    `standing` (image, strength) says which are not known to be misread within each ball. What was misread within a
    smaller ball is so within a larger one, which holds it: it is not attacked again.
    """
    starts = 2 * torch.rand(pixels.shape, generator=generator).to(pixels) - 1
    result = standing.int().cummin(1).values.bool()
    for column, strength in enumerate(strengths):
        left = result[:, column].nonzero().flatten()
        if len(left):
            _, fooled = pgd(find, pixels[left], targets[left], strength, starts[left])
            result[left[fooled], column:] = False
    return result
