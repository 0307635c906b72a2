"""The page as a reader, a browser without JavaScript, a browser with it, and an unkind file name meet it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr

from eyechart.charts import numbers, theme
from eyechart.claims.summary import Summary
from eyechart.claims.table import CLAIMS
from eyechart.measures import measures
from eyechart.report import embed, page, sections, sentences, verdict_rows, verdict_summary
from eyechart.report.subject_rows import no_accuracy
from eyechart.sites import Anatomy

from .browser import Browser
from .synthetic import SyntheticRun, as_run, synthetic_run, with_quantities

CRUEL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


class Outline(HTMLParser):
    """The elements of a page with their attributes, and its text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.html = html
        self._inside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag in ("script", "style"):
            self._inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside == ["script"]:
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SyntheticRun:
    return synthetic_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def html(run: SyntheticRun) -> str:
    return page.write_report(as_run(run)).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    return Outline(html)


@pytest.fixture(scope="module")
def cruel(tmp_path_factory: pytest.TempPathFactory) -> Outline:
    run = synthetic_run(tmp_path_factory.mktemp("cruel"), one=CRUEL)
    run.plan["images"]["problems"].append({"path": CRUEL, "reason": CRUEL})
    run.plan["images"]["name"] = CRUEL
    run.plan["provenance"]["command"].append(CRUEL)
    run.measures["cka"].said = CRUEL
    return Outline(page.render(as_run(run)))


def pictures(outline: Outline) -> list[str]:
    uris = [image["src"] for image in outline.all("img")] + [source["srcset"] for source in outline.all("source")]
    halves = [uri.split(",", 1) for uri in uris]
    return [base64.b64decode(half).decode() if "base64" in kind else unquote(half) for kind, half in halves]


# --- it travels alone ------------------------------------------------------------------------------------------------


def test_nothing_is_fetched(outline: Outline) -> None:
    for tag, attributes in outline.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            if name in attributes:
                paper = tag == "a" and attributes[name].startswith("https://arxiv.org/abs/")  # fetched by a click only
                assert paper or attributes[name].startswith(("#", "data:")), (tag, name, attributes[name][:80])
    for picture in pictures(outline):
        links = re.findall(r"""(?:href|src)=["']([^"']*)|url\(([^)]*)\)""", picture)
        assert all(link.startswith(("#", "data:")) for pair in links for link in pair if link)
    assert "@import" not in page.HERE.joinpath("page.css").read_text()


