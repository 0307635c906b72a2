"""The figure of M6: accuracy lost and CKA kept by depth, and maps without some skips in the layout of R's figure 8."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.numbers import percent
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.measures.skip_removal.variants import INTACT, MODES
from eyechart.quantity import subjects_in

#: What the page marks layers by: whose and which they are, and in which of the maps of a panel.
LAYERS = {"cell_subject": "subject", "cell_name": "name", "cell_other_name": "other_name", "cell_removed": "map"}
WIDTH = 350  # pixels of a panel: one curve, or two maps side by side


def draw(finding: xarray.Dataset) -> Chart:
    maps = [panel for subject in subjects_in(finding) for panel in strips(finding, subject)]
    rows = [theme.panels(curves(finding), columns=2, shared=("color", "strokeDash")), theme.panels(maps, columns=2)]
    return theme.panels(rows, columns=1, shared=())


def curves(finding: xarray.Dataset) -> list[Chart]:
    """What is lost and what is kept, by the depth of the block; answers that change where no classes are known."""
    named = bool(np.isfinite(finding.lost.sel(mode=MODES[0]).values[finding.removed.values != INTACT]).all())
    lost = ("lost", "accuracy lost (points)") if named else ("changed", "answers that change (%)")
    nothing = theme.reference(0, "nothing lost", at="start")
    as_before = theme.reference(1, "as alike as intact", at="start")
    return [
        curve(finding, *lost, 100.0, nothing),
        curve(finding, "across", "CKA across the block, relative to intact", 1.0, as_before),
    ]


def curve(finding: xarray.Dataset, variable: str, title: str, scale: float, reference: alt.LayerChart) -> Chart:
    table = table_of(finding.isel(variant=finding.removed.values != INTACT), variable, times=scale)
    table["name"] = table["removed"]  # the page marks layers by it
    x = alt.X("depth:Q", title="depth of the block without its skips", scale=alt.Scale(domain=[0, 1.02], nice=False))
    y = alt.Y(f"{variable}:Q", title=title, scale=scale_of(table, variable))
    colour = subject_colours(finding.subject.values)
    modes = [mode for mode in MODES if mode in set(table["mode"])]
    legend = theme.strokes(400) if len(modes) > 1 else None
    dashes = alt.Scale(domain=modes, range=[[1, 0], [5, 4]][: len(modes)])
    dash = alt.StrokeDash("mode:N", scale=dashes, legend=legend)
    tooltip = tooltips("subject", removed="without the skips of", mode="batch norms")
    tooltip += interval_tooltips(variable, title, ".3g")
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour, strokeDash=dash.title(None))
    bars = theme.error_bars(table, x, y, *ends_of(variable), color=colour)
    points = alt.Chart(table).mark_point(size=40).encode(x, y, color=colour, tooltip=tooltip)
    return theme.panel(line + bars + points + reference, (WIDTH, 230))


def scale_of(table: pd.DataFrame, variable: str) -> alt.Scale:
    """Ratios from 0 to a little above 1: where intact layers are hardly alike the ratio's interval spans hundreds."""
    if variable != "across":
        return alt.Scale()
    return alt.Scale(domain=[min(0.0, float(table[variable].min())), max(1.2, float(table[variable].max()))])


def strips(finding: xarray.Dataset, subject: str) -> list[Chart]:
    """The maps of a subject, two to a panel, so that two panels make the row of four of the paper."""
    table = table_of(finding.isel(cell=finding.cell_subject.values == subject), "cka", gaps=True)
    mine = finding.isel(variant=finding.subject.values == subject)
    shown = list(dict.fromkeys(table["cell_removed"]))
    return [strip(table, mine, shown[at : at + 2], subject) for at in range(0, len(shown), 2)]


def strip(table: pd.DataFrame, mine: xarray.Dataset, shown: list[str], subject: str) -> Chart:
    sites = int(np.sqrt((table["cell_removed"] == shown[0]).sum()))
    columns = sites * len(shown) + len(shown) - 1
    cell = max(1, round(WIDTH / (2 * sites + 1)))
    parts = []
    for removed in shown:
        own = table[table["cell_removed"] == removed]
        parts.append(own.assign(column=removed + " " + own["cell_name"], part=removed + own["cell_stage"].astype(str)))
        gap = own[:sites].assign(column="gap", part="gap", cka=np.nan)  # one empty column between two maps
        parts += [gap] if removed != shown[-1] else []
    cells = pd.concat(parts, ignore_index=True)
    chart = heatmap(
        cells.rename(columns=LAYERS).assign(other_subject=subject),
        x="column",
        y="other_name",
        value="cka",
        value_title="CKA",
        title=alt.TitleParams(subject, offset=12, subtitle="batch norms recalibrated" if fitted(mine) else ""),
        domain=(0, 1),
        x_group="part",
        y_group="cell_other_stage",
        x_labels=False,
        tooltip=tooltips("subject", map="without the skips of", name="layer, across", other_name="layer, up")
        + interval_tooltips("cka", "CKA"),
        size=(cell * columns, cell * sites),
    )
    for at, removed in enumerate(shown):
        if at:
            gap_ends = {
                "x": alt.value(at * (sites + 1) * cell - cell - 1),
                "x2": alt.value(at * (sites + 1) * cell + 1),
            }
            gap = alt.Chart(pd.DataFrame({"gap": [""]})).mark_rect(style="paper", tooltip=None)
            chart += gap.encode(**gap_ends, y=alt.value(-1), y2=alt.value(cell * sites + 1))
        words = alt.Chart(pd.DataFrame({"text": [caption(mine, removed)]})).mark_text(
            style="note", align="left", baseline="bottom", limit=cell * sites, lineBreak="\n", tooltip=None
        )
        above = -18 if "\n" in caption(mine, removed) else -5  # of two lines Vega lays the first at the place
        chart += words.encode(text="text:N", x=alt.value(at * (sites + 1) * cell), y=alt.value(above))
    return chart


def fitted(mine: xarray.Dataset) -> bool:
    return bool(mine.normalised.values.all())


def caption(mine: xarray.Dataset, removed: str) -> str:
    """What is missing, and the accuracy that is left where it is known."""
    row = mine.isel(variant=int(np.flatnonzero(mine.removed.values == removed)[0]))
    accuracy = float(row.accuracy.sel(mode=MODES[int(fitted(mine))]))
    said = INTACT if removed == INTACT else f"no skips in {removed}"
    if removed == INTACT and row.trained_without.item():
        numbers = [str(int(number) + 1) for number in str(row.trained_without.item()).split()]
        said = f"trained without, block {' and '.join(numbers)}"
    return f"{percent(accuracy)} right\n{said}" if np.isfinite(accuracy) else said
