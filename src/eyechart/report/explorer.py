"""What the page's explorer carries: rows of attention of a few pictures, packed small, and all it says about them."""

from __future__ import annotations

import base64
import io
import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from eyechart.charts import theme
from eyechart.measures.attention_maps.rows import LEVELS, NOTHING
from eyechart.reading_estimates import site_indices
from eyechart.report.embed import data_uri

if TYPE_CHECKING:
    import xarray

    from eyechart.run import Run

BYTES_A_SUBJECT = 2_000_000  # bytes of the page for each subject with attention
MOST_BYTES = 3_000_000  # and for all of them: not quite a third of what the page may have
OVERHEAD = 2_000  # names, colours and punctuation
PHOTO = 64  # pixels a side above which a picture is a photograph and not a grid of pixels


def explorer(run: Run, budget: int | None = None) -> dict[str, Any] | None:
    """All that explorer.js draws, in at most `budget` bytes at least one picture; None without attention maps."""
    finding = run.findings.get("attention_maps")
    if finding is None:
        return None
    names, examples = finding.shown_subject.values.tolist(), range(finding.sizes["example"])
    budget = min(MOST_BYTES, BYTES_A_SUBJECT * len(names)) if budget is None else budget
    subjects: list[dict[str, Any]] = [
        {
            "name": name,
            "colour": theme.subject_colour(name, run.scene.subjects),
            "size": finding.picture_size.values[index].tolist(),
            "photo": bool(finding.picture_size.values[index].max() > PHOTO),
            "noRollout": str(finding.no_rollout.values[index]),
            "layers": [layer(finding, at) for at in site_indices(finding, name).tolist()],
        }
        for index, name in enumerate(names)
    ]
    for name, each in zip(names, subjects, strict=True):
        each["pictures"] = [picture(finding, name, at) for at in examples]
        each["rows"] = [rows(finding, name, at) for at in examples]
    said = len(json.dumps([each["layers"] for each in subjects], separators=(",", ":")))
    shown = np.cumsum([sum(len(each["pictures"][at] + each["rows"][at]) for each in subjects) for at in examples])
    count = max(1, int((said + shown <= budget - OVERHEAD).sum()))
    for each in subjects:
        each["pictures"], each["rows"] = each["pictures"][:count], each["rows"][:count]
    return {
        "levels": LEVELS,
        "ramp": list(theme.MAGMA),
        "images": int(finding.attrs["images"]),
        "examples": finding.class_name.values[:count].tolist(),
        "subjects": subjects,
    }


def shape_of(finding: xarray.Dataset, site: int) -> tuple[int, int, int]:
    """Heads, kept queries and keys of one attention, without padding."""
    heads = int(finding.head_count.values[site])
    queries = int((finding.query_place.values[site, :, 0] != NOTHING).sum())
    keys = int((finding.key_place.values[site, :, :, 0] != NOTHING).any(0).sum())
    return heads, queries, keys


def layer(finding: xarray.Dataset, site: int) -> dict[str, Any]:
    heads, queries, keys = shape_of(finding, site)
    windows = int((finding.key_place.values[site, :, 0, 0] != NOTHING).sum())
    spread = finding.relative.values[site, :heads]
    return {
        "name": str(finding.name.values[site]).removesuffix(" attention"),
        "heads": heads,
        "keys": keys,
        "grids": finding.grids.values[site].tolist(),
        "queries": finding.query_place.values[site, :queries].tolist(),
        "windows": finding.key_place.values[site, :windows, :keys].tolist(),
        "entropy": [None if np.isnan(value) else round(float(value), 4) for value in spread],
    }


def rows(finding: xarray.Dataset, subject: str, example: int) -> str:
    """One picture's rows, deflated, in base64: for each attention the codes of heads and rollout; then all peaks."""
    codes, peaks = [], []
    for site in site_indices(finding, subject).tolist():
        heads, queries, keys = shape_of(finding, site)
        codes += [finding.maps.values[example, site, :heads, :queries, :keys]]
        codes += [finding.rollout.values[example, site, :queries, :keys]]
        peaks += [finding.peak.values[example, site, :heads, :queries]]
        peaks += [finding.rollout_peak.values[example, site, :queries]]
    # Peaks were rounded to half precision when they were kept, so these are they. Lower bytes first, then upper ones,
    # deflates better.
    halves = np.concatenate([part.ravel() for part in peaks]).astype("<f2").view(np.uint8).reshape(-1, 2).T
    packer = zlib.compressobj(9, memLevel=7)
    parts = [packer.compress(part.tobytes()) for part in (*codes, halves)]
    return base64.b64encode(b"".join([*parts, packer.flush()])).decode()


def picture(finding: xarray.Dataset, subject: str, example: int) -> str:
    index = finding.shown_subject.values.tolist().index(subject)
    height, width = finding.picture_size.values[index]
    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(finding.picture.values[example, index, :height, :width]))
    photo = max(height, width) > PHOTO
    image.save(file, "JPEG" if photo else "PNG", quality=90, optimize=True)
    return data_uri(file.getvalue(), "image/jpeg" if photo else "image/png")
