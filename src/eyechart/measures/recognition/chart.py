"""The figure of `recognition`: each subject's accuracy on its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from eyechart.charts import theme

if TYPE_CHECKING:
    import xarray

    from eyechart.measure import Chart


def draw(finding: xarray.Dataset) -> Chart:
    ends = {"low": finding.accuracy_low.values, "high": finding.accuracy_high.values}
    table = pd.DataFrame({"subject": finding.subject.values, "accuracy": finding.accuracy.values, **ends})
    return theme.dots_with_intervals(table, x="accuracy", y="subject", x_title="top-1 accuracy (common crop)")
