"""The documentation site: its pages are made of what the code says, and lead somewhere."""

from __future__ import annotations

import importlib
import posixpath
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eyechart.claims.table import CLAIMS
from eyechart.cli import main
from eyechart.measures import measures
from eyechart.store import FORMAT
from tests.report.browser import Browser
from tests.small_exam import examined

ROOT = Path(__file__).parents[1]
SITE = ROOT / "scripts" / "site"


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The modules that make pages, with an exam of one measure in the place of those that `make docs` runs."""
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(SITE))
    try:
        figures, hook = importlib.import_module("figures"), importlib.import_module("hook")
        folder = tmp_path_factory.mktemp("runs")
        run = examined(folder / "docs")
        vars(figures).update(RUNS=("docs",), FOLDER=folder)
        (folder / "examples").mkdir()
        for path in (ROOT / "examples").glob("*.py"):  # tests/test_examples.py runs them
            (folder / "examples" / f"{path.stem}.txt").write_text(f"what {path.stem} printed")
        made = {room.__name__: room for room in hook.ROOMS} | {"figures": figures, "hook": hook, "run": run}
        yield made
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(SITE)):
                del sys.modules[name]


@pytest.fixture(scope="module")
def pages(rooms: dict[str, Any]) -> dict[str, str]:
    drawn = rooms["figures"].figures()
    return {path: text for room in rooms["hook"].ROOMS for path, text in room.pages(drawn).items()}


def test_every_measure_has_a_page_with_its_own_words(pages: dict[str, str]) -> None:
    for name, measure in measures().items():
        page = pages[f"measures/{name}.md"]
        assert f"# {measure.title}\n" in page
        assert measure.how_to_read in page
        assert measure.method in page
        computed = page.partition("## How it is computed")[2].partition("\n## ")[0]
        assert re.search(r"^    \S.*[=√]", computed, re.MULTILINE), f"{name}: no formula"
        assert all(quantity.explain in page for quantity in measure.quantities)
        assert all(f"--set {name}.{option}=" in page for option in measure.options)
        assert "## Known answers" in page
        assert all(source.figures in page for source in measure.sources)
    assert "https://arxiv.org/abs/2108.08810" in pages["measures/cka.md"].partition("## Papers")[2]
    assert "](../figures/skip_ratio.svg)" in pages["measures/skip_ratio.md"]
    assert "](../figures/" not in pages["measures/cka.md"], "what was not run has no figure"
    assert "leaves this measure out: it was not asked for." in pages["measures/cka.md"]


def test_a_figure_says_how_many_pictures_it_was_made_from(rooms: dict[str, Any]) -> None:
    """Of the exam's 1,000 pictures robustness took 64, and filters none; each page said 1,000."""
    of_measures, run = rooms["pages_of_measures"], rooms["run"]
    measure = measures()["skip_ratio"]
    assert of_measures.shown(measure) == f"This figure: {run.plan['images']['used']} pictures of sample, effort normal"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run.findings["skip_ratio"].attrs, "images", 7)
        patch.setattr(of_measures, "runs", lambda: {"skip_ratio": run})
        assert of_measures.shown(measure) == "This figure: 7 pictures of sample, effort normal"
        run.findings["skip_ratio"].attrs |= {"of_weights": 1, "sample": "Read off the weights"}
        assert of_measures.shown(measure) == "Read off the weights"
        del run.findings["skip_ratio"].attrs["of_weights"], run.findings["skip_ratio"].attrs["sample"]


def test_an_example_is_shown_with_what_it_printed(pages: dict[str, str]) -> None:
    for path in (ROOT / "examples").glob("*.py"):
        page = pages[f"examples/{path.stem}.md"]
        assert f"what {path.stem} printed" in page
        assert path.read_text(encoding="utf-8").splitlines()[-1] in page


