"""The charts of docs/benchmarks.md, from the results alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from eyechart.charts.export import picture_of, specification
from eyechart.charts.palette import SUBJECT_COLOURS


def draw_all(cpu: Mapping[str, Any], gpu: Mapping[str, Any], folder: Path) -> None:
    for name, chart in charts(cpu, gpu).items():
        (folder / f"benchmarks-{name}.svg").write_bytes(picture_of(specification(chart), "svg"))


def charts(cpu: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    """By name; only those whose results are there."""
    drawn = {
        "cka": (above_bare, cpu.get("layer_cka")),
        "growth": (growth, cpu.get("growth")),
        "gpu": (over_bare, gpu.get("ratios")),
    }
    return {name: draw(part) for name, (draw, part) in drawn.items() if part and "failed" not in part}


def above_bare(part: Mapping[str, Any]) -> Any:
    """Seconds above the bare passes and peak memory, eyechart beside its peers."""
    ways = {way: result for way, result in part["ways"].items() if "failed" not in result}
    bare = ways.pop("bare passes")
    frame = pd.DataFrame(
        {
            "way": list(ways),
            "seconds": [result["seconds"] - bare["seconds"] for result in ways.values()],
            "megabytes": [result["megabytes"] for result in ways.values()],
            "own": ["eyechart" if way == "eyechart" else "peers" for way in ways],
        }
    )
    colour = alt.Color(
        "own:N", legend=None, scale=alt.Scale(domain=["eyechart", "peers"], range=[SUBJECT_COLOURS[0], "#8a8f98"])
    )
    base = alt.Chart(frame, width=300, height=24 * len(ways)).mark_bar().encode(color=colour)
    y = alt.Y("way:N", sort=list(ways), title=None)
    left = base.encode(x=alt.X("seconds:Q", title="seconds above the bare passes", scale=alt.Scale(type="symlog")), y=y)
    right = base.encode(
        x=alt.X("megabytes:Q", title="peak memory, MB"), y=alt.Y("way:N", sort=list(ways), title=None, axis=None)
    )
    return on_paper(left | right)


def over_bare(part: Mapping[str, Any]) -> Any:
    """Time of each measure over the bare passes, by subjects and dtype; the line is the passes alone."""
    rows = [
        {"measure": name, "ratio": found["ratio"], "subjects": f"{' + '.join(row['subjects'])}, {row['dtype']}"}
        for row in part["rows"]
        for name, found in row["measures"].items()
    ]
    names = list(part["rows"][0]["measures"])
    bars = (
        alt.Chart(pd.DataFrame(rows), width=420)
        .mark_bar()
        .encode(
            x=alt.X("ratio:Q", title="time over the bare passes"),
            y=alt.Y("measure:N", sort=names, title=None),
            yOffset="subjects:N",
            color=alt.Color("subjects:N", title=None, legend=alt.Legend(orient="bottom", columns=1, labelLimit=500)),
        )
    )
    line = alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(strokeDash=[5, 4]).encode(x="ratio:Q")
    return on_paper(bars + line)


def growth(part: Mapping[str, Any]) -> Any:
    """Seconds and megabytes over what grows, both axes logarithmic: a straight line is a power."""
    rows = [
        {"what": kind, "size": size, "unit": unit, "value": max(value, 1e-3)}
        for kind in ("images", "subjects", "blocks")
        for unit, key in (("seconds, measured", "seconds"), ("seconds, bare", "bare"), ("peak MB", "megabytes"))
        for size, value in zip(part[kind]["sizes"], part[kind][key], strict=True)
    ]
    frame = pd.DataFrame(rows)
    panels = []
    for kind in ("images", "subjects", "blocks"):
        sizes = part[kind]["sizes"]
        panels.append(
            alt.Chart(frame[frame.what == kind], width=190, height=170)
            .mark_line(point=True)
            .encode(
                x=alt.X("size:Q", title=kind, scale=alt.Scale(type="log"), axis=alt.Axis(values=list(sizes))),
                y=alt.Y(
                    "value:Q",
                    title=None,
                    scale=alt.Scale(type="log", nice=False),
                    axis=alt.Axis(values=[0.1, 1, 10, 100, 1000], format="~g"),
                ),
                color=alt.Color("unit:N", title=None, scale=alt.Scale(range=list(SUBJECT_COLOURS[:3]))),
            )
        )
    return on_paper(alt.hconcat(*panels))


def on_paper(chart: Any) -> Any:
    """White behind it: the site has a dark side too, and an SVG does not follow it.

    Words are measured in Arial; in a reader's wider font names began outside of the picture.
    """
    room = {"left": 28, "top": 6, "right": 32, "bottom": 6}
    return chart.properties(padding=room).configure(background="white").configure_view(stroke=None)
