"""The inks of eyechart: data colours that every reader can tell apart, and the configuration of axes and type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: As page.css has them, those of Korean by name: what a browser would take for words of a chart may be Chinese.
FONT = (
    "Inter, Helvetica Neue, Helvetica, Arial, Liberation Sans, Noto Sans KR, Apple SD Gothic Neo, Malgun Gothic, "
    "NanumGothic, sans-serif"
)

#: Okabe and Ito's colours, reordered so that the first two (a transformer and a CNN, mostly) are farthest apart for
#: every kind of colour vision; each has a contrast of at least 3 with white or lies close to it, and with dark paper.
SUBJECT_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#9a7b2f")

#: Seventeen stops of magma and viridis: perceptually uniform, and the same in grey. Kept as numbers because a heat-map
#: drawn as a picture must have exactly the colours of one drawn as rectangles.
MAGMA = (
    *("#000004", "#0a0822", "#1d1046", "#35106a", "#51137c", "#6a1c80", "#822582", "#9c2f80", "#b6377a"),
    *("#cf4170", "#e65164", "#f5695c", "#fb8762", "#fea571", "#fec387", "#fde0a2", "#fcfdbf"),
)
VIRIDIS = (
    *("#440154", "#48196b", "#472d7b", "#424086", "#3b528b", "#34638d", "#2c728e", "#27828e", "#21918d"),
    *("#1f9f88", "#28ae80", "#3ebc74", "#5dc963", "#82d34c", "#abdc32", "#d5e21b", "#fde725"),
)
#: Blue below the middle, orange above: for signed numbers, with a domain symmetric about its middle.
DIVERGING = (
    *("#134b85", "#2567a2", "#3b83b9", "#579dc8", "#7db6d6", "#a4cde3", "#c5deec", "#dee9ee", "#f2f0eb"),
    *("#f8e6cc", "#fcd8a9", "#fbc37d", "#f2a952", "#e48e2b", "#ce7416", "#b55d0b", "#994a07"),
)

#: What a junction or step does, in the colours of Park and Kim's figures: attention grey, MLP and convolution white.
#: Their sub-sampling is blue; here that is the first subject. White marks, and black ones on dark paper, need the
#: outline that `kind_points` gives them.
KIND_MARKS = {
    "attention": ("#8b9099", "circle"),
    "mlp": ("#ffffff", "square"),
    "conv": ("#ffffff", "diamond"),
    "mixer": ("#d9c27a", "triangle-up"),
    "pool": ("#bfc4cc", "triangle-down"),
    "subsampling": ("#000000", "circle"),
    "other": ("#d6d8dc", "cross"),
}


#: Inks of words, quiet words, lines, faint lines, and the paper.
LIGHT = ("#1f2328", "#5b6470", "#b9bfc8", "#e9ebee", "#ffffff")
DARK = ("#e8eaed", "#a3aab5", "#4b525d", "#2b3038", "#16191e")
#: Colours that no chart has: a picture drawn in them is dressed for either paper by putting the inks in their places.
STAND_INS = ("#01f203", "#02f304", "#03f405", "#04f506", "#05f607")

#: How opaque intervals are, as bands and as bars, and one point of many. On dark paper more: the blue of the first
#: subject has a contrast of 3.4 there, and as pale as on white it could not be seen.
PALE_ON_LIGHT, PALE_ON_DARK = (0.18, 0.7, 0.55), (0.3, 1.0, 0.9)
STAND_IN_PALENESS = (0.181, 0.701, 0.551)


#: A space, at which no line ends, stands before the per cent sign, as in the sentences of the page (ISO 80000-1). The
#: rest is Vega's own.
NUMBERS = {"decimal": ".", "thousands": ",", "grouping": [3], "currency": ["$", ""], "percent": "\u00a0%"}


def configuration(dark: bool = False) -> dict[str, Any]:
    """The Vega-Lite configuration of all charts. Dark paper changes inks and paleness, never a data colour."""
    return in_inks(DARK, PALE_ON_DARK) if dark else in_inks(LIGHT)


def in_inks(inks: Sequence[str], paleness: tuple[float, float, float] = PALE_ON_LIGHT) -> dict[str, Any]:
    ink, quiet, line, faint, paper = inks
    band, bar, point = paleness
    return {
        # Not transparent: vl-convert's PNGs then have premultiplied colours, and every pale line turns grey.
        "background": paper,
        "font": FONT,
        "padding": 6,
        "locale": {"number": NUMBERS},
        "view": {"stroke": None},
        "axis": {
            "labelColor": quiet,
            "labelFontSize": 11,
            "labelLimit": 150,
            "labelPadding": 4,
            "labelSeparation": 4,  # of numbers along a small panel, which would run into one another
            "titleColor": ink,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "domainColor": line,
            "tickColor": line,
            "tickSize": 4,
            "gridColor": faint,
            "gridWidth": 1,
        },
        "axisX": {"grid": False},
        "axisXQuantitative": {"tickCount": 6, "labelFlush": False},
        "axisYQuantitative": {"tickCount": 6},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "labelColor": ink,
            "labelFontSize": 11,
            "labelLimit": 220,
            "labelSeparation": 4,  # of numbers along a bar of colours: the outer ones are moved towards the middle
            "columnPadding": 18,  # pictures are measured in Arial: in wider fonts a word ran into the next symbol
            "titleColor": quiet,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "symbolSize": 80,
            "symbolOpacity": 1,  # a legend would take the paleness of the first mark, an interval's as a rule
            "symbolBaseFillColor": quiet,
            "symbolBaseStrokeColor": quiet,
            "gradientThickness": 10,
            "gradientLength": 160,
        },
        "title": {
            "color": ink,
            "subtitleColor": quiet,
            "fontSize": 13,
            "fontWeight": 600,
            "subtitleFontSize": 11,
            "anchor": "start",
            "offset": 10,
        },
        "header": {"labelColor": ink, "labelFontSize": 12, "labelFontWeight": 600, "titleColor": quiet},
        "concat": {"spacing": 28},
        "facet": {"spacing": 24},
        "line": {"strokeWidth": 2, "strokeCap": "round", "strokeJoin": "round"},
        "point": {"filled": True, "size": 55, "opacity": 1},
        "rule": {"color": quiet},
        "text": {"color": ink, "fontSize": 11},
        "range": {"category": list(SUBJECT_COLOURS), "ramp": list(VIRIDIS), "heatmap": list(MAGMA)},
        "style": {
            "reference": {"color": quiet, "strokeWidth": 1.25, "strokeDash": [5, 4]},
            "reference-label": {"color": quiet, "fontSize": 11, "fontStyle": "italic"},
            "reference-rim": {"color": paper, "stroke": paper, "strokeWidth": 4, "strokeJoin": "round"}
            | {"fontSize": 11, "fontStyle": "italic"},
            "paper": {"color": paper},
            "boundary": {"color": "#ffffff", "strokeWidth": 1.25, "opacity": 0.85},
            "frame": {"stroke": line, "color": faint},
            "outlined": {"stroke": quiet, "strokeWidth": 1.25},
            "quiet-line": {"color": line, "strokeWidth": 1.5},
            "note": {"color": quiet, "fontSize": 11},
            "interval-band": {"opacity": band},
            "interval-bar": {"opacity": bar},
            "one-of-many": {"opacity": point},
        },
    }


def shades(values: np.ndarray, colours: Sequence[str]) -> np.ndarray:
    """Red, green and blue (0 to 255) for values in 0..1 on a ramp of colours, as Vega mixes them."""
    stops = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours], dtype=float)
    along = np.linspace(0.0, 1.0, len(colours))
    clipped = np.clip(np.nan_to_num(values), 0.0, 1.0)
    return np.stack([np.interp(clipped, along, stops[:, channel]) for channel in range(3)], axis=-1).round()


def shade_names(values: np.ndarray, colours: Sequence[str]) -> list[str]:
    """
    >>> shade_names(np.array([0.0, 0.5]), ("#000000", "#ffffff"))
    ['#000000', '#808080']
    """
    return ["#" + "".join(f"{int(part):02x}" for part in rgb) for rgb in shades(values, colours)]
