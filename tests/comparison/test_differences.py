"""Differences of two runs: paired where the runs allow it, and with intervals that hold the truth."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import unquote

import altair as alt
import numpy as np
import pytest
import xarray
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner

import eyechart
from eyechart.charts.tables import subject_colours
from eyechart.claims.gates import GateResult
from eyechart.claims.verdict import Verdict
from eyechart.cli import main
from eyechart.comparison import pictures
from eyechart.comparison.comparison import Comparison, VerdictLine, compare
from eyechart.comparison.differences import Difference, Estimate, change, changes_of, gives_back, leave_one_out
from eyechart.comparison.page import order_of, run_row
from eyechart.errors import UsageError
from eyechart.intervals import jackknife
from eyechart.quantity import Quantity, of_each
from eyechart.report.words import page_language
from eyechart.run import Run
from tests.report.browser import Browser

FOLDS = 16
MEAN = Quantity("mean", of_each(lambda estimate, subject: float(estimate.score.sel(subject=subject))), "mean score")


def finding(scores: np.ndarray) -> xarray.Dataset:
    """What an exam keeps of a mean over images (image,), dealt to folds."""
    folds = np.arange(len(scores)) % FOLDS
    without = np.array([[scores[folds != fold].mean()] for fold in range(FOLDS)])
    value = scores.mean()
    low, high = jackknife(np.array(value), without[:, 0])
    rows = {f"quantity_{part}": ("quantity_row", [float(end)]) for part, end in
            (("value", value), ("low", low), ("high", high))}  # fmt: skip
    return xarray.Dataset(
        {"score": ("subject", [value]), "score_replicates": (("replicate", "subject"), without), **rows},
        coords={
            "subject": ["a"],
            "family": ("subject", ["cnn"]),
            "quantity": ("quantity_row", ["mean"]),
            "quantity_subjects": ("quantity_row", ["a"]),
        },
    )


def test_paired_intervals_cover_the_truth_and_are_narrower() -> None:
    """Two runs over the same images share what is hard about each image; the second is better by 0.3."""
    generator = np.random.default_rng(0)
    held, widths = 0, []
    key = ("mean", ("a",))
    for _ in range(60):
        hard = generator.normal(size=160)
        both = [finding(hard + shift + 0.3 * generator.normal(size=160)) for shift in (0.0, 0.3)]
        kept = [leave_one_out(each, [MEAN]) for each in both]
        _, (paired,), hows = changes_of(MEAN, [key, key], both, kept, [True, True])
        _, (apart,), other = changes_of(MEAN, [key, key], both, kept, [True, False])
        assert (hows, other) == (("paired",), ("independent",))
        held += paired.low <= 0.3 <= paired.high
        widths.append((paired.high - paired.low) / (apart.high - apart.low))
    assert 53 <= held <= 60
    assert np.mean(widths) < 0.5


def test_what_is_no_plain_jackknife_is_not_paired() -> None:
    replicates = np.linspace(0.4, 0.6, FOLDS)
    plain = Estimate(0.5, *(float(end) for end in jackknife(np.array(0.5), replicates)))
    wider = Estimate(0.5, plain.low - 0.1, plain.high)
    assert gives_back(MEAN, plain, replicates)
    assert not gives_back(MEAN, wider, replicates)
    assert change(MEAN, wider, plain, replicates, replicates[::-1])[1] == "independent"
    same, how = change(MEAN, plain, Estimate(0.7, plain.low + 0.2, plain.high + 0.2), replicates, replicates + 0.2)
    assert how == "independent"  # no fold moved it: a paired interval would be [0.2, 0.2]
    assert same.low < 0.2 < same.high
    weights = Quantity("w", lambda estimate: {}, "of weights", exact=True)
    assert change(weights, plain, wider, None, None) == (Estimate(0.0, 0.0, 0.0), "exact")


def test_a_quantity_of_what_is_not_kept_without_each_fold_is_not_replicated() -> None:
    counted = finding(np.arange(160.0)).assign(count=("subject", [3]))
    other = Quantity("count", of_each(lambda estimate, subject: float(estimate["count"].sel(subject=subject))), "")
    assert list(leave_one_out(counted, [MEAN, other])) == [("mean", ("a",))]


def small(out: Path, label: str, spec: str, measures: str = "recognition,calibration", seed: int = 0) -> Run:
    return eyechart.exam({label: spec}, measures=measures, limit=64, seed=seed, out=out, progress=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eyechart.report.page.render", lambda run, undrawn, *how: "")  # these pages nobody reads
        patched.setattr("eyechart.intervals.DRAWS", 20)
        patched.setattr("eyechart.intervals.SMALL_DRAWS", 10)
        return [
            small(folder / "one", "net0", "zoo:resnet@warmup"),
            small(folder / "two", "net1", "zoo:resnet"),
            small(folder / "fewer", "net2", "zoo:resnet", measures="recognition"),
            small(folder / "shuffled", "net3", "zoo:resnet", seed=1),
        ]


def test_runs_give_their_differences(runs: list[Run]) -> None:
    one, two = runs[:2]
    made = compare({"before": one, "after": two})
    assert made.subjects == (("net0",), ("net1",))  # by their places, for their names differ
    rows = made.table
    assert set(rows.measure) == {"recognition", "calibration"}
    assert np.allclose(rows.change, rows.value - rows["first"], equal_nan=True)
    accuracy = rows[rows.quantity == "accuracy"].iloc[0]
    assert accuracy.interval == "paired"
    assert accuracy.low > 0  # a trained ResNet is better than one at the end of its warm-up
    inside = rows.dropna(subset=["low", "high"])
    assert ((inside.low <= inside.change) & (inside.change <= inside.high)).all()
    back = compare(two, one).table
    assert np.allclose(rows.change, -back.change, equal_nan=True)
    assert np.allclose(rows.low, -back.high, equal_nan=True)
    assert "Comparison(before, after" in repr(made)
    assert "recognition" in made._repr_html_()


def test_what_cannot_be_compared_is_said(runs: list[Run]) -> None:
    one, two, fewer, shuffled = runs
    assert compare(one, fewer).left_out == {"calibration": "it was not measured in fewer"}
    apart = compare(one, shuffled)
    assert set(apart.table.interval) <= {"independent", "exact"}  # other images in each fold
    with pytest.raises(UsageError, match="two runs or more; got 1 run"):
        compare(one)
    other = Run(two.path)
    other.plan["images"] = {**two.plan["images"], "fingerprint": "x"}
    with pytest.raises(UsageError, match="a and b cannot be compared: they looked at other images"):
        Comparison({"a": one, "b": other})


def test_who_and_what_was_compared_is_said(runs: list[Run]) -> None:
    """Of 256 images of another seed 67 were the same, and the page said "in another order"; a ResNet that stood beside
    a ViT was the only one named."""
    one, two, _, shuffled = runs
    alike = compare({"before": one, "after": two})
    assert alike.shown == {"net0": "net0 → net1"}
    assert alike.notices == ["Subjects of different names are compared by their places: net0 → net1."]
    assert alike.same_images
    apart = compare({"before": one, "other": shuffled})
    shared = len({*one.plan["batches"]["order"]} & {*shuffled.plan["batches"]["order"]})
    assert 0 < shared < 64
    assert f"Of the 64 images of other, {shared} are among the 64 of before." in apart.notices
    assert not apart.same_images
    assert order_of(apart, 1) == f"{shared} in common with before"


def test_a_run_names_the_weights_of_those_who_are_compared() -> None:
    """Of four subjects with one in common it listed four weights beside one name."""
    subjects = [{"name": name, "spec": f"module:{name.title()}"} for name in ("plain", "mine", "old")]
    plan = {"subjects": subjects, "images": {"used": 400}, "provenance": {"made": "2026-11-19T20:41:57+00:00"}}
    run = SimpleNamespace(plan=plan, path=Path("run"))
    compared = SimpleNamespace(runs=[run], labels=["first"], subjects=[("mine",)], same_folds=[True])
    row = run_row(cast(Comparison, compared), 0)
    assert row["specs"] == ["module:Mine"]


def test_what_has_no_interval_does_not_stand_first() -> None:
    """Any difference of weights is infinitely clear: one by .02 stood before one by .3 that was clear of chance."""
    exact, clear = Estimate(0.02, 0.02, 0.02), Estimate(0.3, 0.2, 0.4)
    made = [
        Difference("filters", "smoothness", "", "", ("a",), (), (exact,), ("exact",)),
        Difference("shift", "unmoved", "", "", ("a",), (), (clear,), ("paired",)),
    ]
    assert [each.quantity for each in pictures.clearest(made)] == ["unmoved", "smoothness"]


def test_the_command_prints_a_table_and_writes_a_page(runs: list[Run], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["compare", f"a<b={runs[0].path}", str(Run(runs[3].path).path), str(runs[2].path), "--out", str(page)]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.rstrip().endswith(f"page: {page}")
    assert "left out (it was not measured in fewer): calibration" in result.stdout
    html = page.read_text(encoding="utf-8")
    assert "a&lt;b" in html
    assert "a<b" not in html
    assert re.search(r"recognition: \d+ of \d+ changed", html)
    assert 'calibration</td><td class="quiet"><span lang="en">it was not measured in fewer' in html
    told = json.loads(CliRunner().invoke(main, [*words[:-2], "--json"], catch_exceptions=False).stdout)
    assert list(told["runs"]) == ["a<b", "shuffled", "fewer"]
    assert {row["run"] for row in told["changes"]} == {"shuffled", "fewer"}


def test_figures_show_those_compared_in_one_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others, which are not compared, a subject had the colour of its place among them."""
    monkeypatch.setattr(pictures, "picture", lambda spec, subjects: spec)

    def run(*subjects: str) -> SimpleNamespace:
        rows = {"y": ("site", np.arange(len(subjects)) / 2)}
        found = xarray.Dataset(rows, {"subject": ("site", list(subjects)), "block": ("site", [0] * len(subjects))})
        measure = SimpleNamespace(chart=dots)
        return SimpleNamespace(
            scene=SimpleNamespace(subjects=subjects), findings={"any": found}, measures={"any": measure}
        )

    def dots(finding: xarray.Dataset) -> alt.Chart:
        colour = subject_colours(finding.subject.values)
        table = finding.to_dataframe().reset_index()
        return cast(alt.Chart, alt.Chart(table).mark_point().encode(y="y:Q", color=colour))

    alike = SimpleNamespace(runs=[run("vit", "cnn"), run("vit", "other", "cnn")], subjects=(("vit", "cnn"),) * 2)
    first, second = pictures.in_every_run(cast(Comparison, alike), "any")
    scales = [made["encoding"]["color"]["scale"] for made in (first, second)]
    assert scales[0] == scales[1]
    assert scales[0]["domain"] == ["vit", "cnn"]
    (rows,) = second["datasets"].values()
    assert [row["subject"] for row in rows] == ["vit", "cnn"]


