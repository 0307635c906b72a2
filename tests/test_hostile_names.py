"""Names that would steer a terminal, a spreadsheet or a chart, and charts that fail: none stops or fools a reader."""

from __future__ import annotations

import csv
import io
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import eyechart
from eyechart import terminal
from eyechart.charts.export import without_controls
from eyechart.cli import main
from eyechart.command_line import as_json
from eyechart.errors import RunFolderError, UsageError
from eyechart.progress import progress
from eyechart.report.sections import csv_of
from eyechart.store import RunFiles
from tests.cases import vit
from tests.small_exam import examined

EVIL = "\x1b]0;owned\x07\x1b[2J\u202egpj.exe\x9b1m"


def raw(text: str) -> bool:
    return any(sign in text for sign in "\x1b\x07\x9b\u202e")


@pytest.mark.parametrize(
    "words",
    [
        ["show", f"runs/{EVIL}"],
        ["claims", EVIL],
        ["exam", f"zoo:{EVIL}"],
        ["exam", "--images", EVIL],
        ["subjects", EVIL],
    ],
)
def test_names_do_not_steer_the_terminal(words: list[str]) -> None:
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code != 0
    assert "owned" in result.output
    assert not raw(result.output)


def test_progress_tables_and_json_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as report:
        report(f"anatomy of {EVIL}", 0, 1)
        report(EVIL, 0, 0)
    rows = terminal.table("subject")
    rows.add_row(terminal.escape(EVIL))
    terminal.show(rows)
    as_json({"name": EVIL})
    said = capsys.readouterr()
    assert said.out.count("owned") == 2
    assert not raw(said.out + said.err)


def test_formulas_do_not_pass_into_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://example.org","click")'
    row = {
        "measure": "cka",
        "quantity": "+1",
        "subjects": formula,
        "value": -1.0,
        "low": -2.0,
        "high": 0.5,
        "unit": "@SUM",
    }
    monkeypatch.setattr(RunFiles, "quantities", lambda self: [row])
    (line,) = csv.DictReader(io.StringIO(RunFiles(tmp_path).summary_csv()))
    assert line == {
        "measure": "cka", "quantity": "'+1", "subjects": f"'{formula}", "value": "-1.0", "low": "-2.0", "high": "0.5",
        "unit": "'@SUM",
    }  # fmt: skip
    table = pd.DataFrame({"value": [-0.5]}, index=pd.Index([formula], name="subject"))
    assert csv_of(table).splitlines() == ["subject,value", f'"\'{formula.replace(chr(34), chr(34) * 2)}",-0.5']


def test_constant_pictures_and_an_evil_name_end_in_a_page(tmp_path: Path) -> None:
    """Constant pictures have no geometry to compare: every CKA is NaN, and its map may not be drawn."""
    module = vit()
    module.__class__ = type(f"=vit{EVIL}", (type(module),), {})
    with pytest.raises(UsageError, match="printable letters"):
        eyechart.load_subject(module, label=f"=vit{EVIL}", input_size=32)
    subject = eyechart.load_subject(module, input_size=32)
    assert not raw(subject.name)
    said: list[str] = []
    run = eyechart.exam(
        subject,
        np.full((16, 32, 32, 3), 120, np.uint8),
        measures="cka",
        out=tmp_path / "run",
        progress=lambda what, done, total: said.append(what),
    )
    page = (run.path / "report.html").read_text(encoding="utf-8")
    undrawn = any("The figure of cka could not be drawn" in sentence for sentence in said)
    assert undrawn == ("The figure of cka could not be drawn (" in page) == ('data-chart="cka"' not in page)
    assert not raw(page)
    assert run.finished


def test_what_cannot_be_drawn_is_named_and_the_rest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.report.synthetic import as_run, synthetic_run

    def fails(finding: Any) -> Any:
        raise ZeroDivisionError("nothing to divide by")

    from eyechart.report.figures import save_figures
    from eyechart.report.page import render

    made = synthetic_run(tmp_path)
    made.measures["cka"].chart = fails
    undrawn: list[str] = []
    page = render(as_run(made), undrawn)
    reason = "The figure of cka could not be drawn (ZeroDivisionError: nothing to divide by)"
    assert undrawn == [f"{reason}; its numbers are on the page."]
    assert reason in page
    assert "This figure could not be drawn" in page
    assert 'data-chart="cka"' not in page
    assert page.count('<figure class="chart"') == 3
    with pytest.raises(RunFolderError, match=r"cka could not be drawn .*the other figures are in"):
        save_figures(as_run(made), "svg", tmp_path / "figures")
    assert len(list((tmp_path / "figures").iterdir())) == 3


def test_control_characters_never_reach_the_drawing_library() -> None:
    spec = {"title": EVIL, "layer": [{"data": {"values": [{"name": EVIL, "value": 1.5}]}}]}
    assert not raw(str(without_controls(spec)))
    assert without_controls(spec)["layer"][0]["data"]["values"][0]["value"] == 1.5


def listening() -> set[str]:
    """The sockets on which this process waits for others."""
    own = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text(encoding="utf-8").splitlines()[1:]
    ]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux says who listens")
def test_an_exam_neither_listens_nor_calls_out(tmp_path: Path) -> None:
    used: list[str] = []
    watching = True  # a hook stays until the process ends

    def hook(event: str, arguments: Any) -> None:
        if watching and event in ("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto"):
            used.append(f"{event} {arguments}")

    sys.addaudithook(hook)
    before = listening()
    assert (examined(tmp_path / "run").path / "report.html").exists()
    assert listening() == before
    assert used == []
    with socket.socket() as server:  # what it would see
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert len(listening() - before) == 1
    watching = False
    assert len(used) == 1
