"""Progress of an exam on stderr: a bar with the time left on a terminal, plain lines elsewhere (pipes, notebooks)."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from eyechart.phrases import printable

Tell = Callable[[str, float, float], None]
"""What is being done, seconds gone, seconds in all as far as is known (infinite: not yet; 0: a sentence that stays).
Lines after the first say what each worker of a cluster does just now."""
ROWS = 3  # of a terminal that lines below the bar leave free
QUIET = 5.0  # seconds between plain lines before the time in all is known


class Share:
    """Of the time in all. It never falls: where the time left grows, as when a measurement replaces an estimate, it
    stands still until it is reached again."""

    def __init__(self) -> None:
        self.furthest = 0.0

    def of(self, done: float, total: float) -> float:
        self.furthest = max(self.furthest, done / total)
        return self.furthest


@contextmanager
def progress() -> Iterator[Tell]:
    errors = Console(stderr=True)
    if errors.is_terminal:
        with drawn(errors) as tell:
            yield tell
    else:
        yield plain()


def plain() -> Tell:
    """A line at every tenth of the time; before that is known, one every few seconds. Not what each worker does: that
    is for a screen, where it is replaced twice a second."""
    said: set[str | int] = set()
    share = Share()
    last = time.monotonic()

    def tell(what: str, done: float, total: float) -> None:
        nonlocal last
        if "\n" in what:
            return
        if not total:
            key: str | int = what
        elif math.isinf(total):
            if time.monotonic() - last < QUIET:
                return
            key = what
        else:
            gone = share.of(done, total)
            key = int(10 * gone)
            what = f"{gone:4.0%}, about {clock(total - done)} left: {what}"
        if key not in said:
            said.add(key)
            last = time.monotonic()
            print(printable(what), file=sys.stderr, flush=True)

    return tell


class TimeLeft(ProgressColumn):
    """What was told last, less the time since: it counts down while one long step runs."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left, told = task.fields["left"], task.fields["told"]
        if math.isinf(left):
            return Text("")
        return Text(f"about {clock(max(0.0, left - (time.monotonic() - told)))} left", style="progress.remaining")


class Bar(Progress):
    """With lines below it, as many as there is room for."""

    below: Sequence[str] = ()

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if not self.below:
            return
        room = max(1, self.console.height - ROWS)
        for line in self.below if len(self.below) <= room else self.below[: room - 1]:
            yield Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis")
        if len(self.below) > room:
            yield Text(f"  … and {len(self.below) - room + 1:,} more", style="dim")


@contextmanager
def drawn(console: Console) -> Iterator[Tell]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeLeft())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading", total=None, left=math.inf, told=0.0)
        share = Share()

        def tell(what: str, done: float, total: float) -> None:
            if not total:  # it stays when the bar is gone
                bar.console.print(printable(what), markup=False, highlight=False)
                return
            known = math.isfinite(total)
            what, *below = what.splitlines() or [""]
            bar.below = [printable(line) for line in below]
            bar.update(
                task,
                description=escape(printable(what)),
                completed=share.of(done, total) * total if known else 0,
                total=total if known else None,
                left=total - done,
                told=time.monotonic(),
            )

        yield tell


def clock(seconds: float) -> str:
    """
    >>> clock(7.4), clock(75), clock(4000)
    ('0:07', '1:15', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
