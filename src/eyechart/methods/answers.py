"""How good a subject's answers are: right or wrong, negative log-likelihood and confidence of each picture."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import PerSubjects, Scene
    from eyechart.tracing.bench import Bench

RIGHT, NLL, CONFIDENCE = range(3)


def scored(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """(image, score) from (image, class): named right (0 or 1), negative log-likelihood, highest probability.

    >>> scored(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0])).round(decimals=2)
    tensor([[0.0000, 1.3900, 0.7500]], dtype=torch.float64)
    """
    known = log_probabilities.double()
    highest, named = known.max(1)
    nll = -known.gather(1, targets[:, None])[:, 0]
    return torch.stack([(named == targets).double(), nll, highest.exp()], dim=1)


def labelled(bench: Bench) -> Bench:
    """The bench with those images whose class is known; none at all where the subject's classes are others."""
    known = torch.arange(0) if bench.targets is None else (bench.targets >= 0).nonzero().flatten().cpu()
    return bench.picked(known)


def scored_subjects(scene: Scene) -> list[str]:
    """Those whose classes match the images' and that have a classifier."""
    return [s for s in scene.subjects if s in scene.label_maps and scene.anatomy(s).pick("head")]


def strangers(scene: Scene) -> list[str]:
    """Those that are not scored."""
    return [subject for subject in scene.subjects if subject not in scored_subjects(scene)]


def about_strangers(finding: xarray.Dataset) -> str:
    """Who is missing and why, as a sentence after a blank; nothing where nobody is."""
    names = finding.stranger.values.tolist()
    if not names:
        return ""
    return f" Left out, because their classes are not those of the images: {', '.join(names)}."


def per_subject(estimate: xarray.Dataset, variable: str) -> PerSubjects:
    names = estimate.subject.values.tolist()
    return {(name,): float(value) for name, value in zip(names, estimate[variable].values, strict=True)}


def vit_minus_cnn(estimate: xarray.Dataset, variable: str, *, alike: str) -> PerSubjects:
    """A number of every ViT minus that of every CNN which agrees with it in the coordinate `alike`.

    Where both are exactly 0 (an attack that nothing survives) nothing can be told: NaN, not a certain tie.
    """
    family, kind = estimate.family.values.tolist(), estimate[alike].values.tolist()
    values, names = estimate[variable].values, estimate.subject.values.tolist()
    return {
        (names[vit], names[cnn]): float(values[vit] - values[cnn]) if values[vit] or values[cnn] else math.nan
        for vit, cnn in itertools.product(range(len(names)), repeat=2)
        if family[vit] == "vit" and family[cnn] == "cnn" and kind[vit] == kind[cnn]
    }
