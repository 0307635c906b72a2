"""The figure of M15: error over training loss, a point a subject, as in Park & Kim's figure 5."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, tooltips
from eyechart.charts.theme import Chart

SIZE = (320, 280)
NOW, WRITTEN, STAND_IN = "measured now", "training record", "on the exam's pictures"


def draw(finding: xarray.Dataset) -> Chart:
    tables = {
        "augmented training NLL (nats)": points_of(
            finding, "nll_train", "nll_augmented", "recorded_augmented_train_nll"
        ),
        "clean training NLL (nats)": points_of(finding, "nll_train_clean", "nll", "recorded_clean_train_nll"),
    }
    met = set(pd.concat([table["what"] for table in tables.values()]))
    kinds = [kind for kind in (NOW, WRITTEN, STAND_IN) if kind in met]  # the same shapes in both panels
    subjects = finding.subject.values.tolist()
    drawn = [panel(table, title, subjects, kinds) for title, table in tables.items()]
    return theme.panels(drawn, columns=2, shared=("color", "shape"))


def panel(table: pd.DataFrame, title: str, subjects: list[str], kinds: list[str]) -> Chart:
    if table.empty:
        return theme.nothing(None, SIZE, f"{title}: not known")
    x = alt.X("nll:Q", title=title, scale=alt.Scale(zero=False, padding=18))
    errors = table[["error", *ends_of("error")]].to_numpy(dtype=float)
    low, high = float(np.nanmin(errors)), float(np.nanmax(errors))
    room = 0.08 * max(high - low, 0.01)
    ends = alt.Scale(domain=[max(0.0, low - room), min(1.0, high + room)], nice=False)
    y = alt.Y("error:Q", title="error", scale=ends, axis=alt.Axis(format="~%"))
    colour = subject_colours(subjects)
    shapes = {NOW: "circle", WRITTEN: "diamond", STAND_IN: "triangle-up"}
    shape = alt.Shape("what:N", title=None, scale=alt.Scale(domain=kinds, range=[shapes[kind] for kind in kinds]))
    tooltip = tooltips("subject", what="weights") + interval_tooltips("nll", "NLL", among=True)
    tooltip += interval_tooltips("error", "error", ".2%", among=True)
    layers: list[alt.Chart] = []
    upright, level = table.dropna(subset=["error_low"]), table.dropna(subset=["nll_low"])
    if len(upright):  # a mark without a finite number would be a warning in the reader's console
        layers.append(theme.error_bars(upright, x, y, *ends_of("error"), color=colour))
    if len(level):
        across = alt.Chart(level).mark_rule(style="interval-bar", strokeWidth=1.5, tooltip=None)
        layers.append(across.encode(alt.X("nll_low:Q", title=title), y, x2="nll_high:Q", color=colour))
    points = alt.Chart(table).mark_point(size=90, filled=True, opacity=0.9)
    layers.append(points.encode(x, y, color=colour, shape=shape, tooltip=tooltip))
    return theme.panel(alt.layer(*layers), SIZE)


def points_of(finding: xarray.Dataset, train: str, stand_in: str, record: str) -> pd.DataFrame:
    """Measured on training images; where nobody knows them, on the exam's; and what the training wrote down."""
    rows = []
    for subject in finding.subject.values.tolist():
        own = finding.sel(subject=subject)
        name, what = (train, NOW) if float(own[train]) == float(own[train]) else (stand_in, STAND_IN)
        ends = {f"nll_{end}": float(own[f"{name}_{end}"]) for end in ("low", "high")}
        error = {f"error{end}": float(own[f"error{end}"]) for end in ("", "_low", "_high")}
        rows.append({"subject": subject, "what": what, "nll": float(own[name]), **ends, **error})
        rows.append(
            {
                "subject": subject,
                "what": WRITTEN,
                "nll": float(own[record]),
                "error": float(own.recorded_test_error),
            }
        )
    columns = ["subject", "what", "nll", "nll_low", "nll_high", "error", "error_low", "error_high"]
    return pd.DataFrame(rows, columns=columns).dropna(subset=["nll", "error"])
