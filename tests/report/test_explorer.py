"""The explorer as fingers and readers without JavaScript meet it: what is drawn is what the finding holds."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from scipy.stats import spearmanr

from eyechart.charts import theme
from eyechart.charts.palette import shades
from eyechart.intervals import with_intervals
from eyechart.measures.attention_maps.measure import AttentionMaps
from eyechart.measures.attention_maps.rows import MEAN, coded, decoded, kept_rows
from eyechart.report import embed, explorer, page
from eyechart.scene import Scene
from eyechart.site_choice import attentions_with_maps
from eyechart.sites import Anatomy
from tests.measures.staging import full_grid

from .browser import Browser
from .synthetic import SyntheticRun, as_run, resnet, synthetic_run, vit
from .test_page import CRUEL, Outline

EXAMPLES, SIDE, PIXELS = 3, 8, 32


def with_attention(who: Anatomy) -> Anatomy:
    """A synthetic ViT whose attentions say how many keys they have."""
    sites = [replace(s, attention=replace(s.attention, keys=65)) if s.attention else s for s in who.sites]
    return replace(who, sites=tuple(sites))


def pictures(dice: torch.Generator) -> torch.Tensor:
    """Slopes under a little noise: patches near each other are alike, as in photographs."""
    slope = torch.linspace(0, 100, PIXELS)
    noise = 40 * torch.rand(EXAMPLES, PIXELS, PIXELS, 3, generator=dice)
    return (slope[:, None, None] + slope[None, :, None] + noise).to(torch.uint8)


def finding_of(scene: Scene, classes: tuple[str, ...]) -> xarray.Dataset:
    """Random attention, as the measure would have kept it."""
    dice = torch.Generator().manual_seed(2)
    measure = AttentionMaps(images=48)
    tally = measure.tally(scene)
    kept = kept_rows(full_grid(SIDE, 4.0, prefix=1), SIDE)
    found: dict[str, dict[str, torch.Tensor]] = {}
    for subject, site in scene.sites(attentions_with_maps):
        rows = (4 * torch.rand(EXAMPLES, (site.heads or 0) + 1, 66, 65, generator=dice)).exp()
        codes, peak, beside = coded(rows / rows.sum(-1, keepdim=True), torch.as_tensor(kept.placed))
        mine = found.setdefault(
            subject,
            {
                "image": torch.arange(EXAMPLES),
                "label": torch.arange(EXAMPLES) % len(classes),
                "picture": pictures(dice),
            },
        )
        mine |= {
            f"maps of {site.name}": codes[:, :-1],
            f"peak of {site.name}": peak[:, :-1],
            f"beside of {site.name}": beside[:, :-1],
            f"rollout of {site.name}": codes[:, -1],
            f"rollout_peak of {site.name}": peak[:, -1],
            f"rollout_beside of {site.name}": beside[:, -1],
            f"query_place of {site.name}": torch.as_tensor(kept.queries),
            f"key_place of {site.name}": torch.as_tensor(kept.keys),
            f"grids of {site.name}": torch.tensor(kept.grids),
        }
    tally.keep_examples(scene, found)
    tally.entropy += 3 + torch.rand(tally.entropy.shape, generator=dice)
    tally.class_entropy += 3
    tally.images += 1
    return with_intervals(replace(measure), tally, scene)


def run_with_maps(folder: Path, one: str = "zoo:vit", two: str = "zoo:vit-2") -> SyntheticRun:
    run = synthetic_run(folder, one=one)
    bodies = (with_attention(vit(one)), with_attention(vit(two)), resnet("zoo:resnet"))
    scene = replace(run.scene, anatomies=bodies, classes=("frog", CRUEL))
    run.findings = {"attention_maps": finding_of(scene, ("frog", CRUEL))}
    run.measures["attention_maps"] = AttentionMaps(images=48)
    run.plan["settings"]["effort"] = "quick"
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SyntheticRun:
    return run_with_maps(tmp_path_factory.mktemp("explorer"))


@pytest.fixture(scope="module")
def html(run: SyntheticRun) -> str:
    return page.write_report(as_run(run)).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    return Outline(html)


def carried(outline: Outline) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(outline.scripts[1])
    return data


# --- what the page carries --------------------------------------------------------------------------------------------


def test_without_javascript_a_sentence_stands_there(outline: Outline) -> None:
    hidden = [attributes for _, attributes in outline.elements if attributes.get("data-part") == "table"]
    assert "hidden" in hidden[0]
    assert "This needs JavaScript" in outline.text
    assert ("li", {}) in outline.elements
    assert any(link["href"] == "#explorer" for link in outline.all("a"))


def test_the_policy_allows_its_script(outline: Outline) -> None:
    policy = next(meta["content"] for meta in outline.all("meta") if "http-equiv" in meta)
    _, _, *code = outline.scripts
    assert page.content_policy([embed.javascript(), *code]) == policy


def foreseen(rest: np.ndarray) -> np.ndarray:
    """Undoes `unforeseen`, key by key."""
    whole = np.zeros((*rest.shape[:-2], rest.shape[-2] + 1, rest.shape[-1] + 1), np.int64)
    for query, key in np.ndindex(rest.shape[-2:]):
        left, above, corner = whole[..., query + 1, key], whole[..., query, key + 1], whole[..., query, key]
        lowest, highest = np.minimum(left, above), np.maximum(left, above)
        plane = np.where(corner >= highest, lowest, np.where(corner <= lowest, highest, left + above - corner))
        whole[..., query + 1, key + 1] = (rest[..., query, key] + plane) % 256
    return whole[..., 1:, 1:]


def test_rows_are_the_findings(run: SyntheticRun, outline: Outline) -> None:
    finding, data = run.findings["attention_maps"], carried(outline)
    assert [each["name"] for each in data["subjects"]] == ["zoo:vit", "zoo:vit-2"]
    assert data["examples"] == ["frog", CRUEL, "frog"]
    second = data["subjects"][1]
    raw = zlib.decompress(base64.b64decode(second["rows"][2]))
    codes = foreseen(np.frombuffer(raw, np.uint8)[: 9 * 9 * 66 * 65].reshape(9, 9, 66, 65))
    low, high = np.frombuffer(raw, np.uint8)[codes.size :].reshape(2, -1)
    peaks, besides = np.stack([low, high], 1).copy().view("<f2").reshape(2, 9, 9, 66)
    assert np.array_equal(besides[:, :8].astype(np.float32), finding.beside.values[2, 9:])
    assert np.array_equal(codes[:, :8], finding.maps.values[2, 9:])
    assert np.array_equal(codes[:, 8], finding.rollout.values[2, 9:])
    assert np.array_equal(peaks[:, :8].astype(np.float32), finding.peak.values[2, 9:])
    assert np.array_equal(peaks[:, 8].astype(np.float32), finding.rollout_peak.values[2, 9:])
    assert second["layers"][3]["entropy"] == pytest.approx(finding.relative.values[12].tolist(), abs=1e-4)
    assert second["layers"][3]["queries"][1] == [MEAN, 0, 0]


def test_it_takes_no_more_room_than_it_may(run: SyntheticRun, outline: Outline) -> None:
    assert len(outline.scripts[1]) <= min(2 * explorer.BYTES_A_SUBJECT, explorer.MOST_BYTES)
    small = explorer.explorer(as_run(run), budget=len(outline.scripts[1]) * 9 // 10)
    assert small is not None
    assert len(small["examples"]) == EXAMPLES  # rather fewer queries in some layers than fewer pictures
    asked = [len(layer["queries"]) for layer in small["subjects"][0]["layers"]]
    assert set(asked) == {2 + 64, 2 + 49}
    assert asked[0] == asked[-1] == 2 + 64
    assert len(json.dumps(small, separators=(",", ":"))) <= len(outline.scripts[1]) * 9 // 10
    least = explorer.explorer(as_run(run), budget=0)
    assert least is not None
    assert len(least["examples"]) == 1


def test_a_page_too_large_keeps_fewer_pictures(run: SyntheticRun, html: str) -> None:
    fewer = Outline(page.render(as_run(run), largest=len(html.encode()) - 300_000))  # more than its tables
    assert len(fewer.scripts[1]) < len(Outline(html).scripts[1])
    assert json.loads(fewer.scripts[0])["charts"]


def test_pages_without_maps_have_no_explorer(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path)
    run.findings = {"recognition": run.findings["recognition"]}
    plain = page.render(as_run(run))
    assert "explorer" not in re.sub(r"<script>.*?</script>", "", plain, flags=re.DOTALL)


# --- in a browser -----------------------------------------------------------------------------------------------------

DESK, PHONE = (1280, 1300), (390, 1800)
COLOURS = """(() => {
  const canvas = document.querySelector('#explorer [data-part=map]'), { width, height } = canvas, found = [];
  const copy = Object.assign(document.createElement('canvas'), { width, height });
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const pixels = pen.getImageData(0, 0, width, height).data;
  for (let y = 0; y < 8; y += 1) for (let x = 0; x < 8; x += 1) {
    const at = 4 * (Math.floor((y + 0.5) * height / 8) * width + Math.floor((x + 0.5) * width / 8));
    found.push([...pixels.slice(at, at + 3)]);
  }
  return found;
})()"""


def opened(browser: Browser, run: SyntheticRun) -> None:
    browser.open(run.path / "report.html")
    assert browser.wait_for("document.readyState === 'complete'")
    browser.ask("document.getElementById('explorer').scrollIntoView()")
    assert browser.wait_for("document.getElementById('explorer').dataset.query !== undefined")
    drawn = "[...document.querySelectorAll('figure[data-chart]')].filter((each) => each.dataset.marked !== undefined)"
    count = -1
    while count != (count := browser.ask(f"{drawn}.length")):  # figures above that are still drawn would move it
        browser.page.wait_for_timeout(400)
    browser.ask("document.getElementById('explorer').scrollIntoView()")


def state(browser: Browser) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(browser.ask("JSON.stringify(document.getElementById('explorer').dataset)"))
    return {name: int(value) if value.isdigit() else value for name, value in told.items()}


def wanted(finding: xarray.Dataset, told: dict[str, Any]) -> np.ndarray:
    """Weights on patches (row, column) that ought to be drawn."""
    site = told["layer"] + 9 * (told["subject"] == "zoo:vit-2")
    at = (told["example"], site)
    placed = finding.key_place.values[site, 0, :, 0] >= 0
    prefix = "rollout_" if told["show"] == "rollout" else ""
    codes = finding["rollout" if prefix else "maps"].values[at]
    peak, beside = (finding[f"{prefix}{kind}"].values[at] for kind in ("peak", "beside"))
    values = decoded(codes, peak, beside, placed)
    if prefix:
        values = values[told["query"]]
    else:
        values = values[:, told["query"]]
        values = values.mean(0) if told["show"] == "mean" else values[told["head"]]
    weights: np.ndarray = values[1:].reshape(SIDE, SIDE)
    return weights


def check_colours(browser: Browser, finding: xarray.Dataset) -> dict[str, Any]:
    told = state(browser)
    weights = wanted(finding, told)
    expected = shades(weights / weights.max(), theme.MAGMA).reshape(-1, 3)
    assert abs(np.array(browser.ask(COLOURS)) - expected).max() <= 1, told
    return told


def place(browser: Browser, part: str, row: float, column: float) -> tuple[float, float]:
    """The middle of a patch of a canvas, in pixels of the window."""
    box = f"document.querySelector('#explorer [data-part={part}]').getBoundingClientRect()"
    left, top, width, height = browser.ask(f"(({{left, top, width, height}}) => [left, top, width, height])({box})")
    return left + (column + 0.5) * width / SIDE, top + (row + 0.5) * height / SIDE


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_what_is_drawn_follows_the_fingers(browser: Browser, run: SyntheticRun, html: str) -> None:
    finding = run.findings["attention_maps"]
    opened(browser, run)
    before = check_colours(browser, finding)
    assert before["show"] == "head"

    browser.click(*place(browser, "picture", 2, 6))
    clicked = check_colours(browser, finding)
    assert clicked["query"] == 2 + 2 * SIDE + 6 != before["query"]
    browser.press("ArrowDown")  # the canvas has the focus now
    browser.press("ArrowLeft")
    assert check_colours(browser, finding)["query"] == 2 + 3 * SIDE + 5

    def click(what: str, key: str, value: object) -> None:
        browser.ask(f"document.querySelector('#explorer {what}').click()")
        assert browser.wait_for(f"document.getElementById('explorer').dataset.{key} === '{value}'")
        assert check_colours(browser, finding)["query"] in (2 + 3 * SIDE + 5, 0, 1)

    click("[data-part=heads] button:nth-child(3)", "head", 2)
    click("[data-part=pictures] label:nth-child(2) input", "example", 1)
    click("[data-part=subjects] label:nth-of-type(2) input", "subject", "zoo:vit-2")
    click("[data-part=show] input[value=mean]", "show", "mean")
    click("[data-part=show] input[value=rollout]", "show", "rollout")
    click("[data-part=tokens] button:nth-child(2)", "query", 1)
    click("[data-part=tokens] button:nth-child(1)", "query", 0)
    browser.ask("document.querySelector('#explorer [data-part=layer]').focus()")
    browser.press("ArrowRight")
    assert browser.wait_for(f"document.getElementById('explorer').dataset.layer === '{before['layer'] + 1}'")
    check_colours(browser, finding)

    assert browser.complaints == []
    assert {address.split(":")[0] for address in browser.requests} <= {"file", "data", "about"}
    assert browser.ask("document.querySelectorAll('#explorer img[src=x]').length") == 0  # a cruel class name


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_a_head_chosen_by_key_keeps_the_focus(browser: Browser, run: SyntheticRun, html: str) -> None:
    """Its button was made anew, and the next Tab began at the top of the page."""
    opened(browser, run)
    browser.page.locator("#explorer [data-part=heads] button").nth(2).focus()
    browser.press("Enter")
    assert browser.wait_for("document.getElementById('explorer').dataset.head === '2'")
    assert browser.ask("document.activeElement.getAttribute('aria-label')").startswith("Head 3")


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_random_weights_are_not_called_learned(browser: Browser, run: SyntheticRun, html: str) -> None:
    trained = run.plan["subjects"][0]["trained"]
    run.plan["subjects"][0]["trained"] = False
    try:
        told = explorer.explorer(as_run(run))
    finally:
        run.plan["subjects"][0]["trained"] = trained
    assert told
    assert [each["random"] for each in told["subjects"]] == [True, False]
    opened(browser, run)
    words = "document.querySelector('[data-part=agreement]').textContent"
    assert "random" not in browser.ask(words)
    browser.ask("window.eyechart.attention.data.subjects[0].random = true")
    browser.page.click(".steps [data-show=mean]")
    assert browser.wait_for(f"{words}.includes('The weights of zoo:vit are random')")


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_the_numbers_said_are_the_findings(browser: Browser, run: SyntheticRun, html: str) -> None:
    opened(browser, run)
    browser.move(*place(browser, "map", 5, 1))
    weights = wanted(run.findings["attention_maps"], state(browser))
    said = browser.ask("document.querySelector('#explorer [data-part=hovered]').textContent")
    number = float(re.findall(r"row 6, column 2: ([\d.]+)\u00a0%", said)[0])
    assert number == pytest.approx(100 * weights[5, 1], rel=0.05)  # two digits
    most = browser.ask("document.querySelector('#explorer [data-part=said]').textContent")
    row, column = np.unravel_index(weights.argmax(), weights.shape)
    assert f"looks most at row {row + 1}, column {column + 1}" in most
    assert "the class token gets" in most


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_two_subjects_are_asked_the_same(browser: Browser, run: SyntheticRun, html: str) -> None:
    finding = run.findings["attention_maps"]
    opened(browser, run)
    browser.click(*place(browser, "picture", 2, 6))
    told = json.loads(browser.ask("document.getElementById('explorer').dataset.beside"))
    assert (told["subject"], told["query"]) == ("zoo:vit-2", 2 + 2 * SIDE + 6)
    weights = wanted(finding, {**state(browser), **told})
    expected = shades(weights / weights.max(), theme.MAGMA).reshape(-1, 3)
    assert abs(np.array(browser.ask(COLOURS.replace("data-part=map", "data-part=other-map"))) - expected).max() <= 1
    assert "Of zoo:vit-2, the patch in row 3, column 7 looks most at" in browser.ask(
        "document.querySelector('#explorer [data-part=other-said]').textContent"
    )
    own = "['said', 'heads-of'].map((name) => document.querySelector(`#explorer [data-part=${name}]`).textContent)"
    said, heads = browser.ask(own)  # between the maps of two, which of them was not said
    assert said.startswith("Of zoo:vit, the patch in row 3, column 7 looks most at")
    assert heads.endswith(" of zoo:vit")
    shown = "document.querySelector('#explorer [data-show=%s]').click()"
    words = "document.querySelector('#explorer [data-part=other-said]').textContent"
    browser.ask(shown % "mean")
    assert browser.wait_for("document.getElementById('explorer').dataset.show === 'mean'")
    assert "no such map" not in browser.ask(words)
    browser.ask("(window.eyechart.attention.subject(window.eyechart.attention.other).noRollout = 'tested')")
    browser.ask("document.querySelector('#explorer [data-part=show] input[value=rollout]').click()")
    assert browser.wait_for(f"{words}.endsWith('zoo:vit-2 has no such map here: its heads are averaged instead.')")
    browser.ask("document.querySelector('#explorer [data-part=besides] label input').click()")
    assert browser.wait_for("document.getElementById('explorer').dataset.beside === ''")
    assert browser.ask("document.querySelector('#explorer [data-part=beside-figure]').hidden")
    assert not any("zoo:vit" in words for words in browser.ask(own))
    assert browser.complaints == []


def plain_likeness(pixels: np.ndarray, row: int, column: int) -> np.ndarray:
    """softmax(XXᵀ/√d) of patches of 4 pixels, each seen at 6×6 points, colours standardised over the picture."""
    scaled = (pixels - pixels.mean((0, 1))) / pixels.std((0, 1))
    points = np.floor((np.arange(6) + 0.5) / 6 * 4).astype(int)
    patches = scaled.reshape(SIDE, 4, SIDE, 4, 3).swapaxes(1, 2)[:, :, points][:, :, :, points].reshape(SIDE, SIDE, -1)
    scores = patches @ patches[row, column] / np.sqrt(patches.shape[-1])
    powers: np.ndarray = np.exp(scores - scores.max())
    return powers / powers.sum()


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_the_lesson_begins_without_weights_and_measures_how_far_they_lead(
    browser: Browser, run: SyntheticRun, html: str
) -> None:
    opened(browser, run)
    browser.click(*place(browser, "picture", 2, 6))
    plain = plain_likeness(run.findings["attention_maps"].picture.values[0, 0].astype(float), 2, 6)
    agreement = browser.ask("document.querySelector('[data-part=agreement]').textContent")
    weights = wanted(run.findings["attention_maps"], state(browser))
    others = np.arange(SIDE * SIDE) != 2 * SIDE + 6
    expected = spearmanr(weights.ravel()[others], plain.ravel()[others]).statistic
    assert f"{expected:.2f}".replace("-", "−") in agreement
    browser.page.click(".steps [data-show=pixels]")
    assert browser.wait_for("document.getElementById('explorer').dataset.show === 'pixels'")
    colours = shades(plain / plain.max(), theme.MAGMA).reshape(-1, 3)
    assert abs(np.array(browser.ask(COLOURS)) - colours).max() <= 1
    assert "Nothing learned yet" in browser.ask("document.querySelector('.lesson p:not([hidden])').textContent")
    assert not browser.page.is_visible(".steps [data-show=place]")  # this run has no such finding


@pytest.mark.parametrize("browser", [PHONE], indirect=True)
def test_it_fits_a_phone(browser: Browser, run: SyntheticRun, html: str) -> None:
    opened(browser, run)
    width = browser.ask("document.documentElement.clientWidth")
    assert browser.ask("document.documentElement.scrollWidth") <= width <= 390
    more = "document.querySelector('.thumbnails > div')"
    browser.ask(f"{more}.append(...[...Array(6)].map(() => {more}.firstElementChild.cloneNode(true)))")
    edges = "[...document.querySelectorAll('.thumbnails label')].map((one) => one.getBoundingClientRect().right)"
    assert max(browser.ask(edges)) <= width  # none has to be scrolled to
    tops = (
        "[...document.querySelectorAll('#explorer figure canvas[tabindex]')].map((c) => c.getBoundingClientRect().top)"
    )
    first, second = browser.ask(tops)
    assert first == second  # side by side
    box = "document.querySelector('#explorer [data-part=%s]').getBoundingClientRect()"
    assert browser.ask(f"{box % 'said'}.bottom <= {box % 'other-map'}.top")  # it speaks of the first
    assert browser.ask(f"{box % 'other-scale'}.top - {box % 'other-map'}.bottom") < 20  # 45, beside many words
    browser.click(*place(browser, "picture", 0, 7))
    assert check_colours(browser, run.findings["attention_maps"])["query"] == 2 + 7
