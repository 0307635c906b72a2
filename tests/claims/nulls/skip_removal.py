"""Cases of skip removal: small ViTs whose middle block lost its skips, or only seems to have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray
from torch import Tensor, nn

from eyechart.intervals import jackknife
from eyechart.measures.skip_removal.measure import SkipRemoval
from eyechart.measures.skip_removal.variants import INTACT, MODES
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from eyechart.zoo.vit import ViT
from tests.cases import inside
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import FOLDS, finding, noisy_finding

IMAGES = 512
SHARES = {"vit": (0.9, 0.1), "cnn": (0.1, 0.1)}  # named right with all skips and without one block's
MIDDLE = 3
SIZES: dict[str, Any] = {"width": 24, "depth": 6, "heads": 3, "patch": 8}


def small(name: str, *, writes: float = 0.15, **switches: Any) -> Subject:
    """A ViT far from its start, where branches hardly write; fed and labelled as the bundled one."""
    torch.manual_seed(0)
    model = ViT(**{**SIZES, **switches})
    for parameter in model.parameters():
        parameter.data += writes * torch.randn(parameter.shape)
    return replace(load_subject("zoo:vit"), name=name, module=model.eval())


class Around(nn.Module):
    """A branch with its norm, and what it was given beside it: a skip that no one would call an addition."""

    def __init__(self, norm: nn.Module, branch: nn.Module) -> None:
        super().__init__()
        self.norm, self.branch = norm, branch

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.stack([tokens, self.branch(self.norm(tokens))]).sum(0)


def in_name_alone() -> Sequence[Subject]:
    """One twin carries its input on by another way; another's layers are unlike one another on every side."""
    hidden = small("hidden", no_skip_at=(MIDDLE,))
    block = inside(hidden.module).blocks[MIDDLE]
    block.attn, block.mlp = Around(block.norm1, block.attn), Around(block.norm2, block.mlp)
    block.norm1, block.norm2 = nn.Identity(), nn.Identity()
    dark = small("dark", no_skip_at=(MIDDLE,))
    with torch.no_grad():
        for at, block in enumerate(inside(dark.module).blocks):
            for layer in (block.attn.qkv, block.mlp.fc1):  # sharp attention, saturated MLPs
                layer.weight.mul_(30)
            for layer in (block.attn.proj, block.mlp.fc2):  # each block drowns the one before
                layer.weight.mul_(10.0 ** (at + 1))
    return [small("intact"), hidden, dark]


def cut() -> Sequence[Subject]:
    """The skips of the middle block are gone, and what it does instead is strong."""
    twin = small("cut", no_skip_at=(MIDDLE,))
    with torch.no_grad():
        block = inside(twin.module).blocks[MIDDLE]
        for layer in (block.attn.qkv, block.mlp.fc1):
            layer.weight.mul_(10)
    return [small("intact"), twin]


def nothing_to_lose(seed: int) -> Mapping[str, xarray.Dataset]:
    """A ViT that falls from .9 to guessing, and an untrained CNN that guesses with and without its skips."""
    dice = np.random.default_rng(seed)
    right = {who: dice.random((2, IMAGES)) < np.array(shares)[:, None] for who, shares in SHARES.items()}

    def estimate(chosen: np.ndarray) -> xarray.Dataset:
        accuracy = np.concatenate([each[:, chosen].mean(1) for each in right.values()])
        lost = accuracy[[0, 0, 2, 2]] - accuracy
        rows: dict[str, list[Any]] = {"subject": ["vit", "vit", "cnn", "cnn"], "family": ["vit", "vit", "cnn", "cnn"]}
        rows |= {"removed": [INTACT, "1", INTACT, "1"], "normalised": [0, 0, 1, 1], "stale": [0] * 4}
        modes = {
            name: (("variant", "mode"), np.stack([of] * 2, 1)) for name, of in (("accuracy", accuracy), ("lost", lost))
        }
        coordinates = {"mode": list(MODES)} | {name: ("variant", row) for name, row in rows.items()}
        return xarray.Dataset(modes, coords=coordinates, attrs={"guessing": 0.1})

    folds, found = np.arange(IMAGES) % FOLDS, {}
    for name in ("skip_loss_share_gap", "skip_loss_share_gap_recalibrated"):
        compute = next(quantity for quantity in SkipRemoval.quantities if quantity.name == name).compute
        value, *others = (compute(estimate(folds != fold))["vit", "cnn"] for fold in range(-1, FOLDS))
        low, high = jackknife(np.array(value), np.array(others))
        found[name, "vit | cnn"] = (value, float(low), float(high))
    return {"skip_removal": finding(found, IMAGES)}


def about_four_points(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"skip_removal": noisy_finding({"trained_without_skip_drop": 0.04}, ["intact", "cut"], 0.008, seed)}


def half_a_point(seed: int) -> Mapping[str, xarray.Dataset]:
    return {"skip_removal": noisy_finding({"trained_without_skip_drop": 0.005}, ["intact", "cut"], 0.008, seed)}


def hurts_more(seed: int) -> Mapping[str, xarray.Dataset]:
    truths = {"skip_loss_share_gap": 0.1, "skip_loss_share_gap_recalibrated": 0.2}
    return {"skip_removal": noisy_finding(truths, ["vit", "cnn"], 0.04, seed)}


def hurts_alike(seed: int) -> Mapping[str, xarray.Dataset]:
    """Stale batch norms make the CNN lose less by chance alone; recalibrated it loses as much as the ViT."""
    truths = {"skip_loss_share_gap": 0.1, "skip_loss_share_gap_recalibrated": 0.0}
    return {"skip_removal": noisy_finding(truths, ["vit", "cnn"], 0.02, seed)}


CASES = (
    Case(
        "C25",
        "skips are missing in name alone, or the map is dark all over",
        "holds",
        subjects=in_name_alone,
        limit=128,
    ),
    Case("C25", "the skips of a middle block are cut", "fails", subjects=cut, limit=128),
    Case("C26", "skips are missing in name alone, so nothing is lost", "holds", subjects=in_name_alone, limit=128),
    Case("C26", "half a point is lost", "holds", findings=half_a_point, draws=200),
    Case("C26", "four points are lost", "fails", findings=about_four_points, draws=200),
    Case("C27", "an untrained CNN has nothing to lose", "holds", findings=nothing_to_lose, draws=20),
    Case("C27", "recalibrated, both lose alike", "holds", findings=hurts_alike, draws=200),
    Case("C27", "the ViT loses a larger share", "fails", findings=hurts_more, draws=200),
)
