"""The figure of M1: layers against layers, in Raghu et al.'s layout, and the best match of a ViT's blocks in a CNN."""

from __future__ import annotations

import itertools
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.tables import ends_of, interval_tooltips, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.charts.wrapping import in_one_if_it_fits
from eyechart.quantity import subjects_in
from eyechart.reading_estimates import site_indices

SIZE, SMALL_SIZE = 250, 140  # pixels of a map, and of one among the 21 of six subjects


def draw(finding: xarray.Dataset) -> Chart:
    subjects = subjects_in(finding)
    size, columns = (SIZE, 3) if len(subjects) <= 3 else (SMALL_SIZE, 5)
    panels: list[Any] = [
        layer_map(finding, one, other, size)
        for one, other in [(s, s) for s in subjects] + list(itertools.combinations(subjects, 2))
    ]
    pairs = list(itertools.product(subjects_in(finding, "vit"), subjects_in(finding, "cnn")))
    maps = theme.panels(panels, columns=columns)
    if not pairs or "match_cka" not in finding:
        return maps
    curves = theme.panels([best_match(finding, vit, cnn) for vit, cnn in pairs], columns=3, shared=())
    return theme.panels([maps, curves], columns=1, shared=())


def layer_map(finding: xarray.Dataset, one: str, other: str, size: int | tuple[int, int] = SIZE) -> Chart:
    part = finding.isel(site=finding.subject.values == one, other_site=finding.other_subject.values == other)
    width = size if isinstance(size, int) else size[0]
    return heatmap(
        table_of(part, "cka", gaps=True),
        x="name",
        y="other_name",
        value="cka",
        x_title=f"{one} →",
        y_title=f"{other} →",
        value_title=finding.attrs["index"],
        title=alt.TitleParams(
            [one] if one == other else in_one_if_it_fits([one, f"× {other}"], width), limit=width + 50
        ),
        domain=(0, 1),
        x_group="stage",
        y_group="other_stage",
        tooltip=tooltips(name=f"{one}, across", other_name=f"{other}, up")
        + interval_tooltips("cka", finding.attrs["index"]),
        size=size,
        legend=min(160, width // 40 * 40),
    )


def best_match(finding: xarray.Dataset, vit: str, cnn: str) -> Chart:
    """For each block of a ViT, the CKA of the CNN's most similar layer; with and without the class token."""
    patches = np.flatnonzero((finding.patch_subject.values == vit) & (finding.patch_role.values == "block"))
    kinds = {
        "all tokens": ("match_cka", "site", site_indices(finding, vit, "block")),
        "without class token": ("patch_match_cka", "patch_site", patches),
    }
    rows = []
    for tokens, (name, axis, indices) in kinds.items():
        columns = (name, *ends_of(name))
        values, low, high = (finding[column].sel(matched=cnn).isel({axis: indices}).values for column in columns)
        rows.append(
            pd.DataFrame(
                {
                    "subject": vit,
                    "other_subject": cnn,
                    "name": finding["name" if axis == "site" else "patch_name"].values[indices],
                    "block": np.arange(1, len(values) + 1),
                    "cka": values,
                    "low": low,
                    "high": high,
                    "tokens": tokens,
                }
            )
        )
    frame = pd.concat(rows).dropna(subset=["cka"])
    reach = alt.Scale(domain=[1, max(2, int(frame["block"].max()))], nice=False)
    x = alt.X("block:Q", title=f"block of {vit}", axis=alt.Axis(tickMinStep=1), scale=reach)
    y = alt.Y("cka:Q", title=f"best {finding.attrs['index']}", scale=alt.Scale(domain=[0, 1]))
    shown = [tokens for tokens in kinds if (frame["tokens"] == tokens).any()]
    dashes = alt.Scale(domain=shown, range=[[1, 0], [5, 4]][: len(shown)])
    legend = theme.strokes(500, orient="bottom") if len(shown) > 1 else None
    dash = alt.StrokeDash("tokens:N", scale=dashes, title=None, legend=legend)
    colour = alt.value(theme.subject_colour(vit))
    tooltip = tooltips("subject", "block:Q", "tokens")
    tooltip += interval_tooltips("cka", f"best {finding.attrs['index']}", ends=("low", "high"))
    bars = theme.error_bars(frame, x, y, "low", "high", color=colour)
    line = alt.Chart(frame).mark_line(strokeWidth=2, tooltip=None).encode(x, y, strokeDash=dash, color=colour)
    dots = alt.Chart(frame).mark_point(size=30, filled=True).encode(x, y, color=colour, tooltip=tooltip)
    title = alt.TitleParams(in_one_if_it_fits([vit, f"× {cnn}: best match"], 250), limit=300)
    return theme.panel(bars + line + dots, (250, 190), title)
