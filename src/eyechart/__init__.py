"""An eye exam for vision models.

    import eyechart
    run = eyechart.exam(["zoo:vit", "zoo:resnet"])
    run.findings["cka"], run.verdicts, run.chart("cka"), run.report()

Names are loaded when first used: importing eyechart takes milliseconds and does not import torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eyechart.errors import EyechartError as EyechartError
    from eyechart.exam import exam as exam
    from eyechart.images import open_images as open_images
    from eyechart.run import Run as Run
    from eyechart.sites import Anatomy as Anatomy
    from eyechart.sites import Site as Site
    from eyechart.subjects.load import load_subject as load_subject
    from eyechart.subjects.subject import Subject as Subject

__version__ = "0.1.0"

_HOMES = {
    "Anatomy": "eyechart.sites",
    "EyechartError": "eyechart.errors",
    "Run": "eyechart.run",
    "Site": "eyechart.sites",
    "Subject": "eyechart.subjects.subject",
    "exam": "eyechart.exam",
    "load_subject": "eyechart.subjects.load",
    "open_images": "eyechart.images",
}
__all__ = ["Anatomy", "EyechartError", "Run", "Site", "Subject", "exam", "load_subject", "open_images"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eyechart' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _Package(ModuleType):
    """Importing the file exam.py binds the name `eyechart.exam` to that file; people expect the function there."""

    @property
    def exam(self) -> Any:
        return vars(import_module("eyechart.exam"))["exam"]

    @exam.setter
    def exam(self, value: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
