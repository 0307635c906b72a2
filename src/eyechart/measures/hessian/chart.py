"""The figure of M16: densities of eigenvalues, negative and positive halves on their own scales; numbers below.

An open mark holds eigenvalues that are not settled.
"""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import numpy as np
import pandas as pd
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import ends_of, interval_tooltips, subject_colours, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.measures.hessian.bounds import ape_ends

POINTS = 140
"""Points of a density curve."""
TICKS = 40
"""Eigenvalues drawn one by one, of a subject in a panel; of more, evenly many from small to large."""
FAR = 10
"""An axis ends at so many times the largest value: an interval of two minibatches reached 2·10⁸ beside a mean of 200,
and no mark could be told from zero."""
NUMBERS = {
    "nep": ("share of negative eigenvalues (NEP)", "unsettled"),
    "ape": ("mean of positive eigenvalues (APE)", "unsettled"),
    "smallest": ("smallest eigenvalue", "smallest_unsettled"),
    "largest": ("largest eigenvalue", "largest_unsettled"),
}
"""What is drawn below the densities: its words, and the share of eigenvalues in it that are not settled."""


def draw(finding: xarray.Dataset) -> Chart:
    variants = finding.variant.values.tolist()
    shown = list(dict.fromkeys([variants[0], variants[-1]]))  # the paper's loss and the plainest
    curves = {(variant, sign): densities(finding, variant, sign) for variant in shown for sign in (-1, 1)}
    highest = max((float(table["density"].max()) for table in curves.values() if len(table)), default=1.0)
    halves = [half(finding, *place, table, 1.05 * highest) for place, table in curves.items()]
    return theme.panels([*halves, *(numbers(finding, name) for name in NUMBERS)], columns=2)


def densities(finding: xarray.Dataset, variant: str, sign: int) -> pd.DataFrame:
    rows = [
        row
        for subject in finding.subject.values.tolist()
        for row in density(subject, collected(finding, subject, variant), sign, reach(finding, sign))
    ]
    return pd.DataFrame(rows, columns=["subject", "eigenvalue", "density"])


