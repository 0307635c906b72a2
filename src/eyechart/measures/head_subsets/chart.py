"""The figure of `head_subsets`: likeness of head groups to the low layers of a CNN, as in Raghu et al.'s figure 5."""

from __future__ import annotations

import re

import altair as alt
import numpy as np
import xarray

from eyechart.charts import theme
from eyechart.charts.tables import interval_tooltips, table_of, tooltips
from eyechart.charts.theme import Chart
from eyechart.charts.whole_names import in_lines
from eyechart.charts.wrapping import in_one_if_it_fits
from eyechart.measures.head_subsets.measure import curves_of
from eyechart.reading_estimates import site_indices

IN_LEGEND = 24  # letters in a line of its title: whose layers it names


def draw(finding: xarray.Dataset) -> Chart:
    pairs = [pair for pair, _ in curves_of(finding)]
    one_cnn = len({cnn for _, cnn in pairs}) == 1  # whose layers one legend can name
    drawn = [panel(finding, *pair) for pair in pairs]
    return theme.panels(drawn, columns=2, shared=("color",) if one_cnn else ())


def counted_from_1(heads: str) -> str:
    """
    >>> counted_from_1("blocks.0 attention 0, blocks.0 attention 6")
    'block 1 head 1, block 1 head 7'
    """
    numbered = re.compile(r"[^,]*?(\d+) attention (\d+)")
    return numbered.sub(lambda at: f" block {int(at[1]) + 1} head {int(at[2]) + 1}", heads).strip()


def panel(finding: xarray.Dataset, subject: str, cnn: str) -> Chart:
    """R's figure 5: CKA over the distance of the head group, one curve a CNN site."""
    part = finding.isel(group=finding.group_subject.values == subject, site=site_indices(finding, cnn))
    table = table_of(part, "cka", also=["distance"], gaps=True)
    table["group_heads"] = table["group_heads"].map(counted_from_1)
    labels = list(dict.fromkeys(table["name"]))
    uniform = float(part.group_uniform.values[0])
    nearest, farthest = float(np.nanmin(part.distance.values)), float(np.nanmax(part.distance.values))
    windowed = farthest < uniform / 2  # heads of a small window are all so near that one axis for both would be empty
    alike = nearest > 0.95 * uniform  # untrained heads: on an axis from half of uniform attention they were one heap
    ends = [min(uniform / 2, nearest) * 0.97, max(uniform, farthest) * 1.03]
    ends = [nearest - 0.01 * uniform, farthest + 0.01 * uniform] if windowed else ends
    # On one that ends with them they would look as far apart as trained ones do, so that one says what it shows.
    apart = max(uniform - nearest, farthest - uniform)
    reach = 1.1 * max(apart, 0.01 * uniform)
    ends = [uniform - reach, uniform + reach] if alike else ends
    lines = theme.curve(
        table,
        x=alt.X("distance:Q", title="mean distance of the head group (px)", scale=alt.Scale(domain=ends, nice=False)),
        y=alt.Y("cka:Q", title="CKA"),
        color=alt.Color("name:N", scale=theme.ordered_scale(labels), sort=None, title=in_lines(cnn, IN_LEGEND)),
        low="cka_low",
        high="cka_high",
        tooltip=tooltips(name=cnn, group_heads="heads", distance=("distance (px)", ".1f"))
        + interval_tooltips("cka", "CKA"),
    )
    heading = in_one_if_it_fits([f"first heads of {subject}", f"× low layers of {cnn}"], 400)
    title = alt.TitleParams(heading, limit=400)
    if windowed:
        title.subtitle = f"uniform attention would be {uniform:.1f} px, beyond this axis"
    else:
        if alike:
            title.subtitle = f"no head group looks nearby: all within {apart:.1f} px of uniform attention"
        lines += theme.reference(uniform, "uniform attention", axis="x", at="start", side="left")
    return theme.of_subject(theme.panel(lines, (400, 280), title), subject)
