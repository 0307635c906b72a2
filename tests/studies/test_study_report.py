"""What the records say, in words and as a page: every claim once, and nothing claimed that is not recorded."""

import re
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Literal

import pytest
import torch

from eyechart import zoo
from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.table import CLAIMS, SOURCES
from eyechart.claims.verdict import Verdict
from eyechart.exam import exam
from eyechart.measures import measures
from eyechart.report.words import translator
from eyechart.run import Run
from eyechart.studies.bundled_exams import BundledExams, images_of
from eyechart.studies.claim_answers import Answer, changes_of_mind
from eyechart.studies.examine import RECORDED_FACTS
from eyechart.studies.figure import figure
from eyechart.studies.markdown import markdown
from eyechart.studies.page import page, unasked_contrasts, verdict_context
from eyechart.studies.question_figures import drawn_contrast
from eyechart.studies.questions import BLANK, NOT_YET, NOT_YET_KO, Numbers, Question, fill, questions
from eyechart.studies.records import Records, records_folder
from eyechart.studies.repeats import FILE, Repeat, in_words
from eyechart.studies.side_by_side import WHY
from eyechart.studies.study import find, names
from eyechart.studies.summary import summary
from eyechart.studies.verdicts import verdicts_of
from eyechart.subjects.anatomy import anatomy_of
from tests.report.browser import Browser
from tests.report.test_layout import LINES
from tests.studies.test_contrasts import recorded, study_of

CONTRAST = """
[[contrast]]
name = "gap"
quantity = "test_accuracy"
words = "accuracy, one minus other"
weights = { one = 1, other = -1 }
"""


@pytest.fixture(scope="module")
def html(found: list[Answer], records: list[Records]) -> str:
    """The whole page: drawing its figures takes seconds."""
    return page(found, records, questions(records, found, BundledExams.read()), BundledExams.read())


def test_every_claim_has_one_entry(found: list[Answer], records: list[Records], html: str) -> None:
    assert [each.claim.id for each in found] == list(CLAIMS)
    numbers = summary(found)
    assert numbers.over_seeds + numbers.of_weights + numbers.undecided + numbers.not_yet == len(CLAIMS)
    assert numbers.whole + numbers.partly + len(numbers.both) == numbers.over_seeds
    text = markdown(found, records, questions(records, found, BundledExams.read()), BundledExams.read())
    assert all(text.count(f'<a id="{claim.lower()}">') == 1 for claim in CLAIMS)
    assert all(html.count(f'id="{claim}"') == 1 for claim in CLAIMS)
    cited = {key for claim in CLAIMS.values() for key in claim.sources if "arXiv" in SOURCES[key]}
    papers = [SOURCES[key].partition("arXiv:") for key in cited]  # C41 is not tested yet, and cited
    listed = html.partition('id="references"')[2]
    assert all(f'{escape(text)}<a href="https://arxiv.org/abs/{number}"' in listed for text, _, number in papers)
    assert html.count("<script") == 5  # what it says in the other language, the switch, folds and filters
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "").replace("https://arxiv", "")


def test_a_verdict_names_its_seeds_and_how_its_interval_was_made(found: list[Answer], records: list[Records]) -> None:
    text = markdown(found, records, questions(records, found, BundledExams.read()), BundledExams.read())
    for each in found:
        for studied in each.studied:
            for interval, mind in zip(studied.intervals, changes_of_mind(studied), strict=True):
                assert f"{interval.words}. {mind}" in text
            if studied.seeds < 3:
                assert studied.verdict.verdict == "undecided"


def test_records_are_small_and_of_studies_that_are_there() -> None:
    files = list(records_folder().glob("*.json*"))
    assert sum(file.stat().st_size for file in files) < 6_000_000
    assert {file.stem for file in files if file.suffix == ".jsonl"} <= {*names(), Path(FILE).stem}


def test_what_a_study_replaces_is_a_test_of_an_exam() -> None:
    known = {(test.claim, test.reading) for test in asked_of(measures().values())}
    for name in names():
        assert find(name).replaces <= known


