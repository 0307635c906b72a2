"""The public surface is what `eyechart` exports, and nothing else by accident."""

from __future__ import annotations

import subprocess
import sys

import eyechart


def test_exported_names() -> None:
    assert eyechart.__all__ == [
        "Anatomy",
        "EyechartError",
        "Run",
        "Site",
        "Subject",
        "exam",
        "load_subject",
        "open_images",
    ]
    for name in eyechart.__all__:
        assert getattr(eyechart, name) is not None


def test_exam_can_be_called_whichever_way_it_was_imported() -> None:
    program = """
import inspect, eyechart.exam, eyechart
from eyechart.exam import exam
assert eyechart.exam is exam
assert list(inspect.signature(eyechart.exam).parameters)[:3] == ["subjects", "images", "measures"]
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_every_measure_has_its_words_and_decides_by_its_own_quantities() -> None:
    from eyechart.claims.table import CLAIMS
    from eyechart.measures import measures

    for measure in measures().values():
        assert measure.title.endswith("?")
        assert measure.title_ko.endswith("?")
        for text in (measure.how_to_read, measure.how_to_read_ko, measure.method):
            assert text.endswith(".")
        for test in measure.claims:
            # A claim of several measures (C35) is decided in the file of the first.
            known = [measures()[name] for name in CLAIMS[test.claim].measures if name in measures()]
            mine = {quantity.name for each in (measure, *known) for quantity in each.quantities}
            assert {part.quantity for part in test.parts} <= mine
