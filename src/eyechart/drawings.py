"""Findings → charts of the page, several side by side: drawing is most of what a page takes, and each stands alone.

A helper (`helper_processes.py`) is given names of measures and leaves each chart in a folder that is gone afterwards.
What it does not deliver is drawn here; what cannot be drawn is left to the page, which says why.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from eyechart.files import write_text
from eyechart.helper_processes import help_with, helped, taken
from eyechart.run import Run

if TYPE_CHECKING:
    from eyechart.report.embed import EmbeddedChart
    from eyechart.report.words import Language

FEWEST = 8
"""Charts for each process: a helper's imports take as long as five of them."""
MOST = 8
"""Processes: more of them would wait for the longest chart."""


def draw_charts(
    run: Run, language: Language = "en", processes: int = 1, told: Callable[[str], object] = lambda name: None
) -> dict[str, EmbeddedChart]:
    """The charts of a run's findings, by measure; `told` hears the name of each when it is drawn or given up."""
    from eyechart.report.embed import EmbeddedChart, embed

    # The largest first: whoever draws it last would keep all others waiting.
    waiting = deque(sorted(run.findings, key=lambda name: -run.findings[name].nbytes))
    processes = min(processes, MOST, len(waiting) // FEWEST)
    if any("sha256" in entry for entry in run.plan["measures"]):  # measures of a plugin are known to this process alone
        processes = 1
    charts: dict[str, EmbeddedChart] = {}
    with TemporaryDirectory(prefix="eyechart-") as folder:
        first = json.dumps({"into": folder, "language": language})
        with helped("eyechart.drawings", run.path, processes - 1, waiting, first) as helpers:
            for name in taken(waiting):
                with suppress(Exception):  # of whatever kind: the page draws it again, and says what happened
                    charts[name] = embed(run, name, language)
                told(name)
                for other in taken(helpers.delivered):
                    told(other)
            helpers.wait()
            for other in taken(helpers.delivered):
                told(other)
        for path in Path(folder).glob("*.json"):
            charts[path.stem] = EmbeddedChart.from_json(path.read_text(encoding="utf-8"))
    return charts


def chart_drawer() -> Callable[[str], object]:
    """In a helper: what draws a chart of the run whose folder is this process's argument."""
    from eyechart.report.embed import embed

    run = Run(Path(sys.argv[1]))
    asked = json.loads(sys.stdin.readline())

    def draw(name: str) -> None:
        with suppress(Exception):
            write_text(Path(asked["into"]) / f"{name}.json", embed(run, name, asked["language"]).as_json())

    return draw


if __name__ == "__main__":
    help_with(chart_drawer)
