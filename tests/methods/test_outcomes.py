"""Right or wrong, the same or another answer: counted by hand."""

from __future__ import annotations

import numpy as np
import torch

from eyechart.methods.outcomes import (
    COUNTS,
    KNOWN,
    RIGHT,
    SAME,
    TRIED,
    accuracy_of,
    changed_of,
    gives_answers,
    known_of,
    outcomes,
)
from tests.measures.staging import anatomy, site

INTACT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


def test_counts_by_hand() -> None:
    after = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    counted = outcomes(after, INTACT, torch.tensor([0, 1, 1, -1]))
    assert counted[:, RIGHT].tolist() == [1, 0, 0, 0]
    assert counted[:, KNOWN].tolist() == [1, 1, 1, 0]
    assert counted[:, SAME].tolist() == [1, 0, 1, 1]
    assert accuracy_of(counted.sum(0)) == 1 / 3
    assert changed_of(counted.sum(0)) == 1 / 4
    assert known_of(counted.sum(0)) == 3  # not 4: an unknown class is no trial of an accuracy


def test_what_is_not_a_number_is_no_answer() -> None:
    after = INTACT.clone()
    after[0, 1], after[1, 0] = torch.nan, torch.inf
    counted = outcomes(after, INTACT, torch.tensor([0, 1, 0, 1]))
    assert counted[:, RIGHT].tolist() == [0, 0, 1, 1]
    assert outcomes(after, after, None)[:, SAME].tolist() == [0, 0, 1, 1]


def test_without_classes_or_classifier() -> None:
    counted = outcomes(INTACT, INTACT, None).sum(0)
    assert np.isnan(accuracy_of(counted))
    assert counted[TRIED] == 4
    assert outcomes(torch.zeros(3, 0), torch.zeros(3, 0), None).tolist() == [[0.0] * COUNTS] * 3


def test_features_are_no_answers() -> None:
    head = site("head", role="head", axes="NC", grid=None)
    assert gives_answers(anatomy("vit", [head], cls=0))
    assert not gives_answers(anatomy("features", [head]))
    assert gives_answers(anatomy("squeezenet", [head], architecture="cnn"))
    assert not gives_answers(anatomy("maps", []))
