"""Jobs of trainings and studies on a Ray cluster. Weights lie where a job says: in a folder that all nodes see."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eyechart.ray_connection import connected

if TYPE_CHECKING:
    from eyechart.training.progress import Report
    from eyechart.training.workers import Ended, Job

KILLED = -9
Answer = tuple[int, Mapping[str, Any] | None, list[Mapping[str, Any]]]


def do_job(module: str, task: Mapping[str, Any]) -> Answer:
    """On a node: the exit code of a job, its result, and what it said meanwhile (mere ticks are left out)."""
    said: list[Mapping[str, Any]] = []

    def listen(event: Mapping[str, Any]) -> None:
        if event.keys() & {"line", "notice", "error"}:
            said.append(dict(event))

    code, result = import_module(module).work(task, listen)
    return code, result, said


class RayWorker:
    """One job at a time, wherever the cluster has room."""

    def __init__(self, module: str, address: str, parallel: int) -> None:
        self.module, self.ray = module, connected(address)
        gpus = float(self.ray.cluster_resources().get("GPU", 0))
        self.task = self.ray.remote(num_cpus=1, num_gpus=min(1.0, gpus / parallel), max_retries=0)(do_job)

    def ask(self, job: Job, say: Report) -> Ended:
        from eyechart.training.workers import Ended

        try:
            code, result, said = self.ray.get(self.task.remote(self.module, dict(job.task)))
        except self.ray.exceptions.RayError as error:
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            say({"run": job.label, "error": f"Its worker is gone ({words})."})
            return Ended(job, KILLED)
        for event in said:
            say({"run": job.label, **event})
        return Ended(job, code, result)

    def close(self) -> None:
        """Nothing of this process is left on the cluster."""

    def kill(self) -> None:
        """What runs there ends with this process."""
