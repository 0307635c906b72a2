"""Subjects: models under examination, each with its own preprocessing, and the words for its classes.

Read `load.py` first. Nothing here imports torch until it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eyechart.subjects.catalogue import available, counts, parse_spec
    from eyechart.subjects.labels import ClassMatch, match_classes
    from eyechart.subjects.load import load_subject, load_subjects
    from eyechart.subjects.preprocessing import Preprocessing
    from eyechart.subjects.subject import Subject

_HOME = {
    "ClassMatch": "labels",
    "Preprocessing": "preprocessing",
    "Subject": "subject",
    "available": "catalogue",
    "counts": "catalogue",
    "load_subject": "load",
    "load_subjects": "load",
    "match_classes": "labels",
    "parse_spec": "catalogue",
}

__all__ = [
    "ClassMatch",
    "Preprocessing",
    "Subject",
    "available",
    "counts",
    "load_subject",
    "load_subjects",
    "match_classes",
    "parse_spec",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
