"""Several trainings at once; on one GPU they share it. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence

from eyechart.training.progress import Report
from eyechart.training.run import TrainingRun
from eyechart.training.workers import Ended, Job, work_through


def run_side_by_side(
    runs: Sequence[TrainingRun], parallel: int, report: Report, engine: str = "processes"
) -> dict[str, int]:
    """At most `parallel` at a time; the exit code of each, by the run's label. What they say goes to `report`."""
    by_label = {run.label: run for run in runs}
    codes: dict[str, int] = {}

    def ended(end: Ended) -> Sequence[Job]:
        run, codes[end.job.label] = by_label[end.job.label], end.code
        if end.code < 0:
            words = f"The training was killed by signal {-end.code}; {run.again} continues from its last state."
            report({"run": run.label, "error": words})
        return ()

    jobs = [Job(run.label, json.loads(run.as_json())) for run in runs]
    work_through("eyechart.training.worker", jobs, min(parallel, len(jobs)), report, ended, engine=engine)
    return codes
