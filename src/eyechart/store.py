"""The run folder: all an exam leaves behind, and all that `show`, `report` and `figures` read.

    runs/<name>/ plan.json  shards/*.safetensors  findings/<measure>.nc  verdicts.json  summary.csv
                 report.html  figures/

Every file is written beside its place and then moved there, so a killed run leaves whole files or none.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.errors import RunFolderError, UsageError

if TYPE_CHECKING:
    import xarray

    from eyechart.claims.verdict import Verdict
    from eyechart.measures.measure import Chart, Measure, Scene
    from eyechart.tally import Tally

FORMAT = 2  # of plan.json and the shards: raised when a run of older code cannot be read any more
FOLDS = "@folds"  # a shard's list of the folds that a field holds, beside the field


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file in the same folder, then move it into place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            temporary.chmod(0o644)  # mkstemp's 0600 would keep a colleague from reading a shared run
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except Exception as error:
        # safetensors and netCDF report a full disk with exceptions of their own; nothing else can fail in here.
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise RunFolderError(
            f"{path} could not be written ({reason}); what was finished before is kept: "
            "make room or choose another folder with --out, then run the same command again."
        ) from error
    return path


def write_text(path: Path, text: str) -> Path:
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, data: object) -> Path:
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def restore(empty: Tally, stored: Mapping[str, Any]) -> Tally:
    """A tally as it was before its empty folds were left out of the file."""
    whole = {key: value for key, value in stored.items() if not key.endswith(FOLDS)}
    for key, value in whole.items():
        if key + FOLDS in stored:
            whole[key] = empty.tensors()[key].index_copy(0, stored[key + FOLDS], value)
    return type(empty).from_tensors(whole)


OWN = ("shards", "findings", "figures", "verdicts.json", "summary.csv", "report.html", "plan.json")
"""All that a run writes into its folder; the plan last, for it is what makes it a run folder."""


class Run:
    """A run folder, read lazily. Nothing here needs the models or the images."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def clear(self) -> None:
        """Remove what a run writes, and nothing else that somebody may have put beside it."""
        for name in OWN:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """An existing run; one sentence if it is not one, is damaged, or comes from another version."""
        run = cls(path)
        if not run.path.is_dir():
            raise UsageError(f"A run folder was expected at {run.path}; there is none. `eyechart exam` makes one.")
        if run.plan.get("format") != FORMAT:
            raise RunFolderError(
                f"{run.path} has run format {run.plan.get('format')!r} (eyechart {run.plan.get('eyechart', '?')}); "
                f"this version reads format {FORMAT}. Run the exam again into a new folder."
            )
        return run

    @cached_property
    def plan(self) -> dict[str, Any]:
        path = self.path / "plan.json"
        try:
            plan = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            inside = sorted(str(plan.parent) for plan in self.path.glob("*/plan.json"))
            hint = f" In it are {', '.join(inside[:5])}{' …' if len(inside) > 5 else ''}." if inside else ""
            raise RunFolderError(f"{self.path} is no run folder: it has no plan.json.{hint}") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{path} is damaged ({error}); move the folder away and run the exam again, or pass --overwrite."
            ) from error
        if not isinstance(plan, dict):
            raise RunFolderError(f"{path} is damaged: an object was expected, a {type(plan).__name__} came.")
        return plan

    @cached_property
    def scene(self) -> Scene:
        from eyechart.engines.plan import scene_of

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
        from eyechart.measures.measure import choose_measures

        asked = self.plan["measures"]
        options = {f"{entry['name']}.{key}": value for entry in asked for key, value in entry["options"].items()}
        return {measure.name: measure for measure in choose_measures([entry["name"] for entry in asked], options)}

    # --- shards -------------------------------------------------------------------------------------------------

    def shard_path(self, index: int) -> Path:
        return self.path / "shards" / f"{index:05d}.safetensors"

    def write_shard(self, index: int, tallies: Mapping[str, Tally]) -> Path:
        from safetensors.torch import save_file

        tensors: dict[str, Any] = {}
        for name, tally in tallies.items():
            for key, value in tally.tensors().items():
                folds = tally.filled_folds(key)
                if folds is None:
                    tensors[f"{name}/{key}"] = value
                else:
                    # A shard of one block fills one fold of sixteen: the zeros of the others would be 90 % of the file.
                    tensors |= {f"{name}/{key}": value[folds].contiguous(), f"{name}/{key}{FOLDS}": folds}
        about = {"question": self.plan["question"], "shard": str(index)}
        return write_atomically(self.shard_path(index), lambda path: save_file(tensors, path, metadata=about))

    def read_shard(self, index: int) -> dict[str, Tally] | None:
        """The tallies of a finished shard of this very question; None if there is none (or it is half a file)."""
        from safetensors import SafetensorError, safe_open

        path = self.shard_path(index)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("question") != self.plan["question"]:
                    return None
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - a file, not a dict
        except (SafetensorError, OSError):
            return None
        by_measure: dict[str, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            name, _, field = key.partition("/")
            by_measure.setdefault(name, {})[field] = tensor
        return {name: restore(measure.tally(self.scene), by_measure[name]) for name, measure in self.measures.items()}

    @property
    def finished(self) -> bool:
        """Whether findings, verdicts, table and page are there for every measure of the plan."""
        findings = (f"findings/{name}.nc" for name in self.measures)
        return all((self.path / name).exists() for name in (*findings, "verdicts.json", "summary.csv", "report.html"))

    # --- findings and verdicts ----------------------------------------------------------------------------------

    def write_finding(self, name: str, finding: xarray.Dataset) -> Path:
        packed = {
            variable: {"zlib": True, "complevel": 4} for variable in finding if finding[variable].dtype.kind in "fi"
        }
        return write_atomically(
            self.path / "findings" / f"{name}.nc",
            lambda path: finding.to_netcdf(path, engine="netcdf4", encoding=packed),
        )

    @cached_property
    def findings(self) -> Mapping[str, xarray.Dataset]:
        """Findings by measure, in the order of the report."""
        import xarray

        found = {}
        for name in self.measures:
            path = self.path / "findings" / f"{name}.nc"
            if not path.exists():
                continue
            try:
                with xarray.open_dataset(path, engine="netcdf4") as finding:
                    found[name] = finding.load()
            except (OSError, ValueError) as error:
                raise RunFolderError(
                    f"{path} is damaged ({error}); delete it and run the exam again; its shards are kept."
                ) from error
        return found

    @cached_property
    def verdicts(self) -> list[Verdict]:
        from eyechart.claims.verdict import Verdict

        path = self.path / "verdicts.json"
        try:
            return [Verdict.from_json(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
        except FileNotFoundError:
            raise RunFolderError(f"{self.path} is not finished: it has no verdicts; run the exam again.") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{path} is damaged ({error}); delete it and run the exam again.") from error

    def quantities(self) -> Iterator[dict[str, Any]]:
        """Every scalar of every finding: measure, quantity, subjects, value, low, high, unit."""
        for name, finding in self.findings.items():
            for row in range(finding.sizes.get("quantity_row", 0)):
                line = finding.isel(quantity_row=row)
                yield {
                    "measure": name,
                    "quantity": str(line.quantity.item()),
                    "subjects": str(line.quantity_subjects.item()),
                    "value": float(line.quantity_value),
                    "low": float(line.quantity_low),
                    "high": float(line.quantity_high),
                    "unit": str(line.quantity_unit.item()),
                }

    def summary_csv(self) -> str:
        """The quantities as a table anyone can open."""
        import csv
        import io

        text = io.StringIO()
        writer = csv.DictWriter(text, ["measure", "quantity", "subjects", "value", "low", "high", "unit"])
        writer.writeheader()
        writer.writerows(self.quantities())
        return text.getvalue()

    # --- what people look at ------------------------------------------------------------------------------------

    def chart(self, name: str) -> Chart:
        """The figure of a measure as an Altair chart, to restyle or save."""
        from eyechart.report import theme

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
