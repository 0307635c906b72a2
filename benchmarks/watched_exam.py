"""`eyechart exam` with a look at how long it waits for pictures: `watched_exam.py WAITS.json exam …` (see jobs.py).

The time in which the exam had nothing to send to its device because the pictures of the next batch were not read yet. A
GPU may still have had work from the batch before, so its own waiting is at most this.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eyechart.cli import main
from eyechart.engines.picture_readers import PictureReaders
from eyechart.images import loader


class Waits:
    def __init__(self, out: Path) -> None:
        self.out, self.waited, self.batches = out, 0.0, 0
        self.began = self.ended = 0.0

    def watched(self, deliver: Callable[..., Any]) -> Callable[..., Any]:
        """What hands a batch over, with a look at the clock before and after."""

        def delivered(*batch: Any) -> Any:
            before = time.perf_counter()
            pictures = deliver(*batch)
            self.ended = time.perf_counter()
            if self.batches:  # the first is read before anything can be looked at
                self.waited += self.ended - before
            else:
                self.began = self.ended
            self.batches += 1
            times = {"waited_seconds": round(self.waited, 2), "looking_seconds": round(self.ended - self.began, 2)}
            self.out.write_text(json.dumps(times))
            return pictures

        return delivered


if __name__ == "__main__":
    waits = Waits(Path(sys.argv[1]))
    loader._finished = waits.watched(loader._finished)
    PictureReaders._delivered = waits.watched(PictureReaders._delivered)  # type: ignore[method-assign]
    main(sys.argv[2:])
