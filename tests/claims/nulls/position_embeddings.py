"""Position tables that know rows and columns, rows alone, or nothing."""

from __future__ import annotations

import numpy as np
import torch

from eyechart import zoo
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject
from tests.claims.nulls.case import Case
from tests.measures.on_subjects import module_subject
from tests.measures.test_position_embeddings_tables import sinusoids


def with_table(table: np.ndarray, name: str) -> Subject:
    module = zoo.build("vit", depth=3, width=len(table), heads=4, pool="gap")
    with torch.no_grad():
        module.get_parameter("pos_embed").copy_(torch.from_numpy(table.reshape(len(table), -1).T)[None])
    return module_subject(module, name)


def blind_to_columns_or_places() -> list[Subject | str]:
    rows = sinusoids(8)
    rows[96:] = 0
    shuffled = load_subject("zoo:vit")
    shuffled.name = "shuffled"
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        table = shuffled.module.get_parameter("pos_embed")
        table[:, 1:] = table[:, 1:][:, order]
    # A ridge along the diagonal: near places are alike, and rows and columns are nothing special.
    y, x = np.mgrid[:8, :8]
    angle = 0.2 * (x + y)
    diagonal = np.concatenate([np.stack([np.cos(k * angle), np.sin(k * angle)]) for k in range(1, 9)])
    return [with_table(rows, "rows alone"), shuffled, with_table(diagonal, "diagonal"), "zoo:vit@random"]


def knows_both() -> list[Subject]:
    return [with_table(sinusoids(8), "waves")]


CASES: tuple[Case, ...] = (
    Case(
        "C03",
        "tables of rows alone, of diagonals, in shuffled order, untrained",
        "holds",
        subjects=blind_to_columns_or_places,
        measures=("position_embeddings",),
        limit=128,
    ),
    Case(
        "C03",
        "a sinusoidal table of rows and columns",
        "fails",
        subjects=knows_both,
        measures=("position_embeddings",),
        limit=128,
    ),
)