def test_the_figure_shows_every_seed_that_is_recorded(records: list[Records]) -> None:
    for each in records:
        panels = each.study.figure.get("panels", [])
        drawn = [rows for chart in figure(each) for rows in chart.to_dict()["datasets"].values()]
        if not drawn:
            continue
        seeds = [row for rows in drawn for row in rows if "seed" in row]
        expected = sum(len(by_seed) for panel in panels for by_seed in each.values(panel["quantity"]).values())
        assert len(seeds) == expected
        for rows in drawn:
            steps: dict[str, list[float]] = {}
            for row in rows:
                steps.setdefault(row["arm"], []).append(row["step"])
            assert all(sum(each) == 0 for each in steps.values()), "around the name of their arm"


@pytest.mark.parametrize("browser", [(390, 844)], indirect=True)
def test_contents_on_a_phone_follow_the_reader(browser: Browser, html: str, tmp_path: Path) -> None:
    file = tmp_path / "reproduction.html"
    file.write_text(html, encoding="utf-8")
    browser.open(file)
    browser.ask("document.getElementById('claims').scrollIntoView()")
    link = "document.querySelector('.contents ol a[aria-current]')"
    assert browser.wait_for(f"{link}?.hash === '#claims'", seconds=10)
    ends = "[each.getBoundingClientRect().left, each.getBoundingClientRect().right]"
    seen, shown = (browser.ask(f"((each) => {ends})({each})") for each in (link, f"{link}.closest('ol')"))
    assert shown[0] <= seen[0], "the list had not moved: what is read was beyond the edge of the window"
    assert seen[1] <= shown[1]


@pytest.mark.parametrize("browser", [(703, 1000)], indirect=True)
def test_questions_on_paper_can_be_read(browser: Browser, html: str, tmp_path: Path) -> None:
    """Numbers under their pictures were 3.9 points high, signs of lists were cut, folds had signs of a screen."""
    file = tmp_path / "reproduction.html"
    file.write_text(html, encoding="utf-8")
    browser.open(file)
    browser.page.emulate_media(media="print")
    browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    points = "(words) => 0.75 * words.getScreenCTM().d * parseFloat(getComputedStyle(words).fontSize)"
    shown = "[...document.querySelectorAll('.dots text')].filter((words) => words.checkVisibility())"
    assert min(browser.ask(f"{shown}.map({points})")) >= 6
    inside = (
        "document.querySelector('.counts li').getBoundingClientRect().left - document.body.getBoundingClientRect().left"
    )
    assert browser.ask(inside) >= 12
    styles = "[...document.querySelectorAll('details > summary')].map((line) => getComputedStyle(line).listStyleType)"
    assert set(browser.ask(styles)) == {"none"}
    assert browser.ask("getComputedStyle(document.querySelector('.question')).breakInside") == "auto"
    away = "getComputedStyle(document.querySelector('.glance .stamp.corrected-away')).borderTopStyle"
    assert browser.ask(away) == "dashed", "as the key beside it says"
    claim = "document.querySelector('.claim-fold > summary')"
    ends = [f"{claim}.children[{at}].getBoundingClientRect()" for at in (0, 1)]
    assert browser.ask(f"{ends[1]}.left - {ends[0]}.right") >= 4, "“C01A ViT needs …”"


