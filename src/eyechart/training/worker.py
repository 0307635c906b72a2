"""One training in its own process: `python -m eyechart.training.worker RUN`, where RUN is a run as JSON.

Its reports are lines of JSON on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from eyechart.errors import EyechartError
from eyechart.training.run import Run

INTERRUPTED = 130


def main(text: str) -> int:
    run = Run.from_json(text)

    def report(event: Mapping[str, Any]) -> None:
        print(json.dumps(event), flush=True)

    try:
        from eyechart.training.loop import train

        train(run, report)
    except EyechartError as error:
        report({"run": run.label, "error": str(error)})
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # who asked for the training is gone; its last state is kept
        os._exit(1)
    except Exception as error:
        size = run.recipe.batch_size
        if type(error).__name__ == "OutOfMemoryError":
            words = f"The device has no memory left for batches of {size}; lower --batch-size."
        elif "more than 1 value per channel" in str(error):
            words = f"Batch norms have no spread over one value; raise --batch-size ({size}) or --image-size."
        else:
            raise
        report({"run": run.label, "error": words})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
