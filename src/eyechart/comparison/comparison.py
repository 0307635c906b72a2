"""Runs that can be compared, and what cannot: which quantities are left out, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyechart.comparison.differences import Difference, Key, changes_of, leave_one_out, rows_of
from eyechart.errors import UsageError
from eyechart.files import write_text
from eyechart.phrases import count
from eyechart.run import Run
from eyechart.subjects.naming import checked_label

if TYPE_CHECKING:
    import pandas as pd

    from eyechart.claims.verdict import Verdict

COLUMNS = ["measure", "quantity", "subjects", "run", "first", "value", "change", "low", "high", "unit", "interval"]


@dataclass(frozen=True)
class VerdictLine:
    """One claim on one tuple of subjects, in every run; None where a run does not test it."""

    claim: str
    sentence: str
    subjects: tuple[str, ...]
    verdicts: tuple[Verdict | None, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple("not tested" if verdict is None else verdict.verdict for verdict in self.verdicts)

    @property
    def compared(self) -> bool:
        """Whether every run tests it: one that was not asked for says nothing of a change."""
        return None not in self.verdicts

    @property
    def differs(self) -> bool:
        return self.compared and len(set(self.words)) > 1

    @property
    def barred(self) -> tuple[bool, ...]:
        """Of each run, whether a gate kept it from being decided."""
        gates = [verdict.gates if verdict else () for verdict in self.verdicts]
        return tuple(any(gate.outcome == "failed" for gate in each) for each in gates)

    @property
    def corrected_away(self) -> tuple[bool, ...]:
        """Of each run, whether it is decided by itself, and not under Holm's correction over that run."""
        return tuple(verdict is not None and verdict.stands is False for verdict in self.verdicts)


