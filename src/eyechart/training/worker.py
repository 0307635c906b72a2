"""One training in its own process: `python -m eyechart.training.worker RUN`, where RUN is a run as JSON."""

from __future__ import annotations

import sys

from eyechart.errors import EyechartError
from eyechart.training.run import Run


def main(text: str) -> int:
    from eyechart.training.loop import train

    try:
        train(Run.from_json(text))
    except EyechartError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
