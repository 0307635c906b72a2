"""The charts of a run as files for papers and slides."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eyechart.charts import theme
from eyechart.charts.export import FORMATS, picture_of, specification
from eyechart.charts.paper import printed
from eyechart.errors import RunFolderError, UsageError
from eyechart.files import write_atomically

if TYPE_CHECKING:
    from eyechart.run import Run


def save_figures(
    run: Run, format: str = "png", folder: Path | str | None = None, scale: float = 2, width: float | None = None
) -> list[Path]:
    """One file a finding, in `folder` (the run's own `figures/` unless given); `scale` multiplies a PNG's pixels.

    With a `width` they are made for print, so many millimetres wide (`charts/paper.py`).

    Heat-maps are single pictures here, under vector axes: a PDF of rectangles is eight times larger and shows seams.
    """
    if format not in FORMATS:  # before anything is drawn
        raise UsageError(f"Figures can be {', '.join(FORMATS)}; got {format!r}.")
    target = Path(folder) if folder is not None else run.path / "figures"
    paths, undrawn = [], {}
    for name in run.findings:
        try:
            with theme.drawing(subjects=run.scene.subjects, for_export=True):
                spec = specification(theme.dress(run.chart(name)))
            picture = picture_of(spec, format, scale) if width is None else printed(spec, format, width)
        except Exception as error:  # the others can be drawn, whatever it is
            undrawn[name] = error
            continue
        paths.append(write_atomically(target / f"{name}.{format}", partial(Path.write_bytes, data=picture)))
    if undrawn:
        names, first = ", ".join(undrawn), next(iter(undrawn.values()))
        raise RunFolderError(
            f"{names} could not be drawn ({type(first).__name__}: {first}); the other figures are in {target}."
        ) from first
    return paths
