"""Trainings that were made again: does the same command give the same model, on another day and another machine?

Weights are not kept, so an exam that is still missing makes its trainings again. What they come to is noted in
`again.jsonl` beside the records, a line each, and stands beside what was recorded the first time. No torch here.
"""

from __future__ import annotations

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
    alike: bool | None = None
    """Whether the step was computed in the same way (bfloat16, captured, by which kernels); None: not noted."""

    @property
    def same(self) -> bool:
        """As many test images right; records round to six digits."""
        return round(self.first * self.images) == round(self.again * self.images)


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
            accuracies = float(first["scores"]["test_accuracy"][0]), float(line["accuracy"])
            alike = line["step"] == first["step"] if "step" in line and "step" in first else None
            found.append(Repeat(line["arm"], line["seed"], *accuracies, int(line["images"]), alike))
    return found


def in_words(made_again: Sequence[Repeat]) -> str:
    """
    >>> made_again = [Repeat("vit", 0, 0.61, 0.61, alike=True), Repeat("vit", 1, 0.60, 0.602, alike=False)]
    >>> print(in_words(made_again))  # doctest: +NORMALIZE_WHITESPACE
    Trainings made again later from the same command: 2; by the same kernels as the first time: 1, not noted: 0; with
    the recorded accuracy: 1; largest difference: 0.20 points.
    """
    if not made_again:
        return ""
    same, alike = sum(each.same for each in made_again), [each.alike for each in made_again]
    largest = max(abs(each.first - each.again) for each in made_again)
    return (
        f"Trainings made again later from the same command: {len(made_again)}; by the same kernels as the first time: "
        f"{alike.count(True)}, not noted: {alike.count(None)}; "
        f"with the recorded accuracy: {same}; largest difference: {100 * largest:.2f} points."
    )
