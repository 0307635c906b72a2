"""A run, as a user holds it: its folder, with the measures that made its numbers and the page that shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from safetensors import SafetensorError

from eyechart.claims.table import add_claims
from eyechart.claims.verdict import Verdict
from eyechart.engines.plan import scene_of
from eyechart.errors import RunFolderError, TallyError, UsageError
from eyechart.measures import names, planned_measures, source_of
from eyechart.phrases import quoted
from eyechart.shard_files import restore, stored_fields
from eyechart.store import RunFiles

if TYPE_CHECKING:
    import pandas as pd

    from eyechart.measure import Chart, Measure
    from eyechart.report.embed import EmbeddedChart
    from eyechart.scene import Scene
    from eyechart.tally import Tally


class Run(RunFiles):
    """A run folder. Nothing here needs the models or the images."""

    @cached_property
    def scene(self) -> Scene:
        try:
            return scene_of(self.plan)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            ArithmeticError,
        ) as error:  # a hand in the file, or a copy from between two versions
            raise RunFolderError(
                f"{self.path / 'plan.json'} does not have the form that this version writes "
                f"({type(error).__name__}: {error}); "
                f"run the exam again into a new folder."
            ) from error

    @cached_property
    def measures(self) -> dict[str, Measure]:
        """The measures of this run, with the options they were run with."""
        asked = self.plan["measures"]
        for entry in asked:
            if "sha256" in entry:
                self._check_source(entry)
        return {measure.name: measure for measure in planned_measures(asked)}

    def _check_source(self, entry: Mapping[str, str]) -> None:
        """A measure that is not ours must be the one that made the numbers."""
        name, where = entry["name"], entry.get("plugin") or entry.get("package")
        if name not in names():  # never imported by itself: who sends a run folder must not run code here
            hint = f"give --plugin {quoted(entry['plugin'])}" if "plugin" in entry else "install that package"
            raise UsageError(f"{self.path} has the measure {name} of {where}, which is not known here; {hint}.")
        if source_of(name)["sha256"] != entry["sha256"]:
            raise RunFolderError(
                f"{self.path} was made with another {where}: its measure {name} has changed; run the exam again into a "
                "new folder."
            )

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Every claim with its verdict, effect, interval and reason, for each group of subjects it was tested on."""
        add_claims(self.plan.get("claims", ""), "the claims of this run")
        return super().verdicts

    def has_shard(self, index: int) -> bool:
        """Whether a shard is finished and sound; otherwise it has to be computed."""
        return self._believed(index, lambda name, tally: None)

    def read_tallies(self, index: int) -> dict[str, Tally] | None:
        """The tallies of a finished shard; None where it has to be computed."""
        tallies: dict[str, Tally] = {}
        return tallies if self._believed(index, tallies.__setitem__) else None

    def _believed(self, index: int, hand_on: Callable[[str, Tally], object]) -> bool:
        """Whether a shard is sound; what it holds of each measure is handed on, one by one."""
        stored = self.read_shard(index)
        if stored is None:
            return False
        try:
            for name, measure in self.measures.items():
                hand_on(name, restore(measure.tally(self.scene), stored.pop(name)))
        except (KeyError, IndexError, RuntimeError, TallyError) as error:
            self._distrust(self.shard_path(index), str(error))
            return False
        return True

    def read_tally(self, index: int, name: str) -> Tally:
        """What a shard that has just been believed (`has_shard`) holds of one measure."""
        empty = self.measures[name].tally(self.scene)
        try:
            return restore(empty, stored_fields(self.shard_path(index), name))
        except (OSError, SafetensorError, KeyError, IndexError, RuntimeError, TallyError) as error:
            raise RunFolderError(
                f"{self.shard_path(index)} has just been changed or removed ({error}); run the exam again."
            ) from error

    def anew(self) -> Run:
        """The same folder opened again. Findings that were just read of its files go along, and are not read twice."""
        again = Run(self.path)
        if "findings" in self.__dict__:
            again.findings = self.__dict__.pop("findings")
        return again

    def chart(self, name: str) -> Chart:
        """The figure of a measure as an Altair chart, to restyle or save."""
        from eyechart.charts import theme

        if name not in self.findings:
            raise UsageError(f"This run has no finding {name!r}; it has {', '.join(self.findings) or 'none'}.")
        with theme.drawing(subjects=self.scene.subjects):
            chart: Chart = theme.dress(self.measures[name].chart(self.findings[name]))
            return chart

    def report(
        self,
        tour_first: bool = False,
        lang: str = "en",
        largest: int | None = None,
        drawn: Mapping[str, EmbeddedChart] = MappingProxyType({}),
    ) -> Path:
        """Draw the page anew from this folder alone, and say where it is; `tour_first`: as a tour of the papers.

        `lang`: in which language it opens, en or ko. `largest` says how many bytes the page may have (10 million by
        default): it leaves out tables, then pictures to explore, until it fits. `drawn`: charts that were drawn before,
        in that language.
        """
        from eyechart.report.page import LARGEST, write_report

        path = write_report(self, tour_first, lang, largest or LARGEST, drawn)
        self.record([path.name])
        return path

    def figures(self, format: str = "png", folder: Path | None = None, width: float | None = None) -> list[Path]:
        """Save every figure (png, svg or pdf), in the run's own `figures/` unless told otherwise, and say where.

        With a `width` in millimetres as for print: exactly as wide, with legible black words.
        """
        from eyechart.report.figures import save_figures

        return save_figures(self, format=format, folder=folder, width=width)

    def table(self, of: Literal["verdicts", "quantities"] = "quantities") -> pd.DataFrame:
        """The verdicts or the quantities as a table, numbers with no more digits than their intervals support."""
        from eyechart.report.paper_tables import quantity_table, verdict_table

        return verdict_table(self) if of == "verdicts" else quantity_table(self)

    def _repr_html_(self) -> str:
        """In a notebook: what was examined, the verdicts (numbers, where no claim was tested), and its page."""
        from html import escape

        if not self.finished:
            return f"<p>{escape(repr(self))}, not finished</p>"
        images = self.plan["images"]
        subjects = ", ".join(self.scene.subjects)
        head = f"<p><b>{escape(subjects)}</b> on {images['used']:,} images of {escape(images['name'])}</p>"
        verdicts = self.table("verdicts").drop(columns=["source"])
        rows = (self.table() if verdicts.empty else verdicts).to_html(index=False, border=0)
        page = escape(str(self.path / "report.html"))
        return f"{head}{rows}<p>Findings: {escape(', '.join(self.findings))}. Page: {page}</p>"

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
