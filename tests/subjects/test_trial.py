"""Subjects whose forward is no function of the pictures: each is mended, or said to be so in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import eyechart
from eyechart.run import Run
from eyechart.subjects.anatomy import anatomy_of
from eyechart.subjects.subject import Subject
from eyechart.subjects.trial import Rehearsal, Trial
from tests.cases import Chain, ConvUnit, images, inside, vit


class Odd(Chain):
    """A small CNN with something between the pictures and the stem."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__([ConvUnit(6) for _ in range(2)], 6)

    def before(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.before(x))


class WritesIntoItsInput(Odd):
    def before(self, x: Tensor) -> Tensor:
        return x.mul_(0.5)


class KeepsState(Odd):
    seen: Any = 0.0

    def before(self, x: Tensor) -> Tensor:
        self.seen = 0.9 * self.seen + x.mean()
        return x + self.seen


class LooksAtTheBatch(Odd):
    def before(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class NormalisesInTrainingMode(Odd):
    def before(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, training=True)


class CountsItsBatches(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.zeros(()))

    def before(self, x: Tensor) -> Tensor:
        inside(self).batches += 1
        return x


class DrawsWhatItDrops(Odd):
    def before(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, training=True)


class ResetsSeeds(Odd):
    def before(self, x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return x + torch.randn_like(x[:1])


def tried(module: nn.Module, batch: Tensor | None = None) -> tuple[Subject, Trial]:
    subject = eyechart.load_subject(module, label="odd", input_size=32)
    batch = images() if batch is None else batch
    rehearsal = Rehearsal(subject, batch)
    return subject, rehearsal.trial(anatomy_of("odd", subject.module, batch, call=subject.call))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (WritesIntoItsInput, "is given a copy"),
        (KeepsState, "keeps state between batches"),
        (LooksAtTheBatch, "depends on the other images of its block"),
        (NormalisesInTrainingMode, "depends on the other images of its block"),
        (CountsItsBatches, "changes its own tensor batches"),
        (Odd, None),
        (vit, None),
        (DrawsWhatItDrops, None),
        (ResetsSeeds, None),
    ],
)
def test_each_impurity_is_said_in_one_sentence(module: Any, words: str | None) -> None:
    trial = tried(module())[1]
    assert len(trial.notes) == (words is not None), trial.notes
    assert words is None or words in trial.notes[0]
    assert trial.steady == (module not in (KeepsState, CountsItsBatches))  # its answers of two days are not compared


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_rounding_of_other_numbers_is_no_impurity(dtype: torch.dtype) -> None:
    subject = eyechart.load_subject(vit(), label="vit", input_size=32).in_numbers(
        dtype, torch.device("cpu"), borrowed=True
    )
    batch = images().to(dtype)
    rehearsal = Rehearsal(subject, batch)
    trial = rehearsal.trial(anatomy_of("vit", subject.module, batch, call=subject.call))
    assert trial.notes == ()
    assert trial.steady


def test_twins_do_not_hide_that_pictures_meet() -> None:
    assert len(tried(LooksAtTheBatch(), images()[:1].repeat(2, 1, 1, 1))[1].notes) == 1


def test_pictures_are_still_there_after_a_forward_that_writes_into_them() -> None:
    subject, _ = tried(WritesIntoItsInput())
    given = images()
    first, again = subject.call(given), subject.call(given)
    assert torch.equal(given, images())
    assert torch.equal(first, again)


def test_what_is_measured_of_a_forward_that_writes_is_what_is_measured_of_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Halves(Odd):
        def before(self, x: Tensor) -> Tensor:
            return x * 0.5

    import eyechart.report.page as page

    real, pages = page.render, list[str]()

    def first_only(run: Run, undrawn: list[str], *how: object) -> str:
        pages.append("" if pages else real(run))
        return pages[-1]

    monkeypatch.setattr(page, "render", first_only)
    findings = []
    for kind in (WritesIntoItsInput, Halves):
        subject = eyechart.load_subject(kind(), label="mine", input_size=32)
        run = eyechart.exam(subject, measures="skip_ratio", limit=16, out=tmp_path / kind.__name__)
        findings.append(run.findings["skip_ratio"])
        noticed = [notice for notice in run.plan["notices"] if "is given a copy" in notice]
        assert len(noticed) == (kind is WritesIntoItsInput)
        assert all(notice in pages[0] for notice in noticed)
    for variable in findings[0]:
        if findings[0][variable].dtype.kind == "f":
            np.testing.assert_array_equal(findings[0][variable].values, findings[1][variable].values)
