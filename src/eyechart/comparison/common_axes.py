"""The same figure of several runs on the same axes: what moves when runs are exchanged is then a change, not a scale.

Works on Vega-Lite specifications, so that no measure has to think of it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Part = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


def on_common_axes(specs: Sequence[Part]) -> list[Part]:
    """Copies whose number axes reach as far as that of any of them: panel by panel.

    Where they differ in number, panels of one title belong together, and those without any are left as they are.
    """
    made = [copy.deepcopy(spec) for spec in specs]
    panels = [list(panels_of(spec, spec.get("datasets", {}))) for spec in made]
    for together in zip(*panels, strict=True) if len({len(each) for each in panels}) == 1 else of_one_title(panels):
        for channel in ("x", "y"):
            reach_alike([[axis for axis in panel.axes if axis.channel == channel] for panel in together])
    return made


@dataclass(frozen=True)
class Panel:
    title: str
    axes: list[AxisOfLayer]


def of_one_title(panels: Sequence[Sequence[Panel]]) -> Iterator[list[Panel]]:
    """A panel of each run, where that title stands in all of them once."""
    for title in dict.fromkeys(panel.title for panel in panels[0] if panel.title):
        together = [[panel for panel in each if panel.title == title] for each in panels]
        if all(len(each) == 1 for each in together):
            yield [each[0] for each in together]


class AxisOfLayer:
    """The encoding of one layer along one axis, with the numbers that it shows there."""

    def __init__(self, channel: str, layer: Part, rows: Rows) -> None:
        self.channel, self.place = channel, layer["encoding"][channel]
        fields = [layer["encoding"].get(name, {}).get("field") for name in (channel, f"{channel}2")]
        self.numbers = [
            float(row[field])
            for field in fields
            for row in rows
            if isinstance(row.get(field), int | float) and math.isfinite(row[field])
        ]

    @property
    def domain(self) -> list[float] | None:
        """What the chart itself says that it shows."""
        said = (self.place.get("scale") or {}).get("domain")
        return said if isinstance(said, list) else None


def panels_of(part: Part, datasets: Mapping[str, Any], table: str = "", above: str = "") -> Iterator[Panel]:
    """The panels of a chart; one in a group of panels has the group's title before its own."""
    table = (part.get("data") or {}).get("name", table)
    own = part.get("title") or ""
    words = own.get("text") if isinstance(own, dict) else own
    title = " ".join(filter(None, [above, words if isinstance(words, str) else " ".join(words or ())]))
    inner = part.get("concat") or part.get("hconcat") or part.get("vconcat")
    if inner:
        for each in inner:
            yield from panels_of(each, datasets, table, title)
    else:
        yield Panel(title, list(axes_of(part, datasets, table)))


def axes_of(part: Part, datasets: Mapping[str, Any], table: str) -> Iterator[AxisOfLayer]:
    table = (part.get("data") or {}).get("name", table)
    for each in part.get("layer", []):
        yield from axes_of(each, datasets, table)
    for channel in ("x", "y"):
        if part.get("encoding", {}).get(channel, {}).get("type") == "quantitative":
            yield AxisOfLayer(channel, part, filtered(part, datasets.get(table, [])))


def filtered(part: Part, rows: Rows) -> Rows:
    """The rows that a layer keeps by the filters of `small_multiples`: one value of one column."""
    for step in part.get("transform", []):
        wanted = step.get("filter")
        if isinstance(wanted, dict) and "equal" in wanted:
            rows = [row for row in rows if row.get(wanted["field"]) == wanted["equal"]]
    return rows


def reach_alike(runs: Sequence[Sequence[AxisOfLayer]]) -> None:
    """One axis of one panel, in every run: as far as the farthest of them."""
    axes = [axis for run in runs for axis in run]
    said = [axis.domain for axis in axes if axis.domain]
    if said:
        ends = [min(low for low, *_ in said), max(high for *_, high in said)]
        marks = sorted({mark for axis in axes for mark in (axis.place.get("axis") or {}).get("values", [])})
        for axis in axes:
            if axis.domain:
                axis.place["scale"] = {**axis.place["scale"], "domain": ends}
            if (axis.place.get("axis") or {}).get("values"):
                axis.place["axis"] = {**axis.place["axis"], "values": marks, "tickCount": len(marks)}
        return
    numbers = [number for axis in axes for number in axis.numbers]
    if not numbers:
        return
    for axis in axes:
        reach = {"unionWith": [min(numbers), max(numbers)]}
        axis.place["scale"] = {**(axis.place.get("scale") or {}), "domain": reach}