# --- the page of several runs, as a reader meets it -------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Three runs in English, two in Korean."""
    folder = tmp_path_factory.mktemp("pages")
    one, two, _, shuffled = runs
    three = compare({"warmup": one, "end": two, "seed 1": shuffled}).report(folder / "three.html")
    return three, compare({"warmup": one, "end": two}).report(folder / "two.html", lang="ko")


SHOWN = "[...document.querySelectorAll('#figures [data-run], #quantities td[data-run]')]"
RUNS_SHOWN = f"[...new Set({SHOWN}.filter((each) => each.getClientRects().length).map((each) => each.dataset.run))]"


def test_a_slider_goes_over_the_runs(browser: Browser, pages: tuple[Path, Path]) -> None:
    browser.open(pages[0])
    assert browser.ask(RUNS_SHOWN) == ["2"]  # the last beside the first
    assert browser.page.locator("output").inner_text() == "seed 1 beside warmup"
    assert browser.page.locator("#figures .beside:first-of-type figure:not([data-run])").first.is_visible()
    browser.page.locator("#run").focus()
    browser.press("ArrowLeft")
    assert browser.ask(RUNS_SHOWN) == ["1"]
    assert browser.ask("document.querySelector('#run').getAttribute('aria-valuetext')") == "end beside warmup"
    assert browser.ask("document.querySelector('tr.now b').innerText") == "end"
    browser.page.locator("[data-step='1']").click()
    assert browser.ask(RUNS_SHOWN) == ["2"]
    assert browser.page.locator("[data-step='1']").is_disabled()
    browser.page.locator("#all-runs").check()
    assert browser.ask(RUNS_SHOWN) == ["1", "2"]


