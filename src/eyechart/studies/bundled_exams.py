"""Exams of the bundled models, kept beside the records of studies: `eyechart study --report --exam RUN [--exam RUN …]`.

`records/exam.json` holds who was examined on how many images, and the verdicts and quantities of these runs. Where two
runs have the same one, the first run counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.claims.verdict import Verdict
from eyechart.files import write_json
from eyechart.studies.records import records_folder, short

if TYPE_CHECKING:
    from eyechart.run import Run


@dataclass(frozen=True)
class BundledExams:
    content: dict[str, Any]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> BundledExams:
        """What is kept of these runs."""
        verdicts: dict[tuple[Any, ...], dict[str, Any]] = {}
        quantities: dict[tuple[str, str], dict[str, Any]] = {}
        for run in runs:
            for verdict in run.verdicts:
                if verdict.verdict != "not tested":
                    verdicts.setdefault((verdict.claim, verdict.subjects, verdict.reading), verdict.as_json())
            for row in run.quantities():
                quantities.setdefault((row["quantity"], row["subjects"]), short(row))
        return cls(
            {
                "runs": [about(run) for run in runs],
                "verdicts": sorted(verdicts.values(), key=lambda entry: str(entry["claim"])),
                "quantities": list(quantities.values()),
            }
        )

    @classmethod
    def read(cls, path: Path | None = None) -> BundledExams:
        path = path or records_folder() / "exam.json"
        empty: dict[str, Any] = {"runs": [], "verdicts": [], "quantities": []}
        return cls(json.loads(path.read_text(encoding="utf-8")) if path.is_file() else empty)

    def write(self, path: Path | None = None) -> Path:
        return write_json(path or records_folder() / "exam.json", self.content)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return [Verdict.from_json(entry) for entry in self.content["verdicts"]]

    @cached_property
    def quantities(self) -> dict[tuple[str, str], tuple[float, float, float]]:
        """Value and interval, by name and subjects ("zoo:vit | zoo:resnet")."""
        rows = self.content["quantities"]
        return {(row["quantity"], row["subjects"]): (row["value"], row["low"], row["high"]) for row in rows}

    @property
    def words(self) -> list[str]:
        """A sentence for each run: who was examined on what."""
        return [
            f"{', '.join(run['subjects'])} on {run['images']:,} images of {run['source']} "
            f"(effort {run['effort']}, eyechart {run['eyechart']}, {run['made'][:10]})"
            for run in self.content["runs"]
        ]


def about(run: Run) -> dict[str, Any]:
    plan = run.plan
    return {
        "subjects": [subject["name"] for subject in plan["subjects"]],
        "images": plan["images"]["used"],
        "source": plan["images"]["name"],
        "effort": plan["settings"]["effort"],
        "measures": run.measure_names,
        "eyechart": plan["eyechart"],
        "made": plan["provenance"]["made"],
    }
