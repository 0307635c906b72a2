"""The figure of M10 and M11: similarity over depth, as in Raghu et al.'s figure 12, and maps of two sizes."""

from __future__ import annotations

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
from eyechart.methods.twins import WORDS

GREY = "#8b9099"
DASHES = {"seed": [6, 4], "untrained": [2, 3]}


def draw(finding: xarray.Dataset) -> Chart:
    relations, depths = finding.relation.values.tolist(), finding.one_blocks.values.tolist()
    sizes = [at for at, relation in enumerate(relations) if relation == "size"]
    alike = [at for at, relation in enumerate(relations) if relation != "size"]
    panels: list[Any] = [
        curves(finding, [at for at in alike if depths[at] == depth], "similarity")
        for depth in dict.fromkeys(depths[at] for at in alike)
    ]
    panels += [size_map(finding, at) for at in sizes]
    panels += [curves(finding, sizes, "best")] if sizes else []
    return theme.panels(panels, columns=2, shared=())


def curves(finding: xarray.Dataset, rows: list[int], variable: str) -> Chart:
    """One line a pair; a second seed and an untrained twin in grey, as ceiling and floor."""
    frames = []
    for at in rows:
        part = finding.isel(pair=at)
        count = int(part.one_blocks)
        relation = str(part.relation.item())
        frames.append(
            pd.DataFrame(
                {
                    "block": np.arange(1, count + 1),
                    **{f"cka{end}": part[f"{variable}{end}"].values[:count] for end in ("", "_low", "_high")},
                    "pair": f"{part.pair.item()}: {WORDS[relation]}",  # type: ignore[index]
                    "relation": relation,
                    # The page marks layers by these. Not `subject`: a pair stays whole where one of the two is alone.
                    "whose": str(part.one.item()),
                    "name": [f"block {number}" for number in range(1, count + 1)],
                    "colour": GREY if relation in DASHES else theme.subject_colour(str(part.one.item())),
                }
            )
        )
        if variable == "similarity":  # of the same block in the other; `best` may be any
            frames[-1] = frames[-1].assign(other_whose=str(part.other.item()), other_name=frames[-1]["name"])
    table = pd.concat(frames)
    pairs = table.drop_duplicates("pair")
    colours = list(pairs["colour"])
    for index in range(len(colours)):  # two pairs of one subject need colours of their own
        if colours[index] != GREY and colours[index] in colours[:index]:
            colours[index] = next(each for each in theme.SUBJECT_COLOURS[::-1] if each not in colours)
    shape: dict[str, Any] = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolOpacity": 1}
    legend = theme.strokes(500, orient="bottom", columns=1, labelLimit=420, **shape)
    colour = alt.Color("pair:N", scale=alt.Scale(domain=list(pairs["pair"]), range=colours), title=None, legend=legend)
    dashes = [DASHES.get(relation, [1, 0]) for relation in pairs["relation"]]
    dash = alt.StrokeDash(
        "pair:N", scale=alt.Scale(domain=list(pairs["pair"]), range=dashes), title=None, legend=legend
    )
    reach = [1, max(2, int(table["block"].max()))]
    x = alt.X("block:Q", title="block", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(domain=reach, nice=False))
    title = "CKA with its twin's block" if variable == "similarity" else "best CKA with a block of the larger"
    y = alt.Y("cka:Q", title=title, scale=alt.Scale(domain=[min(0.0, float(table["cka_low"].min())), 1]))
    tooltip = tooltips("pair", "block:Q") + interval_tooltips("cka", "CKA")
    area = theme.band(table, x, y, *ends_of("cka"), color=colour)
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour, strokeDash=dash)
    dots = alt.Chart(table).mark_point(size=36, filled=True).encode(x, y, color=colour, tooltip=tooltip)
    return theme.panel(area + line + dots, (400, 270))


def size_map(finding: xarray.Dataset, at: int) -> Chart:
    """R's figure G.2: all blocks of one size against all of another."""
    part = finding.isel(pair=at)
    part = part.isel(block=slice(int(part.one_blocks)), other_block=slice(int(part.other_blocks)))
    one, other = str(part.one.item()), str(part.other.item())
    table = table_of(part, "cka", gaps=True).astype({"block": str, "other_block": str})
    table = table.assign(whose=one, name="block " + table["block"])
    table = table.assign(other_whose=other, other_name="block " + table["other_block"])
    return heatmap(
        table,
        x="block",
        y="other_block",
        value="cka",
        x_title=f"{one} →",
        y_title=f"{other} →",
        value_title="CKA",
        title=alt.TitleParams(in_one_if_it_fits([one, f"× {other}"], 270), limit=300),
        domain=(0, 1),
        tooltip=tooltips(block=one, other_block=other) + interval_tooltips("cka", "CKA"),
        size=270,
    )
