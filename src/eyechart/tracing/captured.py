"""A tapped pass captured as a CUDA graph: replayed for every whole batch, it costs no Python and launches itself.

A pass under taps is some thousand short kernels, each sent off by Python; a fast accelerator waits for them. The same
kernels are replayed on the same memory, so numbers are those of the plain pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from eyechart.tracing.pieces import out_of_memory

if TYPE_CHECKING:
    from eyechart.tracing.taps import SiteViews, Tap

Result = TypeVar("Result")
SEEN_BEFORE = 1
"""Plain passes of a shape before one is timed: libraries choose kernels and take their memory in them."""
WAITING = 0.8
"""Share of a pass in which its kernels are still being sent off, above which it is taken to wait for that. Of a large
model they wait in the queue instead; capturing it took 0.15 s on an H200 and gained nothing."""


class Replays:
    """Passes of one subject under one tap: their views, and whether these are finite, both valid until the next run.

    Not captured is what draws random numbers, what is not on a CUDA device, a batch of another size (the last one),
    what gains nothing, and what cannot be: a model that asks the device for a number in its forward pass.
    """

    def __init__(self, tap: Tap, call: Callable[[Tensor], Any], *, random: bool) -> None:
        self.tap, self.call = tap, call
        self.possible = not random
        self.refusal = ""
        """Why it could not be captured."""
        self.seen: dict[tuple[int, ...], int] = {}
        self.gains: dict[tuple[int, ...], bool] = {}
        """By shape, once a pass was timed."""
        self.captured: Captured | None = None

    def run(self, images: Tensor, device: torch.device) -> tuple[SiteViews, Tensor]:
        if self.captured is not None and self.captured.fits(images):
            return self.captured.run(images)
        shape = tuple(images.shape)
        if self.possible and can_capture(device) and self.seen.get(shape, 0) == SEEN_BEFORE:
            self.seen[shape] += 1
            found, self.gains[shape] = timed(lambda: self.plain(images))
            return found
        if self.possible and self.gains.get(shape):
            self.captured = None  # its memory is free before more is taken
            try:
                self.captured = Captured(self.tap, self.call, images.to(device))
                return self.captured.run(images)
            except RuntimeError as error:  # CUDA's errors are such, and so is torch's refusal to synchronise
                self.possible = False
                reason = "there is too little memory" if out_of_memory(error) else str(error).partition("\n")[0]
                self.refusal = f"its passes are not replayed as a CUDA graph ({reason}), which only takes longer."
                torch.cuda.synchronize()
        self.seen[shape] = self.seen.get(shape, 0) + 1
        return self.plain(images)

    def plain(self, images: Tensor) -> tuple[SiteViews, Tensor]:
        seen = self.tap.run(images, self.call)[1]
        return seen, all_finite(seen)

    def news(self) -> str:
        """The refusal, once."""
        told, self.refusal = self.refusal, ""
        return told


def can_capture(device: torch.device) -> bool:
    return device.type == "cuda"


def timed(work: Callable[[], Result]) -> tuple[Result, bool]:
    """What it gives, and whether the device waited for Python while it did it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    result = work()
    sent = time.perf_counter()
    torch.cuda.synchronize()
    return result, sent - began > WAITING * (time.perf_counter() - began)


class Captured:
    """The pass of one batch size, with the memory it reads pictures from and leaves views in."""

    def __init__(self, tap: Tap, call: Callable[[Tensor], Any], images: Tensor) -> None:
        self.module = tap.module
        self.images = images.clone()
        self.weights = addresses(self.module)

        def work() -> tuple[SiteViews, Tensor]:
            seen = tap.run(self.images, call)[1]
            return seen, all_finite(seen)

        self.replay, (self.views, self.finite) = record(work, images.device)

    def fits(self, images: Tensor) -> bool:
        """Whether it can stand for a pass of these: of the same size, with weights where they were.

        An experiment may have put other tensors in their place; the graph would go on reading the old ones.
        """
        same = images.shape == self.images.shape and images.dtype == self.images.dtype
        return same and self.weights == addresses(self.module)

    def run(self, images: Tensor) -> tuple[SiteViews, Tensor]:
        self.images.copy_(images)
        self.replay()
        return self.views, self.finite


def all_finite(seen: SiteViews) -> Tensor:
    """Whether every number is finite, asked of nobody yet. A sum too large for float32 is taken for infinite too.

    >>> all_finite({"site": {"view": torch.tensor([1.0, torch.inf]), "count": torch.tensor([2])}})
    tensor(False)
    """
    sums = [
        value.sum(dtype=torch.float32)
        for at_site in seen.values()
        for value in at_site.values()
        if value.is_floating_point()
    ]
    return torch.stack(sums).isfinite().all() if sums else torch.tensor(True)


def addresses(module: nn.Module) -> list[int]:
    return [tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())]


def record(work: Callable[[], Result], device: torch.device) -> tuple[Callable[[], None], Result]:
    """`work` captured: how to do it again, and what it returns, which is in the same memory every time."""
    with torch.cuda.device(device):
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            work()  # on a stream of its own once before: cuBLAS keeps a workspace for each
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=beside):
            result = work()
        return graph.replay, result
