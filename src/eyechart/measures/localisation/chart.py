"""The figure of M7: maps of the last block's tokens in their places, references, and hit-rates and peaks over depth."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.charts.tiles import Tile, tiles
from eyechart.methods.places import ASKED, asked
from eyechart.methods.twins import untrained_twin
from eyechart.quantity import subjects_in
from eyechart.reading_estimates import ends_of as stated_ends
from eyechart.reading_estimates import states

TILES = 5  # tokens a side that the figure shows


def draw(finding: xarray.Dataset) -> Chart:
    owner = owners(finding)
    last = [finding.isel(site=index) for index in np.flatnonzero(finding.final.values)]
    given = [at for at in last if at.subject.item() not in owner]
    # One scale and one bar for what is compared. References have their own: they are several times as like.
    maps = [token_tiles(at, at.subject.item() in owner, highest([at.cka for at in last])) for at in last]
    references = [reference_tiles(at, highest([at.reference_cka for at in given])) for at in given]
    rows = [theme.panels(maps, columns=2), theme.panels(references, columns=4)]
    curves = [
        over_depth(finding, owner, "hit_rate", "tokens most like their own patch", (0, 1)),
        over_depth(finding, owner, "peak", "own patch above the eight around it", None),
    ]
    return theme.panels([*rows, theme.panels(curves, columns=2, shared=())], columns=1, shared=())


def highest(maps: list[xarray.DataArray]) -> float:
    return max((float(np.nanmax(each.values)) for each in maps if np.isfinite(each.values).any()), default=1.0)


def owners(finding: xarray.Dataset) -> dict[str, str]:
    """For every untrained twin the subject it belongs to."""
    twins = {subject: untrained_twin(finding, subject) for subject in reversed(subjects_in(finding))}
    return {twin: subject for subject, twin in twins.items() if twin is not None}


def token_tiles(at: xarray.Dataset, floor: bool, highest: float) -> Chart:
    """R's figure 9: maps of some tokens of the last block, at most 5×5 of them, in their places."""
    cells = int(at.rows), int(at.columns)
    sides = [min(side, ASKED) for side in cells]
    picked = [np.unique(np.linspace(0, side - 1, min(TILES, side)).round().astype(int)) for side in sides]
    names, patches = at.token_place.values.tolist(), asked(cells).tolist()
    maps = [
        [Tile(names[token], at.cka.values[token], patches[token]) for token in (y * sides[1] + picked[1]).tolist()]
        for y in picked[0]
    ]
    some = "" if cells == (len(picked[0]), len(picked[1])) else f"{len(picked[0])}×{len(picked[1])} of "
    said = f"{at.name.item()}, {some}{cells[0]}×{cells[1]} tokens" + (": untrained, the floor" if floor else "")
    subject = str(at.subject.item())
    title, patch_names = alt.TitleParams(subject, subtitle=said), at.patch_place.values.tolist()
    made = tiles(maps, cells, patch_names, title=title, size=350, highest=highest, legend=160)
    return theme.of_subject(made, subject)


def reference_tiles(at: xarray.Dataset, highest: float) -> Chart:
    """The maps of a token without a place and, where there is one, of the class token."""
    references = zip(at.reference.values.tolist(), at.reference_cka.values, strict=True)
    shown = [Tile(name, values) for name, values in references if np.isfinite(values).any()]
    title = alt.TitleParams(f"{at.subject.item()}: no place", subtitle=", ".join(tile.name for tile in shown))
    cells, patch_names = (int(at.rows), int(at.columns)), at.patch_place.values.tolist()
    made = tiles([shown], cells, patch_names, title=title, size=130 * len(shown), highest=highest, legend=120)
    return theme.of_subject(made, str(at.subject.item()))


def at_the_last_block(table: pd.DataFrame, finding: xarray.Dataset, quantity: str, variable: str) -> None:
    """The interval that the sentence and the claims have: it also knows how few tokens there are to count."""
    for subject in subjects_in(finding):
        here = (table["subject"] == subject) & table["final"].astype(bool)
        if here.any() and states(finding, quantity, subject):
            _, low, high = stated_ends(finding, quantity, subject)
            table.loc[here, list(ends_of(variable))] = [low, high]


def over_depth(
    finding: xarray.Dataset, owner: dict[str, str], variable: str, title: str, domain: tuple[float, float] | None
) -> Chart:
    """A number of interior tokens by subject; an untrained twin is dashed, in the colour of its subject."""
    table = table_of(finding, variable, also=["chance"])
    at_the_last_block(table, finding, {"hit_rate": "hit_rate", "peak": "token_peak"}[variable], variable)
    table["weights"] = ["untrained twin" if subject in owner else "as given" for subject in table["subject"]]
    table["line"] = [owner.get(subject, subject) for subject in table["subject"]]
    x, share = theme.depth_axis(), variable == "hit_rate"
    scale = alt.Scale(domain=list(domain)) if domain else alt.Scale(zero=True, nice=6)
    y = alt.Y(f"{variable}:Q", title=None, axis=alt.Axis(format=".0%" if share else ".2f"), scale=scale)
    colour = subject_colours(table["line"], "line")
    dashes = alt.Scale(domain=["as given", "untrained twin"], range=[[1, 0], [5, 4]])
    legend = alt.Legend() if (table["weights"] == "untrained twin").any() else None
    dash = alt.StrokeDash("weights:N", scale=dashes, title=None, legend=legend)
    line = alt.Chart(table).mark_line(tooltip=None).encode(x, y, color=colour, strokeDash=dash, detail="subject:N")
    bars = theme.error_bars(table, x, y, *ends_of(variable), color=colour)
    numbers = interval_tooltips(variable, *(("hit-rate", ".1%") if share else (title, ".2f")))
    tooltip = tooltips("subject", name="block") + numbers + (tooltips(chance=("chance", ".1%")) if share else [])
    dots = alt.Chart(table).mark_point(size=46).encode(x, y, color=colour, tooltip=tooltip)
    layers = line + bars + dots
    if share:
        layers += (
            alt.Chart(table)
            .mark_tick(orient="horizontal", thickness=2, size=9, tooltip=None)  # of 16 blocks longer ones would join
            .encode(x, alt.Y("chance:Q"), color=colour)
        )
    return theme.panel(layers, (420, 260), alt.TitleParams(title, subtitle="interior tokens, over depth"))