class Comparison:
    """Two or more runs over the same images, in the order given: the first is what the others are compared with."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        if len(runs) < 2:
            raise UsageError(f"A comparison takes two runs or more; got {count(len(runs), 'run')}.")
        self.labels, self.runs = tuple(runs), tuple(runs.values())
        for label, run in runs.items():
            if not run.findings:
                raise UsageError(f"{label} ({run.path}) has no findings yet; run its exam to the end first.")
        self._check_images()
        self.subjects = self._matched()
        """The subjects of each run, those that are compared with each other at the same place."""
        self.same_folds = tuple(run.plan["batches"] == self.runs[0].plan["batches"] for run in self.runs)
        """Whether a run has the first one's images in the same order and folds: only then can differences be paired."""

        first = set(self.runs[0].plan["batches"]["order"])
        self.in_common = tuple(len(first.intersection(run.plan["batches"]["order"])) for run in self.runs)
        """How many of a run's images the first one looked at too: with a limit, another seed draws others."""

    @property
    def same_images(self) -> bool:
        used = [run.plan["images"]["used"] for run in self.runs]
        return all(count == used[0] == common for count, common in zip(used, self.in_common, strict=True))

    @cached_property
    def shown(self) -> dict[str, str]:
        """How a subject of the first run is written: with what it is compared with, where that has another name."""
        names = {each[0]: list(dict.fromkeys(each)) for each in zip(*self.subjects, strict=True)}
        return {
            name: " → ".join(others if len(others) < 4 else [name, "…", others[-1]]) for name, others in names.items()
        }

    @property
    def notices(self) -> list[str]:
        """What a reader must know of the runs before a difference says anything; sentences."""
        told = []
        if apart := [words for name, words in self.shown.items() if words != name]:
            told.append(f"Subjects of different names are compared by their places: {'; '.join(apart)}.")
        used = [run.plan["images"]["used"] for run in self.runs]
        for label, number, common in list(zip(self.labels, used, self.in_common, strict=True))[1:]:
            if not number == used[0] == common:
                told.append(
                    f"Of the {number:,} images of {label}, {common:,} are among the {used[0]:,} of {self.labels[0]}."
                )
        if len(set(used)) > 1:
            told.append("Some quantities depend on the number of images, and change with it alone.")
        return told

    def _check_images(self) -> None:
        first = self.runs[0].plan["images"]
        for label, run in zip(self.labels[1:], self.runs[1:], strict=True):
            images = run.plan["images"]
            if images["fingerprint"] != first["fingerprint"]:
                raise UsageError(
                    f"{self.labels[0]} and {label} cannot be compared: they looked at other images "
                    f"({first['name']}, {first['count']:,} and {images['name']}, {images['count']:,}), so that a "
                    "difference could come from either; run one of them again on the images of the other."
                )

    def _matched(self) -> tuple[tuple[str, ...], ...]:
        names = [run.scene.subjects for run in self.runs]
        if all(set(each) == set(names[0]) for each in names):
            return tuple(names[0] for _ in names)
        if all(len(each) == len(names[0]) for each in names):
            return tuple(names)
        shared = [name for name in names[0] if all(name in each for each in names)]
        if not shared:
            listed = "; ".join(f"{label}: {', '.join(each)}" for label, each in zip(self.labels, names, strict=True))
            raise UsageError(
                f"These runs have neither the same number of subjects nor one in common ({listed}); give the subjects "
                "of each exam the same labels (LABEL=SPEC) to say which belong together."
            )
        return tuple(tuple(shared) for _ in names)

    def _in_run(self, subjects: tuple[str, ...], place: int) -> tuple[str, ...] | None:
        """Subjects of the first run as another one calls them; None where one of them is not compared."""
        there = dict(zip(self.subjects[0], self.subjects[place], strict=True))
        return tuple(there[name] for name in subjects) if all(name in there for name in subjects) else None

    @cached_property
    def left_out(self) -> dict[str, str]:
        """What is not compared, with the reason: measures, quantities, subjects."""
        return dict(self._everything[1])

    @cached_property
    def differences(self) -> list[Difference]:
        """Every quantity that all runs have, in the order of the report."""
        return self._everything[0]

    @cached_property
    def _everything(self) -> tuple[list[Difference], dict[str, str]]:
        made: list[Difference] = []
        out: dict[str, str] = {}
        for label, run, names in zip(self.labels, self.runs, self.subjects, strict=True):
            for name in run.scene.subjects:
                if name not in names:
                    out[f"subject {name} of {label}"] = "not every run has it"
        for name in dict.fromkeys(name for run in self.runs for name in run.findings):
            reason = self._why_not(name)
            if reason:
                out[name] = reason
                continue
            made += self._of_measure(name, out)
        return made, out

    def _why_not(self, measure: str) -> str:
        missing = [label for label, run in zip(self.labels, self.runs, strict=True) if measure not in run.findings]
        if missing:
            return f"it was not measured in {', '.join(missing)}"
        options = [run.measures[measure].options for run in self.runs]
        for label, other in zip(self.labels, options, strict=True):
            apart = [key for key in options[0] if other.get(key) != options[0][key]]
            if apart:
                was, now = options[0][apart[0]], other.get(apart[0])
                return f"its option {apart[0]} is {was} in {self.labels[0]} and {now} in {label}"
        return ""

    def _of_measure(self, name: str, out: dict[str, str]) -> list[Difference]:
        findings = [run.findings[name] for run in self.runs]
        measure = self.runs[0].measures[name]
        explained = {quantity.name: quantity for quantity in measure.quantities}
        replicates = [leave_one_out(finding, measure.quantities) for finding in findings]
        there = [rows_of(finding) for finding in findings]
        made = []
        for quantity_name, subjects in there[0]:
            if any(who not in self.subjects[0] for who in subjects):
                continue
            keys: list[Key] = []
            for place in range(len(self.runs)):
                key = (quantity_name, self._in_run(subjects, place) or ())
                if key not in there[place]:
                    what = f"{name}: {quantity_name} ({', '.join(subjects)})"
                    out[what] = f"it is not defined in {self.labels[place]}"
                    break
                keys.append(key)
            quantity = explained.get(quantity_name)
            if len(keys) < len(self.runs) or quantity is None:
                continue
            values, changes, hows = changes_of(quantity, keys, findings, replicates, self.same_folds)
            made.append(
                Difference(name, quantity_name, quantity.explain, quantity.unit, subjects, values, changes, hows)
            )
        return made

    @cached_property
    def verdicts(self) -> list[VerdictLine]:
        """Every claim that some run tests, side by side; those that differ first, those that not all test last."""
        lines: dict[tuple[str, str, tuple[str, ...]], list[Verdict | None]] = {}
        sentences: dict[tuple[str, str, tuple[str, ...]], str] = {}
        for place, run in enumerate(self.runs):
            back = dict(zip(self.subjects[place], self.subjects[0], strict=True))
            for verdict in run.verdicts:
                if verdict.verdict == "not tested" or any(name not in back for name in verdict.subjects):
                    continue
                key = (verdict.claim, verdict.reading, tuple(back[name] for name in verdict.subjects))
                lines.setdefault(key, [None] * len(self.runs))[place] = verdict
                sentences[key] = verdict.sentence
        made = [VerdictLine(key[0], sentences[key], key[2], tuple(verdicts)) for key, verdicts in sorted(lines.items())]
        return sorted(made, key=lambda line: (not line.compared, not line.differs))

    @property
    def table(self) -> pd.DataFrame:
        """A row for each quantity and later run: its value in both, the change, its interval, and how that was made."""
        import pandas as pd

        rows = [
            {
                "measure": each.measure,
                "quantity": each.quantity,
                "subjects": " | ".join(each.subjects),
                "run": self.labels[place + 1],
                "first": each.values[0].value,
                "value": each.values[place + 1].value,
                "change": change.value,
                "low": change.low,
                "high": change.high,
                "unit": each.unit,
                "interval": how,
            }
            for each in self.differences
            for place, (change, how) in enumerate(zip(each.changes, each.hows, strict=True))
        ]
        return pd.DataFrame(rows, columns=COLUMNS)

    def report(self, path: str | Path, lang: str = "en") -> Path:
        """Write the page: one file that needs no network, and opens in `lang` (en or ko)."""
        from eyechart.comparison.page import render

        return write_text(Path(path), render(self, lang))

    def _repr_html_(self) -> str:
        """In a notebook: what changed clearly, as a table."""
        clear = sorted(self.differences, key=lambda each: -each.clearness)[:20]
        table = self.table
        shown = table[table["quantity"].isin([each.quantity for each in clear])] if len(table) else table
        html: str = shown.to_html(index=False, float_format="{:.3g}".format)
        return html

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.labels)}: {len(self.differences)} quantities)"


def compare(*runs: Run | str | Path | Mapping[str, Any]) -> Comparison:
    """Runs over the same images: `compare("runs/a", "runs/b")`, or `compare({"seed 0": run, "seed 1": other})`.

    The first is what the others are compared with. Subjects belong together by their labels, or, where these differ,
    by their places. `.table` has every quantity with the interval of its change, `.verdicts` the claims side by side,
    `.left_out` what could not be compared, `.report(path)` writes the page.

    >>> import eyechart, tempfile
    >>> run = eyechart.exam("zoo:resnet", measures="recognition", limit=64, out=tempfile.mkdtemp(), progress=False)
    >>> float(eyechart.compare({"before": run, "after": run}).table.change.abs().max())
    0.0
    """
    named: dict[str, Any] = {}
    for given in runs:
        if isinstance(given, Mapping):
            named |= {checked_label(label): run for label, run in given.items()}
        else:
            run = given if isinstance(given, Run) else Run.open(given)
            label = run.path.name if run.path.name not in named else str(run.path)
            named[label if label not in named else f"{label} #{len(named) + 1}"] = run
    return Comparison({label: run if isinstance(run, Run) else Run.open(run) for label, run in named.items()})
