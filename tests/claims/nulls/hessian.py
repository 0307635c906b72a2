"""Curvature claims on hand-made eigenvalues: real Hessians take minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import xarray

from eyechart.intervals import with_intervals
from tests.claims.nulls.case import Case
from tests.measures.spectra import stage

MINIBATCHES = 80


def spectra(**drawn: tuple[float, float]) -> Callable[[int], Mapping[str, xarray.Dataset]]:
    """For each subject the chance that an eigenvalue is negative, and the size of a middling one."""

    def made(seed: int) -> Mapping[str, xarray.Dataset]:
        random = np.random.default_rng(seed)
        values = {}
        for name, (negative, size) in drawn.items():
            steep = random.lognormal(0.0, 0.3, (MINIBATCHES, 1)) * random.lognormal(0.0, 0.3, (MINIBATCHES, 5))
            values[name] = size * steep * np.where(random.random((MINIBATCHES, 5)) < negative, -1, 1)
        measure, tally, where = stage(folds=2, **values)  # the intervals asked for are over minibatches, not folds
        return {"hessian": with_intervals(measure, tally, where)}

    return made


CASES: tuple[Case, ...] = (
    Case(
        "C36",
        "a GAP twin with as many negative eigenvalues",
        "holds",
        findings=spectra(vit_warmup=(0.2, 40), vitgap_warmup=(0.2, 40)),
        draws=10,
    ),
    Case(
        "C36",
        "a GAP twin with a third of them",
        "fails",
        findings=spectra(vit_warmup=(0.3, 40), vitgap_warmup=(0.1, 40)),
        draws=2,
    ),
    Case(
        "C44",
        "a CNN with half of its eigenvalues negative beside a ViT with .6 is not nearly convex",
        "holds",
        findings=spectra(vit_warmup=(0.6, 40), resnet_warmup=(0.5, 40), vit=(0.6, 40), resnet=(0.5, 40)),
        draws=4,
    ),
    Case(
        "C44",
        "two losses that are nearly convex",
        "holds",
        findings=spectra(vit_warmup=(0.01, 40), resnet_warmup=(0.01, 40), vit=(0.01, 40), resnet=(0.01, 40)),
        draws=4,
    ),
    Case(
        "C44",
        "a convex CNN beside a ViT with .3",
        "fails",
        findings=spectra(vit_warmup=(0.3, 40), resnet_warmup=(0.0, 40), vit=(0.3, 40), resnet=(0.0, 40)),
        draws=2,
    ),
    Case(
        "C46",
        "a ViT as steep as the CNN, and attention that changes nothing",
        "holds",
        findings=spectra(vit=(0.1, 200), resnet=(0.0, 200), alternet=(0.0, 200)),
        draws=10,
    ),
    Case(
        "C46",
        "attention that makes a CNN five times as steep",
        "holds",
        findings=spectra(resnet_warmup=(0.0, 50), alternet_warmup=(0.0, 250)),
        reading="as attention alone: a CNN with attention blocks against its own CNN",
        draws=2,
    ),
    Case(
        "C46",
        "a ViT and an AlterNet a fifth as steep as the CNN",
        "fails",
        findings=spectra(vit=(0.1, 40), resnet=(0.0, 200), alternet=(0.1, 40)),
        draws=2,
    ),
    Case(
        "C51",
        "a PiT with as many negative eigenvalues as the ViT, a Swin with ones nine tenths as large",
        "holds",
        findings=spectra(vit=(0.3, 40), pit=(0.3, 40), swin=(0.3, 36)),
        draws=10,
    ),
    Case(
        "C51",
        "a Swin that has no negative eigenvalue: they are not there",
        "holds",
        findings=spectra(vit=(0.3, 40), swin=(0.0, 4)),
        draws=2,
    ),
    Case(
        "C51",
        "a PiT with a third of the ViT's negative eigenvalues, a Swin with ones a tenth as large",
        "fails",
        findings=spectra(vit=(0.3, 40), pit=(0.1, 40), swin=(0.3, 4)),
        draws=2,
    ),
)
