"""The figure of `attention_maps`: pictures with rollout and heads, as in the ViT paper, and every head's entropy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd
import xarray
from PIL import Image

from eyechart.charts import theme
from eyechart.charts.palette import shades
from eyechart.charts.pictures import data_uri
from eyechart.charts.tables import interval_tooltips, tooltips, value_table
from eyechart.charts.theme import Chart
from eyechart.measures.attention_maps.rows import MEAN, PREFIX, decoded
from eyechart.quantity import subjects_in
from eyechart.reading_estimates import site_indices

TILE, GAP = 84, 6
PIXELS = 168  # of a tile, twice what the page shows
SMALL = 64  # pixels a side up to which a picture is a grid of pixels and no photograph
ROWS, FEWER_ROWS = 4, 3  # pictures in the figure, and where there are more than two subjects; the explorer has all
ROOM = 0.1  # above the line of uniform attention, for its name: below it are heads
DARKEST = 0.06  # of a picture where its rollout is least
OUTLINE = np.array([86, 180, 233])


def draw(finding: xarray.Dataset) -> Chart:
    panels: list[Any] = []
    for subject in subjects_in(finding):
        panels += [pictures(finding, subject), entropy_by_depth(finding, subject)]
    return theme.panels(panels, columns=2, shared=())


@dataclass(frozen=True)
class Asked:
    """One row of attention to draw: which subject, attention, head (None: the rollout) and query."""

    subject: str
    site: int
    head: int | None
    query: int

    def words(self, finding: xarray.Dataset) -> tuple[str, str]:
        name = str(finding.name.values[self.site]).removesuffix(" attention")
        return ("rollout", f"to {name}") if self.head is None else (name, f"head {self.head + 1}")

    def values(self, finding: xarray.Dataset, example: int) -> np.ndarray:
        window = max(int(finding.query_place.values[self.site, self.query, 2]), 0)
        placed = finding.key_place.values[self.site, window, :, 0] >= 0
        if self.head is None:
            at: tuple[int, ...] = (example, self.site, self.query)
            names = ("rollout", "rollout_peak", "rollout_beside")
        else:
            at, names = (example, self.site, self.head, self.query), ("maps", "peak", "beside")
        codes, peak, beside = (finding[name].values[at] for name in names)
        return decoded(codes, peak, beside, placed)


def columns_of(finding: xarray.Dataset, subject: str) -> list[Asked]:
    """The rollout up to the last block, where there is one, and the narrowest head of a low, middle and high block."""
    sites = site_indices(finding, subject)
    rows = []
    if finding.rollout_peak.values[:, sites[-1]].any():
        rows.append(Asked(subject, int(sites[-1]), None, asked_query(finding, int(sites[-1]))))
    for site in dict.fromkeys(sites[[0, len(sites) // 2, -1]].tolist()):
        query = asked_query(finding, site)
        from_class = finding.query_place.values[site, query, 0] == PREFIX
        spread = finding.class_relative.values[site] if from_class else finding.relative.values[site]
        head = 0 if np.isnan(spread).all() else int(np.nanargmin(spread))
        rows.append(Asked(subject, site, head, query))
    return rows


def asked_query(finding: xarray.Dataset, site: int) -> int:
    """The class token (the first without place), else the mean of all patches, else the patch nearest the middle.

    Registers alone are no class token: no head has an entropy of one then.
    """
    kind = finding.query_place.values[site, :, 0]
    has_class_token = bool(np.isfinite(finding.class_relative.values[site]).any())
    for wanted in (PREFIX, MEAN) if has_class_token else (MEAN,):
        if wanted in kind:
            return int(np.flatnonzero(kind == wanted)[0])
    rows, columns = finding.grids.values[site, :2]
    at = finding.query_place.values[site, :, :2] + 0.5 - np.array([rows / 2, columns / 2])
    return int(np.where(kind >= 0, (at**2).sum(1), np.inf).argmin())


def pictures(finding: xarray.Dataset, subject: str) -> Chart:
    """Rows are pictures, columns what is drawn of them."""
    asked = columns_of(finding, subject)
    heads = [("picture", "as fed"), *(each.words(finding) for each in asked)]
    count = rows_of(finding)
    tiles = []
    for example in range(count):
        picture = picture_of(finding, subject, example)
        photo = max(picture.shape[:2]) > SMALL
        shown = [
            (picture, photo),
            *((tile(finding, each, example, picture), photo and each.head is None) for each in asked),
        ]
        layers = [None, *(None if each.head is None else str(finding.name.values[each.site]) for each in asked)]
        tiles += [
            {"column": at, "row": example, "url": drawn(*pixels), "whose": subject, "name": layer}
            for at, (pixels, layer) in enumerate(zip(shown, layers, strict=True))
        ]
    band = alt.Scale(type="band", paddingInner=GAP / (TILE + GAP), paddingOuter=0)
    x = alt.X("column:O", scale=band, axis=named([f"{one}\n{two}" for one, two in heads], orient="top"), title=None)
    names = [name or f"picture {at + 1}" for at, name in enumerate(finding.class_name.values[:count].tolist())]
    y = alt.Y("row:O", scale=band, axis=named(names, orient="left"), title=None)
    table = pd.DataFrame(tiles)  # a layer that is picked on the page is marked by whose it is, and by its name
    image = alt.Chart(table).mark_image(aspect=True, tooltip=None)  # it fills its band, narrow on a phone
    kinds = {int(finding.query_place.values[each.site, each.query, 0]) for each in asked if each.head is not None}
    alone = {PREFIX: "the class token looks", MEAN: "the average patch looks"}
    looking = alone.get(min(kinds), "patches look") if len(kinds) == 1 else "patches look"
    size = len(heads) * (TILE + GAP), count * (TILE + GAP)
    made = theme.panel(image.encode(x, y, url="url:N"), size, f"{subject}: where {looking}")
    return theme.of_subject(made, subject)


def rows_of(finding: xarray.Dataset) -> int:
    rows = ROWS if len(subjects_in(finding)) <= 2 else FEWER_ROWS
    return min(rows, finding.sizes["example"])


def named(names: list[str], orient: Literal["top", "left"]) -> alt.Axis:
    """Names of one or two lines at 0, 1, …; they stand in an expression, so "<" is spelt out."""
    listed = json.dumps([name.split("\n") for name in names]).replace("<", "\\u003c")
    return alt.Axis(
        orient=orient,
        labelExpr=f"{listed}[toNumber(datum.value)]",
        labelAngle=0,
        labelLimit=TILE + GAP - 2 if orient == "top" else 110,
        labelPadding=20 if orient == "top" else 4,  # lines are set downwards from the first
        domain=False,
        ticks=False,
        grid=False,
    )


def picture_of(finding: xarray.Dataset, subject: str, example: int) -> np.ndarray:
    """(y, x, 3), 0 to 255, as large as a tile at most."""
    index = finding.shown_subject.values.tolist().index(subject)
    height, width = finding.picture_size.values[index]
    image = Image.fromarray(np.ascontiguousarray(finding.picture.values[example, index, :height, :width]))
    image.thumbnail((PIXELS, PIXELS), Image.Resampling.LANCZOS)
    return np.asarray(image)


def tile(finding: xarray.Dataset, asked: Asked, example: int, picture: np.ndarray) -> np.ndarray:
    """A map of attention in colours, from 0; of the rollout, the picture, darkened from its largest to its least."""
    heat, covered = heat_map(finding, asked, example, (PIXELS, PIXELS))
    top = max(float(heat.max()), 1e-12)
    if asked.head is None:
        grid = finding.grids.values[asked.site, 2:4]
        low = float(heat[covered].min())
        share = ((heat - low) / max(top - low, 1e-12)).astype(np.float32)
        coarse = Image.fromarray(share).resize((int(grid[1]), int(grid[0])), Image.Resampling.BOX)
        mask = np.asarray(coarse.resize(picture.shape[1::-1], Image.Resampling.BILINEAR))[..., None]
        return (picture * (DARKEST + (1 - DARKEST) * mask)).round().astype(np.uint8)
    under = np.asarray(Image.fromarray(picture).convert("L").resize((PIXELS, PIXELS)))[..., None].repeat(3, 2)
    drawn = np.where(covered[..., None], shades(heat / top, theme.MAGMA), 0.35 * under)
    row, column, _ = finding.query_place.values[asked.site, asked.query]
    if row >= 0:
        rows, columns = finding.grids.values[asked.site, :2]
        y, x = (round(PIXELS * at / many) for at, many in ((row, rows), (column, columns)))
        bottom, right = round(PIXELS * (row + 1) / rows) - 1, round(PIXELS * (column + 1) / columns) - 1
        for edge in (np.s_[y : y + 3, x : right + 1], np.s_[bottom - 2 : bottom + 1, x : right + 1]):
            drawn[edge] = OUTLINE
        for edge in (np.s_[y : bottom + 1, x : x + 3], np.s_[y : bottom + 1, right - 2 : right + 1]):
            drawn[edge] = OUTLINE
    return drawn.round().astype(np.uint8)


def heat_map(
    finding: xarray.Dataset, asked: Asked, example: int, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The weights of one row where their keys lie in the picture, (y, x), and which pixels any key covers."""
    values = asked.values(finding, example)
    window = int(finding.query_place.values[asked.site, asked.query, 2])
    keys = finding.key_place.values[asked.site, max(window, 0)]
    rows, columns, group = finding.grids.values[asked.site, 2:]
    heat, covered = np.zeros(size), np.zeros(size, dtype=bool)
    for (row, column), value in zip(keys.tolist(), values.tolist(), strict=True):
        if row >= 0:
            y = slice(round(size[0] * row * group / rows), round(size[0] * min(1, (row + 1) * group / rows)))
            x = slice(
                round(size[1] * column * group / columns), round(size[1] * min(1, (column + 1) * group / columns))
            )
            heat[y, x], covered[y, x] = value, True
    return heat, covered