@pytest.mark.parametrize("browser", [(1400, 900), (390, 844)], indirect=True)
def test_the_page_fits_its_window(browser: Browser, html: str, tmp_path: Path) -> None:
    """Words of the switch and names of claims stay whole beside long contents; no table and no figure is cut off."""
    file = tmp_path / "studies.html"
    file.write_text(html, encoding="utf-8")
    browser.open(file)
    assert set(browser.ask(f"{LINES}('.languages button, .glance .id')")) == {1}
    browser.ask("document.getElementById('E1').scrollIntoView()")
    below = "document.getElementById('E1').getBoundingClientRect().top - "
    below += "document.querySelector('.contents').getBoundingClientRect().bottom"
    assert browser.ask(below) >= 0, "on a phone the contents have two lines, which hid what was jumped to"
    stamps = "[...document.querySelectorAll('.stamps')].map((each) => each.textContent.split('seeds').length - 1)"
    assert max(browser.ask(stamps)) <= 3  # one for each kind: one for each of 18 verdicts was 480 px of a phone
    boxes = "[...document.querySelectorAll('.wide, figure.chart')]"
    assert browser.ask(f"{boxes}.filter((box) => box.scrollWidth > box.clientWidth).length") == 0
    browser.ask("document.querySelectorAll('.claim-fold').forEach((fold) => { fold.open = true; })")
    seen = "[...document.querySelectorAll('.effect')].map((cell) => [...cell.querySelectorAll('.part')]"
    seen += ".filter((part) => part.checkVisibility()).length)"
    assert max(browser.ask(seen)) == 1  # the others are a click away: with all of them the page was 98,000 px high
    browser.page.emulate_media(media="print")
    assert max(browser.ask(seen)) > 1
    browser.page.emulate_media(media="screen")
    browser.ask("document.querySelector('[data-language=ko]').click()")
    assert browser.ask("document.querySelector('.carded td').dataset.label") == "시드"


def test_contents_are_seen_whole_and_every_link_leads_somewhere(browser: Browser, html: str, tmp_path: Path) -> None:
    """With the titles of twelve studies in them, two thirds of the contents lay beyond the right edge."""
    file = tmp_path / "studies.html"
    file.write_text(html, encoding="utf-8")
    browser.open(file)
    assert browser.ask("((list) => list.scrollWidth - list.clientWidth)(document.querySelector('.contents ol'))") <= 0
    lost = "[...document.querySelectorAll('a[href^=\"#\"]')].map((link) => link.hash.slice(1))"
    assert browser.ask(f"{lost}.filter((name) => !document.getElementById(name))") == []
    top = "document.querySelector(link.hash).offsetTop"
    places = browser.ask(f"[...document.querySelectorAll('.contents li a')].map((link) => {top})")
    assert places == sorted(places), "contents in the order of the page"
    assert "#row-7" in html
    assert "https://arxiv.org/abs/2605.16390" in html, "D9 cites it"


def test_a_ratio_is_drawn_against_one(records: list[Records]) -> None:
    warmup = next(each for each in records if each.study.name == "warmup")
    ratio = next(each for each in warmup.study.contrasts.values() if each.scale == "ratio")
    drawn = drawn_contrast(ratio, warmup)
    assert drawn
    assert [tick["text"] for tick in drawn["ticks"]] == ["1"]


def test_how_many_hold_is_said(found: list[Answer]) -> None:
    numbers = summary(found)
    whole = [each for each in found if {one.verdict.verdict for one in each.studied} == {"holds"}]
    whole = [each for each in whole if not each.waiting and not each.untested]
    assert numbers.hold[0] == len(whole)
    assert f"({len(whole)} hold, {numbers.whole - len(whole)} fail)" in numbers.sentences[0]
    left = {"C37", "C40", "C43"}  # a half that nobody asks, and one that is to come
    assert left <= {each.claim.id for each in found if each.waiting or each.untested}
    assert not left & {each.claim.id for each in whole}


def test_a_study_and_the_bundled_weights_that_differ_are_told_so(found: list[Answer]) -> None:
    def verdict(word: Literal["holds", "fails"]) -> Verdict:
        return Verdict("C36", ("vit", "vit-gap"), "these weights", word, 0.1, 0.05, 0.2, "")

    studied = next(each for each in found if each.studied).studied[0]
    over_seeds = replace(studied, verdict=verdict("fails"))
    differ = Answer(CLAIMS["C36"], (over_seeds,), (verdict("holds"),))
    assert differ.compared == ["vit, vit-gap: fails over seeds, holds on the bundled weights.", WHY]
    assert not Answer(CLAIMS["C36"], (over_seeds,), (verdict("fails"),)).compared


