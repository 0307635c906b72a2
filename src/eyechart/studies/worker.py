"""A worker of a study: trains arms and examines them on the same device. `python -m eyechart.studies.worker`.

A job is `{"train": RUN, …}` or `{"exam": …}`; the answer is the record's own part, which `run.py` completes and writes.
What eyechart itself refuses or gives up, such as a training that diverges, is a result too (`failed`); what breaks
otherwise is none (`broke`): it says something of the code or the machine, not of the arm.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.errors import BeingTrained, EyechartError, Interrupted
from eyechart.training.run import TrainingRun
from eyechart.training.worker import serve

if TYPE_CHECKING:
    from eyechart.training.records import Records

Event = Mapping[str, Any]
WAIT_SECONDS = 1.0


def work(task: Event, report: Callable[[Event], None]) -> tuple[int, Event | None]:
    try:
        _limit_memory(float(task.get("share", 1.0)))
        if "train" in task:
            return _train(TrainingRun.from_json(json.dumps(task["train"])), report)
        from eyechart.studies.examine import examine_arms

        began = time.monotonic()
        rows = examine_arms(task, lambda done, total: report({"steps": done, "total": total}))
        return 0, {**rows, "seconds": time.monotonic() - began}
    except EyechartError as error:
        report({"error": str(error)})
        return error.exit_code, {"failed": str(error)}
    except BrokenPipeError:
        os._exit(1)
    except KeyboardInterrupt:
        return Interrupted.exit_code, None
    except Exception as error:  # one job that breaks must not stop the others
        traceback.print_exc(file=sys.stderr)
        words = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        report({"error": words})
        return 1, {"broke": words}


def _train(run: TrainingRun, report: Callable[[Event], None]) -> tuple[int, Event | None]:
    """Weights that another study beside this one is making are waited for: an arm that both need is trained once."""
    from eyechart.studies.examine import of_training
    from eyechart.training.loop import train
    from eyechart.training.records import Records

    waited = False
    while True:
        try:
            return 0, {**of_training(run, train(run, report)), "waited": waited}
        except BeingTrained:
            waited = True
            wait_for(Records(Path(run.out), run.label))


def wait_for(records: Records) -> None:
    """Until nobody trains these any more, whether it ended or was killed."""
    while True:
        try:
            records.open()
        except BeingTrained:
            time.sleep(WAIT_SECONDS)
        else:
            records.close()
            return


def _limit_memory(share: float) -> None:
    """Several workers share a GPU: none may take what the others need."""
    import torch

    if share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)


if __name__ == "__main__":
    sys.exit(serve(work))
