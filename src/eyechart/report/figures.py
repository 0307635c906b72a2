"""The charts of a run as files for papers and slides: PNG, SVG or PDF, drawn without a browser."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.errors import UsageError

if TYPE_CHECKING:
    from eyechart.store import Run

FORMATS = ("png", "svg", "pdf")


def save_figures(run: Run, format: str = "png", folder: Path | str | None = None, scale: float = 2) -> list[Path]:
    """One file a finding, in `folder` (the run's own `figures/` unless given); `scale` multiplies a PNG's pixels.

    Heat-maps are single pictures here, under vector axes: a PDF of rectangles is eight times larger and shows seams.
    """
    import vl_convert

    from eyechart.report import theme
    from eyechart.report.embed import specification
    from eyechart.store import write_atomically

    if format not in FORMATS:
        raise UsageError(f"Figures can be {', '.join(FORMATS)}; {format!r} was asked for.")
    draw: dict[str, Callable[[dict[str, Any]], bytes]] = {
        "png": lambda spec: smaller(vl_convert.vegalite_to_png(spec, scale=scale, ppi=72, allowed_base_urls=[]), scale),
        "svg": lambda spec: vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode(),
        "pdf": lambda spec: vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[]),
    }
    place = Path(folder) if folder is not None else run.path / "figures"
    paths = []
    for name in run.findings:
        with theme.drawing(subjects=run.scene.subjects, for_export=True):
            spec = specification(theme.dress(run.chart(name)))
        paths.append(write_atomically(place / f"{name}.{format}", partial(Path.write_bytes, data=draw[format](spec))))
    return paths


def smaller(png: bytes, scale: float) -> bytes:
    """The same picture in a third of the bytes, with its true size on paper: vl-convert packs loosely."""
    from PIL import Image

    file = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").save(file, "PNG", optimize=True, dpi=(72 * scale, 72 * scale))
    return file.getvalue()
