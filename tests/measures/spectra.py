"""Tallies of hand-made Hessian eigenvalues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from eyechart.measures.hessian.measure import HessianSpectrum, HessianTally
from eyechart.scene import Scene
from eyechart.sites import Architecture, AttentionGeometry
from tests.measures.staging import anatomy, scene, site

GLOBAL = AttentionGeometry("global", None, 1, 0, 0, (4.0, 4.0), 10.0, 4)


def stage(folds: int = 16, **eigenvalues: Any) -> tuple[HessianSpectrum, HessianTally, Scene]:
    """A tally of hand-made eigenvalues (minibatch, rank) for each subject, the same for all losses."""
    kinds: dict[str, Architecture] = dict.fromkeys(("vit", "vitgap", "pit", "swin"), "transformer")
    kinds |= {"resnet": "cnn", "alternet": "hybrid"}
    looks = {"pit": GLOBAL, "alternet": GLOBAL, "swin": replace(GLOBAL, kind="windowed", window=(1, 1))}
    people = []
    for name in eigenvalues:
        word = name.split("_")[0]
        stages = (0,) if word in ("vit", "vitgap") else (0, 1)
        sites = [site(f"b{s}{i}", stage=s, block=i) for s in stages for i in range(2)]
        if word in looks:
            sites.append(site("a", "attention", "attention", heads=2, attention=looks[word]))
        one = anatomy(name.replace("_", "@"), sites, kinds[word], cls=0)
        people.append(replace(one, pooling="gap" if word == "vitgap" else "cls"))
    count = len(next(iter(eigenvalues.values())))
    where = replace(scene(*people, images=count * 16, block=16, folds=folds), classes=("a",))
    where = replace(where, label_maps={who.subject: (0,) for who in people})
    measure = HessianSpectrum(images=count * 16)
    tally = measure.tally(where)
    values = torch.stack([torch.as_tensor(np.asarray(v), dtype=torch.float64) for v in eigenvalues.values()], 1)
    values = values[:, :, None].expand(-1, -1, 4, -1)
    fold = torch.arange(count) % where.folds
    tally.append(
        image=torch.arange(count),
        fold=fold,
        values=values,
        residuals=torch.full_like(values, 1e-3),
        errors=torch.full_like(values, 1e-6),
        ends=torch.stack([values.amin(-1), values.amax(-1)], -1),
        end_errors=torch.full((*values.shape[:3], 2), 1e-6, dtype=torch.float64),
        products=torch.full(values.shape[:3], 20.0),
    )
    ones = torch.ones(count, dtype=torch.float64)
    tally.minibatches.index_add_(0, fold, ones)
    tally.dealt.index_put_((fold, fold), ones, accumulate=True)
    return measure, tally, where


def curves(count: int, negative: int, size: float, seed: int = 0) -> np.ndarray:
    values = size * (1 + np.random.default_rng(seed).random((count, 5)))
    values[:, 5 - negative :] *= -1
    values[::2, 4] = np.abs(values[::2, 4])
    return values
