"""Records: what trainings and exams of a study gave, a line of JSON each, small enough to be committed. No torch here.

`NAME.jsonl` holds two kinds of lines. A training: `arm`, `seed`, its settings, scores, curve and facts. An exam: its
name, `seed`, `arms`, and rows `[measure, quantity, [subjects], value, low, high, images]`. Both say when, where and
under which study file, claim table and registered tests they were made. What failed is recorded too, as `failed`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from eyechart.claims.gates import Facts
from eyechart.files import read_json_lines
from eyechart.studies.contrasts import Contrast
from eyechart.studies.study import ExamPlan, Study, find, folder

Key = tuple[str, str, tuple[str, ...], int]
"""("arm", its name, (), seed) or ("exam", its name, arms, seed)."""

DIGITS = 6  # significant ones: far below any interval, a third of the bytes


def records_folder() -> Path:
    """The records that come with the package."""
    return folder() / "records"


@dataclass(frozen=True)
class Row:
    """A quantity of one exam, or of one training, with its interval within the run."""

    measure: str
    quantity: str
    subjects: tuple[str, ...]
    value: float
    low: float
    high: float
    images: int
    exam: str = ""
    """Empty: it was recorded with the training."""
    source: str = "test"
    """"test" or "train" of the arm's own data, or other images."""

    @property
    def pictures(self) -> str:
        """What it was measured on: "1,024 test images"; empty where it was read off the weights."""
        return f"{self.images:,} {self.kind_of_pictures}" if self.images else ""

    @property
    def kind_of_pictures(self) -> str:
        kinds = {"test": "test images", "train": "training images", "sample": "test images of CIFAR-10"}
        return kinds.get(self.source, f"images of {self.source}")


def key_of_line(line: Mapping[str, Any]) -> Key:
    if "arm" in line:
        return "arm", line["arm"], (), line["seed"]
    return "exam", line["exam"], tuple(line["arms"]), line["seed"]


