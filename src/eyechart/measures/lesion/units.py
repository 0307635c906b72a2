"""Units that can be cut out of a subject: residual branches, and the spatial convolutions of its blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from eyechart.methods.scoring import COUNTS, outcomes
from eyechart.site_choice import gives_answers
from eyechart.sites import Anatomy, Site
from eyechart.tracing.bench import Bench
from eyechart.tracing.interventions import Intervention
from eyechart.tracing.recalibration import recalibrated

INTACT, CONVOLUTION, BRANCH = "intact", "spatial convolution", "whole branch"
SLOTS = 2  # spatial convolutions of a block that are tried: a bottleneck has one, a basic block two


@dataclass(frozen=True)
class Unit:
    """What is cut out: nothing (intact), the branch of a junction, or the n-th spatial convolution of a block."""

    anatomy: Anatomy
    site: Site | None = None
    slot: int = -1

    @property
    def kind(self) -> str:
        if self.site is None:
            return INTACT
        if self.slot >= 0:
            return CONVOLUTION
        return BRANCH if self.site.kind in ("conv", "other") else self.site.kind

    @property
    def name(self) -> str:
        if self.site is None:
            return INTACT
        words = self.anatomy.words(self.site)
        return words if self.slot < 0 else f"{words} convolution {self.slot + 1}"

    @property
    def depth(self) -> float:
        """A junction's own; convolutions are spread evenly over their block."""
        if self.site is None or self.slot < 0:
            return self.site.depth if self.site else float("nan")
        before = max([b.depth for b in self.anatomy.pick("block") if b.depth < self.site.depth], default=0.0)
        return before + (self.site.depth - before) * (self.slot + 1) / (SLOTS + 1)


def units_of(anatomy: Anatomy) -> list[Unit]:
    """Intact first, then every unit that may be cut out, in order of depth; nothing where there are no answers."""
    if not gives_answers(anatomy):
        return []
    branches = [Unit(anatomy, junction) for junction in anatomy.pick("junction")]
    blocks = [block for block in anatomy.pick("block") if block.kind == "conv"]
    convolutions = [Unit(anatomy, block, slot) for block in blocks for slot in range(SLOTS)]
    return [Unit(anatomy), *sorted(branches + convolutions, key=lambda unit: unit.depth)] if branches + blocks else []


def spatial_convolutions(bench: Bench) -> list[str]:
    """Modules that convolve over places and leave the shape as it is, in order of execution."""
    kept: list[str] = []

    def watch(path: str) -> Any:
        def note(_: nn.Module, args: Any, output: Tensor) -> None:
            if args[0].shape == output.shape and path not in kept:
                kept.append(path)

        return note

    with ExitStack() as hooks, torch.no_grad():
        for path, module in bench.subject.module.named_modules():
            if isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1:
                hooks.enter_context(module.register_forward_hook(watch(path)))
        bench.subject.call(bench.images[:1])
    return kept


def outcomes_without(
    bench: Bench, units: int, changes: Mapping[int, Intervention | None], others: Tensor | None = None
) -> Tensor:
    """Outcomes (unit, image, outcome) under the change of each unit that is tried, the intact one first.

    With `others` batch normalisations use the statistics of these images under the same change.
    """
    counted = torch.zeros(units, len(bench), COUNTS, dtype=torch.float64)
    intact: Tensor | None = None
    for row, change in changes.items() if len(bench) else ():
        made = [] if change is None else [change]
        with nullcontext() if others is None else recalibrated(bench, others, made):
            logits = bench.logits(interventions=made)
        intact = logits if intact is None else intact
        counted[row] = outcomes(logits, intact, bench.targets)
    return counted


def unit_coordinates(units: Sequence[Unit]) -> dict[str, Any]:
    names = [unit.name for unit in units]
    columns: dict[str, list[Any]] = {
        "subject": [unit.anatomy.subject for unit in units],
        "family": [unit.anatomy.family for unit in units],
        "unit_name": names,
        "kind": [unit.kind for unit in units],
        "depth": [unit.depth for unit in units],
        "stage": [unit.site.stage if unit.site else -1 for unit in units],
        "block": [unit.site.block if unit.site else -1 for unit in units],
    }
    labels = [f"{unit.anatomy.subject}/{name}" for unit, name in zip(units, names, strict=True)]
    return {"unit": labels} | {name: ("unit", column) for name, column in columns.items()}
