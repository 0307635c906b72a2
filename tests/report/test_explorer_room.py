"""The explorer in little room: every patch of the first picture can be asked, and a few of the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray

from eyechart.charts import theme
from eyechart.charts.palette import shades
from eyechart.measures.attention_maps.chart import asked_query
from eyechart.measures.attention_maps.rows import MEAN, PREFIX
from eyechart.report import explorer, page

from .browser import Browser
from .synthetic import SyntheticRun, as_run
from .test_explorer import COLOURS, DESK, EXAMPLES, run_with_maps, state, wanted

THIN = 200_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SyntheticRun:
    return run_with_maps(tmp_path_factory.mktemp("little-room"))


def least_whole(run: SyntheticRun) -> int:
    """Bytes of the first picture with all its queries, and a little for the others."""
    whole = explorer.explorer(as_run(run))
    assert whole is not None
    return len(json.dumps(whole)) - sum(len(row) for each in whole["subjects"] for row in each["rows"][1:]) + THIN


def test_the_first_picture_stays_whole(run: SyntheticRun) -> None:
    budget = least_whole(run)
    small = explorer.explorer(as_run(run), budget=budget)
    assert small is not None
    assert len(small["examples"]) == EXAMPLES
    assert len(json.dumps(small, separators=(",", ":"))) <= budget
    for each in small["subjects"]:
        assert [len(layer["queries"]) for layer in each["layers"]] == [66] * 9
        assert all(len(asked) < 66 for asked in each["asked"])
        assert len(each["rows"][0]) > 2 * len(each["rows"][1])


def test_a_small_subject_leaves_its_room_to_the_others(run: SyntheticRun) -> None:
    finding = run.findings["attention_maps"]
    one, other = (explorer.packed(finding, name, range(1), 10**9).size for name in ("zoo:vit", "zoo:vit-2"))
    short = finding.isel(site=[*range(9), 9])  # the second has one layer left
    made = explorer.packed_together(short, ["zoo:vit", "zoo:vit-2"], range(1), one + other // 5)
    assert [each.whole for each in made] == [True, True]


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_subjects_side_by_side_are_asked_the_same_patches(run: SyntheticRun, share: float) -> None:
    """A model with registers had 25 patches to ask and its twin 9 others: the map beside was of a neighbour."""
    finding = run.findings["attention_maps"].copy(deep=True)
    names = ["zoo:vit", "zoo:vit-2"]
    rows = finding.maps.values
    rows[:, 9:] = np.random.default_rng(0).integers(0, 256, rows[:, 9:].shape)  # the second hardly deflates
    sizes = [explorer.packed(finding, name, range(EXAMPLES), 10**9).size for name in names]
    made = explorer.packed_together(finding, names, range(EXAMPLES), int(share * sum(sizes)))
    one, other = ([layer["queries"] for layer in each.layers] for each in made)
    assert one == other


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_other_pictures_show_the_rows_they_have(
    browser: Browser, run: SyntheticRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "MOST_BYTES", least_whole(run))
    small = page.render(as_run(run))
    (tmp_path / "small.html").write_text(small, encoding="utf-8")
    asked = json.loads(small.split('id="explorer-data">')[1].split("</script>")[0])["subjects"][0]["asked"]
    assert asked is not None
    browser.open(tmp_path / "small.html")
    browser.ask("document.getElementById('explorer').scrollIntoView()")
    assert browser.wait_for("document.getElementById('explorer').dataset.query !== undefined")
    thinned = "document.querySelector('#explorer [data-part=thinned]').textContent"
    assert browser.ask(thinned) == ""
    browser.ask("document.querySelectorAll('#explorer input[name=explorer-picture]')[1].click()")
    assert browser.wait_for("document.getElementById('explorer').dataset.example === '1'")
    told = state(browser)
    left = len(asked[told["layer"]]) - 2  # without the class token and the average patch
    assert browser.ask(thinned) == (
        f"{left} of its 8×8 patches can be chosen in this layer, as all would make the page too large; "
        "of the others, the nearest is taken. All of them in the first picture."
    )
    own = asked[told["layer"]][told["query"]]  # among all queries of the finding
    weights = wanted(run.findings["attention_maps"], told | {"query": own})
    assert abs(np.array(browser.ask(COLOURS)) - shades(weights / weights.max(), theme.MAGMA).reshape(-1, 3)).max() <= 1


@pytest.mark.parametrize("browser", [DESK], indirect=True)
def test_registers_alone_are_not_called_a_class_token(browser: Browser, tmp_path: Path) -> None:
    """The first token without place was "the class token", whatever it was."""
    run = run_with_maps(tmp_path)
    run.scene = replace(run.scene, anatomies=tuple(replace(each, cls=None) for each in run.scene.anatomies))
    browser.open(page.write_report(as_run(run)))
    browser.ask("document.getElementById('explorer').scrollIntoView()")
    assert browser.wait_for("document.getElementById('explorer').dataset.query !== undefined")
    said = browser.ask("document.querySelector('#explorer [data-part=said]').textContent")
    assert "prefix token 1 gets" in said
    assert "class token" not in said
    assert browser.ask("document.querySelector('#explorer [data-part=tokens] button').textContent") == "Prefix token 1"


def test_without_a_class_token_the_figure_asks_the_average_patch(run: SyntheticRun) -> None:
    finding = run.findings["attention_maps"]
    without = finding.assign(class_relative=xarray.full_like(finding.class_relative, np.nan))
    assert [finding.query_place.values[0, asked_query(each, 0), 0] for each in (finding, without)] == [PREFIX, MEAN]
