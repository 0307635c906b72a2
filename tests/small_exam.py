"""An exam of one measure on 16 pictures, in a second, whose folder tests can damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

import eyechart
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
