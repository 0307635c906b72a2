"""Who is scored; right or wrong, the same or another answer: counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eyechart.methods.scoring import (
    CONFIDENCE,
    COUNTS,
    HAS_CLASS,
    NLL,
    RIGHT,
    SAME,
    TRIED,
    accuracy_of,
    changed_of,
    has_class,
    images_with_class,
    labelled,
    outcomes,
    right,
    scored,
    scored_by,
    strangers,
    wanted,
)
from eyechart.tracing.bench import Bench
from tests.measures.staging import anatomy, batches, scene, site

INTACT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
HEAD = site("head", role="head", axes="NC", grid=None)


def bench(targets: Tensor | None) -> Bench:
    """Four images on a bench without a subject: nothing here runs one."""
    nobody: Any = None
    (batch,) = batches(4, 4)
    return Bench(nobody, nobody, batch, torch.arange(4.0).view(4, 1, 1, 1), targets)


def test_counts_by_hand() -> None:
    after = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    counted = outcomes(after, INTACT, torch.tensor([0, 1, 1, -1]))
    assert counted[:, RIGHT].tolist() == [1, 0, 0, 0]
    assert counted[:, HAS_CLASS].tolist() == [1, 1, 1, 0]
    assert counted[:, SAME].tolist() == [1, 0, 1, 1]
    assert accuracy_of(counted.sum(0)) == 1 / 3
    assert changed_of(counted.sum(0)) == 1 / 4
    assert images_with_class(counted.sum(0)) == 3  # not 4: an unknown class is no trial of an accuracy


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


def test_who_is_scored() -> None:
    where = scene(*(anatomy(name, sites) for name, sites in (("a", [HEAD]), ("features", []), ("other", [HEAD]))))
    where = replace(where, label_maps={"a": (0, 1), "features": (0, 1)})
    assert where.scored_subjects == ["a"]
    assert strangers(where) == ["features", "other"]
    assert [scored_by(where, who) for who in where.subjects] == ["accuracy", "accuracy", "agreement"]


def test_images_of_unknown_class_are_left_out() -> None:
    assert labelled(bench(torch.tensor([1, -1, 0, -1]))).images.flatten().tolist() == [0, 2]
    assert len(labelled(bench(None))) == 0


def test_the_class_is_wanted_or_else_the_intact_answer() -> None:
    after = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    targets = torch.tensor([1, 0, -1, 1])
    assert wanted(bench(targets), INTACT).tolist() == [1, 0, -1, 1]
    assert wanted(bench(None), INTACT).tolist() == [0, 1, 0, 1]
    assert right(after, targets).tolist() == [0, 1, 0, 1]
    assert has_class(targets).tolist() == [1, 1, 0, 1]
    after[1, 0], after[2, 0] = torch.nan, torch.inf
    assert right(after, targets).tolist() == [0, 0, 0, 1]
    assert wanted(bench(None), after).tolist() == [0, -1, -1, 1]  # no answer to agree with


def test_scores_by_hand() -> None:
    found = scored(torch.tensor([[0.25, 0.75], [0.9, 0.1]]).log(), torch.tensor([0, 0]))
    assert found[:, RIGHT].tolist() == [0, 1]
    assert found[:, NLL].tolist() == pytest.approx([math.log(4), -math.log(0.9)], abs=1e-7)
    assert found[:, CONFIDENCE].tolist() == pytest.approx([0.75, 0.9], abs=1e-7)


def test_nothing_is_right_that_is_not_a_number() -> None:
    found = scored(torch.tensor([[torch.nan, torch.nan], [0.0, -torch.inf]]), torch.tensor([0, 0]))
    assert found[:, RIGHT].tolist() == [0, 1]  # a probability of 1 is one
    assert found[:, NLL].isnan().tolist() == [True, False]
