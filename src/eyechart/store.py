"""The files of a run: all an exam leaves behind, and all that `show`, `report` and `figures` read.

    runs/<name>/ plan.json  shards/*.safetensors  findings/<measure>.nc  verdicts.json  summary.csv
                 report.html  figures/

Numbers only: what they mean (measures, charts, the page) is known to `run.Run`, which a user holds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eyechart.claims.verdict import Verdict
from eyechart.errors import RunFolderError, UsageError
from eyechart.files import write_atomically

if TYPE_CHECKING:
    import xarray
    from torch import Tensor

    from eyechart.tally import Tally

FORMAT = 3  # of plan.json and the shards: raised when a run of older code cannot be read any more
FOLDS = "@folds"  # a shard's list of the folds that a field holds, beside the field


def pack_shard(tallies: Mapping[str, Tally], question: str, index: int) -> bytes:
    """The file of a shard: the tallies of all measures, and which shard of which question it is."""
    from safetensors.torch import save

    tensors: dict[str, Any] = {}
    for name, tally in tallies.items():
        for key, value in tally.tensors().items():
            folds = tally.filled_folds(key)
            if folds is None:
                tensors[f"{name}/{key}"] = value
            else:
                # A shard of one block fills one fold of sixteen: the zeros of the others would be 90 % of the file.
                tensors |= {f"{name}/{key}": value[folds].contiguous(), f"{name}/{key}{FOLDS}": folds}
    return save(tensors, metadata={"question": question, "shard": str(index)})


def restore(empty: Tally, stored: Mapping[str, Any]) -> Tally:
    """A tally as it was before its empty folds were left out of the file."""
    whole = {key: value for key, value in stored.items() if not key.endswith(FOLDS)}
    for key, value in whole.items():
        if key + FOLDS in stored:
            whole[key] = empty.tensors()[key].index_copy(0, stored[key + FOLDS], value)
    return type(empty).from_tensors(whole)


OWN = ("shards", "findings", "figures", "verdicts.json", "summary.csv", "report.html", "plan.json")
"""All that a run writes into its folder; the plan last, for it is what makes it a run folder."""


class RunFiles:
    """The folder of a run, read lazily. Nothing here needs the models, the images or the measures."""

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
    def open(cls, path: str | Path) -> Self:
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
            hint = f" It holds {', '.join(inside[:5])}{' …' if len(inside) > 5 else ''}." if inside else ""
            raise RunFolderError(f"{self.path} is not a run folder: it has no plan.json.{hint}") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{path} is damaged ({error}); move the folder away and run the exam again, or pass --overwrite."
            ) from error
        if not isinstance(plan, dict):
            raise RunFolderError(f"{path} is damaged: expected an object, got a {type(plan).__name__}.")
        return plan

    @property
    def measure_names(self) -> list[str]:
        """The measures of this run, in the order of the report."""
        return [entry["name"] for entry in self.plan["measures"]]

    # --- shards -------------------------------------------------------------------------------------------------

    def shard_path(self, index: int) -> Path:
        return self.path / "shards" / f"{index:05d}.safetensors"

    def write_shard(self, index: int, tallies: Mapping[str, Tally]) -> Path:
        return self.keep_shard(index, pack_shard(tallies, self.plan["question"], index))

    def keep_shard(self, index: int, packed: bytes) -> Path:
        """The bytes of a shard's file, which may come from elsewhere."""
        return write_atomically(self.shard_path(index), lambda path: path.write_bytes(packed))

    def read_shard(self, index: int) -> dict[str, dict[str, Tensor]] | None:
        """The tensors of a finished shard of this very question, by measure and field; None if there is none (or it is
        half a file)."""
        from safetensors import SafetensorError, safe_open

        path = self.shard_path(index)
        if not path.exists():
            return None
        by_measure: dict[str, dict[str, Tensor]] = {}
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("question") != self.plan["question"]:
                    return None
                for key in file.keys():  # noqa: SIM118 - a file, not a dict
                    name, _, field = key.partition("/")
                    by_measure.setdefault(name, {})[field] = file.get_tensor(key)
        except (SafetensorError, OSError):
            return None
        return by_measure

    @property
    def finished(self) -> bool:
        """Whether findings, verdicts, table and page are there for every measure of the plan."""
        findings = (f"findings/{name}.nc" for name in self.measure_names)
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

        findings = {}
        for name in self.measure_names:
            path = self.path / "findings" / f"{name}.nc"
            if not path.exists():
                continue
            try:
                with xarray.open_dataset(path, engine="netcdf4") as finding:
                    findings[name] = finding.load()
            except (OSError, ValueError) as error:
                raise RunFolderError(
                    f"{path} is damaged ({error}); delete it and run the exam again; its shards are kept."
                ) from error
        return findings

    @cached_property
    def verdicts(self) -> list[Verdict]:
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
