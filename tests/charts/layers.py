"""What a Vega-Lite specification draws, layer by layer: marks, the column on each channel, scales and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PLACES = ("x", "x2", "y", "y2", "xOffset", "yOffset")
CHANNELS = (*PLACES, "color", "fill", "stroke", "shape", "size", "strokeDash", "text", "url")
RIMS = ("reference-rim", "frame", "paper", "boundary")
"""Styles of what is drawn around the data, not from it."""


@dataclass(frozen=True)
class Layer:
    """One mark of a chart with its data. `panel` tells the panels of a chart apart."""

    mark: dict[str, Any]
    encoding: dict[str, Any]
    rows: list[dict[str, Any]]
    panel: tuple[int, ...]

    @property
    def kind(self) -> str:
        return str(self.mark["type"])

    @property
    def style(self) -> str:
        return str(self.mark.get("style", ""))

    def field(self, channel: str) -> str | None:
        name: str | None = self.encoding.get(channel, {}).get("field")
        return name

    @property
    def columns(self) -> set[str]:
        """Every column that this layer names: on a channel, as a detail or in a tooltip."""
        channels = [each if isinstance(each, list) else [each] for each in self.encoding.values()]
        return {encoded["field"] for several in channels for encoded in several if "field" in encoded}

    def scale(self, channel: str) -> dict[str, Any]:
        return self.encoding[channel].get("scale") or {}

    def column(self, channel: str) -> list[Any]:
        return [row[self.encoding[channel]["field"]] for row in self.rows]

    def __str__(self) -> str:
        """As the table of tests writes it: the mark, and the column on each channel."""
        columns = [f"{channel}={self.field(channel)}" for channel in CHANNELS if self.field(channel)]
        return " ".join([self.kind, *columns])


def layers_of(spec: dict[str, Any]) -> list[Layer]:
    """Every layer that shows data; dashed references and the names on them are `references_of`."""
    hidden = (*RIMS, "reference", "reference-label")
    return [layer for layer in every_layer(spec) if layer.style not in hidden]


def references_of(spec: dict[str, Any]) -> set[str]:
    """The names of reference lines, such as "uniform attention"."""
    named = [layer for layer in every_layer(spec) if layer.style == "reference-label"]
    return {str(word) for layer in named for word in layer.column("text")}


def every_layer(spec: dict[str, Any]) -> Iterator[Layer]:
    datasets: dict[str, list[dict[str, Any]]] = spec.get("datasets", {})

    def walk(part: dict[str, Any], data: Any, panel: tuple[int, ...]) -> Iterator[Layer]:
        data = part.get("data") or data
        for place, inner in enumerate(part.get("concat", [])):
            yield from walk(inner, data, (*panel, place))
        for inner in part.get("layer", []):
            yield from walk(inner, data, panel)
        if "mark" in part:
            yield Layer(part["mark"], part.get("encoding", {}), datasets[data["name"]] if data else [], panel)

    yield from walk(spec, None, ())
