"""One training step, as fast as the device allows: bfloat16, compiled, and on a GPU captured as one CUDA graph.

A small model's step is some hundred short kernels; launched one by one they leave a large GPU half idle. What
cannot be had (a compiler is missing, a capture fails) is done the slower way and said in `notices`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Optimizer

from eyechart.training.optimisers import Average, Sam
from eyechart.training.recipes import Recipe
from eyechart.training.short_attention import use_short_attention
from eyechart.zoo.vit import PatchStem

STEPS_BEFORE_CAPTURE = 4  # compilation, autotuning and the optimiser's first allocations must lie before the capture


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over images of −Σ target · log softmax(logits)."""
    return -(targets * logits.float().log_softmax(dim=1)).sum(dim=1).mean()


def use_own_kernels(module: nn.Module) -> list[str]:
    """Have parts of a zoo's ViT done, while it trains, by what is faster on a GPU; which, in words."""
    stems = [part for part in module.modules() if isinstance(part, PatchStem)]
    for stem in stems:
        stem.trained_as_product = True
    used = {"short attention": use_short_attention(module), "stem as a product": bool(stems)}
    return [words for words, so in used.items() if so]


def same_kernels() -> dict[str, str | int | bool | Callable[..., Any]]:
    """Options of the compiler by which it chooses kernels without timing them.

    Timings vary, and another kernel sums in another order: two trainings of one seed would part in their first epoch.
    Older versions of torch have no such option.
    """
    import torch._inductor.config as inductor

    return {"deterministic": True} if hasattr(inductor, "deterministic") else {}


class Step:
    """Call it with a batch's inputs and soft targets: it updates the weights and returns the loss, without waiting."""

    def __init__(
        self,
        module: nn.Module,
        optimiser: Optimizer,
        recipe: Recipe,
        average: Average | None = None,
        *,
        bfloat16: bool = False,
        compiled: bool = False,
        captured: bool = False,
        own_kernels: bool = False,
    ) -> None:
        self.module = module
        self.optimiser = optimiser
        self.recipe = recipe
        self.average = average
        self.bfloat16 = bfloat16
        self.parameters = list(module.parameters())
        self.device = self.parameters[0].device
        self.sam = Sam(self.parameters, recipe.sam_radius, module.buffers()) if recipe.sam_radius else None
        self.notices: list[str] = []
        self.compiled = compiled
        self.captured = captured
        self.own_kernels = use_own_kernels(module) if own_kernels else []
        if captured and not isinstance(optimiser, AdamW):
            self.captured = False
            self.notices.append("The step was not captured as a CUDA graph: only AdamW's can be.")
        self.loss_of: Callable[[Tensor, Tensor], Tensor] = self._loss
        if compiled:
            options = same_kernels()
            if not options and self.device.type == "cuda":
                self.notices.append("This torch chooses kernels by timing: a training of the same seed may differ.")
            self.loss_of = torch.compile(self._loss, options=options)
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    @property
    def mode(self) -> str:
        """What the step became, for the record."""
        words = ["bfloat16" if self.bfloat16 else "float32", "compiled" if self.compiled else "eager"]
        return ", ".join([*words, *(["captured"] if self.captured else []), *self.own_kernels])

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
            logits = self.module(inputs)
        return soft_cross_entropy(logits, targets)

    def _update(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss_of(inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.sam is not None:
            self.sam.climb()
            self.optimiser.zero_grad(set_to_none=True)
            self.loss_of(inputs, targets).backward()  # type: ignore[no-untyped-call]
            self.sam.descend()
        if self.recipe.clip:
            clip_grad_norm_(self.parameters, self.recipe.clip)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        return loss.detach()

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        if not self.captured:
            return self._first(inputs, targets) if self.calls == 1 else self._update(inputs, targets)
        if self.calls == 1:
            layout = torch.channels_last if inputs.ndim == 4 else torch.contiguous_format
            self.inputs = torch.empty_like(inputs, memory_format=layout)
            self.targets = torch.empty_like(targets)
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        if self.graph is None and self.calls > STEPS_BEFORE_CAPTURE:
            self._capture()
        if self.graph is None:
            # A side stream, because gradients first made on the default one would tie the capture to it.
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                update = self._first if self.calls == 1 else self._update
                loss = update(self.inputs, self.targets)
            torch.cuda.current_stream().wait_stream(side)
            return loss
        self.graph.replay()
        return self.loss

    def _first(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The first step compiles; where that fails nothing has been updated yet, so it is done again, eagerly."""
        if not self.compiled:
            return self._update(inputs, targets)
        try:
            return self._update(inputs, targets)
        except Exception as error:
            self.compiled = False
            self.loss_of = self._loss
            self.notices.append(f"The step was not compiled: {_first_line(error)}")
            return self._update(inputs, targets)

    def _capture(self) -> None:
        torch.cuda.synchronize()
        gc.collect()
        self.optimiser.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.loss = self._update(self.inputs, self.targets)
            self.graph = graph
        except Exception as error:
            torch.cuda.synchronize()
            self.captured = False
            self.optimiser.zero_grad(set_to_none=True)
            self.notices.append(f"The step was not captured as a CUDA graph: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"