def half(finding: xarray.Dataset, variant: str, sign: int, curves: pd.DataFrame, highest: float) -> Chart:
    """Densities of the negative or the positive eigenvalues of one loss, and the eigenvalues as ticks."""
    subjects, ends = finding.subject.values.tolist(), reach(finding, sign)
    ticks, beyond, count = [], 0, 0
    for subject in subjects:
        values = np.sort(collected(finding, subject, variant))
        values = values[np.sign(values) == sign]
        count, beyond = count + len(values), beyond + int((np.abs(values) > ends).sum())
        values = values[np.abs(values) <= ends]
        shown = values[np.unique(np.linspace(0, len(values) - 1, TICKS).round().astype(int))] if len(values) else values
        ticks += [{"subject": subject, "eigenvalue": float(f"{value:.4g}")} for value in shown]
    scale = alt.Scale(domain=[-ends, 0] if sign < 0 else [0, ends], nice=False)
    cut = f" ({beyond} of {count} beyond)" if beyond else ""
    title = f"{'negative' if sign < 0 else 'positive'} eigenvalues{cut}"
    x = alt.X("eigenvalue:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4))  # with more, 0 lost its number
    colour = subject_colours(subjects, legend=alt.Legend(symbolOpacity=1))
    height = alt.Scale(domain=[0, highest], nice=False)
    y = alt.Y("density:Q", title="density" if sign < 0 else None, scale=height, axis=alt.Axis(format="~g"))
    tooltip = tooltips("subject", eigenvalue=("eigenvalue", ".1f"))
    layers = [
        alt.Chart(curves).mark_area(opacity=0.15, line=False, tooltip=None).encode(x, y.stack(None), color=colour),
        alt.Chart(curves).mark_line(tooltip=None).encode(x, y, color=colour),
        alt.Chart(pd.DataFrame(ticks, columns=["subject", "eigenvalue"]))
        .mark_tick(thickness=1.5, height=9, yOffset=-5, opacity=0.8)
        .encode(x, y=alt.value("height"), color=colour, tooltip=tooltip),
    ]
    heading = alt.TitleParams(variant if sign < 0 else " ", anchor="start")
    return theme.panel(alt.layer(*layers), (210 if sign < 0 else 330, 190), heading)


def collected(finding: xarray.Dataset, subject: str, variant: str) -> np.ndarray:
    values = finding.eigenvalue.sel(subject=subject, variant=variant).values.ravel()
    return np.asarray(values[~np.isnan(values)])


def reach(finding: xarray.Dataset, sign: int) -> float:
    """How far an axis goes: to all but the outermost twentieth, the same for all losses so that they compare."""
    values = finding.eigenvalue.values
    values = np.abs(values[np.sign(values) == sign])
    return float(1.05 * np.quantile(values, 0.95)) if len(values) else 1.0


def density(subject: str, values: np.ndarray, sign: int, ends: float) -> Iterator[tuple[str, float, float]]:
    """A Gaussian kernel density of one half, mirrored at zero; its area is that half's share of all values."""
    own = np.abs(values[np.sign(values) == sign])
    if len(own) < 2:
        return
    spread = min(own.std(ddof=1), (np.quantile(own, 0.75) - np.quantile(own, 0.25)) / 1.34) or own.std(ddof=1)
    width = max(0.9 * spread * len(own) ** -0.2, 1e-3 * ends)  # Silverman's rule
    points = ends * np.linspace(0, 1, POINTS) ** 1.5  # denser near zero, where flat subjects lie
    kernels = sum(np.exp(-0.5 * ((points[:, None] - own * side) / width) ** 2) for side in (1, -1))
    heights = np.sum(kernels, axis=1) / (len(values) * width * np.sqrt(2 * np.pi))
    for point, height in zip(points, heights, strict=True):
        yield subject, sign * float(point), float(f"{height:.4g}")


def numbers(finding: xarray.Dataset, name: str) -> Chart:
    """A number of every loss and subject with its interval: half of the 2×2×2 table at a glance."""
    title, doubt = NUMBERS[name]
    low, high = ends_of(name)
    table = table_of(finding, name, also=[doubt])
    if name == "ape":
        ends = [ape_ends(finding, *place) for place in zip(table["subject"], table["variant"], strict=True)]
        table[[low, high]] = np.reshape(ends, (len(table), 2))
    subjects, variants = finding.subject.values.tolist(), finding.variant.values.tolist()
    left = name in ("nep", "smallest")
    scale = scale_of(name, table)
    axis = alt.Axis(format=".0%" if name == "nep" else "~r")
    if scale.to_dict().get("type") == "log":
        axis = theme.axis_at(theme.log_marks(*scale.domain), format="~g")
    x = alt.X(f"{name}:Q", title=title, scale=scale, axis=axis)
    y = alt.Y("variant:N", sort=variants, title=None, axis=alt.Axis(labelLimit=150))
    offset = alt.YOffset("subject:N", sort=subjects)
    tooltip = tooltips("subject", "variant") + interval_tooltips(name, title, ".3g")
    tooltip += tooltips(**{doubt: ("share not known to 1 %", ".0%")})
    base = alt.Chart(table).encode(y=y, yOffset=offset, color=subject_colours(subjects), tooltip=tooltip)
    rules = base.properties(data=table.dropna()).mark_rule(style="interval-bar", strokeWidth=2.5, clip=True)
    rules = rules.encode(alt.X(f"{low}:Q", title=title, scale=scale), x2=alt.X2(high))
    sure = alt.condition(f"datum.{doubt} > 0", alt.value(0), alt.value(1))
    edge = alt.Stroke("subject:N", scale=theme.subject_scale(subjects), legend=None)
    marks = base.mark_point(size=60, filled=True, strokeWidth=1.5).encode(x, stroke=edge, fillOpacity=sure)
    size = 210 if left else 330, alt.Step(max(9, 36 // max(1, len(subjects))))
    return theme.panel(alt.layer(rules, marks), size)


def scale_of(name: str, table: pd.DataFrame) -> alt.Scale:
    """From zero; where all are positive and they are sizes, logarithmic: an interval of few minibatches may reach 0."""
    ends = table[[name, *ends_of(name)]]
    if name == "nep":
        highest = max([0.05, *table[[name, f"{name}_high"]].max()], key=np.nan_to_num)  # one minibatch has no interval
        return alt.Scale(domain=[0, highest], nice=True)
    positive = name in ("ape", "largest") and (ends.min().dropna() > 0).all() and ends.notna().to_numpy().any()
    if not positive:
        farthest = FAR * float(table[name].abs().fillna(0).max())
        reach = [max(float(ends.min().min()), -farthest), min(float(ends.max().max()), farthest)]
        domain = [min(0.0, reach[0]), max(0.0, reach[1])]
        return alt.Scale(domain=domain, nice=True) if np.ptp(domain) > 0 else alt.Scale(zero=True, nice=True)
    spread = [float(ends.min().min()), float(ends.max().max())]  # whole decades would be half empty
    return alt.Scale(type="log", domain=spread, nice=False, padding=theme.MARK)