@dataclass
class Records:
    """All that is recorded of one study."""

    study: Study
    lines: list[dict[str, Any]] = field(default_factory=list)
    _found: tuple[int, Mapping[Key, dict[str, Any]]] = field(default=(-1, MappingProxyType({})), repr=False)
    _sorted: tuple[int, Mapping[str, list[tuple[int, Row]]]] = field(default=(-1, MappingProxyType({})), repr=False)

    @classmethod
    def of(cls, study: Study, *folders: Path) -> Records:
        """The records in these folders, and those of borrowed arms; the last line on a training or exam counts."""
        own = [line for each in folders for line in read_json_lines(each / f"{study.name}.jsonl")]
        return cls(study, [*_borrowed(study, folders), *own])

    def training(self, arm: str, seed: int) -> dict[str, Any] | None:
        return self._last().get(("arm", arm, (), seed))

    def exam(self, exam: ExamPlan, arms: Sequence[str], seed: int) -> dict[str, Any] | None:
        return self._last().get(("exam", exam.name, tuple(arms), seed))

    def _last(self) -> Mapping[Key, dict[str, Any]]:
        """The last line on each training and exam; lines are only ever added."""
        if self._found[0] != len(self.lines):
            self._found = len(self.lines), {key_of_line(line): line for line in self.lines}
        return self._found[1]

    def recorded(self, arm: str, seed: int) -> bool:
        """Whether a training and all its exams are there, or it failed."""
        line = self.training(arm, seed)
        if line is None:
            return False
        return bool(line.get("failed")) or all(
            self.exam(exam, group, seed)
            for exam in self.study.exams
            for group in exam.groups()
            if arm in group and seed in self.study.seeds_of(group)
        )

    def rows_of(self, quantity: str) -> list[tuple[int, Row]]:
        """Those of `rows` with this quantity."""
        if self._sorted[0] != len(self.lines):
            by_quantity: dict[str, list[tuple[int, Row]]] = {}
            for seed, row in self.rows():
                by_quantity.setdefault(row.quantity, []).append((seed, row))
            self._sorted = len(self.lines), by_quantity
        return self._sorted[1].get(quantity, [])

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Every number with its seed: of trainings, then of exams. Subjects are arms; "vit@warmup" is a snapshot."""
        for arm in self.study.arms.values():
            for seed in arm.seeds:
                line = self.training(arm.name, seed)
                if line is not None and not line.get("failed"):
                    for quantity, (value, low, high, images) in line["scores"].items():
                        source = "train" if "_train_" in quantity else "test"
                        yield seed, Row("training", quantity, (arm.name,), value, low, high, images, source=source)
        for exam in self.study.exams:
            for group in exam.groups():
                for seed in self.study.seeds_of(group):
                    line = self.exam(exam, group, seed)
                    if line is not None and not line.get("failed"):
                        for measure, quantity, subjects, *numbers, images in line["rows"]:
                            value, low, high = (math.nan if number is None else float(number) for number in numbers)
                            yield (
                                seed,
                                Row(
                                    measure, quantity, tuple(subjects), value, low, high, images, exam.name, exam.images
                                ),
                            )

    def values(self, quantity: str, keys: Collection[str] = ()) -> dict[tuple[str, ...], dict[int, Row]]:
        """A quantity of each tuple of arms, by seed. Where several exams have it, the first one of the file counts.

        All of `keys` ("vit", "one | other") are taken from one exam, if one has them: what is measured of an arm may
        depend on who was examined beside it (the strength of noise does).
        """
        by_exam: dict[str, dict[tuple[str, ...], dict[int, Row]]] = {}
        for seed, row in self.rows_of(quantity):
            arms = tuple(subject.partition("@")[0] for subject in row.subjects)
            by_exam.setdefault(row.exam, {}).setdefault(arms, {}).setdefault(seed, row)
        wanted = {tuple(key.split(" | ")) for key in keys}
        together = [found for found in by_exam.values() if wanted and wanted <= found.keys()]
        by_arms: dict[tuple[str, ...], dict[int, Row]] = {}
        for found in by_exam.values():
            for arms, by_seed in found.items():
                mine = together[0][arms] if together and arms in wanted else by_seed
                for seed, row in mine.items():
                    by_arms.setdefault(arms, {}).setdefault(seed, row)
        return by_arms

    def of_arms(self, contrast: Contrast) -> dict[str, dict[int, float]]:
        """The quantity of a contrast for every arm (or pair of arms) that has it, on the scale of the contrast."""
        result: dict[str, dict[int, float]] = {}
        keys = [key for key in contrast.weights if key not in contrast.chosen]
        for arms, by_seed in self.values(contrast.quantity, keys).items():
            key = " | ".join(arms)
            # Those that came along as a next seed count only where they are asked for.
            if key in contrast.weights or all(arm in self.study.arms for arm in arms):
                numbers = {seed: scaled(row.value, contrast) for seed, row in by_seed.items()}
                result[key] = {seed: number for seed, number in numbers.items() if math.isfinite(number)}
        return result | {name: choice.of_seeds(result, contrast.every_seed) for name, choice in contrast.chosen.items()}

    def pictures(self, contrast: Contrast) -> str:
        """What the runs of a contrast were measured on, in words; training losses on less data on fewer pictures."""
        keys = [key for key in contrast.weights if key not in contrast.chosen] or list(contrast.arms)
        rows = self.values(contrast.quantity, keys)
        found = [row for key in keys for row in rows.get(tuple(key.split(" | ")), {}).values() if row.images]
        least, most = (end((row.images for row in found), default=0) for end in (min, max))
        if least < most and len({row.source for row in found}) == 1:
            return f"{least:,} to {most:,} {found[0].kind_of_pictures}"
        return found[0].pictures if found else ""

    def facts(self, arm: str) -> Facts | None:
        """What is known of an arm, over its seeds: the input of the gates."""
        seeds = self.study.arms[arm].seeds if arm in self.study.arms else ()
        lines = [line for seed in seeds if (line := self.training(arm, seed)) and not line.get("failed")]
        if not lines:
            return None
        accuracy = np.array([line["scores"]["test_accuracy"][:3] for line in lines], float).mean(0)
        first = lines[0]
        grid, last_grid = (first["facts"][name] for name in ("grid", "last_grid"))
        return Facts(
            subject=arm,
            architecture=first["facts"]["architecture"],
            trained=True,
            images=first["data"],
            accuracy=(float(accuracy[0]), float(accuracy[1]), float(accuracy[2])),
            recipe=first["recipe"]["name"],
            settings=first["recipe"],
            training_images=first["train_images"],
            grid=None if grid is None else (grid[0], grid[1]),
            last_grid=None if last_grid is None else (last_grid[0], last_grid[1]),
            heads=tuple(first["facts"]["heads"]),
            classes=first["classes"],
            pooling=first["facts"]["pooling"],
        )

    def failures(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("failed")]


def _borrowed(study: Study, folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Lines of other studies on arms that this one borrows: trainings, and exams that both plan alike."""
    exams = {exam.name: exam for exam in study.exams}
    lines: list[dict[str, Any]] = []
    for lender in map(find, study.lenders):
        lent = {arm.name for arm in study.arms.values() if arm.home == lender.name}
        alike = {
            exam.name for exam in lender.exams if exam.name in exams and _measured(exam) == _measured(exams[exam.name])
        }
        lines += [
            line
            for each in folders
            for line in read_json_lines(each / f"{lender.name}.jsonl")
            if line.get("arm") in lent or (line.get("exam") in alike and set(line["arms"]) <= lent)
        ]
    return lines


