"""The figure of a study: a row for each arm, a dot for each seed with its interval, a tick at the mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from eyechart.charts import theme
from eyechart.charts.palette import SUBJECT_COLOURS
from eyechart.charts.tables import tooltips
from eyechart.studies.records import Records

ROW = 22  # pixels of an arm
PLOT = 240  # beside names of up to 170: wider ones were shrunk on a phone until no name could be read


#: Left of the names. Pictures are measured in Arial; in the widest of readers' fonts long names began outside of it.
ROOM_FOR_NAMES = {"left": 28, "top": 6, "right": 12, "bottom": 6}


def figure(records: Records) -> list[Any]:
    """A chart for each panel of which any arm has a number. By themselves, so that a narrow page can pile them up."""
    panels = [made for panel in records.study.figure.get("panels", []) if (made := _panel(records, panel)) is not None]
    return [theme.dress(made.properties(padding=ROOM_FOR_NAMES)) for made in panels]


def _panel(records: Records, panel: Any) -> Any:
    import altair as alt
    import pandas as pd

    by_arm = records.values(panel["quantity"])
    arms = [name for name in records.study.arms if (name,) in by_arm]
    if not arms:
        return None
    # Seeds stand around the middle of their row. By the seed's number, arms with fewer of them stood above their names.
    rows = [
        {"arm": arm, "seed": seed, "value": row.value, "low": row.low, "high": row.high, "images": row.images}
        | {"step": place - (len(by_arm[arm,]) - 1) / 2}
        for arm in arms
        for place, (seed, row) in enumerate(by_arm[arm,].items())
    ]
    steps = max(len(by_arm[arm,]) for arm in arms) / 2
    table = pd.DataFrame(rows)
    means = pd.DataFrame(
        [
            {"arm": arm, "value": float(np.mean([r["value"] for r in rows if r["arm"] == arm])), "step": 0.0}
            for arm in arms
        ]
    )
    ends = [0.85 * float(table.low.min()), 1.15 * float(table.high.max())]  # so that no mark lies on the frame
    from_zero = table.low.min() < table.high.max() / 3  # else all dots lay in one half: 0.47 to 0.68 on 0 to 0.7
    scale = alt.Scale(type="log", nice=False, domain=ends) if panel.get("log") else alt.Scale(zero=bool(from_zero))
    x = alt.X("value:Q", title=panel["title"], scale=scale)
    y = alt.Y("arm:N", sort=arms, title=None, axis=alt.Axis(labelLimit=220, labelPadding=8))
    shift = alt.YOffset("step:Q", scale=alt.Scale(domain=[-steps, steps]))
    numbers = {name: (name, ".3g") for name in ("value", "low", "high")}
    tooltip = tooltips("arm", "seed", **numbers, images=("images", ""))
    colour = alt.value(SUBJECT_COLOURS[0])
    bars = (
        alt.Chart(table)
        .mark_rule(style="interval-bar")
        .encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y, yOffset=shift, color=colour)
    )
    dots = (
        alt.Chart(table).mark_circle(size=36, opacity=1).encode(x=x, y=y, yOffset=shift, color=colour, tooltip=tooltip)
    )
    mean = alt.Chart(means).mark_tick(thickness=2, height=ROW - 2)
    mean = mean.encode(x=x, y=y, yOffset=shift, color=alt.value("#7f7f7f"))
    return alt.layer(bars, mean, dots).properties(width=PLOT, height=ROW * len(arms))
