"""The figure of M12: components as tiles, in the ViT paper's rows of seven, their frequencies and their variance."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.pictures import data_uri
from eyechart.charts.tables import tooltips
from eyechart.charts.theme import Chart

COLUMNS = 7
TILE, GAP = 44, 4


def draw(finding: xarray.Dataset) -> Chart:
    rows: list[Any] = []
    top = highest(finding)
    for subject in map(str, finding.subject.values):
        at = finding.sel(subject=subject)
        count = int(np.isfinite(at.centroid.values).sum())
        size = int(at.height), int(at.width)
        title = f"{size[0]}×{size[1]} pixels, {int(at.filters)} filters: {count} leading components"
        tiles = picture(at.component_tile.values[:count, :, : size[0], : size[1]], subject, title, "component")
        if str(at.filter_kind.item()) == "convolution":
            shown = min(at.sizes["filter"], int(at.filters))
            words = f"the {shown} largest of its {int(at.filters)} filters"
            raw = picture(at.filter_tile.values[:shown, :, : size[0], : size[1]], subject, words, "filter")
            tiles = theme.panels([tiles, raw], columns=1, shared=())  # the components beside their curve
        both = [frequencies(at, subject, count, top), variance(at, subject, count)]
        curves = theme.panels(both, columns=1, shared=())
        rows += [theme.of_subject(tiles, subject), theme.of_subject(curves, subject)]
    return theme.panels(rows, columns=2, shared=())


def picture(tiles: np.ndarray, subject: str, words: str, kind: str) -> Chart:
    """Tiles (tile, colour, y, x) in rows of seven, each stretched to its own range; `kind`: what one of them is."""
    low, high = (ends(tiles, axis=(1, 2, 3), keepdims=True) for ends in (np.min, np.max))
    stretched = (tiles - low) / np.where(high > low, high - low, 1)
    rows = [
        {"subject": subject, "column": at % COLUMNS, "row": at // COLUMNS, "url": png(tile), "tile": at + 1}
        for at, tile in enumerate(stretched)
    ]
    step = alt.Scale(paddingInner=0, paddingOuter=0)
    x = alt.X("column:O", axis=None, scale=step)
    y = alt.Y("row:O", axis=None, scale=step)
    image = alt.Chart(pd.DataFrame(rows)).mark_image(width=TILE, height=TILE, aspect=False, smooth=False)
    size = COLUMNS * (TILE + GAP), (1 + (len(tiles) - 1) // COLUMNS) * (TILE + GAP)
    chart = image.encode(x, y, url="url:N", tooltip=tooltips("subject", tile=(f"{kind}, from the largest", "")))
    return theme.panel(chart, size, alt.TitleParams(subject, subtitle=words))


def png(tile: np.ndarray) -> str:
    """(colour, y, x) in 0 … 1, no larger than on the page: speckles do not compress, and there are a hundred tiles."""
    pixels = (tile.transpose(1, 2, 0) * 255).round().astype(np.uint8)
    return data_uri(pixels, times=max(1, TILE // max(tile.shape[1:])))


def highest(finding: xarray.Dataset) -> float:
    """Where the axis of frequencies ends, one for all subjects: at 1, or above it where slanted stripes reach."""
    return max(1.0, *(float(np.nanmax(each)) for each in (finding.centroid.values, among_random(finding)[1])))


def among_random(finding: xarray.Dataset) -> np.ndarray:
    """Between which two frequencies 95 % of the components of random filters lie."""
    return np.asarray(np.quantile(finding.random_single.values, [0.025, 0.975], axis=-1))


def frequencies(at: xarray.Dataset, subject: str, count: int, top: float) -> Chart:
    """Centroid of each component, against where those of random filters lie."""
    low, high = among_random(at)
    table = pd.DataFrame(
        {
            "component": np.arange(1, count + 1),
            "centroid": at.centroid.values[:count],
            "smoothness": at.smoothness.values[:count],
            "low": low,
            "high": high,
            "subject": subject,
        }
    )
    x = alt.X("component:Q", title="component", scale=alt.Scale(domain=[1, max(count, 2)], nice=False))
    y = alt.Y("centroid:Q", title="mean frequency / Nyquist", scale=alt.Scale(domain=[0, top]))
    numbers = {"centroid": ("mean frequency", ".3f"), "smoothness": ("smoothness", ".3f")}
    tooltip = tooltips("subject", "component:Q", **numbers)
    colour = alt.value(theme.subject_colour(subject))
    band = theme.band(table, x, y, "low", "high", color=alt.value("#8b9099"))
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour)
    dots = alt.Chart(table).mark_point(size=36, filled=True).encode(x, y, color=colour, tooltip=tooltip)
    middle = theme.reference(float(at.random_mean.mean()), "")
    words = "random filters: 95 % (grey), mean (dashed)"
    title = alt.TitleParams(words, fontSize=12, fontWeight="normal")
    last = pd.DataFrame({"component": [COLUMNS + 0.5]} if count > COLUMNS else {"component": []})
    ends = alt.Chart(last).mark_rule(color="#8b9099", tooltip=None).encode(x)
    return theme.panel(band + middle + ends + line + dots, (330, 180), title)


def variance(at: xarray.Dataset, subject: str, count: int) -> Chart:
    """Variance held by the first 1, 2, … components together."""
    kinds = {"these weights": at.share.values[:count], "random filters": at.random_share.values[:count]}
    table = pd.concat(
        pd.DataFrame({"component": np.arange(1, count + 1), "held": values.cumsum(), "kind": kind, "subject": subject})
        for kind, values in kinds.items()
    )
    x = alt.X("component:Q", title="components together", scale=alt.Scale(domain=[1, max(count, 2)], nice=False))
    y = alt.Y("held:Q", title="variance held", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1]))
    dashes = alt.Scale(domain=list(kinds), range=[[1, 0], [5, 4]])
    dash = alt.StrokeDash("kind:N", scale=dashes, title=None, legend=theme.strokes(500, orient="bottom"))
    tooltip = tooltips("subject", "component:Q", held=("held", ".1%"), kind="kind")
    base = alt.Chart(table).encode(x, y, color=alt.value(theme.subject_colour(subject)))
    line = base.mark_line(strokeWidth=2, tooltip=None).encode(strokeDash=dash)
    points = base.mark_point(size=20, filled=True).encode(tooltip=tooltip, detail="kind:N")
    return theme.panel(line + points, (330, 110))
