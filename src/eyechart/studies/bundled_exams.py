"""Exams of the bundled models, kept beside the records of studies: `eyechart study --report --exam RUN [--exam RUN …]`.

`records/exam.json` holds for each run who was examined on how many images, its verdicts and its quantities. Where two
runs have the same one, that on more images counts, whatever it says, and of equally many the first: as many as the
measure took, for an effort may give it fewer than the run has. A run is added to those that are kept, in place of an
earlier one of the same subjects on the same images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.claims.verdict import Verdict
from eyechart.files import write_json
from eyechart.studies.known_accuracies import Accuracies
from eyechart.studies.records import records_folder, short

if TYPE_CHECKING:
    from eyechart.run import Run


SOURCES = (
    "“sample” is 1,000 test images of CIFAR-10, “cifar10.npz” all 10,000 of them; with “:train” they are training "
    "images."
)


@dataclass(frozen=True)
class BundledExams:
    runs: Sequence[dict[str, Any]]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> BundledExams:
        """What is kept of these runs."""
        return cls([what_is_kept(run) for run in runs])

    @classmethod
    def read(cls, path: Path | None = None) -> BundledExams:
        path = path or records_folder() / "exam.json"
        return cls(json.loads(path.read_text(encoding="utf-8")) if path.is_file() else [])

    def write(self, path: Path | None = None) -> Path:
        return write_json(path or records_folder() / "exam.json", self.runs)

    def with_newer(self, newer: BundledExams) -> BundledExams:
        """These runs, each replaced by a newer one of the same subjects and images; others come last."""
        replacing = {_asked(run): run for run in newer.runs}
        kept = [replacing.pop(_asked(run), run) for run in self.runs]
        return BundledExams([*kept, *replacing.values()])

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """By claim."""
        first: dict[tuple[Any, ...], Verdict] = {}
        known = Accuracies(self.runs)
        for run, entry in self._all("verdicts"):
            verdict = known.told(Verdict.from_json(entry), run["source"])
            first.setdefault((verdict.claim, verdict.subjects, verdict.reading), verdict)
        return sorted(first.values(), key=lambda verdict: verdict.claim)

    @cached_property
    def quantities(self) -> dict[tuple[str, str], tuple[float, float, float]]:
        """Value and interval, by name and subjects ("zoo:vit | zoo:resnet")."""
        first: dict[tuple[str, str], tuple[float, float, float]] = {}
        for _, row in self._all("quantities"):
            first.setdefault((row["quantity"], row["subjects"]), (row["value"], row["low"], row["high"]))
        return first

    @cached_property
    def images(self) -> dict[tuple[str, str], int]:
        """On how many images each of these was measured."""
        first: dict[tuple[str, str], int] = {}
        for run, row in self._all("quantities"):
            first.setdefault((row["quantity"], row["subjects"]), images_of(run, row["measure"]))
        return first

    def _all(self, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Every entry with its run, those on most images first."""
        entries = [(run, entry) for run in self.runs for entry in run[kind]]
        return sorted(entries, key=lambda each: -images_of(each[0], each[1]["measure"]))

    @property
    def words(self) -> list[str]:
        """A sentence for each run: who was examined on what."""
        return [
            f"{', '.join(run['subjects'])} on {run['images']:,} images of {run['source']} "
            f"(effort {run['effort']}, eyechart {run['eyechart']}, {run['made'][:10]})"
            for run in self.runs
        ]


def _asked(run: dict[str, Any]) -> tuple[Any, ...]:
    return (*run["subjects"], run["source"])


def images_of(run: Mapping[str, Any], measure: str) -> int:
    """How many images a measure took. Runs that were kept before this was do not tell: all of the run's."""
    return int(run.get("measured", {}).get(measure) or run["images"])


def what_is_kept(run: Run) -> dict[str, Any]:
    plan = run.plan
    return {
        "subjects": [subject["name"] for subject in plan["subjects"]],
        "images": plan["images"]["used"],
        "source": plan["images"]["name"],
        "effort": plan["settings"]["effort"],
        "measures": run.measure_names,
        "measured": {name: int(finding.attrs.get("images", 0)) for name, finding in run.findings.items()},
        "eyechart": plan["eyechart"],
        "made": plan["provenance"]["made"],
        "verdicts": [verdict.as_json() for verdict in run.verdicts if verdict.verdict != "not tested"],
        "quantities": [short(row) for row in run.quantities()],
    }
