"""Tables of numbers on a phone, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyechart.report import page

from .browser import Browser
from .synthetic import as_run, synthetic_run, with_quantities

DOTS_FROM_NAMES = """[...document.querySelectorAll('#measure-cka .quantities .subject')].map((subject) => {
  const range = document.createRange(), dot = subject.querySelector('.swatch').getBoundingClientRect();
  range.selectNodeContents(subject.lastChild);
  const lines = [...range.getClientRects()];
  return dot.top + dot.height / 2 - (lines[0].top + lines[0].bottom) / 2;
})"""


@pytest.mark.parametrize("browser", [(390, 844)], indirect=True)
@pytest.mark.parametrize("lang", ["en", "ko"])
def test_a_dot_stays_with_its_name_where_number_and_unit_leave_little_room(
    browser: Browser, tmp_path: Path, lang: str
) -> None:
    """The unit gives way: a dot stood alone above the name, which began at the edge of the page."""
    run = synthetic_run(tmp_path)
    number = (0.04261, 0.04217, 0.04305, "picture widths")
    rows = [("radius", subject, *number) for subject in ("zoo:vit", "zoo:resnet", "zoo:vit | zoo:resnet")]
    run.findings["cka"] = with_quantities(run.findings["cka"], rows)
    browser.open(page.write_report(as_run(run), lang=lang))
    browser.ask("document.querySelectorAll('#measure-cka details').forEach((fold) => { fold.open = true; })")
    away = browser.ask(DOTS_FROM_NAMES)
    assert len(away) == 4
    assert max(map(abs, away)) < 6
    table = "document.querySelector('#measure-cka .wide')"
    assert browser.ask(f"{table}.scrollWidth <= {table}.clientWidth")


@pytest.mark.parametrize("browser", [(390, 844)], indirect=True)
def test_long_numbers_stand_below_their_name(browser: Browser, tmp_path: Path) -> None:
    """A name of 13 letters beside "−0.00084 [−0.00132, −0.00036]" made the table wider than the phone."""
    run = synthetic_run(tmp_path)
    rows = [
        ("contrast", "zoo:vit | zoo:resnet", -0.00084, -0.00132, -0.00036, ""),
        ("change", "zoo:vit", 0.0576, 0.0533, 0.0619, "log"),
        ("change", "zoo:resnet", -0.0576, -0.0619, -0.0533, "log"),
    ]
    run.findings["cka"] = with_quantities(run.findings["cka"], rows)
    browser.open(page.write_report(as_run(run)))
    browser.ask("document.querySelectorAll('#measure-cka details').forEach((fold) => { fold.open = true; })")
    table = "document.querySelector('#measure-cka .wide')"
    assert browser.ask(f"{table}.scrollWidth <= {table}.clientWidth")
    cells = "[...row.cells].slice(1).map((cell) => cell.getBoundingClientRect())"
    cells = f"[...document.querySelectorAll('#measure-cka .quantities tbody tr')].slice(1).map((row) => {cells})"
    for name, value, interval in browser.ask(cells):  # one of a quantity as the other: "log" was alone below its number
        assert name["bottom"] <= value["top"] == interval["top"]
        assert value["height"] < 36