def drawn(pixels: np.ndarray, photo: bool) -> str:
    """Photographs as JPEG, small pictures and maps as PNG, enlarged because some viewers of PDF smooth."""
    return data_uri(pixels, "JPEG" if photo else "PNG", 1 if photo else max(1, PIXELS // max(pixels.shape[:2])))


def entropy_by_depth(finding: xarray.Dataset, subject: str) -> Chart:
    """Every head as a dot over depth, of query patches and of the class token."""
    mine = finding.isel(site=site_indices(finding, subject))
    tables = []
    for variable, asking in (("relative", "query patches"), ("class_relative", "class token")):
        table = value_table(mine, variable, also=["entropy"])
        tables.append(table.assign(asking=asking, nats=table["value"] * np.log(table["keys"].astype(float))))
    frame = pd.concat(tables)
    frame["head"] = frame["head"] + 1
    x = theme.depth_axis()
    bottom = bottom_of(finding)
    scale = alt.Scale(domain=[bottom, 1 + ROOM * (1 - bottom)], nice=False)
    y = alt.Y("value:Q", title="entropy of attention (uniform = 1)", scale=scale)
    colour = alt.value(theme.subject_colour(subject))
    kinds = [kind for kind in ("query patches", "class token") if kind in set(frame["asking"])]
    legend = alt.Legend(orient="bottom", title=None, symbolOpacity=1) if len(kinds) > 1 else None
    shape = alt.Shape(
        "asking:N", scale=alt.Scale(domain=kinds, range=["circle", "diamond"][: len(kinds)]), legend=legend
    )
    tooltip = tooltips("subject", "name", "head:Q", asking="asked from")
    tooltip += interval_tooltips("value", "entropy, of uniform", ".2f") + tooltips(nats=("entropy in nats", ".2f"))
    looks: dict[str, dict[str, Any]] = {"query patches": {"opacity": 0.8}, "class token": {"style": "one-of-many"}}
    dots = [
        alt.Chart(frame[frame["asking"] == kind])
        .mark_point(filled=True, size=46, **looks[kind])
        .encode(x, y, color=colour, shape=shape, tooltip=tooltip)
        for kind in kinds
    ]
    bars = theme.error_bars(frame, x, y, "low", "high", color=colour)
    references = [theme.reference(1, "uniform attention")]
    references += [theme.reference(0, "a single key")] if bottom == 0 else []
    size = 400, rows_of(finding) * (TILE + GAP) - GAP
    return theme.panel(alt.layer(bars, *reversed(dots), *references), size, f"{subject}: all heads")


def bottom_of(finding: xarray.Dataset) -> float:
    """Where the axis of entropies begins, one for all subjects: at 0, or below all heads if two fifths would be empty.

    >>> bottom_of(xarray.Dataset({"relative": ("head", [0.93, 0.57]), "class_relative": ("head", [0.62, np.nan])}))
    0.5
    """
    ends = [one + end for one in ("relative", "class_relative") for end in ("", "_low")]
    lowest = min(float(np.nanmin(finding[end].values, initial=1.0)) for end in ends if end in finding)
    return float(np.floor((lowest - 0.02) * 10) / 10) if lowest > 0.42 else 0.0
