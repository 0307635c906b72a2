"""Several trainings at once, each in a process of its own; on one GPU they share it. No torch here."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eyechart.training.progress import Report
from eyechart.training.run import Run

Child = subprocess.Popen[str]


def run_side_by_side(runs: Sequence[Run], parallel: int, report: Report) -> dict[str, int]:
    """At most `parallel` at a time; the exit code of each, by the run's label. What they say goes to `report`."""
    waiting, codes = list(runs), {}
    ended: queue.Queue[tuple[Run, int]] = queue.Queue()
    going: dict[str, Child] = {}
    lock = threading.Lock()

    def say(event: Mapping[str, Any]) -> None:
        with lock, suppress(OSError):  # whoever read the reports may be gone; the trainings go on without
            report(event)

    def follow(run: Run, child: Child) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):  # a library may print a line of its own
                say(json.loads(line))
        ended.put((run, child.wait()))

    try:
        while waiting or going:
            while waiting and len(going) < parallel:
                run = waiting.pop(0)
                going[run.label] = child = _start(run)
                threading.Thread(target=follow, args=(run, child), daemon=True).start()
            run, code = ended.get()
            del going[run.label]
            codes[run.label] = code
            if code < 0:
                words = f"The training was killed by signal {-code}; {run.again} goes on from its last state."
                say({"run": run.label, "error": words})
    finally:
        for child in going.values():
            child.terminate()
    return codes


def _start(run: Run) -> Child:
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "eyechart.training.worker", run.as_json()]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
