"""A run, as a user holds it: its folder, with the measures that made its numbers and the page that shows them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from eyechart.engines.plan import scene_of
from eyechart.errors import RunFolderError, UsageError
from eyechart.measures import choose_measures
from eyechart.store import RunFiles, restore

if TYPE_CHECKING:
    from eyechart.measure import Chart, Measure
    from eyechart.scene import Scene
    from eyechart.tally import Tally


class Run(RunFiles):
    """A run folder. Nothing here needs the models or the images."""

    @cached_property
    def scene(self) -> Scene:
        try:
            return scene_of(self.plan)
        except (KeyError, TypeError, ValueError) as error:  # a hand in the file, or a copy from between two versions
            raise RunFolderError(
                f"{self.path / 'plan.json'} is not what this version writes ({type(error).__name__}: {error}); "
                f"run the exam again into a new folder."
            ) from error

    @cached_property
    def measures(self) -> dict[str, Measure]:
        """The measures of this run, with the options they were run with."""
        asked = self.plan["measures"]
        options = {f"{entry['name']}.{key}": value for entry in asked for key, value in entry["options"].items()}
        return {measure.name: measure for measure in choose_measures([entry["name"] for entry in asked], options)}

    def read_tallies(self, index: int) -> dict[str, Tally] | None:
        """The tallies of a finished shard; None where it has to be computed."""
        stored = self.read_shard(index)
        if stored is None:
            return None
        return {name: restore(measure.tally(self.scene), stored[name]) for name, measure in self.measures.items()}

    def chart(self, name: str) -> Chart:
        """The figure of a measure as an Altair chart, to restyle or save."""
        from eyechart.charts import theme

        if name not in self.findings:
            raise UsageError(f"This run has no finding {name!r}; it has {', '.join(self.findings) or 'none'}.")
        with theme.drawing(subjects=self.scene.subjects):
            chart: Chart = theme.dress(self.measures[name].chart(self.findings[name]))
            return chart

    def report(self) -> Path:
        """Draw the page anew from this folder alone, and say where it is."""
        from eyechart.report.page import write_report

        return write_report(self)

    def figures(self, format: str = "png", folder: Path | None = None) -> list[Path]:
        from eyechart.report.figures import save_figures

        return save_figures(self, format=format, folder=folder)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