def test_an_example_does_not_show_where_it_ran(rooms: dict[str, Any]) -> None:
    shown = rooms["pages_of_examples"].without_folder(f"run {Path(tempfile.gettempdir()) / 'tmpx1' / 'page.html'}\nend")
    assert shown == "run …/page.html\nend"


def test_make_docs_runs_every_exam_that_figures_are_taken_from() -> None:
    (folders,) = re.findall(r"^RUNS = \((.*)\)$", (SITE / "figures.py").read_text(encoding="utf-8"), re.MULTILINE)
    docs = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndocs:")[2].partition("\n\n")[0]
    for name in re.findall(r'"([\w-]+)"', folders):
        assert re.search(rf"--out runs/{name}[ )]", docs), name
    assert "mkdocs build --strict" in docs
    assert "--quiet\n" not in docs, "it keeps mkdocs from counting warnings"


def test_a_worked_contribution_is_shown_as_a_diff(pages: dict[str, str]) -> None:
    shown = pages["own-measures.md"].partition("```diff\n")[2].partition("\n```")[0]
    assert shown == (ROOT / "docs" / "contribution.diff").read_text(encoding="utf-8").rstrip()


def test_every_claim_is_told_with_its_margin_and_its_null(pages: dict[str, str]) -> None:
    page = pages["claims.md"]
    for claim in CLAIMS.values():
        _, _, section = page.partition(f"## {claim.id}\n")
        section = section.partition("\n## ")[0]
        assert f"**{claim.sentence}**" in section
        assert claim.margin in section
        assert claim.null in section


def test_every_command_and_its_options_are_told(pages: dict[str, str]) -> None:
    for name in main.commands:
        assert f"## eyechart {name}\n" in pages["commands.md"]
    assert "--effort [quick|normal|full]" in pages["commands.md"]


def test_the_format_and_the_keys_of_a_plan_are_those_of_a_run(pages: dict[str, str], rooms: dict[str, Any]) -> None:
    page = pages["run-folder.md"]
    assert f"format **{FORMAT}**" in page
    told = set(re.findall(r"^\| `(\w+)(?:\[\])?` \|", page, re.MULTILINE)) - {"shards"}
    assert told - {"figures"} <= set(rooms["run"].plan)


def test_the_navigation_names_pages_that_exist_and_all_of_them(pages: dict[str, str], rooms: dict[str, Any]) -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.SafeLoader)
    lists = {"measures": rooms["pages_of_measures"].navigation(), "examples": rooms["pages_of_examples"].navigation()}
    named = set(_leaves([rooms["hook"]._filled(entry, lists) for entry in settings["nav"]]))
    written = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert named == set(pages) | written


def _leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _leaves(part)


def test_links_between_pages_lead_to_pages(pages: dict[str, str]) -> None:
    kept = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*")}
    there = set(pages) | kept | {"figures/skip_ratio.svg"}
    for path, text in pages.items():
        for target in re.findall(r"\]\((?!https?:|#)([^)# ]+)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            assert resolved in there, f"{path} links to {target}"


def test_pages_name_nothing_that_a_reader_cannot_open(pages: dict[str, str]) -> None:
    """Five measures referred to a specification, and a page to an issue, that are not in the repository."""
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    for path, text in (pages | written).items():
        assert not re.search(r"\bSPEC [A-Z]?\d|\bissue \d", text), path


def test_nothing_is_fetched() -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.SafeLoader)
    assert settings["theme"]["font"] is False
    assert settings["strict"] is True
    assert "http" not in str({key: value for key, value in settings.items() if key != "site_url"})
    assert not re.search(r"url\(|@import", (ROOT / "docs" / "site.css").read_text())


