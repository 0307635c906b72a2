"""Trainings that were made again: does the same command give the same model, on another day and another machine?

Weights are not kept, so an exam that is still missing makes its trainings again. What they come to is noted in
`again.jsonl` beside the records, a line each, and stands beside what was recorded the first time. No torch here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eyechart.files import read_json_lines
from eyechart.studies.records import Records, append

FILE = "again.jsonl"
KEPT = ("made", "device", "torch", "eyechart", "seconds", "step")


@dataclass(frozen=True)
class Repeat:
    """The accuracy of one training, both times."""

    arm: str
    seed: int
    first: float
    again: float
    images: int = 10_000
    interval: tuple[float, float] = (math.nan, math.nan)
    """Of the recorded run, over its test images."""
    alike: bool | None = None
    """Whether the step was computed in the same way (bfloat16, captured, by which kernels); None: not noted."""

    @property
    def same(self) -> bool:
        """As many test images right; records round to six digits."""
        return self.right == round(self.first * self.images)

    @property
    def right(self) -> int:
        return round(self.again * self.images)

    @property
    def within(self) -> bool:
        return self.interval[0] <= self.again <= self.interval[1]


def note_repeat(folder: Path, study: str, arm: str, seed: int, result: Mapping[str, Any]) -> None:
    """`study` is the arm's home, where the training is recorded."""
    accuracy, _, _, images = result["scores"]["test_accuracy"]
    about = {name: result[name] for name in KEPT if name in result}
    append(folder / FILE, {"study": study, "arm": arm, "seed": seed, "accuracy": accuracy, "images": images, **about})


def repeats(records: Iterable[Records], *folders: Path) -> list[Repeat]:
    """Those noted in these folders, of trainings that are recorded."""
    by_study = {each.study.name: each for each in records}
    found = []
    for line in (line for folder in folders for line in read_json_lines(folder / FILE)):
        home = by_study.get(line["study"])
        first = home.training(line["arm"], line["seed"]) if home else None
        if first is not None and "scores" in first:
            accuracy, low, high, _ = first["scores"]["test_accuracy"]
            alike = line["step"] == first["step"] if "step" in line and "step" in first else None
            again, images = float(line["accuracy"]), int(line["images"])
            found.append(Repeat(line["arm"], line["seed"], accuracy, again, images, (low, high), alike))
    return found


def in_words(made_again: Sequence[Repeat]) -> str:
    """
    >>> first, other = Repeat("vit", 0, 0.61, 0.61, alike=True), Repeat("vit", 1, 0.60, 0.602, alike=False)
    >>> print(in_words([first, other, other]))  # doctest: +NORMALIZE_WHITESPACE
    Trainings made again later from the same command: 3; by the same kernels as the first time: 1, by others: 2, not
    noted: 0; with the recorded accuracy: 1; within the interval of the recorded run: 0; largest difference: 0.20
    points. Made again more than once: 1, with the same accuracy each time: 1.
    """
    if not made_again:
        return ""
    same, alike = sum(each.same for each in made_again), [each.alike for each in made_again]
    largest = max(abs(each.first - each.again) for each in made_again)
    return (
        f"Trainings made again later from the same command: {len(made_again)}; by the same kernels as the first time: "
        f"{alike.count(True)}, by others: {alike.count(False)}, not noted: {alike.count(None)}; "
        f"with the recorded accuracy: {same}; within the interval of the recorded run: "
        f"{sum(each.within for each in made_again)}; largest difference: {100 * largest:.2f} points."
        f"{more_than_once(made_again)}"
    )


def more_than_once(made_again: Sequence[Repeat]) -> str:
    """What no record of the first time tells: whether the same code gives the same model twice."""
    times: dict[tuple[str, int], list[int]] = {}
    for each in made_again:
        times.setdefault((each.arm, each.seed), []).append(each.right)
    several = [right for right in times.values() if len(right) > 1]
    same = sum(len(set(right)) == 1 for right in several)
    return f" Made again more than once: {len(several)}, with the same accuracy each time: {same}." if several else ""