def _measured(exam: ExamPlan) -> ExamPlan:
    """An exam without what does not change its numbers."""
    return replace(exam, arms=(), judged=True)


def scaled(value: float, contrast: Contrast) -> float:
    """On the scale that a contrast adds up in; NaN where it has no logarithm."""
    if contrast.scale == "plain":
        return value
    return math.log(value) if value > 0 else math.nan


def append(path: Path, line: Mapping[str, Any]) -> None:
    """One more record, on the disk at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(short(line), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    with path.open("ab") as file:
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def short(data: Any) -> Any:
    """Floats with six significant digits, and null for what is not a finite number."""
    if isinstance(data, Mapping):
        return {str(key): short(value) for key, value in data.items()}
    if isinstance(data, (list, tuple, np.ndarray)):
        return [short(value) for value in data]
    if isinstance(data, (float, np.floating)):
        return float(f"{data:.{DIGITS}g}") if math.isfinite(data) else None
    if isinstance(data, np.integer):
        return int(data)
    return data


def share_bounds(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many images.

    >>> low, high = share_bounds(0.5, 10_000)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.51)
    """
    z = 1.959964
    middle, half_width = share + z**2 / (2 * count), z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return (middle - half_width) / (1 + z**2 / count), (middle + half_width) / (1 + z**2 / count)


def missing(study: Study, records: Records, arms: Iterable[str], seeds: Iterable[int] | None) -> list[tuple[str, int]]:
    """Trainings, by arm and seed, that are not recorded with all their exams, or that come along as the next seed in
    such an exam: their weights are not kept."""
    wanted = set(seeds) if seeds is not None else None
    asked = [(arm, seed) for arm in arms for seed in study.arms[arm].seeds if wanted is None or seed in wanted]
    lacking = {run for run in asked if not records.recorded(*run)}
    along = {
        run
        for exam in study.exams
        for group in exam.groups()
        for seed in study.seeds_of(group)
        if any((arm, seed) in lacking for arm in group) and not records.exam(exam, group, seed)
        for run in exam.second_runs(study.arms, seed)
    }
    return [run for run in asked if run in lacking | along]