def test_lists_examples_and_columns_of_docstrings_become_markdown(rooms: dict[str, Any]) -> None:
    as_markdown = importlib.import_module("site_text").as_markdown
    assert as_markdown("- one\n\n      x = 1\n\n  more\n- two").strip() == "- one\n\n        x = 1\n\n    more\n\n- two"
    assert as_markdown("Doubles.\n\n>>> double(2)\n4") == "Doubles.\n\n```pycon\n>>> double(2)\n4\n```"
    linked = importlib.import_module("pages_of_repository").linked
    told = linked("[the table](docs/families.md#a), [how](CONTRIBUTING.md), [citation](CITATION.cff)")
    assert told == "[the table](families.md#a), [how](contributing.md), citation"
    # fenced, what each argument is ended outside of what is seen, on a desk too
    columns = "a    first <x>\n     and on\nbee  second\nkeep it"
    assert as_markdown(columns) == "- `a`: first &lt;x>\n    and on\n- `bee`: second\n- `keep`: it"


def test_reliability_is_the_page_of_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    page = importlib.import_module("reliability_page")
    assert page.PAGE.read_text(encoding="utf-8") == page.text(page.read(page.COUNTS), page.read(page.FUZZED))


@pytest.fixture(scope="module")
def site(rooms: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it, of an exam of one measure: a link or an anchor that leads nowhere ends it."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def test_the_site_builds_without_a_warning(site: Path) -> None:
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {"index.html", "index.ko.html", "claims.html", "api.html", "measures/cka.html", "studies.html"} <= built
    assert 'href="studies.html"' in (site / "reproduction.html").read_text(encoding="utf-8")


def test_pages_that_are_opened_from_the_disk_can_be_searched(site: Path, browser: Browser) -> None:
    browser.open(site / "measures" / "skip_ratio.html")
    browser.page.click(".md-search__input", timeout=10_000)
    browser.page.keyboard.type("receptive")
    assert browser.wait_for("document.querySelector('.md-search-result__link[href*=receptive_field]')")


def test_a_figure_is_not_drawn_larger_than_it_is(site: Path, browser: Browser) -> None:
    """One of 491 pixels filled the page, its words twice as large as those of the text."""
    browser.open(site / "measures" / "skip_ratio.html")
    assert browser.ask("document.querySelector('figure.wide img').clientWidth") > 500
    small = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='200' height='100'/>"
    browser.ask(f'document.querySelector("figure.wide img").src = "{small}"')
    assert browser.wait_for("document.querySelector('figure.wide img').clientWidth === 200", seconds=3)


def test_a_picture_of_the_text_is_moved_on_a_phone_not_shrunk(site: Path, browser: Browser) -> None:
    """Four panels of README's figure had letters of two pixels."""
    browser.page.set_viewport_size({"width": 390, "height": 844})
    try:
        browser.open(site / "index.html")
        widths = browser.ask("[...document.querySelectorAll('p > img')].map(img => img.clientWidth)")
        assert len(widths) >= 6
        assert min(widths) > 340
        assert sorted(widths)[1] >= 640, "all but the picture of a phone"
        assert browser.ask("document.documentElement.scrollWidth") <= 390
    finally:
        browser.page.set_viewport_size({"width": 1280, "height": 900})


def test_the_page_of_an_unknown_address_needs_no_other_file(site: Path) -> None:
    """The theme's own asks for its style at the root of the server: bare letters from a disk, and on GitHub's pages."""
    page = (site / "404.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:href|src)="([^"]*)"', page)) == {"index.html"}
    folders = {path.parent for path in site.rglob("*.html") if path.name != "404.html"}
    assert {folder for folder in folders if not (folder / "index.html").is_file()} == set()


def test_every_link_leads_to_a_file(site: Path) -> None:
    """Not to a folder: from a disk that is a list of files, to which the logo of every page led."""
    lost = []
    for page in site.rglob("*.html"):
        links = re.findall(r'<a [^>]*?href="(?!\w+:|#)([^"#]+)', page.read_text(encoding="utf-8"))
        lost += [f"{page.name}: {link}" for link in set(links) if not (page.parent / link).is_file()]
    assert lost == []
