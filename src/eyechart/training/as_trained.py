"""The images of a bench as a training would show them: augmented, mixed, with soft targets."""

from __future__ import annotations

import torch
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.tracing.bench import Bench
from eyechart.training.augment import Normalisation, prepare_chunk
from eyechart.training.recipes import find_recipe


def as_trained(bench: Bench, recipe: str, batch: int, purpose: str, classes: int) -> tuple[Tensor, Tensor]:
    """Inputs (image, 3, y, x) and soft targets (image, class) of a bench whose images all have known classes.

    Images are mixed with their neighbour within groups of `batch`; what is left over is not shown. Augmentation happens
    in the size the subject takes and on the CPU, so that its random numbers are the same everywhere.
    """
    offset, scale = bench.subject.colours or ((), ())
    if not offset or bench.targets is None:
        raise DoesNotApply(f"{bench.subject.name}: its pictures cannot be augmented, or have no classes.")
    mean = tuple(-o / s for o, s in zip(offset, scale, strict=True))
    normalisation = Normalisation(mean, tuple(1 / s for s in scale))  # type: ignore[arg-type]
    whole = len(bench) - len(bench) % batch
    pixels = (bench.pixels()[:whole].clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    inputs, targets = prepare_chunk(
        pixels,
        bench.targets[:whole].cpu(),
        find_recipe(recipe),
        normalisation,
        classes,
        batch,
        bench.generator(purpose),
    )
    device = bench.images.device
    return inputs.flatten(0, 1).to(bench.images.dtype).to(device), targets.flatten(0, 1).to(device)
