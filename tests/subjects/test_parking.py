"""Weights that wait in a file: the same numbers, no memory."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from eyechart.engines.prepared import Prepared
from eyechart.exam import prepare
from eyechart.subjects import parking
from eyechart.subjects.parking import Parked
from tests.small_exam import examined, subject, tallies_of
from tests.small_subjects import TINY, write_subjects

STATUS = Path("/proc/self/status")
SIZE = 3072  # a layer of 36 MiB: below 32 the C allocator may keep what is freed


def in_memory() -> int:
    """Bytes of this process that are in memory now."""
    line = next(line for line in STATUS.read_text(encoding="utf-8").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def those_that_wait_take_no_memory() -> None:
    layers = [nn.Linear(SIZE, SIZE, bias=False) for _ in range(4)]
    with_all = in_memory()
    parked = [Parked(layer.parameters()) for layer in layers]
    without = in_memory()
    assert with_all - without > 3 * 4 * SIZE**2
    with torch.no_grad():
        for layer, place in zip(layers, parked, strict=True):
            layer(torch.ones(1, SIZE))
            place.rest()
            assert in_memory() - without < 2 * 4 * SIZE**2


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says how much memory a process takes")
def test_those_that_wait_take_no_memory() -> None:
    """In a process of its own: in one that has lived, layers may lie in memory that was free and stays taken."""
    work = "from tests.subjects.test_parking import those_that_wait_take_no_memory as work; work()"
    subprocess.run([sys.executable, "-c", work], check=True, cwd=Path(__file__).parents[2])


def test_tensors_that_share_memory_go_on_sharing_it_and_what_is_written_stays() -> None:
    module = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)])
    one, other = module[0], module[1]
    assert isinstance(one, nn.Linear)
    assert isinstance(other, nn.Linear)
    other.weight = nn.Parameter(one.weight.detach().t())  # two parameters, one memory, another order of axes
    before = {name: value.clone() for name, value in module.state_dict().items()}
    parked = Parked(module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert other.weight.stride() == (1, 3)
    with torch.no_grad():
        one.weight[0, 1] = 7.0
    parked.rest()
    assert float(other.weight.detach()[1, 0]) == 7.0
    module[0](torch.ones(2, 3)).sum().backward()
    assert one.weight.grad is not None


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_subjects(tmp_path_factory.mktemp("weights"), TINY)


def prepared_exam(specs: list[str], told: list[str]) -> Prepared:
    names = ["recognition", "cka", "landscape"]  # the last one moves the weights
    options = {"landscape.steps": 3, "landscape.images": 16}
    asked: dict[str, Any] = {"effort": "quick", "limit": 64, "seed": 0, "classes": None, "device": "cpu"}
    return prepare(
        specs, "sample", names, options=options, **asked, dtype="float32", plugins=(), claims=None,
        progress=told.append,
    )  # fmt: skip


def test_parked_subjects_give_the_same_numbers(specs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = prepared_exam(specs, [])
    assert not any(subject._parked for subject in plain.subjects)
    room = parking.weight_bytes(plain.subjects[0].module)
    monkeypatch.setattr(parking, "ROOM", room)
    parked = prepared_exam(specs, [])
    assert [subject._parked is not None for subject in parked.subjects] == [False, True, True]
    assert parked.plan["question"] == plain.plan["question"]
    rests: list[Parked] = []
    monkeypatch.setattr(Parked, "rest", lambda weights: rests.append(weights))
    assert tallies_of(parked, 2) == tallies_of(plain, 2)
    assert rests == [subject._parked for _ in range(2) for subject in parked.subjects[1:]]  # after each batch


def test_parked_views_give_the_same_numbers(specs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepared_exam(specs, [])
    expected = tallies_of(prepared, 2)
    rests: list[Parked] = []
    rest = Parked.rest

    def counted(views: Parked) -> None:
        rests.append(views)
        rest(views)

    monkeypatch.setattr(Parked, "rest", counted)
    assert tallies_of(prepared, 2) == expected
    assert not rests  # there is room
    monkeypatch.setattr(parking, "VIEWS_ROOM", 0)
    assert tallies_of(prepared, 2) == expected
    measures = len(prepared.plan["measures"])
    assert len(rests) == 2 * measures * len(specs)  # of each subject, after each measure of each batch


def test_views_that_no_file_takes_stay_in_memory_and_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parking, "VIEWS_ROOM", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    told: list[str] = []
    run = examined(tmp_path / "run", told=told, shards=1, page=False)
    assert run.judged
    assert sum("What a batch shows of all subjects stays in memory" in words for words in told) == 1


def test_where_no_file_can_be_written_it_says_so_and_goes_on(specs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parking, "ROOM", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    told: list[str] = []
    prepared = prepared_exam(specs[:1], told)
    assert prepared.subjects[0]._parked is None
    words = f"vit stays in memory while others run: {tempfile.gettempdir()} takes no file of"
    assert any(words in sentence and "No space left on device" in sentence for sentence in told)


def test_a_module_of_the_caller_is_never_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "ROOM", 0)
    mine = subject()
    where = {name: value.data_ptr() for name, value in mine.module.state_dict().items()}
    asked: dict[str, Any] = {"effort": "quick", "limit": 16, "seed": 0, "classes": None, "device": "cpu"}
    prepare(mine, "sample", ["skip_ratio"], options=None, **asked, dtype="float32", plugins=(), claims=None)
    assert where == {name: value.data_ptr() for name, value in mine.module.state_dict().items()}