@pytest.mark.parametrize("browser", [(390, 844)], indirect=True)
def test_the_glance_is_a_grid_of_signs_on_a_phone(browser: Browser, html: str, tmp_path: Path) -> None:
    """Its claims stand in full below: with their sentences twice it was 7,000 px high."""
    file = tmp_path / "studies.html"
    file.write_text(html, encoding="utf-8")
    browser.open(file)
    assert browser.ask("document.querySelector('.glance').offsetHeight") < 2200
    inside = "[...document.querySelectorAll('.glance li')].every((one) => one.scrollWidth <= one.clientWidth)"
    assert browser.ask(inside)
    browser.ask("document.querySelector('.glance a.id[href=\"#C24\"]').click()")
    assert browser.ask("document.getElementById('C24').open")


def test_every_question_is_quoted_and_answered_by_numbers_or_called_open(
    found: list[Answer], records: list[Records]
) -> None:
    asked = questions(records, found, BundledExams.read())
    assert {"E1", "E7", "E9", "E10", "E11", "E15", "D1", "D2", "D3", "D4", "D5", "D9", "D10", "D15"} <= {
        question.id for question in asked
    }
    for question in asked:
        assert any("가" <= letter <= "힣" for letter in question.korean) or question.id in ("D9", "E14"), (
            "quoted as it stands"
        )
        assert not BLANK.search(question.answer)
        assert (
            question.answer == NOT_YET
            or question.state == "open"
            or any(letter.isdigit() for letter in question.answer)
        )


def test_the_page_of_the_studies_speaks_korean(found: list[Answer], records: list[Records]) -> None:
    exams = BundledExams.read()
    asked = questions(records, found, exams)
    again = in_words([Repeat("vit", 0, 0.61, 0.612)])
    html = page(found, records, asked, exams, lang="ko", made_again=again)
    assert '<html lang="ko"' in html
    assert "가장 큰 차이: 0.20퍼센트포인트" in html
    assert re.findall(r'<bdi lang="en">([^<]+)</bdi>', html) == []
    assert "아직 한국어로 옮기지 않아" not in html, "what is read aloud is translated, too"
    english = re.compile(r"\b(?:of|the|and|from|with|is|are|read|beside|still) ")  # a sentence that was read wrongly
    said = re.findall(r'<span lang="ko">([^<]+)</span>', html)
    quotes = {question.korean for question in asked}
    assert [words for words in said if english.search(words) and unescape(words) not in quotes] == []
    assert {question.id for question in asked if "\n" in question.answer} == {"E6", "E8a", "E14"}
    for question in asked:
        assert re.search("[가-힣]", question.answer_ko), question.id
        assert ("\n" in question.answer_ko) == ("\n" in question.answer), "one finding a line, in both languages"
        assert "interval" not in question.answer_ko, question.id
        numbers = re.compile(r"\d+(?:[.,]\d+)*")
        assert set(numbers.findall(question.answer)) <= set(numbers.findall(question.answer_ko)), question.id
    say = translator([], [arm for each in records for arm in each.study.arms])
    told = [words for each in records for words in (each.study.title, each.study.question)]
    told += [contrast.words for each in records for contrast in each.study.contrasts.values()]
    told += [f"Reading: {test.reading}." for each in records for test in each.study.tests if test.reading]
    assert [words for words in told if say(words) is None] == []


def test_an_answer_without_its_number_is_not_given(found: list[Answer], records: list[Records]) -> None:
    by_name = {each.study.name: each for each in records}
    asked = Question("X", ("N0",), "질문", "?", "It is {exam depth of a, b}.", "answered")
    assert fill(asked, Numbers(by_name, found, {})) == Question("X", ("N0",), "질문", "?", NOT_YET, "open", NOT_YET_KO)
    known = Numbers(by_name, found, {("depth", "a | b"): (0.5, 0.4, 0.6)})
    assert fill(asked, known).answer == "It is 0.50 [0.40, 0.60]."


