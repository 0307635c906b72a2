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
    from eyechart.comparison.comparison import compare as compare
    from eyechart.errors import EyechartError as EyechartError
    from eyechart.exam import exam as exam
    from eyechart.exam import forecast as forecast
    from eyechart.images import open_images as open_images
    from eyechart.measure import Experiment as Experiment
    from eyechart.measure import Measure as Measure
    from eyechart.measure import SampledExperiment as SampledExperiment
    from eyechart.measure import Source as Source
    from eyechart.measure import Views as Views
    from eyechart.measure import option as option
    from eyechart.quantity import Quantity as Quantity
    from eyechart.run import Run as Run
    from eyechart.scene import Batch as Batch
    from eyechart.scene import Scene as Scene
    from eyechart.sites import Anatomy as Anatomy
    from eyechart.sites import Site as Site
    from eyechart.subjects.load import load_subject as load_subject
    from eyechart.subjects.subject import Subject as Subject
    from eyechart.tally import Concat as Concat
    from eyechart.tally import Max as Max
    from eyechart.tally import Min as Min
    from eyechart.tally import Sum as Sum
    from eyechart.tally import Tally as Tally
    from eyechart.tracing.needs import Need as Need
    from eyechart.tracing.needs import View as View
    from eyechart.watch.watch import Watch as Watch

__version__ = "0.1.0"

_HOMES = {
    "Anatomy": "eyechart.sites",
    "Batch": "eyechart.scene",
    "Concat": "eyechart.tally",
    "Experiment": "eyechart.measure",
    "EyechartError": "eyechart.errors",
    "Max": "eyechart.tally",
    "Measure": "eyechart.measure",
    "Min": "eyechart.tally",
    "Need": "eyechart.tracing.needs",
    "Quantity": "eyechart.quantity",
    "Run": "eyechart.run",
    "SampledExperiment": "eyechart.measure",
    "Scene": "eyechart.scene",
    "Site": "eyechart.sites",
    "Source": "eyechart.measure",
    "Subject": "eyechart.subjects.subject",
    "Sum": "eyechart.tally",
    "Tally": "eyechart.tally",
    "View": "eyechart.tracing.needs",
    "Views": "eyechart.measure",
    "Watch": "eyechart.watch.watch",
    "compare": "eyechart.comparison.comparison",
    "exam": "eyechart.exam",
    "forecast": "eyechart.exam",
    "load_subject": "eyechart.subjects.load",
    "open_images": "eyechart.images",
    "option": "eyechart.measure",
}
__all__ = list(_HOMES)


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
