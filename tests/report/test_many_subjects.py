"""Figures of many subjects in a real browser: who is shown first, who is picked, and how wide panels stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import altair as alt
import pandas as pd
import pytest
import xarray

from eyechart.charts import theme
from eyechart.charts.heatmap import heatmap
from eyechart.charts.theme import Chart
from eyechart.report import page
from eyechart.report.sections import two_of

from .browser import Browser
from .synthetic import as_run, resnet, synthetic_run, vit
from .test_reading import DESK, MARKS_OF, PHONE, to_figure


def test_a_figure_of_many_shows_the_first_and_who_is_least_like_it(tmp_path: Path) -> None:
    scene = synthetic_run(tmp_path).scene
    vit_scene = replace(scene, anatomies=(vit("a"), vit("b"), resnet("c"), resnet("d")))
    assert two_of(["a", "b", "c", "d"], vit_scene) == ["a", "c"]
    assert two_of(["c", "d", "b"], vit_scene) == ["c", "b"]
    assert two_of(["a", "b"], vit_scene) == ["a", "b"]


def test_subjects_of_a_high_figure_are_picked(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two subjects taken for many, of whom one is shown at first."""
    for name, value in (("MOST_TOGETHER", 1), ("TALL", 100), ("two_of", lambda subjects, scene: subjects[:1])):
        monkeypatch.setattr(f"eyechart.report.sections.{name}", value)
    made = page.write_report(as_run(synthetic_run(tmp_path)))
    browser.open(made)
    to_figure(browser, "feature_variance")
    figure = "document.querySelector('[data-chart=feature_variance]')"
    drawn = f"[...new Set({MARKS_OF}({figure}).map((each) => each.subject))].sort()"
    assert browser.ask(drawn) == ["zoo:vit"]
    chips = browser.page.locator("[data-chart=feature_variance] .few button")
    assert [chip.get_attribute("aria-pressed") for chip in chips.all()] == ["true", "false", "false"]
    chips.nth(1).click()
    assert browser.wait_for(f"{drawn}.length === 2")
    assert chips.nth(2).get_attribute("aria-pressed") == "true"  # all of them
    chips.nth(0).click()
    assert browser.wait_for(f"{drawn}.join() === 'zoo:resnet'")
    chips.nth(1).click()  # the last one stays
    assert browser.ask(drawn) == ["zoo:resnet"]
    chips.nth(2).click()
    assert browser.wait_for(f"{drawn}.length === 2")
    browser.page.emulate_media(media="print")
    assert browser.page.locator("[data-chart=feature_variance] .still").is_visible()  # on paper, all of them
    assert not chips.first.is_visible()


WIDTHS = """(() => {
  const { view } = window.eyechart.views.get(document.querySelector('[data-chart=recognition]')), found = [];
  const panels = (group) => group.items.filter(({ role }) => role === 'scope');
  const look = (group) => panels(group).flatMap((mark) => mark.items).forEach((item) => {
    if (panels(item).length) look(item);
    else found.push(item.width);
  });
  view?.scenegraph().root.items.forEach(look);
  return found;
})()"""


def curve_and_map(finding: xarray.Dataset) -> Chart:
    """A curve for each subject, and a map with long names at its side, as skip_ratio draws them."""
    names = [f"block {block} attention" for block in range(1, 10)]
    cells = pd.DataFrame([{"token": str(x), "name": y, "ratio": 1.0 * x} for x in range(64) for y in names])
    drawn = heatmap(cells, x="token", y="name", value="ratio", title="a", size=(330, 260))
    subjects = ["zoo:vit", "zoo:resnet", "c", "d"]
    points = pd.DataFrame([{"subject": subject, "x": x, "y": x} for subject in subjects for x in range(3)])
    colour = alt.Color("subject:N", scale=alt.Scale(domain=subjects, range=["red", "green", "blue", "grey"]))
    curve = alt.Chart(points).mark_line().encode(alt.X("x:Q"), alt.Y("y:Q"), color=colour)
    return theme.panels([theme.panel(curve, (400, 280)), drawn], columns=2, shared=())


@pytest.fixture(scope="module")
def curves_and_maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = synthetic_run(tmp_path_factory.mktemp("panels"))
    run.measures["recognition"] = replace(run.measures["recognition"], chart=curve_and_map)
    run.findings = {"recognition": run.findings["recognition"]}
    run.scene = replace(run.scene, anatomies=(*run.scene.anatomies, vit("c"), vit("d")))
    run.plan["subjects"] += [{**run.plan["subjects"][0], "name": name} for name in ("c", "d")]
    return page.write_report(as_run(run))


@pytest.mark.parametrize("browser", [DESK, (800, 900), PHONE], indirect=True)
def test_panels_are_no_smaller_than_the_room_asks_for(browser: Browser, curves_and_maps: Path) -> None:
    """Two of four subjects' curves, and a map beside which names stand: not 120 and 135 pixels on a phone."""
    browser.open(curves_and_maps)
    to_figure(browser, "recognition")
    browser.ask("window.eyechart.set('only', ['zoo:vit', 'zoo:resnet'])")
    drawn = (
        f"window.eyechart.views.get(document.querySelector('[data-chart=recognition]'))?.view && {WIDTHS}.length === 3"
    )
    assert browser.wait_for(drawn)
    one, other, ratios = browser.ask(WIDTHS)
    room = browser.ask("document.querySelector('[data-chart=recognition]').clientWidth")
    assert one == other > (260 if room > 700 else 0.55 * room)
    assert ratios > (260 if room > 700 else 0.55 * room)
    assert browser.ask("document.documentElement.scrollWidth") <= browser.ask("window.innerWidth")
