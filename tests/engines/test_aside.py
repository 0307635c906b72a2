"""Tallies beside the passes, and views in one copy: the same bits as one after the other."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

from eyechart.engines import shard
from eyechart.engines.aside import Aside
from eyechart.exam import prepare
from eyechart.tracing import homeward
from eyechart.tracing.captured import all_finite
from tests.small_exam import subject, tallies_of

MEASURES = ["cka", "skip_ratio", "feature_variance"]


def tallies() -> dict[str, bytes]:
    return tallies_of(prepare([subject()], "sample", MEASURES, limit=64, effort="quick"), 3)


def test_as_on_an_accelerator_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here: its two ways, one copy of all views and tallies in a thread, are taken on the CPU."""
    plain = tallies()
    threads: set[str] = set()

    class Beside(Aside):
        def __init__(self, *, beside: bool) -> None:
            assert not beside
            super().__init__(beside=True)

        def do(self, work: Any, *args: Any) -> None:
            def told() -> None:
                threads.add(threading.current_thread().name)
                work(*args)

            super().do(told)

    copied: list[int] = []
    in_one_copy = homeward.in_one_copy

    def counted(values: list[torch.Tensor]) -> list[torch.Tensor]:
        copied.append(len(values))
        return in_one_copy(values)

    monkeypatch.setattr(shard, "Aside", Beside)
    monkeypatch.setattr(homeward, "on_the_cpu", lambda values: False)
    monkeypatch.setattr(homeward, "in_one_copy", counted)
    assert tallies() == plain
    assert min(copied) > 1
    assert threads
    assert all(name.startswith("tallies") for name in threads)


def test_what_is_not_finite_is_noticed() -> None:
    views = {"a": {"x": torch.tensor([1.0, torch.inf])}, "b": {"x": torch.tensor([1])}}
    assert not all_finite(views)
    assert not all_finite({"a": {"x": torch.tensor([1.0, torch.nan])}})
    assert all_finite({"a": {"x": torch.zeros(0), "y": torch.tensor(True)}})
    assert all_finite({})
    assert homeward.in_one_copy([]) == []


def test_pieces_come_in_order_one_at_a_time() -> None:
    done: list[int] = []
    working = threading.Lock()

    def piece(number: int) -> None:
        assert working.acquire(blocking=False)
        time.sleep(0.005)
        done.append(number)
        working.release()

    with Aside(beside=True) as aside:
        for number in range(5):
            aside.do(piece, number)
            assert len(done) >= number - 1  # at most one waits
    assert done == [0, 1, 2, 3, 4]


def failing() -> None:
    raise ZeroDivisionError


def test_what_a_piece_raises_is_raised_at_the_end() -> None:
    with pytest.raises(ZeroDivisionError), Aside(beside=True) as aside:
        aside.do(failing)


def test_what_a_piece_raises_is_raised_by_the_next() -> None:
    said: list[str] = []
    with Aside(beside=True) as aside:
        aside.do(failing)
        with pytest.raises(ZeroDivisionError):
            aside.do(said.append, "too late")
    assert not said
