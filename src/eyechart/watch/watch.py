"""READ FIRST in this folder: a model in training, examined every few epochs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from eyechart.comparison.comparison import Comparison, compare
from eyechart.errors import EyechartError, UsageError
from eyechart.exam import exam
from eyechart.images import open_images
from eyechart.images.plan import plan_batches
from eyechart.measures import choose_measures
from eyechart.phrases import as_keywords, printable
from eyechart.subjects.load import load_subject
from eyechart.subjects.subject import Subject, unwrapped
from eyechart.watch.callbacks import hugging_face_callback, lightning_callback
from eyechart.watch.logs import open_log
from eyechart.watch.untouched import untouched

if TYPE_CHECKING:
    import pandas as pd

    from eyechart.run import Run
    from eyechart.watch.logs import Log

CHEAP = ("recognition", "cka", "attention_distance", "skip_ratio")
"""What is measured unless told otherwise, as far as it applies: one pass over the images serves all."""
COLUMNS = ("step", "measure", "quantity", "value", "low", "high", "unit", "note")


class Watch:
    """Examines a model while it is trained, and leaves the training as it is, bit for bit.

    Call it with the number of epochs (or of any other steps) that are done; every `every`-th is examined. Each leaves a
    run folder without a page, `.table` holds all their numbers, and `.compare()` sets them side by side. What goes
    wrong in a watch is told in a sentence and stands in the table, and the training goes on.

    model       the module that is trained, or what `load_subject` makes of it
    images      as for `exam`: pictures that are neither normalised nor augmented
    measures    names, as a list or "cka,probes"; None: recognition, cka, attention_distance and skip_ratio, as far as
                they apply, which share one pass over the images
    every       examine every so many steps, and step 0
    out         the folder of the run folders; None: runs/watch-<date>-<time>. A step that is there already is replaced
    limit       use at most this many images, balanced over classes; None: all
    transform   of the model, as for `load_subject`: how a picture is fed to it; likewise `input_size`, its `label`,
                and `classes`, their names by logit index (those of the images, where it learns them in that order)
    options     of measures: {"cka.readout": "gap"}
    log         where numbers go beside the table: "tensorboard" (into `out`), "wandb" (the run of `wandb.init`),
                "mlflow", a `SummaryWriter`, a function (step, numbers); several in a list; None: nowhere
    page        draw the page of every step as well
    strict      raise what goes wrong in a watch

    >>> import eyechart, tempfile
    >>> subject = eyechart.load_subject("zoo:resnet")
    >>> watch = Watch(subject, measures="recognition", limit=32, out=tempfile.mkdtemp())
    >>> for epoch in range(2):
    ...     run = watch(epoch)  # after the epoch's training
    >>> accuracies = watch.table.pivot(index="step", columns="quantity", values="value").accuracy.tolist()
    >>> len(accuracies), accuracies[0] == accuracies[1] > 0.8  # nothing was trained here
    (2, True)
    """

    def __init__(
        self,
        model: nn.Module | Subject,
        images: Any = "sample",
        measures: str | Sequence[str] | None = None,
        *,
        every: int = 1,
        out: str | Path | None = None,
        limit: int | None = 256,
        transform: Any = None,
        input_size: tuple[int, int] | int | None = None,
        classes: Sequence[str] | None = None,
        label: str | None = None,
        options: Mapping[str, Any] | None = None,
        log: Any = None,
        page: bool = False,
        strict: bool = False,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise UsageError(f"A watch examines every 1, 2, 3 … steps; got every={every!r}.")
        if not isinstance(model, (nn.Module, Subject)):
            raise UsageError(f"A watch takes the module that is trained, or a Subject made of it; got {model!r}.")
        self.measures = list(CHEAP) if measures is None else measures
        with _in_keywords():
            choose_measures(self.measures, options)  # a wrong name is told before the training
        self.every, self.options, self.page, self.strict = every, options, page, strict
        self.path = Path(out) if out is not None else Path("runs") / f"watch-{datetime.now():%Y%m%d-%H%M%S}"
        self.module = unwrapped(model.module if isinstance(model, Subject) else model, label or "the model")
        with untouched(self.module):
            self.subject = load_subject(model, transform=transform, label=label, input_size=input_size, classes=classes)
            self.images = open_images(images)
        plan_batches(self.images, limit=limit)  # a limit that is no number is told before the training, too
        self.limit = None if limit is None or limit >= len(self.images) else limit
        self.runs: dict[int, Run] = {}
        """The run of every step that was examined."""
        self.failures: dict[int, str] = {}
        """What went wrong, by step."""
        given = log if isinstance(log, (list, tuple)) else [] if log is None else [log]
        self._logs = [open_log(each, self.path) for each in given]
        self._told: set[str] = set()

    def __call__(self, step: int, also: Log | None = None) -> Run | None:
        """Examine the model, if this step's turn has come; None where it has not, or where it failed.

        `also` is one more log, for this step alone.
        """
        if step % self.every:
            return None
        began = time.monotonic()
        self.runs.pop(step, None)
        self.failures.pop(step, None)
        try:
            with _in_keywords(), untouched(self.module):
                run = self.runs[step] = self._examined(step)
                for log in (*self._logs, *([also] if also else [])):
                    log(step, self.numbers(step))
        except Exception as error:  # of a user's model, pictures or log: a training is worth more than one look at it
            if self.strict:
                raise
            self.failures[step] = f"{'not logged' if step in self.runs else 'failed'}: {_sentence(error)}"
            self._tell(f"step {step} {self.failures[step]}")
            return self.runs.get(step)
        for notice in [*run.plan["notices"], *self._without_rows(run)]:
            if notice not in self._told:
                self._told.add(notice)
                self._tell(f"note: {as_keywords(notice)}")
        self._tell(f"step {step} examined in {time.monotonic() - began:.1f} s: {run.path}")
        return run

    def _examined(self, step: int) -> Run:
        return exam(
            replace(self.subject),  # anew: a subject remembers the hash of its weights
            self.images,
            self.measures,
            out=self.path / f"step-{step:06}",
            options=self.options,
            limit=self.limit,
            device=str(self.subject.device),
            overwrite=True,
            page=self.page,
            progress=False,
        )

    def _without_rows(self, run: Run) -> list[str]:
        """Measures that were made and yet are not in the table: their numbers are about blocks or pairs not there."""
        rows = {row["measure"] for row in run.quantities()}
        return [
            f"{name} adds no row to the table: none of its numbers is about a model like {self.subject.name} by "
            "itself; `eyechart report` of a step's folder draws what it saw."
            for name in run.findings
            if name not in rows
        ]

    def numbers(self, step: int) -> dict[str, float]:
        """The numbers of a step by name, with the ends of their intervals, as logs get them; NaN is left out.

        No name is the beginning of another's path: MLflow's file store makes each a file in folders of these names.
        """
        named = {
            f"eyechart/{row['measure']}/{row['quantity']}{end}": row[part]
            for row in self.runs[step].quantities()
            for part, end in (("value", ""), ("low", "_low"), ("high", "_high"))
        }
        return {name: value for name, value in named.items() if math.isfinite(value)}

    @property
    def table(self) -> pd.DataFrame:
        """A row for each number of each step; what failed has a row of its own, whose note says why."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for step in sorted({*self.runs, *self.failures}):
            if step in self.failures:
                rows.append({"step": step, "note": self.failures[step]})
            if step in self.runs:
                rows += [{"step": step, "note": "", **row} for row in self.runs[step].quantities()]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        return table.fillna({"measure": "", "quantity": "", "unit": ""})

    def compare(self) -> Comparison:
        """Every step beside the first, as `eyechart compare` does: `.table`, and `.report(path)` for the page."""
        return compare({f"step {step}": run for step, run in sorted(self.runs.items())})

    def lightning(self) -> Any:
        """A callback for Lightning's Trainer; its loggers get the numbers too."""
        return lightning_callback(self)

    def hugging_face(self) -> Any:
        """A callback for the Trainer of transformers."""
        return hugging_face_callback(self)

    def _tell(self, sentence: str) -> None:
        print(printable(f"eyechart: {sentence}"), file=sys.stderr, flush=True)

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Watch({self.subject.name}: {len(self.runs)} steps examined{failed}, in {self.path})"


@contextmanager
def _in_keywords() -> Iterator[None]:
    """What an exam refuses names options of the command line; here they are keywords."""
    try:
        yield
    except EyechartError as error:
        error.args = (as_keywords(str(error)),)
        raise


def _sentence(error: Exception) -> str:
    """What happened, in one line."""
    words = (str(error).strip().splitlines() or [""])[0]
    return words if isinstance(error, EyechartError) else f"{type(error).__name__}: {words}".rstrip(": ")
