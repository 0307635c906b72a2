"""What really happens to long runs: kills at any moment, two processes at once, Ctrl-C, a subject that breaks down.

`make faults` (scripts/faults.py) kills whole exams 200 times.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray
from torch import Tensor

import eyechart
from eyechart.engines.shard import examine_shard
from eyechart.errors import EyechartError, SubjectError
from eyechart.run import Run
from eyechart.store import CHECKSUMS
from tests.cases import inside
from tests.small_exam import examined, subject
from tests.subjects.test_trial import Odd
from tests.test_store import files_in

KILLS = 5
pytestmark = [
    pytest.mark.usefixtures("no_charts"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks, which have torch imported already"),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return examined(tmp_path_factory.mktemp("runs") / "undisturbed")


children: list[int] = []


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    """A fork holds the pipes of this process: while one lives, the browser that other tests opened does not end, and
    the tests hang after the last one."""
    yield
    while children:
        process = children.pop()
        with contextlib.suppress(ChildProcessError):  # it has ended, and a test has asked how
            if os.waitpid(process, os.WNOHANG) == (0, 0):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)


def child(work: Callable[[], Any]) -> int:
    """A process that does this and ends with 0, or with 1 if it raises."""
    process = os.fork()
    if process:
        children.append(process)
        return process
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


def ended(process: int, seconds: float = 60) -> int:
    """How a child ended; one that does not is killed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError("a child did not end")


def same(run: Run, other: Run) -> None:
    for name in run.findings:
        xarray.testing.assert_identical(run.findings[name], other.findings[name])
    assert (run.path / "verdicts.json").read_bytes() == (other.path / "verdicts.json").read_bytes()


def test_kills_at_random_moments_lose_nothing(undisturbed: Run, tmp_path: Path) -> None:
    moments = random.Random(0)
    out = tmp_path / "killed"
    finished = 0
    for _ in range(KILLS):
        process = child(lambda: examined(out))
        time.sleep(moments.uniform(0, 0.7))  # an exam takes half a second here
        os.kill(process, signal.SIGKILL)
        finished += os.waitpid(process, 0)[1] == 0
        if finished and moments.random() < 0.5:
            for path in (out / "shards").glob("*"):
                path.unlink()
    again = examined(out)
    same(undisturbed, again)
    assert not [name for name in files_in(out) if Path(name).name.startswith(".")]


STEPS = ("plan.json", "skip_ratio.nc", CHECKSUMS)


def test_a_kill_just_before_each_file_is_in_place_loses_nothing(undisturbed: Run, tmp_path: Path) -> None:
    out = tmp_path / "killed"

    def killed_at(step: str) -> None:
        real = os.replace

        def replace(source: Any, target: Any) -> None:
            if Path(target).name == step:
                os.kill(os.getpid(), signal.SIGKILL)
            real(source, target)

        os.replace = replace  # type: ignore[assignment]
        examined(out)

    for step in STEPS:
        assert os.WTERMSIG(ended(child(lambda step=step: killed_at(step)))) == signal.SIGKILL  # type: ignore[misc]
    same(undisturbed, examined(out))
    assert not [name for name in files_in(out) if Path(name).name.startswith(".")]


def test_two_processes_on_one_folder_do_not_disturb_each_other(undisturbed: Run, tmp_path: Path) -> None:
    out = tmp_path / "shared"
    processes = [child(lambda: examined(out)) for _ in range(2)]
    assert [ended(process) for process in processes] == [0, 0]
    same(undisturbed, examined(out))
    assert Run(out).finished


def without_privileges() -> None:
    """Even root now needs the permission to write: what a read-only disk is to everybody."""
    nothing, (version, this_process) = (ctypes.c_uint32 * 6)(), (0x20080522, 0)
    if os.geteuid() == 0 and ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(version, this_process), nothing):
        raise AssertionError("privileges could not be dropped")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes privileges from root")