def test_until_its_numbers_are_there_something_else_may_be_said(found: list[Answer], records: list[Records]) -> None:
    by_name = {each.study.name: each for each in records}
    so_far = "Row 9; so far {exam c of d}."
    asked = Question(
        "X", ("N0",), "질문", "?", "{exam a of b}.", "answered", meanwhile=so_far, meanwhile_state="partly"
    )
    first = fill(asked, Numbers(by_name, found, {("c", "d"): (0.5, 0.4, 0.6)}))
    assert (first.answer, first.state) == ("Row 9; so far 0.50 [0.40, 0.60].", "partly")
    assert fill(asked, Numbers(by_name, found, {})).answer == NOT_YET
    later = fill(asked, Numbers(by_name, found, {("a", "b"): (0.2, 0.1, 0.3)}))
    assert (later.answer, later.state) == ("0.20 [0.10, 0.30].", "answered")


def recognised(subjects: list[str], images: int, out: Path) -> Run:
    return exam(subjects, measures="recognition", effort="quick", limit=images, out=out, page=False)


def test_of_two_exams_of_the_bundled_models_that_on_more_images_counts(tmp_path: Path) -> None:
    first = recognised(["zoo:resnet"], 128, tmp_path / "one")
    second = recognised(["zoo:resnet", "zoo:vit"], 64, tmp_path / "two")
    kept = BundledExams.read(BundledExams.of([second, first]).write(tmp_path / "exam.json"))
    accuracy = {row["subjects"]: row["value"] for row in first.quantities() if row["quantity"] == "accuracy"}
    assert kept.quantities["accuracy", "zoo:resnet"][0] == pytest.approx(accuracy["zoo:resnet"], rel=1e-5)
    assert ("accuracy", "zoo:vit") in kept.quantities
    assert kept.words[1].startswith("zoo:resnet on 128 images of sample (effort quick, eyechart ")

    third = recognised(["zoo:resnet"], 64, tmp_path / "three")
    newer = kept.with_newer(BundledExams.of([third]))
    assert [words[: words.index(" of sample")] for words in newer.words] == [
        "zoo:resnet, zoo:vit on 64 images",
        "zoo:resnet on 64 images",
    ]
    assert newer.quantities["accuracy", "zoo:resnet"] != kept.quantities["accuracy", "zoo:resnet"]
    assert newer.quantities["accuracy", "zoo:vit"] == kept.quantities["accuracy", "zoo:vit"]


def test_of_two_exams_that_in_which_the_measure_took_more_images_counts(tmp_path: Path) -> None:
    """An effort may give a measure fewer images than the run has: 560 of 1,000 for noise in bands."""

    def sampled(images: int, limit: int) -> Run:
        options = {"band_noise.images": images}
        out = tmp_path / str(limit)
        return exam(["zoo:resnet"], measures="band_noise", options=options, limit=limit, out=out, page=False)

    larger, smaller = sampled(32, 128), sampled(64, 96)
    kept = BundledExams.of([larger, smaller])
    assert [run["measured"]["band_noise"] for run in kept.runs] == [32, 64]
    key = "low_noise_loss", "zoo:resnet"
    (expected,) = (row["value"] for row in smaller.quantities() if row["quantity"] == key[0])
    assert kept.quantities[key][0] == pytest.approx(expected, rel=1e-5)
    assert kept.images[key] == 64
    assert images_of({"images": 1000}, "cka") == 1000, "kept before this was"


def test_trainings_that_two_studies_examine_are_told_once(found: list[Answer], records: list[Records]) -> None:
    answer = next(each for each in found if each.claim.id == "C09")
    of_vit = [each for each in answer.studied if "vit" in each.verdict.subjects]
    assert [(each.study, each.seeds) for each in of_vit] == [("base", 5)], "mixers borrows three of these five"
    mixers = next(each for each in records if each.study.name == "mixers")
    assert any(each.verdict.claim == "C09" for each in verdicts_of(mixers)), "it has a verdict of its own"


