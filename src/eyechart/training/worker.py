"""Trainings in a process of their own: `python -m eyechart.training.worker` reads runs, a line of JSON each, and does
one after the other; with a run as its argument it does that one. Its reports are lines of JSON on stdout.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from eyechart.errors import EyechartError, Interrupted
from eyechart.training.run import TrainingRun

Event = Mapping[str, Any]


def train_run(run: TrainingRun, report: Callable[[Event], None]) -> tuple[int, Event | None]:
    """The exit code of a training and its card; what went wrong is reported in a sentence."""
    try:
        from eyechart.training.loop import train

        return 0, train(run, report)
    except EyechartError as error:
        report({"run": run.label, "error": str(error)})
        return error.exit_code, None
    except KeyboardInterrupt:
        return Interrupted.exit_code, None
    except BrokenPipeError:  # who asked for the training is gone; its last state is kept
        os._exit(1)
    except Exception as error:
        size = run.recipe.batch_size
        if type(error).__name__ == "OutOfMemoryError":
            words = f"The device has no memory left for batches of {size}; lower --batch-size."
        elif "more than 1 value per channel" in str(error):
            words = (
                f"Batch normalisation needs more than one value per channel; raise --batch-size ({size}) or "
                "--image-size."
            )
        else:
            raise
        report({"run": run.label, "error": words})
        return 1, None


def clean_up() -> None:
    """Before the next job of this process: free what the last one held on the device and in the compiler."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def serve(work: Callable[[Event, Callable[[Event], None]], tuple[int, Event | None]]) -> int:
    """Jobs from standard input, one after the other, until it ends."""

    def report(event: Event) -> None:
        print(json.dumps(event), flush=True)

    for line in sys.stdin:
        code, result = work(json.loads(line), report)
        if code == Interrupted.exit_code:
            return code
        report({"ended": code, "result": result})
        clean_up()
    return 0


def work(task: Event, report: Callable[[Event], None]) -> tuple[int, Event | None]:
    return train_run(TrainingRun.from_json(json.dumps(task)), report)


def main(arguments: list[str]) -> int:
    if arguments:
        return train_run(TrainingRun.from_json(arguments[0]), lambda event: print(json.dumps(event), flush=True))[0]
    return serve(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
