"""The figure of M15: error over training loss, a point a subject, as in Park & Kim's figure 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import altair as alt
import pandas as pd

from eyechart.report import theme

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import Chart

NOW, WRITTEN, STAND_IN = "measured now", "training record", "on the exam's pictures"


def draw(finding: xarray.Dataset) -> Chart:
    return theme.panels(
        [
            panel(
                finding, "nll_train", "nll_augmented", "recorded_augmented_train_nll", "augmented training NLL (nats)"
            ),
            panel(finding, "nll_train_clean", "nll", "recorded_clean_train_nll", "clean training NLL (nats)"),
        ],
        columns=2,
        shared=("color", "shape"),
    )


def panel(finding: xarray.Dataset, train: str, stand_in: str, record: str, title: str) -> Chart:
    table = points(finding, train, stand_in, record)
    subjects = finding.subject.values.tolist()
    x = alt.X("nll:Q", title=title, scale=alt.Scale(zero=False, padding=18))
    y = alt.Y("error:Q", title="error", scale=alt.Scale(zero=False, padding=18), axis=alt.Axis(format="~%"))
    colour = alt.Color("subject:N", scale=theme.subject_scale(subjects), title=None)
    kinds = [kind for kind in (NOW, WRITTEN, STAND_IN) if kind in set(table["what"])]
    shapes = {NOW: "circle", WRITTEN: "diamond", STAND_IN: "triangle-up"}
    shape = alt.Shape("what:N", title=None, scale=alt.Scale(domain=kinds, range=[shapes[kind] for kind in kinds]))
    tip = [
        alt.Tooltip("subject:N"),
        alt.Tooltip("what:N", title=" "),
        alt.Tooltip("nll:Q", title="NLL", format=".3f"),
        alt.Tooltip("error:Q", title="error", format=".2%"),
    ]
    across = alt.Chart(table).mark_rule(opacity=0.6, strokeWidth=1.5, tooltip=None)
    layers = [
        theme.error_bars(table.dropna(subset=["error_low"]), x, y, "error_low", "error_high", color=colour),
        across.encode(alt.X("nll_low:Q", title=title), y, x2="nll_high:Q", color=colour),
        alt.Chart(table)
        .mark_point(size=90, filled=True, opacity=0.9)
        .encode(x, y, color=colour, shape=shape, tooltip=tip),
    ]
    layered = cast(alt.LayerChart, alt.layer(*layers))
    return layered.properties(width=300, height=280)


def points(finding: xarray.Dataset, train: str, stand_in: str, record: str) -> pd.DataFrame:
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
