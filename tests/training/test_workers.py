"""Who does what when time runs out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eyechart.studies import run as studies_run
from eyechart.training import workers
from eyechart.training.workers import Ended, Job, work_through


class Hands:
    """A worker that only says what it was asked."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    def ask(self, job: Job, say: Any) -> Ended:
        self.asked.append(job.label)
        return Ended(job, 0, {})

    def close(self) -> None: ...

    def kill(self) -> None: ...


@pytest.mark.parametrize("parallel", [1, 3])
def test_late_jobs_are_left_out_and_those_that_follow_are_not(monkeypatch: pytest.MonkeyPatch, parallel: int) -> None:
    asked: list[str] = []
    monkeypatch.setattr(workers, "hiring", lambda *how: lambda: Hands(asked))
    trainings = [Job(name, {"train": {}}) for name in "abc"]

    def ended(end: Ended) -> list[Job]:
        return [Job("exam of a", {"exam": {}})] if end.job.label == "a" else []

    def may_begin(job: Job) -> bool:
        return job.label in ("a", "exam of a")

    work_through("anything", trainings, parallel, lambda event: None, ended, may_begin)
    assert asked == ["a", "exam of a"]


def test_a_study_out_of_time_examines_what_it_has_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    now, begun = [0.0], dict[str, bool]()
    monkeypatch.setattr(studies_run, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def instead(module: str, jobs: Any, parallel: int, report: Any, ended: Any, may_begin: Any, engine: str) -> None:
        for now[0] in (59.0, 61.0):
            for kind in ("train", "exam"):
                begun[f"{kind} after {now[0]:g} s"] = may_begin(Job("", {kind: {}}))

    monkeypatch.setattr(studies_run, "work_through", instead)
    nothing: Any = SimpleNamespace(trainings=lambda todo: [], parallel=1, ended=None, work=Path(), gives_up=False)
    studies_run.run_study(nothing, [], lambda event: None, minutes=1.0)
    assert begun == {
        "train after 59 s": True,
        "exam after 59 s": True,
        "train after 61 s": False,
        "exam after 61 s": True,
    }


SPEAKER = """
import json, sys

for line in sys.stdin:
    sys.stdout.buffer.write(b"a library says \\xff\\xfe\\n")
    sys.stdout.flush()
    print(json.dumps({"ended": 0, "result": {"heard": json.loads(line)}}), flush=True)
"""


def test_what_a_library_prints_need_not_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows pipes have the letters of one country, and a line with others ended the study."""
    (tmp_path / "speaker.py").write_text(SPEAKER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = workers.LocalWorker("speaker")
    try:
        assert worker.ask(Job("a", {"name": "비전"}), lambda event: None).result == {"heard": {"name": "비전"}}
    finally:
        worker.close()
