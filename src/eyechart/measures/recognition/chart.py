"""The figure of `recognition`: each subject's accuracy on its interval."""

from __future__ import annotations

import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.theme import Chart


def draw(finding: xarray.Dataset) -> Chart:
    ends = {"low": finding.accuracy_low.values, "high": finding.accuracy_high.values}
    table = pd.DataFrame({"subject": finding.subject.values, "accuracy": finding.accuracy.values, **ends})
    title = "top-1 accuracy (common crop)"
    return theme.dots_with_intervals(table, x="accuracy", y="subject", x_title=title, format=".1%")