def test_a_folder_that_may_not_be_written_is_one_sentence_and_loses_nothing(undisturbed: Run, tmp_path: Path) -> None:
    out, said = tmp_path / "run", tmp_path / "said"
    with pytest.raises(KeyboardInterrupt):
        examined(out, told=Stopping(after="images: 12 of 16", times=1))
    kept = files_in(out)
    assert "shards/00001.safetensors" in kept
    folders = [out, *(path for path in out.rglob("*") if path.is_dir())]

    def refused(where: Path) -> None:
        with said.open("w") as file:
            without_privileges()
            try:
                examined(where)
            except EyechartError as error:
                file.write(str(error))

    for folder in folders:
        folder.chmod(0o555)
    assert ended(child(lambda: refused(out))) == 0
    words = "00002.safetensors cannot be written (Permission denied); what was finished before is kept"
    assert words in said.read_text()
    assert ended(child(lambda: refused(out / "new"))) == 0
    assert "plan.json cannot be written (Permission denied)" in said.read_text()
    assert files_in(out) == kept
    for folder in folders:
        folder.chmod(0o755)
    same(undisturbed, examined(out))
    for folder in folders:
        folder.chmod(0o555)
    assert ended(child(lambda: refused(out))) == 0  # a finished run is read where it is
    assert said.read_text() == ""


class Stopping(list[str]):
    """What an exam tells; somebody presses Ctrl-C twice when it has said this so many times."""

    def __init__(self, after: str, times: int) -> None:
        super().__init__()
        self.after, self.times = after, times

    def append(self, words: str) -> None:
        super().append(words)
        if self.count(self.after) == self.times:
            raise KeyboardInterrupt


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Ctrl-C so many times in the second shard; what is given back are the shards that were begun."""
    begun: list[int] = []
    real = examine_shard

    def times(count: int) -> list[int]:
        def press(*args: Any, **kwargs: Any) -> Any:
            begun.append(1)
            for _ in range(count if len(begun) == 2 else 0):
                signal.raise_signal(signal.SIGINT)
            return real(*args, **kwargs)

        monkeypatch.setattr("eyechart.engines.shard.examine_shard", press)
        return begun

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield times
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_finishes_the_shard_and_twice_stops_at_once(
    tmp_path: Path, interrupted: Callable[[int], list[int]]
) -> None:
    told: list[str] = []
    for count, kept in ((1, 2), (2, 1)):
        interrupted(count).clear()
        with pytest.raises(KeyboardInterrupt):
            examined(tmp_path / str(count), told=told)
        assert len(list((tmp_path / str(count) / "shards").iterdir())) == kept
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert sum("Ctrl-C again" in sentence for sentence in told) == 2


class RaisesLater(Odd):
    passes = 0

    def before(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes > 9:
            raise ZeroDivisionError("the tenth is too much")
        return x


class AnswersInComplexNumbers(Odd):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return torch.complex(out, out)


class AnswersInWholeNumbers(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).argmax(1)


class SharesWeights(Odd):
    def __init__(self) -> None:
        super().__init__()
        units = inside(self.units)
        units[1].conv1.weight = units[0].conv1.weight
        self.head.weight = torch.nn.Parameter(self.head.weight.detach().t().contiguous().t())


class InInferenceMode(Odd):
    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def test_a_subject_that_breaks_down_is_named_and_what_was_done_is_kept(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match=r"mine raised ZeroDivisionError on batch \d \(the tenth is too much\)"):
        examined(tmp_path / "run", subject(RaisesLater()))
    assert list((tmp_path / "run" / "shards").iterdir())


@pytest.mark.parametrize("kind", [AnswersInComplexNumbers, AnswersInWholeNumbers, SharesWeights, InInferenceMode])
def test_odd_outputs_and_weights_are_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Odd]) -> None:
    monkeypatch.setattr(sys.modules["eyechart.exam"], "finish", lambda run, *how, **more: None)
    run = eyechart.exam(subject(kind()), measures="skip_ratio", limit=8, out=tmp_path / "run")
    assert run.plan["subjects"][0]["notes"] == []
    assert all(run.read_tallies(index) is not None for index in range(len(run.plan["batches"]["shards"])))
