"""The figure of `feature_variance`: variance over depth, sub-layer by sub-layer, as in Park & Kim's figure 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from eyechart.report import theme

if TYPE_CHECKING:
    import xarray

    from eyechart.measures.measure import Chart


def draw(finding: xarray.Dataset) -> Chart:
    names = ["variance", "variance_low", "variance_high", "relative", "relative_low", "relative_high"]
    table = finding[names].to_dataframe().reset_index()
    first = ~(table["subject"].eq(table["subject"].shift(1)) & table["stage"].eq(table["stage"].shift(1)))
    table.loc[first & (table["role"] != "stem"), "kind"] = "subsampling"
    x = theme.depth_axis()
    colour = alt.Color("subject:N", scale=theme.subject_scale(list(dict.fromkeys(table["subject"]))), title=None)
    panels = []
    for column, title in (("variance", "variance over positions"), ("relative", "variance / mean square")):
        y = theme.log_y(column, [*table[f"{column}_low"], *table[f"{column}_high"]], title)
        line = alt.Chart(table).mark_line(strokeWidth=1.5).encode(x, y, color=colour)
        bars = theme.error_bars(table, x, y, f"{column}_low", f"{column}_high", color=colour)
        tooltip = [alt.Tooltip("name:N"), alt.Tooltip("kind:N"), alt.Tooltip(f"{column}:Q", format=".3g")]
        marks = theme.kind_points(table[table["role"] != "stem"], x, y, kind="kind", tooltip=tooltip)
        panels.append((line + bars + marks).properties(width=400, height=280))
    return theme.panels(panels, columns=2, shared=("color", "shape"))
