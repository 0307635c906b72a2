"""The tour names what exists, leaves nothing out that an exam can settle, and sets reported beside measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eyechart.claims.gates import GateResult
from eyechart.claims.table import CLAIMS, EVIDENCE
from eyechart.measures import measures
from eyechart.report import page
from eyechart.report.tour import NOTES, steps
from eyechart.studies.study import studies_of_claims

from .browser import Browser
from .synthetic import as_run, synthetic_run
from .test_page import Outline


def test_every_claim_of_the_three_papers_that_an_exam_settles_has_its_place() -> None:
    toured = {claim for step in steps() for claim in step["claims"]}
    papers = {"V", "R", "P"}
    asked = {claim.id for claim in CLAIMS.values() if claim.settled_by == "exam" and papers & set(claim.sources)}
    assert asked <= toured <= CLAIMS.keys()
    assert {note for claim in CLAIMS.values() for note in claim.notes} == NOTES.keys()
    for step in steps():
        assert step["paper"] in papers
        if "measure" in step:
            assert step["measure"] in measures()
            assert any(step["measure"] in CLAIMS[claim].measures for claim in step["claims"]), step["figure"]


def test_a_study_that_the_tour_names_is_there_and_asks_a_claim_of_its_figure() -> None:
    asking = studies_of_claims()
    told = [(step, name) for step in steps() for name in re.findall("“([a-z_]+)”", step["differs"])]
    told = [(step, name) for step, name in told if name not in measures()]
    assert len(told) > 4
    for step, name in told:
        assert any(name in asking.get(claim, ()) for claim in step["claims"]), (step["figure"], name)


def test_reported_stands_beside_measured(tmp_path: Path) -> None:
    html = page.render(as_run(synthetic_run(tmp_path)), [], tour_first=True)
    english = re.sub(r'<span lang="ko">[^<]*</span>', "", html)
    said = " ".join(Outline(english).text.split())
    assert '<html lang="en" data-tour="on">' in html
    told = said[said.index("Raghu et al. 2021, Fig. 1 #") :]
    claim = CLAIMS["C13"]
    in_order = (
        claim.sentence,
        claim.reported,
        EVIDENCE[claim.evidence],
        "holds",
        "0.311 [0.290, 0.332]",
        "What differs.",
    )
    places = [told.index(words) for words in in_order]
    assert places == sorted(places)
    assert html.index('id="tour"') < html.index('class="chapter"')
    assert "Settled by trainings made for it: ViTs whose attention is limited" in said  # C47: no verdict, no silence


#: What share of the tour its widest cell of what is measured takes.
SHARE = """[...document.querySelectorAll('.tour td:last-child')]
  .map((cell) => cell.clientWidth / cell.closest('table').clientWidth)"""


@pytest.mark.parametrize(("browser", "least"), [((1440, 900), 0.5), ((390, 844), 0.95)], indirect=["browser"])
def test_what_is_measured_has_most_of_the_room(browser: Browser, tmp_path: Path, least: float) -> None:
    """Of three equal columns two stood empty beside it; on a phone it has the whole width."""
    target = tmp_path / "tour.html"
    target.write_text(page.render(as_run(synthetic_run(tmp_path)), [], tour_first=True), encoding="utf-8")
    browser.open(target)
    shares = browser.ask(SHARE)
    assert shares
    assert min(shares) >= least


def test_where_a_gate_keeps_a_verdict_undecided_the_tour_says_so(tmp_path: Path) -> None:
    """ "Undecided" stood beside numbers that were all clear of 0, and nothing told why."""
    run = synthetic_run(tmp_path)
    failed = GateResult("g1", "accuracy", "failed", "too low")
    run.verdicts = [
        replace(each, verdict="undecided", gates=(failed,)) if each.claim == "C13" else each for each in run.verdicts
    ]
    english = re.sub(r'<span lang="ko">[^<]*</span>', "", page.render(as_run(run), [], tour_first=True))
    said = " ".join(Outline(english).text.split())
    assert re.search(r"undecided a gate failed .{0,60}0\.311 \[0\.290, 0\.332\]", said[said.index("Fig. 1 #") :])


APART = """[...document.querySelectorAll(".tour .here .subject")].filter((subject) => {
  const range = document.createRange(), dot = subject.querySelector(".swatch").getBoundingClientRect();
  range.selectNodeContents(subject.lastChild);
  const [line] = range.getClientRects();
  return dot.bottom < line.top || dot.top > line.bottom;
}).length"""


def test_a_dot_stands_beside_its_name_on_every_phone(browser: Browser, tmp_path: Path) -> None:
    """Where a line ended, the dot of "zoo:resnet" ended it, and its name began the next."""
    browser.open(page.write_report(as_run(synthetic_run(tmp_path)), tour_first=True))
    assert browser.ask("document.querySelectorAll('.tour .here .subject').length") > 4
    for width in range(240, 420, 10):
        browser.page.set_viewport_size({"width": width, "height": 800})
        assert (width, browser.ask(APART)) == (width, 0)
