"""Run what is missing of a study: trainings side by side, each examined as soon as its partners are trained.

Records are written the moment a training or an exam ends, so a lost machine loses at most what was in flight. No torch
here: the workers import it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import eyechart
from eyechart.studies.contrasts import NEXT_SEED
from eyechart.studies.records import Records, append
from eyechart.studies.repeats import note_repeat
from eyechart.studies.study import ExamPlan, Study
from eyechart.training.progress import Report
from eyechart.training.run import TrainingRun
from eyechart.training.workers import Ended, Job, work_through

BREAKS = 3  # so many trainings in a row that break in the same way are the code's or the machine's fault
Notice = Callable[[str, bool], None]  # a sentence, and whether a training ended with it


@dataclass
class Schedule:
    """What is to do, what is done, and which exams have all their partners trained."""

    study: Study
    records: Records
    file: Path
    """Where new records go."""
    data: Mapping[str, str]
    """Where each of the study's data lies."""
    work: Path
    """Where weights go, in a folder for each study; not kept in the repository."""
    parallel: int = 1
    tell: Notice = lambda words, training: None
    trained: set[tuple[str, int]] = field(default_factory=set)
    lost: set[tuple[str, int]] = field(default_factory=set)
    only_exams: tuple[str, ...] = ()
    """Names of exams to make; none: all."""
    exams_begun: set[tuple[str, tuple[str, ...], int]] = field(default_factory=set)
    waiting: list[tuple[str, int]] = field(default_factory=list)
    """Trainings whose source, another training, has not ended."""
    breaks: list[str] = field(default_factory=list)
    """How the last trainings broke, one after the other; empty as soon as one does not."""

    def run_of(self, arm: str, seed: int) -> TrainingRun:
        chosen = self.study.arms[arm]
        return self.study.training(chosen, seed, self.data[self.study.data_of(chosen)], self.work)

    @property
    def share(self) -> float:
        """Of the device's memory, for each worker. Trainings need little of theirs, exams what they get."""
        return min(1.0, 1.5 / self.parallel)

    def trainings(self, todo: Sequence[tuple[str, int]]) -> list[Job]:
        """What can begin at once; those that begin from another training of these wait for it."""
        self.waiting = [(arm, seed) for arm, seed in todo if (self.study.arms[arm].source, seed) in todo]
        return [self.training_job(arm, seed) for arm, seed in todo if (arm, seed) not in self.waiting]

    def training_job(self, arm: str, seed: int) -> Job:
        run = self.run_of(arm, seed)
        kept = (Path(run.out) / f"{run.label}.safetensors").exists()
        task = {"train": json.loads(run.as_json()), "share": self.share, "kept": kept}
        return Job(f"{arm} seed {seed}", {**task, "arm": arm, "seed": seed})

    def trainings_ready(self) -> list[Job]:
        """Those whose source was trained just now. Without their source they are given up, and stay missing."""
        jobs = []
        for arm, seed in list(self.waiting):
            source = (self.study.arms[arm].source, seed)
            if source in self.trained:
                jobs.append(self.training_job(arm, seed))
            elif source in self.lost:
                self.lost.add((arm, seed))
                self.tell(f"{arm} seed {seed} begins from {source[0]}, which failed: it is not trained.", True)
            else:
                continue
            self.waiting.remove((arm, seed))
        return jobs

    def exams_ready(self) -> list[Job]:
        """Exams all of whose arms of a seed were trained here (or failed), and that are not recorded."""
        jobs = []
        over = self.trained | self.lost
        for exam in self.study.exams:
            if self.only_exams and exam.name not in self.only_exams:
                continue
            for group in exam.groups():
                for seed in self.study.seeds_of(group):
                    key = (exam.name, group, seed)
                    second = exam.second_runs(self.study.arms, seed)
                    wanted = [*((arm, seed) for arm in group), *second]
                    if key in self.exams_begun or not all(each in over for each in wanted):
                        continue
                    trained_arms = [arm for arm in group if (arm, seed) in self.trained]
                    if trained_arms and self.records.exam(exam, group, seed) is None:
                        self.exams_begun.add(key)
                        jobs.append(self.exam_job(exam, group, trained_arms, seed))
        return jobs

    def exam_job(self, exam: ExamPlan, group: Sequence[str], trained_arms: Sequence[str], seed: int) -> Job:
        second = [each for each in exam.second_runs(self.study.arms, seed) if each in self.trained]
        plan = {**asdict(exam), "arms": [*trained_arms, *(f"{arm}{NEXT_SEED}" for arm, _ in second)]}
        runs = [
            json.loads(self.run_of(arm, number).as_json())
            for arm, number in [*((arm, seed) for arm in trained_arms), *second]
        ]
        about = {"exam": plan, "runs": runs, "share": self.share, "group": list(group), "seed": seed}
        label = (
            f"{exam.name} of {trained_arms[0] if len(trained_arms) == 1 else f'{len(trained_arms)} arms'}, seed {seed}"
        )
        return Job(label, about)

    def ended(self, end: Ended) -> list[Job]:
        """Record what a job gave, and say which exams can be made now."""
        task, result = end.job.task, dict(end.result or {})
        if end.code < 0 or end.result is None or "broke" in result:
            how = result.get("broke", f"code {end.code}")
            self.tell(
                f"{end.job.label} broke ({how}) and is not recorded; the same command tries again.", "train" in task
            )
            if "train" in task:
                self.lost.add((task["arm"], task["seed"]))
                self.breaks.append(how)
                if self.gives_up:
                    self.tell(f"{BREAKS} trainings in a row broke in the same way: no other is begun.", False)
            return [*self.trainings_ready(), *self.exams_ready()]
        if "train" in task:
            self.breaks.clear()
            arm, seed = str(task["arm"]), int(task["seed"])
            made_here = not (task["kept"] or result.pop("waited", False))
            if self.records.training(arm, seed) is None:  # it may have been trained before, and only an exam is missing
                self.note({"arm": arm, "seed": seed}, result)
            elif made_here and "scores" in result:
                home = self.study.arms[arm].home or self.study.name
                note_repeat(self.file.parent, home, arm, seed, {**result, **self.about()})
            (self.lost if "failed" in result else self.trained).add((arm, seed))
            scores = result.get("scores")
            words = f"failed: {result['failed']}" if scores is None else f"{scores['test_accuracy'][0]:.1%} right"
        else:
            self.note({"exam": task["exam"]["name"], "arms": task["group"], "seed": task["seed"]}, result)
            words = f"failed: {result['failed']}" if "failed" in result else f"{len(result['rows'])} numbers"
        self.tell(f"{end.job.label}: {words} ({result.get('seconds', 0):.0f} s)", "train" in task)
        return [*self.trainings_ready(), *self.exams_ready()]

    @property
    def gives_up(self) -> bool:
        """Whether further trainings would only break as the last ones did. (A night's worth once broke at the end.)"""
        return len(self.breaks) >= BREAKS and len(set(self.breaks[-BREAKS:])) == 1

    def note(self, key: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        line = {**key, **result, **self.about()}
        append(self.file, line)
        self.records.lines.append(json.loads(json.dumps(line)))

    def about(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "eyechart": eyechart.__version__,
            "workers": self.parallel,
            "study_file": self.study.hash,
            "claim_table": claim_table_hash(),
            "registered": self.study.registered,
        }


def run_study(
    schedule: Schedule,
    todo: Sequence[tuple[str, int]],
    report: Report,
    minutes: float | None = None,
    engine: str = "processes",
) -> None:
    """Train and examine what is to do. After so many minutes no training is begun; what was trained is examined yet:
    its weights are not kept, and an exam costs seconds where a training cost minutes."""
    began = time.monotonic()

    def may_begin(job: Job) -> bool:
        in_time = minutes is None or time.monotonic() - began <= 60 * minutes
        return "exam" in job.task or (in_time and not schedule.gives_up)

    jobs = schedule.trainings(todo)
    work_through("eyechart.studies.worker", jobs, schedule.parallel, report, schedule.ended, may_begin, engine=engine)


def claim_table_hash() -> str:
    table = files("eyechart.claims").joinpath("claims.toml").read_bytes()
    return hashlib.sha256(table).hexdigest()[:16]
