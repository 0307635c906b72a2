"""The figure of M17: planes of the loss as banded maps, the same surface in perspective, and the rise by distance."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import subject_colours, tooltips
from eyechart.charts.theme import Chart
from eyechart.measures.landscape.plane import on_ring

FINE = 4  # cells drawn for one step, so that bands have smooth edges
BANDS = 12
RISES = (0, 1, 2, 5, 10, 20, 50, 100, 1000, 10_000)  # named on the colour bar and the axis of the curves
SURFACES = ("NLL, clean", "NLL, augmented", "NLL + penalty, clean", "NLL + penalty, augmented")


def draw(finding: xarray.Dataset) -> Chart:
    surfaces = {(name, str(s)): above(finding, name, str(s)) for name in SURFACES for s in finding.subject.values}
    finite = np.concatenate([values[np.isfinite(values)] for values in surfaces.values()])
    highest = float(np.log10(1 + finite.max(initial=0.1)))
    subjects = [str(subject) for subject in finding.subject.values]
    maps = [
        plane(surfaces[name, subject], name, subject, highest, names=(name == SURFACES[0], subject == subjects[-1]))
        for subject in subjects
        for name in SURFACES
    ]
    tallest = max(0.1, *(float(np.nanmax(surfaces["NLL, augmented", subject])) for subject in subjects))
    views = [perspective(surfaces["NLL, augmented", subject], subject, subjects, tallest) for subject in subjects]
    planes = theme.panels(maps, columns=len(SURFACES))
    return theme.panels([planes, theme.panels([*views, profile(finding, surfaces)], columns=3)], columns=1, shared=())


def above(finding: xarray.Dataset, name: str, subject: str) -> np.ndarray:
    """A surface above its middle."""
    here = finding.sel(subject=subject)
    values = here.nll.sel(data="clean" if name.endswith("clean") else "augmented").values.copy()
    if "penalty" in name:
        values = values + here.penalty.values
    middle = len(values) // 2
    raised: np.ndarray = values - values[middle, middle]
    return raised


def finer(values: np.ndarray) -> np.ndarray:
    """The surface at `FINE` times as many points, linearly in between; unknown next to what is unknown."""
    side = len(values)
    points = np.linspace(0, side - 1, (side - 1) * FINE + 1)
    low = np.minimum(points.astype(int), side - 2)
    share = points - low
    rows = values[low] * (1 - share)[:, None] + values[low + 1] * share[:, None]
    both: np.ndarray = rows[:, low] * (1 - share) + rows[:, low + 1] * share
    return both


def plane(values: np.ndarray, name: str, subject: str, highest: float, names: tuple[bool, bool]) -> Chart:
    """Bands of equal loss, as contour lines are read; crosses where the loss is infinite or undefined.

    `names` says whether the upward and the level axis are named: in the first column and the last row of planes.
    """
    fine = np.log10(1 + np.maximum(finer(values), 0))
    banded = np.floor(fine / highest * BANDS) * highest / BANDS
    labels = [f"{offset:.3f}" for offset in np.linspace(-1, 1, len(fine))]
    table = pd.DataFrame(
        {"a": np.repeat(labels, len(labels)), "b": np.tile(labels, len(labels)), "rise": banded.ravel()}
    )
    title = alt.TitleParams(name, subtitle=subject)
    chart = heatmap(
        table,
        x="b",
        y="a",
        value="rise",
        x_title="one direction, −1 to 1" if names[1] else "",
        y_title="another, −1 to 1" if names[0] else "",
        value_title="rise of the loss",
        marks={float(np.log10(1 + rise)): f"{rise:g}" for rise in RISES},
        title=title,
        domain=(0.0, highest),
        x_labels=False,
        y_labels=False,
        size=190,
        for_export=True,
    )
    rows, columns = np.nonzero(~np.isfinite(values))
    if not len(rows):
        return chart
    crosses = pd.DataFrame({"x": columns * FINE + 0.5, "y": rows * FINE + 0.5})
    marks = alt.Chart(crosses).mark_point(shape="cross", angle=45, size=28, filled=True, color="#d55e00")
    crossed: Chart = (chart + marks.encode(alt.X("x:Q"), alt.Y("y:Q"))).properties(title=title)
    return crossed


def perspective(values: np.ndarray, subject: str, subjects: list[str], highest: float) -> Chart:
    """The surface as a net of lines seen from the side."""
    side = len(values)
    a, b = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side), indexing="ij")
    across, up = b + 0.45 * a, 0.55 * a + 1.6 * np.maximum(values, 0) / highest
    lines = []
    for direction, (x, y) in {"rows": (across, up), "columns": (across.T, up.T)}.items():
        for number in range(side):
            finite = np.isfinite(y[number])
            lines.append(
                pd.DataFrame(
                    {
                        "x": x[number][finite],
                        "y": y[number][finite],
                        "line": f"{direction} {number}",
                        "order": np.flatnonzero(finite),
                    }
                )
            )
    table = pd.concat(lines)
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    return theme.panel(
        alt.Chart(table)
        .mark_line(strokeWidth=1, color=theme.subject_colour(subject, subjects), tooltip=None)
        .encode(
            alt.X("x:Q", axis=hidden, scale=alt.Scale(domain=[-1.5, 1.5])),
            alt.Y("y:Q", axis=hidden, scale=alt.Scale(domain=[-0.6, 2.3])),
            detail="line:N",
            order="order:Q",
        ),
        (230, 220),
        alt.TitleParams(subject, subtitle="NLL, augmented, in perspective"),
    )


def profile(finding: xarray.Dataset, surfaces: dict[tuple[str, str], np.ndarray]) -> Chart:
    """Mean rise at each distance from the middle."""
    rows = [
        {"surface": name, "subject": subject, "distance": radius, "rise": on_ring(values, radius)}
        for (name, subject), values in surfaces.items()
        for radius in np.linspace(0, 1, 11)
    ]
    table = pd.DataFrame(rows).dropna()
    dashes = alt.Scale(domain=list(SURFACES), range=[[2, 3], [1, 0], [6, 3, 1, 3], [7, 3]])
    base = alt.Chart(table).encode(
        alt.X("distance:Q", title="distance (lengths of the weights)"),
        alt.Y("rise:Q", title="mean rise of the loss", scale=alt.Scale(type="symlog"), axis=theme.axis_at(RISES)),
        subject_colours(finding.subject.values),
    )
    legend = theme.strokes(500, orient="bottom", columns=1, labelLimit=220)
    lines = base.mark_line(tooltip=None).encode(alt.StrokeDash("surface:N", scale=dashes, title=None, legend=legend))
    tooltip = tooltips("subject", "surface", distance=("distance", ".1f"), rise=("rise", ".3f"))
    points = base.mark_point(size=26, filled=True).encode(detail="surface:N", tooltip=tooltip)
    title = alt.TitleParams("by distance", subtitle="mean over all directions")
    return theme.panel(lines + points, (260, 220), title)
