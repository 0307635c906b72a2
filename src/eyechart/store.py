"""The files of a run: all an exam leaves behind, and all that `show`, `report` and `figures` read.

    runs/<name>/ plan.json  shards/*.safetensors  findings/<measure>.nc  verdicts.json  summary.csv
                 report.html  checksums.json  figures/

Nothing is believed unread: the plan carries its seal, a shard the hash of its tensors, and checksums.json those of
findings, verdicts, table and page. A shard or a result that fails its check is named in `notices` and made again; a
plan that does is refused. Numbers only: what they mean (measures, charts, the page) is known to `run.Run`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import Verdict
from eyechart.errors import RunFolderError, UsageError
from eyechart.files import (
    is_temporary,
    json_of,
    read_bytes,
    sha256_of,
    sweep,
    write_atomically,
    write_json,
    write_text,
)
from eyechart.phrases import harmless_cell
from eyechart.plan_form import is_ours, what_is_wrong
from eyechart.quantity import quantities_in
from eyechart.question import question_hash, seal_of
from eyechart.shard_files import pack_shard, unpack_shard

if TYPE_CHECKING:
    import xarray
    from torch import Tensor

    from eyechart.tally import Tally

FORMAT = 4  # of plan.json and the shards: raised when a run of older code cannot be read any more
#: Bytes that are read of a file, decided before any is: a plan has 10 a picture.
LARGEST_PLAN, LARGEST_RESULT, LARGEST_CHECKSUMS = 1 << 30, 4 << 30, 16 << 20
LARGEST_FINDING = 16 << 30  # unpacked
CHECKSUMS = "checksums.json"
RESULTS = ("verdicts.json", "summary.csv", "report.html")


class RunFiles:
    """The folder of a run, read lazily. Nothing here needs the models, the images or the measures."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._notices: dict[str, None] = {}

    @property
    def notices(self) -> list[str]:
        """What was found damaged in this folder since it was opened, or could not be drawn; a sentence each."""
        return list(self._notices)

    def notice(self, sentence: str) -> None:
        """Something to be told at the end of an exam, once."""
        self._notices[sentence] = None

    def clear(self) -> None:
        """Remove what a run wrote here: only in a folder whose plan is ours, only files it wrote, through no link."""
        plan = self._plan_of_ours()
        if plan is None:
            return
        for folder in ("shards", "findings", "figures"):
            if (self.path / folder).is_symlink():
                raise UsageError(
                    f"{self.path / folder} is a link, and --overwrite deletes nothing behind links; remove it, or "
                    "choose another folder with --out."
                )
        names = [entry["name"] for entry in plan["measures"]]
        written = [self.path / "findings" / f"{name}.nc" for name in names]
        written += [self.path / "figures" / f"{name}.{kind}" for name in names for kind in ("png", "svg", "pdf")]
        written += [
            path for path in (self.path / "shards").glob("*") if re.fullmatch(r"\d{5,}\.safetensors", path.name)
        ]
        written += [self.path / name for name in (*RESULTS, CHECKSUMS)]
        self.sweep()
        for path in (*written, self.path / "plan.json"):  # the plan last: it is what makes it a run folder
            if path.is_file() and not path.is_symlink():
                path.unlink()
        for folder in ("shards", "findings", "figures"):
            with contextlib.suppress(OSError):  # somebody put a file of their own into it
                (self.path / folder).rmdir()

    def _plan_of_ours(self) -> dict[str, Any] | None:
        """The plan, of whatever version, that proves the folder to be a run's; None where there is none at all."""
        path = self.path / "plan.json"
        if not path.exists() and not path.is_symlink():
            return None
        try:
            plan = None if path.is_symlink() else json_of(read_bytes(path, LARGEST_PLAN))
        except (OSError, ValueError):
            plan = None
        if plan is None or not is_ours(plan):
            raise UsageError(
                f"{path} is not the plan of an exam, or is damaged, so --overwrite deletes nothing there; delete the "
                "folder yourself if it is yours, or choose another one with --out."
            )
        return dict(plan)

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Write the plan of a new run."""
        write_json(self.path / "plan.json", plan)
        if self.plan["question"] != plan["question"]:
            raise RunFolderError(
                f"Another process has just begun another exam in {self.path}; choose another folder with --out."
            )

    def sweep(self) -> None:
        """Remove the temporary files of processes that were killed."""
        for folder in (self.path, self.path / "shards", self.path / "findings", self.path / "figures"):
            if not folder.is_symlink():
                sweep(folder)

    @property
    def is_free(self) -> bool:
        """Whether a run may begin here: nothing is there, or only what a kill left of a plan."""
        return not self.path.exists() or all(is_temporary(path, "plan.json") for path in self.path.iterdir())

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """An existing run; one sentence if it is not one, is damaged, or comes from another version."""
        run = cls(path)
        try:
            is_folder = run.path.is_dir()
        except OSError:  # a name that is too long for any folder
            is_folder = False
        if not is_folder:
            raise UsageError(f"A run folder was expected at {run.path}; there is none. `eyechart exam` makes one.")
        len(run.plan)
        return run

    @cached_property
    def plan(self) -> dict[str, Any]:
        path = self.path / "plan.json"
        try:
            plan = json_of(read_bytes(path, LARGEST_PLAN))
        except FileNotFoundError:
            inside = sorted(str(plan.parent) for plan in self.path.glob("*/plan.json"))
            hint = f" It holds {', '.join(inside[:5])}{' …' if len(inside) > 5 else ''}." if inside else ""
            raise RunFolderError(f"{self.path} is not a run folder: it has no plan.json.{hint}") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} is damaged ({error}); run the exam again into a new folder.") from error
        if not isinstance(plan, dict):
            raise RunFolderError(f"{path} is damaged: expected an object, got a {type(plan).__name__}.")
        if plan.get("format") != FORMAT:
            raise RunFolderError(
                f"{self.path} has run format {plan.get('format')!r} (eyechart {plan.get('eyechart', '?')}); this "
                f"version reads format {FORMAT}. Run the exam again into a new folder, or replace it with --overwrite."
            )
        wrong = what_is_wrong(plan)
        if wrong is not None:
            raise RunFolderError(
                f"{path} does not have the form that this version writes ({wrong}); run the exam again into a new "
                "folder."
            )
        try:
            genuine = plan["seal"] == seal_of(plan) and plan["question"] == question_hash(plan)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            genuine = False
        if not genuine:
            raise RunFolderError(
                f"{path} is not as it was written (its seal does not fit): it was edited or is damaged; run the exam "
                "again into a new folder, or replace it with --overwrite."
            )
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

    def drop_shards(self) -> None:
        """Remove the shards of a finished run: its findings hold what they gave."""
        for index in range(len(self.plan["batches"]["shards"])):
            with contextlib.suppress(PermissionError):  # Windows, while a tensor is a view of it: it goes the next time
                self.shard_path(index).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody put a file of their own into it
            (self.path / "shards").rmdir()

    def read_shard(self, index: int) -> dict[str, dict[str, Tensor]] | None:
        """The tensors of this shard of this very question, by measure and field; None if it is to be computed: it is
        not there, or it fails its check, which `notices` then says."""
        path = self.shard_path(index)
        try:
            return unpack_shard(path, self.plan["question"], index)
        except FileNotFoundError:
            return None
        except Exception as error:  # safetensors and torch have no common exception for what is no such file
            self._distrust(path, str(error).partition("\n")[0])
            return None

    def _distrust(self, path: Path, reason: str) -> None:
        """Say once that a file was not believed."""
        self.notice(f"{path} is damaged or foreign ({reason.rstrip('.')}) and is made again.")

    # --- results and their checksums ----------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether findings, verdicts, table and page are there for every measure of the plan, as they were written."""
        if not (self.path / CHECKSUMS).exists():
            return False
        return self._are_sound([*self._judged_files, *RESULTS])

    @property
    def judged(self) -> bool:
        """Whether findings and verdicts are there, as they were written: table and page can be made from them."""
        return (self.path / CHECKSUMS).exists() and self._are_sound(self._judged_files)

    @property
    def _judged_files(self) -> list[str]:
        return [*(f"findings/{name}.nc" for name in self.measure_names), "verdicts.json"]

    def _are_sound(self, names: Sequence[str]) -> bool:
        try:
            recorded = self.checksums
        except RunFolderError:
            self._distrust(self.path / CHECKSUMS, "it cannot be read")
            return False
        sound = [self._as_written(name, recorded) for name in names]  # all are looked at, so that each is named
        return all(sound)

    def _as_written(self, name: str, recorded: Mapping[str, str]) -> bool:
        path = self.path / name
        if not path.exists():
            return False
        try:
            if sha256_of(path, LARGEST_RESULT) == recorded.get(name):
                return True
            self._distrust(path, "its checksum does not fit")
        except (OSError, ValueError) as error:
            self._distrust(path, str(error))
        return False

    @property
    def checksums(self) -> dict[str, str]:
        """The hashes of findings, verdicts, table and page as they were written; none where none was yet."""
        path = self.path / CHECKSUMS
        try:
            stored = json_of(read_bytes(path, LARGEST_CHECKSUMS))
            if stored["question"] != self.plan["question"] or stored["seal"] != seal_of(stored):
                raise ValueError("its seal does not fit")
            return dict(stored["files"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{path} is damaged ({error}); run the exam again to write it anew.") from error

    def record(self, names: Iterable[str], *, anew: bool = False) -> None:
        """Keep the hashes of files that have just been written; `anew` forgets those of others."""
        files = {} if anew else self.checksums
        files |= {name: sha256_of(self.path / name, LARGEST_RESULT) for name in names}
        stored: dict[str, Any] = {"question": self.plan["question"], "files": files}
        write_json(self.path / CHECKSUMS, stored | {"seal": seal_of(stored)})

    def _checked(self, name: str) -> Path:
        """The path of a result that is as it was written; one sentence about any other."""
        path = self.path / name
        if not path.exists():
            raise RunFolderError(f"{self.path} is not finished: it has no {name}; run the exam again.")
        if name not in self.checksums:
            raise RunFolderError(f"{self.path} is not finished: {name} has no checksum; run the exam again.")
        try:
            if sha256_of(path, LARGEST_RESULT) == self.checksums[name]:
                return path
            reason = "its checksum does not fit"
        except (OSError, ValueError) as error:
            reason = str(error)
        raise RunFolderError(f"{path} is damaged ({reason}); run the exam again, which makes it anew from its shards.")

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
        findings = {}
        recorded = self.checksums
        for name in self.measure_names:
            file = f"findings/{name}.nc"
            if file not in recorded and not (self.path / file).exists():
                continue  # it has not come so far
            findings[name] = self.read_finding(self._checked(file))
        return findings

    @staticmethod
    def read_finding(path: Path) -> xarray.Dataset:
        import xarray

        try:
            with xarray.open_dataset(path, engine="netcdf4") as finding:
                if finding.nbytes > LARGEST_FINDING:
                    raise ValueError(f"it unpacks to {finding.nbytes:,} bytes")
                return finding.load()
        except Exception as error:  # HDF5 has a different one for each kind of damage
            raise RunFolderError(
                f"{path} is damaged ({error}); delete it and run the exam again; its shards are kept."
            ) from error

    def write_verdicts(self, verdicts: Iterable[Verdict]) -> Path:
        return write_json(self.path / "verdicts.json", [verdict.as_json() for verdict in verdicts])

    @cached_property
    def verdicts(self) -> list[Verdict]:
        path = self.path / "verdicts.json"
        if not path.exists():
            raise RunFolderError(f"{self.path} is not finished: it has no verdicts; run the exam again.")
        try:
            entries = json_of(read_bytes(self._checked("verdicts.json"), LARGEST_RESULT))
            verdicts = [Verdict.from_json(entry) for entry in entries]
            unknown = {verdict.claim for verdict in verdicts} - CLAIMS.keys()
            if unknown:
                raise ValueError(f"there is no claim {sorted(unknown)[0]}")
            if not {verdict.verdict for verdict in verdicts} <= {"holds", "fails", "undecided", "not tested"}:
                raise ValueError("there is no such verdict")
        except RunFolderError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunFolderError(f"{path} is damaged ({error}); delete it and run the exam again.") from error
        return verdicts

    def quantities(self) -> Iterator[dict[str, Any]]:
        """Every scalar of every finding: measure, quantity, subjects, value, low, high, unit."""
        for name, finding in self.findings.items():
            for row in quantities_in(finding):
                columns = {key: row[f"quantity_{key}"] for key in ("subjects", "value", "low", "high", "unit")}
                yield {"measure": name, "quantity": row["quantity"], **columns}

    def summary_csv(self) -> str:
        """The quantities as a table anyone can open; a name that a spreadsheet would take for a formula is quoted."""
        import csv
        import io

        text = io.StringIO()
        writer = csv.DictWriter(text, ["measure", "quantity", "subjects", "value", "low", "high", "unit"])
        writer.writeheader()
        writer.writerows(
            {key: harmless_cell(cell) if isinstance(cell, str) else cell for key, cell in row.items()}
            for row in self.quantities()
        )
        return text.getvalue()

    def write_summary(self) -> Path:
        return write_text(self.path / "summary.csv", self.summary_csv())
