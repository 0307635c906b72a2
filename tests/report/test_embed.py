"""Tables of charts, packed small into the page."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from eyechart.report import embed


def unpacked(column: dict[str, Any]) -> list[Any]:
    """What page.js reads, by another hand."""
    kind = next(name for name in column if name not in ("words", "values"))
    values = np.frombuffer(base64.b64decode(column[kind]), dtype="<" + kind).tolist()
    values = [None if value != value else value for value in values]
    return [column["words"][code] for code in values] if "words" in column else values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 255], "u1"),
        ([0, 256], "u2"),
        ([-1, 70000], "i4"),
        ([0, 2**40], "f8"),
        ([0.1, None, -3.5], "f8"),
        (["b", "a", "b"], "u1"),
    ],
)
def test_columns_come_back(values: list[Any], kind: str) -> None:
    packed = embed.column(values)
    assert kind in packed
    assert unpacked(packed) == values


def test_mixed_columns_are_left_alone() -> None:
    assert embed.column(["a", None, True]) == {"values": ["a", None, True]}


def test_columns_are_small() -> None:
    rows = [{"x": i // 130, "y": i % 130, "name": f"layer{i % 130}", "cka": i / 16900} for i in range(16900)]
    assert len(json.dumps(embed.packed(rows))) < len(json.dumps(rows)) / 6
