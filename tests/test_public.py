"""The public surface is what `eyechart` exports, and nothing else by accident."""

from __future__ import annotations

import subprocess
import sys
from inspect import signature

import eyechart
from eyechart.exam import prepare


def test_exported_names() -> None:
    assert eyechart.__all__ == [
        "Anatomy",
        "Batch",
        "Concat",
        "Experiment",
        "EyechartError",
        "Max",
        "Measure",
        "Min",
        "Need",
        "Quantity",
        "Run",
        "SampledExperiment",
        "Scene",
        "Site",
        "Source",
        "Subject",
        "Sum",
        "Tally",
        "View",
        "Views",
        "Watch",
        "compare",
        "exam",
        "forecast",
        "load_subject",
        "open_images",
        "option",
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
    from eyechart.claims.asking import asked_of
    from eyechart.measures import measures

    for measure in measures().values():
        assert measure.title.endswith("?")
        assert measure.title_ko.endswith("?")
        for text in (measure.how_to_read, measure.how_to_read_ko, measure.method):
            assert text.endswith(".")
        for test in asked_of([measure]):
            for part in test.parts:
                offered = measures()[part.measure or test.measure].quantities
                assert part.quantity in {quantity.name for quantity in offered}, (test.claim, part.quantity)


def test_an_exam_and_its_preparation_have_the_same_defaults() -> None:
    """They stand in both signatures: `exam` is what people read, and `forecast` prepares without an exam."""
    of_exam, of_prepare = (signature(function).parameters for function in (eyechart.exam, prepare))
    both = (of_exam.keys() & of_prepare.keys()) - {"subjects", "images", "measures", "progress"}
    assert len(both) > 8
    assert {name: of_exam[name].default for name in both} == {name: of_prepare[name].default for name in both}