def test_the_chart_of_a_part_has_a_dot_for_each_seed_and_reaches_them_all(found: list[Answer]) -> None:
    checked = 0
    for each in found:
        for studied in each.studied:
            row = verdict_context(studied.verdict, studied.draws)
            for drawn, draws in zip(row["parts"], studied.draws, strict=True):
                if drawn["middle"] is None:
                    continue
                assert [seed["said"].split(":")[0] for seed in drawn["seeds"]] == [f"seed {seed}" for seed in draws]
                assert all(0 <= seed["x"] <= 240 for seed in drawn["seeds"])
                order = sorted(draws, key=lambda seed: draws[seed])
                places = {seed: dot["x"] for seed, dot in zip(draws, drawn["seeds"], strict=True)}
                assert [places[seed] for seed in order] == sorted(places.values())
                checked += 1
    assert checked > 20


def test_where_all_arms_have_the_same_seeds_their_mean_is_the_effect(records: list[Records]) -> None:
    warmup = next(each for each in records if each.study.name == "warmup")
    for verdict in verdicts_of(warmup):
        for part, draws in zip(verdict.verdict.parts, verdict.draws, strict=True):
            contrast = warmup.study.contrasts.get(part.quantity)
            if contrast is not None and contrast.scale == "plain" and not contrast.ranked_with:
                assert sum(draws.values()) / len(draws) == pytest.approx(part.effect, rel=1e-6)


def test_a_contrast_that_no_claim_asks_for_is_drawn_in_its_study() -> None:
    study = study_of("one", "other", more=CONTRAST)
    records = recorded(study, {"one": [0.6, 0.7, 0.65], "other": [0.5, 0.5, 0.5]})
    (drawn,) = unasked_contrasts(records)
    assert (drawn["words"], len(drawn["seeds"]), drawn["zones"]) == ("accuracy, one minus other", 3, [])
    assert [tick["text"] for tick in drawn["ticks"]] == ["0"], "the effect is far from it, and it is shown all the same"
    asked = CONTRAST + '[[claim]]\nid = "C49"\nparts = [{ contrast = "gap", side = "above", margin = 0.0 }]\n'
    assert not unasked_contrasts(recorded(study_of("one", "other", more=asked), {"one": [0.6], "other": [0.5]}))


def test_records_know_what_every_gate_asks(records: list[Records]) -> None:
    """A gate that does not know fails nothing: C28 was decided on a 4×4 grid for as long as records had none."""
    judged = [verdict for each in records for verdict in verdicts_of(each)]
    gates = [
        (each.verdict.claim, gate.words) for each in judged for gate in each.verdict.gates if gate.outcome == "unknown"
    ]
    assert gates == []


@pytest.mark.parametrize("arm", ["vit", "vit-gap", "resnet"])
def test_facts_of_a_record_are_those_of_its_network(records: list[Records], arm: str) -> None:
    (base,) = [each for each in records if each.study.name == "base"]
    line = base.training(arm, 0)
    assert line is not None
    module = zoo.build(line["model"], **line["switches"]).eval()
    facts = Facts.of(anatomy_of(arm, module, torch.zeros(2, 3, 32, 32)), trained=True)
    recorded = base.facts(arm)
    assert recorded is not None
    assert [getattr(recorded, name) for name in RECORDED_FACTS] == [getattr(facts, name) for name in RECORDED_FACTS]


def test_what_was_registered_after_its_runs_says_so(found: list[Answer]) -> None:
    (flatness,) = [answer for answer in found if answer.claim.id == "C46"]
    assert [studied.registered for studied in flatness.studied] == ["after the runs"]
    (head,) = [answer for answer in found if answer.claim.id == "C08"]
    assert [studied.registered for studied in head.studied] == ["before the runs", "after the runs"]
    assert [studied.verdict.verdict for studied in head.studied] == ["undecided", "fails"]
    assert summary(found).later == ("C08", "C26", "C46")


def test_a_rule_before_its_change_stands_beside_the_verdict_it_would_change(html: str) -> None:
    row = html[html.index('id="C15"') : html.index('id="C16"')]
    assert row.count("By the rule before that change; it does not count:") == 3
    assert html[html.index('id="C10"') : html.index('id="C11"')].count("its verdicts would be the same") == 1
    assert re.search(r"Rules of \d+ of the tested claims were changed", html)
