"""Batch normalisation after a change: statistics that fit the changed subject, and the old ones back afterwards.

A subject whose skip is gone feeds its normalisations other numbers than those they were trained on. What is lost may
then be the statistics' fault: re-estimated on images that are not scored, they tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from eyechart.tracing.bench import Bench
from eyechart.tracing.interventions import Intervention
from eyechart.tracing.taps import Tap


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Normalisations with running statistics; those that always use the batch's own need no re-estimation."""
    return [part for part in module.modules() if isinstance(part, _BatchNorm) and isinstance(part.running_mean, Tensor)]


@contextmanager
def recalibrated(bench: Bench, images: Tensor, interventions: Sequence[Intervention] = ()) -> Iterator[None]:
    """Inside, every batch normalisation uses the mean and variance of these images under these changes.

    They come from one pass with the normalisations in training mode, as in training itself: each sees inputs that the
    ones before it normalised by the batch. Afterwards the subject is as it was found.
    """
    norms = batch_norms(bench.subject.module)
    before = [{name: value.clone() for name, value in norm.state_dict().items()} for norm in norms]
    settings = [(norm.momentum, norm.training) for norm in norms]
    try:
        _estimate(bench, norms, images, interventions)
        yield
    finally:
        for norm, state, (momentum, training) in zip(norms, before, settings, strict=True):
            norm.load_state_dict(state)
            norm.momentum, norm.training = momentum, training


@torch.no_grad()
def _estimate(bench: Bench, norms: list[_BatchNorm], images: Tensor, interventions: Sequence[Intervention]) -> None:
    tap = Tap(bench.subject.module, bench.anatomy, {}, interventions)

    def work(size: int) -> None:
        for norm in norms:
            norm.training = True
        for index, piece in enumerate(torch.split(images, size)):
            for norm in norms:
                norm.momentum = 1 / (index + 1)  # the mean over pieces; of one piece its own statistics
            tap.run(piece, bench.subject.call)
        for norm in norms:
            norm.training = False

    bench.piece_size.fit(len(images), work)
