"""Shards made by helpers are those that one process makes, whatever becomes of the helpers."""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from eyechart.engines import inline, interruption, shard_helper
from eyechart.engines.clock import Clock
from eyechart.engines.inline import Inline
from eyechart.engines.prepared import Prepared
from eyechart.engines.shard_helper import can_be_told, division, helpers_worth
from eyechart.engines.workload import Workload
from eyechart.exam import open_folder, prepare
from eyechart.run import Run
from tests.cases import cnn
from tests.small_exam import subject
from tests.small_subjects import TINY, write_subjects


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[Prepared]:
    specs = write_subjects(tmp_path_factory.mktemp("weights"), TINY)[:2]
    return functools.partial(prepare, specs, "sample", ["recognition", "cka", "shift"], limit=64, effort="quick")


def examined(again: functools.partial[Prepared], folder: Path) -> tuple[Run, Clock]:
    prepared = again()
    run = open_folder(prepared.plan, folder, overwrite=False)
    clock = Clock(Workload(list(run.measures.values()), run.scene, prepared.batches), lambda *words: None)
    Inline().examine(run, prepared, again, clock)
    return run, clock


def shards_of(run: Run) -> list[dict[str, bytes]]:
    files = sorted((run.path / "shards").iterdir())
    assert len(files) == len(run.plan["batches"]["shards"])
    return [{name: value.numpy().tobytes() for name, value in load(path.read_bytes()).items()} for path in files]


@pytest.fixture(scope="module")
def alone(again: functools.partial[Prepared], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    return shards_of(examined(again, tmp_path_factory.mktemp("alone") / "run")[0])


@pytest.fixture
def one_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "helpers_worth", lambda *what: 1)


@pytest.mark.usefixtures("one_helper")
def test_a_helper_writes_the_shards_of_one_process(
    again: functools.partial[Prepared], alone: list[dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[int] = []
    compute, deadline = Prepared.compute, time.monotonic() + 120

    def slowly(self: Prepared, shard: int, *more: Any) -> Any:
        here.append(shard)
        while len(list((tmp_path / "run" / "shards").glob("*.safetensors"))) < len(here) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # the helper is still importing
        return compute(self, shard, *more)

    monkeypatch.setattr(Prepared, "compute", slowly)
    run, clock = examined(again, tmp_path / "run")
    assert shards_of(run) == alone
    assert 0 < len(here) < len(alone)
    assert clock.images == 64
    assert clock.left_on_images == pytest.approx(0)
    assert run.notices == []


@pytest.mark.posix
@pytest.mark.usefixtures("one_helper")
def test_what_a_helper_does_not_deliver_is_computed_here(
    again: functools.partial[Prepared], alone: list[dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\nread exam; echo ready; read shard; exit 1\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    run, clock = examined(again, tmp_path / "run")
    assert shards_of(run) == alone
    assert clock.images == 64
    assert "A helper process ended early" in " ".join(run.notices)


@pytest.mark.posix
@pytest.mark.usefixtures("one_helper")
def test_asked_to_stop_helpers_end_their_shard_too(
    again: functools.partial[Prepared], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper that takes a second: it has delivered when the exam stops, and is given nothing more."""
    slow = tmp_path / "slow"
    words = f"read exam; echo ready; read shard; sleep 1; echo $shard | tee {tmp_path / 'done'}; read more"
    slow.write_text(f"#!/bin/sh\n{words}\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    compute = Prepared.compute

    def asked(self: Prepared, shard: int, *more: Any) -> Any:
        tallies = compute(self, shard, *more)
        time.sleep(0.3)
        interruption._asked.set()
        return tallies

    monkeypatch.setattr(Prepared, "compute", asked)
    try:
        with pytest.raises(KeyboardInterrupt):
            examined(again, tmp_path / "run")
    finally:
        interruption._asked.clear()
    assert [path.name for path in (tmp_path / "run" / "shards").iterdir()] == ["00000.safetensors"]
    assert (tmp_path / "done").read_text() == "1\n"


def test_only_what_has_a_name_is_told_to_another_process() -> None:
    exam = functools.partial(functools.partial, prepare)
    assert can_be_told(exam("zoo:vit", "sample", None))
    assert can_be_told(exam({"a": "zoo:vit"}, Path("photos"), None))
    assert not can_be_told(exam(["zoo:vit", cnn()], "sample", None))
    assert not can_be_told(exam(subject(), "sample", None))
    assert not can_be_told(exam(["zoo:vit"], torch.zeros(2, 3, 8, 8), None))


def test_large_subjects_stay_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    small = subject()
    anatomies = prepare(small, "sample", "skip_ratio", limit=8, device="cpu").anatomies
    assert division([small], anatomies) == {"threads": 1, "processes": shard_helper.MOST}
    monkeypatch.setattr(shard_helper, "SMALL", anatomies[0].flops - 1)
    assert division([small], anatomies) == {"threads": 16, "processes": 1}
    monkeypatch.setattr(shard_helper, "SMALL", 2e9)
    monkeypatch.setattr(shard_helper, "LIGHT", 1)
    assert division([small], anatomies) == {"threads": 16, "processes": 1}


def test_helpers_are_started_for_long_work_and_free_memory_alone(
    again: functools.partial[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Long:
        left_on_images = 100.0

    clock: Any = Long()
    assert helpers_worth({"processes": 4}, again, clock, shards=16) == 3
    assert helpers_worth({"processes": 4}, again, clock, shards=2) == 1
    assert helpers_worth({"processes": 1}, again, clock, shards=16) == 0
    monkeypatch.setattr(shard_helper, "free_memory", lambda: 2 * shard_helper.MEMORY - 1)
    assert helpers_worth({"processes": 4}, again, clock, shards=16) == 1
    Long.left_on_images = 20.0
    assert helpers_worth({"processes": 4}, again, clock, shards=16) == 0
