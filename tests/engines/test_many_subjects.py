"""Eight subjects, every two of them compared: each still runs once for each picture."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from eyechart.engines.plan import scene_of
from eyechart.exam import prepare
from eyechart.measures import planned_measures
from eyechart.subjects.list_file import listed_subjects
from eyechart.subjects.preprocessing import Resizing
from eyechart.subjects.subject import Subject
from tests.small_subjects import TINY, write_subjects

pytestmark = pytest.mark.all_draws

MANY = 8
SHARDS = 2


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """From a list, as a user with many checkpoints gives them: four ViTs and four ResNets."""
    folder = tmp_path_factory.mktemp("many")
    specs = [spec for spec in write_subjects(folder, TINY) if "dropout" not in spec]
    entries = [f'[[subject]]\nspec = "{specs[number % 2]}"\nlabel = "number {number}"\n' for number in range(MANY)]
    (folder / "list.toml").write_text("".join(entries))
    return listed_subjects(folder / "list.toml")


def test_each_of_many_subjects_runs_once_for_each_picture(listed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["recognition", "cka", "attention_distance", "skip_ratio", "calibration"]
    asked: dict[str, Any] = {"options": None, "effort": "quick", "limit": 64, "seed": 0, "classes": None}
    prepared = prepare(listed, "sample", names, **asked, device="cpu", dtype="float32", plugins=(), claims=None)
    passes = Counter[str]()
    call = Subject.call

    def counted(subject: Subject, images: Any) -> Any:
        passes[subject.name] += len(images)
        return call(subject, images)

    fed = Counter[str]()
    feed = Resizing.__call__

    def counted_feed(resizing: Resizing, picture: Any) -> Any:
        fed["pictures"] += 1
        return feed(resizing, picture)

    monkeypatch.setattr(Subject, "call", counted)
    monkeypatch.setattr(Resizing, "__call__", counted_feed)
    chosen, scene = planned_measures(prepared.plan["measures"]), scene_of(prepared.plan)
    assert [measure.name for measure in chosen] == names
    tallies = [prepared.compute(shard, chosen, scene)["cka"] for shard in range(SHARDS)]
    images = sum(len(batch.images) for shard in range(SHARDS) for batch in prepared.batches.batches(shard))
    assert passes == {f"number {number}": images for number in range(MANY)}
    assert fed["pictures"] == images  # all of them are fed alike

    total = tallies[0].merge(tallies[1]).total()
    estimate = next(measure for measure in chosen if measure.name == "cka").estimate(total, scene)
    compared = {
        (one, other)
        for one, row in zip(estimate.subject.values, estimate.cka.values, strict=True)
        for other, value in zip(estimate.other_subject.values, row, strict=True)
        if value == value
    }
    assert len(compared) == MANY * MANY