def test_policy_allows_these_scripts_and_no_other(outline: Outline) -> None:
    policy = next(meta["content"] for meta in outline.all("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    data, *code = outline.scripts
    assert json.loads(data)["charts"].keys() == {"recognition", "cka", "attention_distance", "feature_variance"}
    allowed = policy.split("script-src ")[1].split(";")[0]
    assert page.content_policy([embed.javascript(), *code]).split("script-src ")[1].split(";")[0] == allowed


def test_size(html: str) -> None:
    assert len(html.encode()) < 2_500_000 < page.LARGEST


def test_scripts_leave_one_name_behind() -> None:
    script = embed.javascript()
    assert script.startswith("(() => {")
    assert re.findall(r"window\.(\w+) ?=[^=]", script) == ["eyechartVega"]


# --- it reads without JavaScript -------------------------------------------------------------------------------------


def test_everything_is_said_in_the_html(run: SyntheticRun, outline: Outline) -> None:
    said = " ".join(outline.text.split())
    for verdict in run.verdicts:
        assert verdict_rows.why(verdict) in said
    for measure in run.measures.values():
        for words in (measure.title, measure.title_ko, measure.how_to_read, measure.method, measure.said):
            assert words in said
    for words in (
        "2 hold, 1 fails, 1 is undecided",  # the summary
        "2,692,106",  # a parameter count
        "87.1 % [85.1 %, 89.1 %]",  # accuracy with its interval
        "32×32 → 4×4",  # a pyramid of grids
        "0.311 [0.290, 0.332]",  # an effect
        "n/a없음 sign-test z of MLPs",  # a part without a number, in both languages
        "skip_ratio was left out",  # a notice
        "cat/0007.jpg truncated JPEG",  # a skipped file
        "eyechart exam zoo:vit zoo:resnet --images sample",  # the command
        "5 intervals were compared with a margin",
        "proxy",
        "arXiv:2108.08810",
    ):
        assert words in said, words


def test_decided_come_first_and_untested_last(outline: Outline) -> None:
    in_order = ("Decided", "Undecided", "2 not tested here", "What do layers share?", "skip_ratio was left out")
    places = [outline.text.rindex(words) for words in in_order]
    assert places == sorted(places)


def test_every_verdict_is_seen_at_a_glance(run: SyntheticRun, outline: Outline) -> None:
    """One stamp for each verdict that was tested, with its kind and subjects in words, and a way to its row."""
    tested = [verdict for verdict in run.verdicts if verdict.verdict != "not tested"]
    stamps = [link for link in outline.all("a") if link.get("class", "").startswith("stamp")]
    mark: dict[bool | None, str] = {False: ", not under Holm"}
    said = [
        f"{verdict.claim} {verdict.verdict}{mark.get(verdict.stands, '')}: {', '.join(verdict.subjects)}"
        for verdict in tested
    ]
    assert sorted(link["aria-label"] for link in stamps) == sorted(said)
    rows = [row["id"] for row in outline.all("tr") if row.get("id", "").startswith("verdict-")]
    assert sorted(link["href"] for link in stamps) == sorted(f"#{row}" for row in rows)


def test_every_chart_is_also_a_picture(run: SyntheticRun, outline: Outline) -> None:
    drawn = pictures(outline)
    assert len(drawn) == 2 * len(run.findings)  # on light and on dark paper
    for picture in drawn:
        assert ElementTree.fromstring(picture).tag.endswith("svg")


def test_links_have_targets(outline: Outline) -> None:
    names = {attributes["id"] for _, attributes in outline.elements if "id" in attributes}
    wanted = {link["href"][1:] for link in outline.all("a") if link["href"].startswith("#")}
    assert wanted <= names


def test_tables_can_be_downloaded(run: SyntheticRun, outline: Outline) -> None:
    files = {link["download"]: link["href"] for link in outline.all("a") if "download" in link}
    csv = base64.b64decode(files["cka-site-other_site.csv"].split(",", 1)[1]).decode().splitlines()
    assert "replicate" not in csv[0]
    assert len(csv) == 1 + run.findings["cka"].cka.size


def test_pictures_can_be_downloaded_without_a_second_copy(run: SyntheticRun, outline: Outline) -> None:
    buttons = [button for button in outline.all("button") if button.get("class") == "svg"]
    assert [button["data-name"] for button in buttons] == list(run.findings)  # page.js takes the picture that is shown
    assert not [link for link in outline.all("a") if "image/svg" in link.get("href", "")]


def test_intervals_of_weights_are_not_said_to_be_about_images() -> None:
    said = verdict_summary.about_intervals(["C03", "C05"])
    assert "(those of C03, C05 do not: they read weights alone" in said
    assert "were drawn; margins" in verdict_summary.about_intervals()


def test_what_a_correction_for_many_tests_leaves_is_said_and_marked(outline: Outline) -> None:
    html = outline.html
    assert "With Holm&#39;s correction for all 5 intervals, 2 of 3 decided verdicts stay decided." in html
    assert html.count(">not under Holm</span>") == 3  # in the key, at the verdict and in the tour
    assert html.count('class="stamp fails corrected-away"') == 1
    assert "Holm" not in verdict_summary.multiplicity(Summary(intervals=2, undecided=1))
    assert "The others" not in verdict_summary.multiplicity(Summary(intervals=2, holds=1, stand=1))


def test_what_was_changed_after_results_were_seen_is_said_beside_its_claim(
    run: SyntheticRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, claim in CLAIMS.items():
        words = {"C13": "equal cuts of depth were added.", "C02": "not tested here."}.get(name, "")
        monkeypatch.setitem(CLAIMS, name, replace(claim, changed=words))
    html = page.render(as_run(run))
    assert "decided was changed after results were seen:</span>" in html
    assert "equal cuts of depth were added.</bdi></p>" in html  # a sentence that no catalogue has
    assert "How 1 of the tested claims is decided was changed after results were seen; it says how." in html
    assert "not tested here." not in html


# --- unkind names ----------------------------------------------------------------------------------------------------


def test_names_stay_text(cruel: Outline) -> None:
    assert CRUEL in cruel.text
    assert len(cruel.scripts) == 1 + len(page.SCRIPTS)
    assert "alert(1)" not in "".join(cruel.scripts[1:])
    assert not [name for _, attributes in cruel.elements for name in attributes if name.startswith("on")]
    assert {image["class"] for image in cruel.all("img")} == {"still"}


def test_names_stay_text_in_pictures(cruel: Outline) -> None:
    drawn = [ElementTree.fromstring(picture) for picture in pictures(cruel)]
    assert any("alert(1)" in "".join(picture.itertext()) for picture in drawn)
    for picture in drawn:
        for element in picture.iter():
            assert not element.tag.endswith(("script", "}img"))
            assert not [name for name in element.attrib if name.startswith("on")]


def test_names_survive_in_chart_data(cruel: Outline) -> None:
    assert "<" not in cruel.scripts[0]
    charts = json.loads(cruel.scripts[0])["charts"]
    words = [
        column.get("words", [])
        for table in json.loads(zlib.decompress(base64.b64decode(charts["cka"])))["tables"].values()
        for name, column in table["columns"].items()
        if name == "subject"
    ]
    assert [CRUEL] in words


# --- numbers and geometry --------------------------------------------------------------------------------------------


def test_numbers_without_interval() -> None:
    assert numbers.with_span(0.5, float("nan"), float("nan")) == ("0.5", "")
    assert numbers.with_span(3.0, 3.0, 3.0) == ("3.000", "± 0")  # no width is not no interval
    assert numbers.with_span(None, None, None) == ("n/a", "")
    assert numbers.number(0.00000012) == "1.2e−07"


def test_too_large_tables_are_only_named(run: SyntheticRun) -> None:
    made = sections.tables("cka", run.findings["cka"], largest=1000)
    assert [file["uri"] for file in made if "site × other_site" in str(file["label"])] == [None]
    assert "findings/cka.nc" in str(made[-1]["label"])


def test_tables_without_a_row_are_not_offered(run: SyntheticRun) -> None:
    """The pair of a ViT and a ResNet had downloads of relative positions, of which neither has any."""
    cka = run.findings["cka"]
    empty = cka.assign(steps=(("relative", "head"), np.zeros((0, 4))))
    for largest in (0, 10**7):
        assert sections.tables("cka", empty, largest) == sections.tables("cka", cka, largest)


def test_a_page_too_large_to_mail_loses_least_first(run: SyntheticRun, html: str) -> None:
    drawn = {name: embed.embed(as_run(run), name) for name in run.findings}  # once: each page would draw them anew

    def smaller(than: str) -> Outline:
        return Outline(page.render(as_run(run), largest=len(than.encode()) - 1, drawn=drawn))

    def files(outline: Outline) -> set[str]:
        return {link["download"] for link in outline.all("a") if "download" in link}

    second = smaller(than=html)
    assert len(pictures(second)) == len(run.findings)  # on light paper only, and on white wherever it is shown
    assert {image["class"] for image in second.all("img")} == {"still on-white"}
    assert files(second) == files(Outline(html))
    third = smaller(than=second.html)
    assert "cka-quantities.csv" in files(third) < files(second)  # the largest tables went
    while files(third):
        third = smaller(than=third.html)
    assert json.loads(third.scripts[0])["charts"]
    assert json.loads(smaller(than=third.html).scripts[0])["charts"] == {}


def test_a_pair_is_told_once_and_weights_have_no_interval(run: SyntheticRun) -> None:
    rows = [
        ("error_gap", "a | b", 0.2, 0.1, 0.3, ""),
        ("error_gap", "b | a", -0.2, -0.3, -0.1, ""),
        ("error_gap", "a | c", 0.5, 0.5, 0.5, ""),
        ("distance", "a | b", 0.3, 0.2, 0.4, ""),
        ("distance", "b | a", 0.3, 0.2, 0.4, ""),  # as far the other way round
        ("nll_gap", "b | a", -0.2, -0.3, -0.1, "nats"),
    ]
    finding = with_quantities(xr.Dataset(), rows).assign_attrs(of_weights=True)
    made = sections.quantity_rows(finding, run.measures["cka"], str)
    assert [(one["name"], [row["subjects"] for row in one["rows"]]) for one in made] == [
        ("error gap", [["a", "b"], ["a", "c"]]),
        ("distance", [["a", "b"]]),
        ("NLL gap", [["b", "a"]]),
    ]
    assert [row["span"] for row in made[0]["rows"]] == ["[0.10, 0.30]", "exact"]


def test_a_sentence_has_a_line_for_each_subject() -> None:
    subjects = ["vit", "vit@random", "cnn"]
    said = "At 5%: vit loses 3 [-1, 2]; of vit 4 stay; as in cnns. vit@random loses 2; in cnn none; 64 images."
    assert sentences.lines(said, subjects) == [said]  # short enough
    assert sentences.lines(sentences.typeset(f"{'So it is. ' * 15}{said}"), subjects) == [
        ("So it is. " * 15).strip(),
        "At 5\xa0%: vit loses 3 [−1, 2]; of vit 4 stay; as in cnns.",
        "vit@random loses 2.",
        "In cnn none; 64 images.",
    ]


def test_a_run_without_labels_attention_or_tests(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path)
    run.findings = {"cka": run.findings["cka"]}
    run.verdicts = [verdict for verdict in run.verdicts if verdict.verdict == "not tested"]
    run.plan["images"]["problems"], run.plan["notices"] = [], []
    bare = Anatomy("zoo:vit", (), (), (32, 32), "cnn", None, None)
    run.scene = type(run.scene)((bare, run.scene.anatomies[1]), 1000, 16, 62, 16, None)
    said = Outline(page.render(as_run(run))).text
    assert "no labels" in said
    entry = {"labels": {"reason": "The classes of mine are not known."}}
    labelled = cast(Any, SimpleNamespace(scene=SimpleNamespace(classes=("cat", "dog"))))
    assert no_accuracy(entry, labelled) == "classes not known"  # nobody compared them
    assert no_accuracy({"labels": {"indices": [0, 1], "reason": "All 2 image classes match."}}, labelled) == (
        "not measured"
    )
    assert no_accuracy({"classifier": False}, labelled) == "has no classifier"
    assert no_accuracy({"labels": {"reason": "The image class 'cat' is not one of mine."}}, labelled) == (
        "classes do not match"
    )
    assert "None of the published claims could be tested" in said
    assert "Notices" not in said


# --- in a browser ----------------------------------------------------------------------------------------------------


LIVE = "document.querySelectorAll('.live canvas').length"
DESK, PHONE = (1500, 9000), (390, 20000)


@pytest.mark.parametrize("browser", [DESK], indirect=True)
@pytest.mark.parametrize("name", ["zoo:vit", CRUEL], ids=["plain", "cruel"])
def test_charts_come_alive_and_nobody_complains(name: str, browser: Browser, tmp_path: Path) -> None:
    browser.open(page.write_report(as_run(synthetic_run(tmp_path, one=name))))
    assert browser.wait_for(f"{LIVE} === 4")
    assert browser.ask("[...document.querySelectorAll('.still')].every((still) => still.style.display === 'none')")
    assert browser.ask("Object.keys(window).filter((name) => /vega/i.test(name)).join()") == "eyechartVega"
    assert browser.ask("document.querySelector('[data-chart=cka] canvas').clientWidth") > 800  # panels side by side
    assert browser.complaints == []
    assert {address.split(":")[0] for address in browser.requests} <= {"file", "data", "about"}


@pytest.mark.parametrize("browser", [(1280, 700)], indirect=True)
def test_charts_wait_until_they_are_near(browser: Browser, run: SyntheticRun, html: str) -> None:
    browser.open(run.path / "report.html")
    assert browser.wait_for("document.querySelector('[aria-current], .contents') && document.readyState === 'complete'")
    assert browser.ask(LIVE) == 0
    browser.ask("document.getElementById('measure-cka').scrollIntoView()")
    assert browser.wait_for("document.querySelector('[data-chart=cka] canvas') !== null")
    assert browser.ask("document.querySelector('[data-chart=feature_variance] canvas')") is None


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_a_phone_scrolls_one_way_only(browser: Browser, run: SyntheticRun, html: str) -> None:
    browser.open(run.path / "report.html")
    assert browser.wait_for(f"{LIVE} === 4")
    width = browser.ask("document.documentElement.clientWidth")
    assert width <= 390
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("Math.max(...[...document.querySelectorAll('.live canvas')].map((c) => c.clientWidth))") <= width


def test_dark_paper_changes_inks_only() -> None:
    light, dark = theme.configuration(), theme.configuration(dark=True)
    assert light["range"] == dark["range"]
    assert light["axis"]["labelColor"] != dark["axis"]["labelColor"]


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_a_subject_can_be_looked_at_by_itself(browser: Browser, run: SyntheticRun, html: str) -> None:
    browser.open(run.path / "report.html")
    assert browser.wait_for(f"{LIVE} === 4")
    gone = "document.querySelectorAll('tbody tr[hidden]').length"
    assert browser.ask(gone) == 0
    browser.ask("document.querySelector('p.key .subject').click()")
    assert browser.ask("document.documentElement.dataset.alone") == "zoo:vit"
    assert browser.ask(gone) > 0
    assert browser.wait_for(f"{LIVE} === 4")
    browser.ask("document.querySelector('button.alone:not(.looking)').click()")
    assert browser.ask(gone) == 0
    assert browser.complaints == []


def test_every_paper_that_a_measure_cites_is_listed_with_its_address() -> None:
    for name, measure in measures().items():
        for source in measure.sources:
            if source.paper != "eyechart":
                (reference,) = verdict_rows.references([], [source.paper])
                assert reference["link"].startswith("https://arxiv.org/abs/"), (name, source.paper)


def test_a_paper_is_named_once_and_its_number_is_the_link(outline: Outline) -> None:
    listed = outline.html.partition('<section id="references">')[2].partition("</section>")[0]
    assert listed.count("</a>") > 1
    assert listed.count("arXiv:") == listed.count(' rel="noreferrer">arXiv:') == listed.count("arxiv.org")


def test_tooltips_keep_their_own_looks() -> None:
    """The page's own `.key` made Vega's `td.key` a flex box, and the tooltip a tall one."""
    assert not re.search(r"^\.key\b", page.HERE.joinpath("page.css").read_text(), re.MULTILINE)
