"""An exam of one measure on 16 pictures, in a second, whose folder tests can damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

import eyechart
from eyechart.engines.plan import scene_of
from eyechart.engines.prepared import Prepared
from eyechart.measures import planned_measures
from eyechart.run import Run
from eyechart.subjects.preprocessing import Preprocessing
from eyechart.subjects.subject import Subject
from tests.cases import cnn

OWN_WAY = Preprocessing((32, 32), (0.5,) * 3, (0.2,) * 3)


def subject(module: nn.Module | None = None, transform: Any = OWN_WAY) -> Subject:
    return eyechart.load_subject(module or cnn(), transform=transform, label="mine", input_size=32)


def examined(out: Path, who: Any = None, told: list[str] | None = None, **more: Any) -> Run:
    said = [] if told is None else told
    return eyechart.exam(
        who or subject(),
        measures="skip_ratio",
        limit=16,
        out=out,
        keep_shards=True,
        progress=lambda what, done, total: said.append(what),
        **more,
    )


def tallies_of(prepared: Prepared, shards: int) -> dict[str, bytes]:
    """Every number that the first shards of an exam add up, to be compared bit by bit."""
    chosen, scene = planned_measures(prepared.plan["measures"]), scene_of(prepared.plan)
    return {
        f"{shard}/{name}/{key}": value.numpy().tobytes()
        for shard in range(shards)
        for name, tally in prepared.compute(shard, chosen, scene).items()
        for key, value in tally.tensors().items()
    }
