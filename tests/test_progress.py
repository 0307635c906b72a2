"""What a person sees of an exam that goes on."""

from __future__ import annotations

import io
import math
import re

import pytest
from rich.console import Console

from eyechart.exam import reported
from eyechart.progress import Tell, drawn, plain


def test_plain_lines_come_at_every_tenth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 50.0
    monkeypatch.setattr("eyechart.progress.time.monotonic", lambda: now)
    tell = plain()
    tell("opening", 0, math.inf)  # what fails at once says one line, its error
    now += 6
    tell("loading", 6, math.inf)
    tell("loading more", 6, math.inf)  # within the same seconds
    for done in range(21):
        tell(f"step {done}", done, 20)
        tell(f"step {done}\none/17  shard {done}", 20, 20)  # for a screen
    tell("It is finished.", 0, 0)
    tell("It is finished.", 0, 0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "loading"
    assert lines[1] == "  0%, about 0:20 left: step 0"
    assert [line.rpartition(" ")[2] for line in lines[1:-1]] == [str(step) for step in range(0, 21, 2)]
    assert lines[-1] == "It is finished."


def test_the_share_never_falls(capsys: pytest.CaptureFixture[str]) -> None:
    """40 %, then 25 % was told where a measurement of the time in all replaced its estimate."""

    def exam(tell: Tell) -> None:
        tell("by estimate", 40, 100)
        tell("by measurement", 40, 160)
        tell("further", 90, 160)

    exam(plain())
    file = io.StringIO()
    with drawn(Console(file=file, force_terminal=True, width=120, color_system=None)) as tell:
        exam(tell)
    assert [line[:4] for line in capsys.readouterr().err.splitlines()] == [" 40%", " 56%"]
    shown = re.findall(r"(\d+)%", file.getvalue())
    assert "56" in shown
    assert [int(each) for each in shown] == sorted(int(each) for each in shown)


def test_progress_can_be_asked_for_by_true(capsys: pytest.CaptureFixture[str]) -> None:
    """ "'bool' object is not callable" was what came of it."""
    for asked, shown in ((True, True), (None, True), (False, False)):
        with reported(asked) as tell:
            tell("It is finished.", 0, 0)
        assert ("It is finished." in capsys.readouterr().err) == shown


def test_the_bar_counts_down_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr("eyechart.progress.time.monotonic", lambda: now)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, color_system=None)
    with drawn(console) as tell:
        tell("zoo:[bold]vit, shift", 30, 100)
        now += 15
        tell("A sentence.", 0, 0)
    shown = file.getvalue()
    assert "zoo:[bold]vit, shift" in shown
    assert "30%" in shown
    assert "about 0:55 left" in shown
    assert "A sentence." in shown


@pytest.mark.parametrize(("height", "shown"), [(10, 4), (5, 1)])
def test_workers_stand_below_the_bar(height: int, shown: int) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60, height=height, color_system=None)
    workers = [f"one/{number}  shard {number} [bold]\x1b[2J" for number in range(4)]
    with drawn(console) as tell:
        tell("\n".join(["images: 3 of 9", *workers]), 3, 9)
    last = re.split(r"images: 3 of 9", file.getvalue())[-1]
    assert last.count("[bold]\\x1b[2J") == shown, last
    assert ("… and 3 more" in last) == (shown == 1)
    with drawn(console) as tell:
        tell("images: 3 of 9\none/1  idle", 3, 9)
        tell("intervals", 4, 9)
    assert "one/1" not in file.getvalue().rpartition("intervals")[2]
