"""Patch filters with known components: cosines in order of frequency, and in reverse."""

from __future__ import annotations

import math

import torch

from eyechart import zoo
from eyechart.subjects.subject import Subject
from tests.claims.nulls.case import Case
from tests.measures.on_subjects import module_subject


def cosines(name: str, *, finest_first: bool) -> Subject:
    """Filters that mix the cosines of a 4×4 patch, each component weaker than the one before."""
    at = torch.arange(4) + 0.5
    line = torch.stack([torch.cos(math.pi * at * k / 4) for k in range(4)])
    line = line / line.norm(dim=1, keepdim=True)
    order = sorted(((i, j, c) for i in range(4) for j in range(4) for c in range(3)), key=lambda at: at[0] + at[1])
    order = order[:MOST]
    basis = torch.zeros(MOST, 3, 4, 4)
    for row, (i, j, colour) in enumerate(reversed(order) if finest_first else order):
        basis[row, colour] = torch.outer(line[i], line[j])
    noise = torch.randn(160, MOST + 1, generator=torch.Generator().manual_seed(0))
    noise[:, 0] = 1
    coefficients = torch.linalg.qr(noise).Q[:, 1:] * 0.95 ** torch.arange(MOST)
    module = zoo.build("vit", depth=3)
    with torch.no_grad():
        module.get_parameter("patch_embed.proj.weight").copy_(torch.einsum("fb,b...->f...", coefficients, basis))
    return module_subject(module, name)


MOST = 28
"""Of the 48 cosines the 28 lowest: together they lie below random filters in any order."""


def reversed_basis() -> list[Subject | str]:
    return [cosines("finest first", finest_first=True), "zoo:vit@random"]


def smooth_basis() -> list[Subject]:
    return [cosines("cosines", finest_first=False)]


CASES: tuple[Case, ...] = (
    Case(
        "C05",
        "filters whose strongest components are the finest, and untrained ones",
        "holds",
        subjects=reversed_basis,
        measures=("patch_filters",),
        limit=128,
    ),
    Case(
        "C05",
        "cosines in order of frequency",
        "fails",
        subjects=smooth_basis,
        measures=("patch_filters",),
        limit=128,
    ),
)