@pytest.mark.parametrize("browser", [(1400, 900), (390, 800)], indirect=True, ids=["desk", "phone"])
def test_axe_finds_no_serious_fault(browser: Browser, pages: tuple[Path, Path]) -> None:
    """On a phone figures scroll sideways, and no key reached them."""
    for file in pages:
        browser.open(file)
        browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        found = Axe().run(browser.page).response["violations"]
        assert [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize("browser", [(390, 800)], indirect=True)
def test_counts_are_of_the_run_that_is_shown(browser: Browser, pages: tuple[Path, Path]) -> None:
    """ "1 of 14 changed" stood above a table without a change: it was another run's."""
    browser.open(pages[0])
    for place, key in ((2, "End"), (1, "Home")):
        browser.page.locator("#run").press(key)
        for section in browser.page.locator("#quantities details").all():
            (said,) = section.locator("summary > [data-run]:visible").all_inner_texts()
            assert int(said.split(": ")[1].split(" of ")[0]) == section.locator(f"td[data-run='{place}'] b").count()
    tops = (
        "[...document.querySelectorAll('#verdicts tbody tr')].map((row) => [...row.querySelectorAll('td:has(.badge)')]"
    )
    tops += ".map((cell) => cell.getBoundingClientRect().top))"
    assert {len(set(row)) for row in browser.ask(tops) if row} <= {1}, "runs stand beside one another on a phone, too"


@pytest.mark.parametrize("browser", [(390, 800, {"java_script_enabled": False})], indirect=True)
def test_without_javascript_all_runs_stand_in_their_order(browser: Browser, pages: tuple[Path, Path]) -> None:
    browser.open(pages[0])
    assert not browser.page.locator(".slider").is_visible()
    figures = browser.page.locator("#figures .beside").first.locator("figure")
    assert figures.locator("figcaption").all_inner_texts() == ["warmup", "end", "seed 1"]
    assert all(each.is_visible() for each in figures.all())


@pytest.mark.parametrize("browser", [(390, 800, {"color_scheme": "dark"})], indirect=True)
def test_the_page_of_two_runs_speaks_korean_and_needs_no_slider(browser: Browser, pages: tuple[Path, Path]) -> None:
    assert page_language(pages[1]) == "ko"
    browser.open(pages[1])
    assert browser.page.locator(".slider").count() == 0
    assert browser.page.locator("#quantities h2").inner_text().startswith("모든 양")
    assert browser.ask("document.documentElement.scrollWidth <= window.innerWidth")
    left = re.findall(r'<bdi lang="en">([^<]+)</bdi>', pages[1].read_text(encoding="utf-8"))
    assert left == []  # nothing fixed and nothing generated is missing in Korean
    browser.page.locator("[data-language=en]").click()
    assert browser.page.locator("#quantities h2").inner_text().startswith("Every quantity")
    assert "Comparison of 2 runs" in browser.page.locator(".over").inner_text()
    # Bold is what changed and nothing else: Jinja read `step.clear` as a method of the dictionary, and all were bold.
    changes = browser.page.locator("#quantities td[data-run]:last-child").all()
    bold = {bool(cell.locator("b").count()) == is_change(cell.inner_text()) for cell in changes}
    assert changes
    assert bold == {True}


def is_change(text: str) -> bool:
    low, high = (float(end.replace("−", "-")) for end in re.findall(r"\[(.*), (.*)\]", text)[0])
    return not low <= 0 <= high


def verdict(word: str, *gates: GateResult) -> Verdict:
    return Verdict("C13", ("a", "b"), "these weights", word, 0.1, 0.05, 0.2, "", gates=gates)  # type: ignore[arg-type]


def test_a_claim_that_one_run_did_not_test_is_no_difference() -> None:
    """Beside a run of five measures "31 of 39 verdicts differ" stood where no quantity had changed."""
    lines = [
        VerdictLine("C13", "", ("a", "b"), verdicts)
        for verdicts in ((verdict("holds"), None), (verdict("holds"), verdict("holds")))
    ]
    assert [(line.compared, line.differs) for line in lines] == [(False, False), (True, False)]
    failed = GateResult("g1", "accuracy", "failed", "a names 50 % right, less than 80 %")
    barred = VerdictLine("C13", "", ("a", "b"), (verdict("undecided", failed), verdict("holds")))
    assert (barred.differs, barred.barred) == (True, (True, False))


def test_a_verdict_that_is_not_one_under_holm_says_so_in_a_comparison(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    decided = replace(verdict("holds"), stands=False)
    line = VerdictLine("C13", "", ("vit", "resnet"), (decided, replace(decided, stands=True), None))
    assert line.corrected_away == (True, False, False)
    found = compare(*runs[:2])
    monkeypatch.setattr(type(found), "verdicts", [replace(line, subjects=(), verdicts=line.verdicts[:2])])
    html = found.report(tmp_path / "compared.html").read_text(encoding="utf-8")
    assert html.count('class="proxy corrected-away"') == 1


def test_titles_of_panels_are_whole_and_stay_what_they_are(runs: list[Run]) -> None:
    """ "class token first minus second atte" was cut, and a line that is a word of charts was said in Korean."""
    (first, *_) = compare(*runs[:2]).differences
    long = replace(first, quantity="early_attention_high_energy_change")
    made = pictures.panel(long, ["one", "two"])
    drawn = unquote(made["languages"].get("ko", made["languages"]["en"])["light"])
    svg = drawn if "<svg" in drawn else base64.b64decode(drawn.partition("base64,")[2]).decode()
    assert ">early attention high energy<" in svg
    assert ">change<" in svg
