"""One form of a per cent on the page, in figures, tooltips, sentences and tables: "40 %", and no line ends in it."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.export import specification, svg_with_room
from eyechart.charts.tables import interval_tooltips
from eyechart.charts.wrapping import layers_of, panels_of
from eyechart.measures import find_measure, names
from eyechart.report import page
from tests.charts.findings import finding_of

from .browser import Browser
from .synthetic import as_run, synthetic_run

TOLD = """[...window.eyechart.views.values()].filter(({ view }) => view).flatMap(({ view }) => {
  const found = [], { formatTooltip } = window.eyechart.tooltip;
  window.eyechart.visit(view, ({ tooltip }) => { if (tooltip) found.push(formatTooltip(tooltip, String)); });
  return found;
})"""


@cache
def drawn(measure: str) -> dict[str, Any]:
    with theme.drawing(for_export=True):
        return specification(theme.dress(find_measure(measure).chart(finding_of(measure))), validate=False)


@pytest.mark.parametrize("measure", names())
def test_axes_and_words_of_figures(measure: str) -> None:
    """They said 40%, and the sentences below them 40 %."""
    spec = drawn(measure)
    told = json.dumps({key: value for key, value in spec.items() if key != "config"}, ensure_ascii=False)
    if "%" not in re.sub(r"%[0-9A-F]{2}", "", told):
        return
    written = re.findall(r">([^<>]*%[^<>]*)</text>", svg_with_room(spec))
    assert not [words for words in written if re.search(r"\d%", words)]


@pytest.mark.parametrize("measure", names())
def test_accuracy_is_a_per_cent_on_every_axis(measure: str) -> None:
    """Axes of probes and of few examples ran to 1.0, and the sentences below them said 91.9 %."""
    spec = drawn(measure)
    for panel, channel in product(panels_of(spec), ("x", "y")):
        places = [layer.get("encoding", {}).get(channel, {}) for layer in layers_of(panel)]
        title = next((str(place["title"]) for place in places if place.get("title")), "")
        if re.search("accuracy|answer", title) and "points" not in title:
            assert any("%" in str((place.get("axis") or {}).get("format")) for place in places), title


def shares(_: xr.Dataset) -> alt.Chart:
    rows = pd.DataFrame({"subject": ["a", "b"], "share": [0.4, 0.9], "low": [0.3, 0.9], "high": [0.5, 0.9]})
    tooltip = interval_tooltips("share", "accuracy", ".1%", ("low", "high"))
    axis = alt.Axis(format="%")
    return alt.Chart(rows).mark_point().encode(alt.X("share:Q", axis=axis), alt.Y("subject:N"), tooltip=tooltip)


@pytest.mark.parametrize("browser", [(1440, 980)], indirect=True)
def test_words_and_tooltips_of_the_page(browser: Browser, tmp_path: Path) -> None:
    run = synthetic_run(tmp_path)
    measure = run.measures["recognition"]
    measure.chart = shares
    measure.how_to_read = "Lines are 95 % intervals."
    run.findings = {"recognition": run.findings["recognition"]}
    browser.open(page.write_report(as_run(run)))
    browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    browser.ask("document.querySelector('figure[data-chart]').scrollIntoView()")
    assert browser.wait_for(f"{TOLD}.length === 2")
    first, second = browser.ask(TOLD)
    assert "40.0\u00a0% [30.0\u00a0%, 50.0\u00a0%]" in first
    assert "90.0\u00a0% (±<0.05\u00a0%)" in second
    for language in ("en", "ko"):
        browser.ask(f"document.querySelector('[data-language={language}]').click()")
        text = browser.ask("document.querySelector('main').innerText")
        assert len(re.findall("\\d\u00a0%", text)) > 5, language
        assert re.findall(r".{9}\d ?%.{9}", text.replace("\u00a0", "_")) == [], language
