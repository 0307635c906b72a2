"""What the explorer's lesson carries beside attention: whose patch a final token resembles, and how far a place sees.

Both are means over the images of the exam, not of the picture in hand, and the page says so.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray

    from eyechart.run import Run

FINEST = 32  # rows and columns of a field; finer ones are averaged: 12 blocks of 224 pixels would be 0.8 MB


def lesson(run: Run, subject: str) -> dict[str, Any]:
    place, reach = run.findings.get("localisation"), run.findings.get("receptive_field")
    return {
        "place": None if place is None else likeness_to_patches(place, subject),
        "reach": None if reach is None else fields(reach, subject),
    }


def likeness_to_patches(finding: xarray.Dataset, subject: str) -> dict[str, Any] | None:
    """CKA of each final token with each patch, in hundredths of the largest; negative ones are 0."""
    sites = np.flatnonzero((finding.subject.values == subject) & finding.final.values.astype(bool))
    if not len(sites):
        return None
    at = finding.isel(site=int(sites[0]))
    rows, columns = int(at["rows"]), int(at["columns"])
    tokens = [(index, found) for index, name in enumerate(at.token_place.values) if (found := grid_place(str(name)))]
    values = np.nan_to_num(at.cka.values[[index for index, _ in tokens], : rows * columns]).clip(0)
    if not tokens or values.max() <= 0:
        return None
    return {
        "name": str(at["name"].item()),
        "images": int(finding.attrs["images"]),
        "grid": [rows, columns],
        "tokens": [place for _, place in tokens],
        "largest": float(values.max()),
        "values": in_bytes(values),
    }


def fields(finding: xarray.Dataset, subject: str) -> dict[str, Any] | None:
    """The effective receptive field of the middle of each block, each in hundredths of its own largest."""
    sites = np.flatnonzero((finding.subject.values == subject) & (finding.role.values == "block"))
    maps = {str(finding["name"].values[site]): coarser(finding.field.values[site].astype(float)) for site in sites}
    maps = {name: field for name, field in maps.items() if np.isfinite(field).all() and field.max() > 0}
    if not maps:
        return None
    return {
        "images": int(finding.attrs["images"]),
        "grid": list(next(iter(maps.values())).shape),
        "blocks": {name: in_bytes(field) for name, field in maps.items()},
    }


def coarser(field: np.ndarray) -> np.ndarray:
    """At most `FINEST` rows and columns, by averaging.

    >>> coarser(np.ones((224, 224))).shape
    (32, 32)
    """
    for axis in (0, 1):
        parts = np.array_split(field, min(FINEST, field.shape[axis]), axis=axis)
        field = np.stack([part.mean(axis=axis) for part in parts], axis=axis)
    return field


def in_bytes(values: np.ndarray) -> str:
    """Shares of the largest, in 255ths, in base64."""
    return base64.b64encode((255 * values / values.max()).round().astype(np.uint8).tobytes()).decode()


def grid_place(name: str) -> list[int] | None:
    """
    >>> grid_place("row 1, column 8"), grid_place("class token")
    ([0, 7], None)
    """
    found = re.fullmatch(r"row (\d+), column (\d+)", name)
    return [int(found[1]) - 1, int(found[2]) - 1] if found else None
