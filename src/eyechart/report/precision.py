"""What is known of numbers that were computed in fewer bits than float32 (`benchmarks/precision.py` finds it out)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files

EXACT = ("float32", "float64")


def fewer_bits(dtype: str, measures: Iterable[str]) -> list[str]:
    """Sentences for the page of an exam in this dtype."""
    if dtype in EXACT:
        return []
    found = json.loads(files("eyechart.report").joinpath("precision.json").read_text(encoding="utf-8")).get(dtype)
    if found is None:
        return [f"No exam in {dtype} has been compared with float32 yet."]
    left, of_all = (sum(each[place] for each in found.values()) for place in (0, 1))
    where = [name for name, (outside, _) in found.items() if outside]
    told = [
        f"Computed in {dtype}: on the bundled pair, {left} of {of_all} numbers of such an exam lie outside the "
        "intervals that they have in float32."
    ]
    told += [f"Those are of {', '.join(where)}."] if where else []
    missing = [name for name in measures if name not in found]
    return told + ([f"Not compared with float32 in {dtype} yet: {', '.join(missing)}."] if missing else [])
