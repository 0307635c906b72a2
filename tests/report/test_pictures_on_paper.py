"""Pictures of comparisons and of studies, which have no live chart: on paper their words can be read, too."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
from markupsafe import Markup

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.paper import POINTS
from eyechart.report import embed
from eyechart.report.page import filled, text_of
from tests.report.browser import Browser

NAMES = [f"block {number} of this subject" for number in range(3)]


def chart(panels: int) -> Any:
    rows = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    each = alt.Chart(rows).mark_line().encode(x=alt.X("x:Q", title="depth"), y=alt.Y("y:Q", title="accuracy"))
    row = alt.concat(*(each.properties(width=240, height=160, title=name) for name in NAMES[:panels]), columns=panels)
    return specification(theme.dress(row if panels > 1 else each.properties(width=240, height=160)))


@pytest.mark.parametrize("panels", [1, 3])
def test_words_of_a_picture_have_six_points_on_paper(panels: int) -> None:
    made = embed.picture(chart(panels))["languages"]["en"]
    drawn = base64.b64decode((made["sheet"] or made["light"]).partition(",")[2]).decode()
    width = float(re.search(r'<svg[^>]*? width="([\d.]+)"', drawn)[1])  # type: ignore[index]
    smallest = min(float(size) for size in re.findall(r'font-size="([\d.]+)px"', drawn))
    assert smallest * made["paper"] * POINTS / width >= 6
    assert made["paper"] <= 186
    assert bool(made["sheet"]) == (panels > 1)  # one that fits is not carried twice


def test_of_the_two_one_is_shown(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = '{% from "macros.html" import drawn with context %}{% for each in all %}{{ drawn(each, "") }}{% endfor %}'
    template = f"<style>{{{{ style }}}}</style><figure class='chart'>{drawn}</figure>"
    monkeypatch.setattr("eyechart.report.page.text_of", lambda name: template if name == "test.html" else text_of(name))
    both = [embed.picture(chart(panels)) for panels in (1, 3)]
    page = tmp_path / "page.html"
    page.write_text(filled({"style": Markup(text_of("page.css")), "all": both}, "test.html"), encoding="utf-8")
    browser.open(page)
    hidden = "[...document.querySelectorAll('img')].filter((one) => !one.checkVisibility())"
    hidden = f"[...new Set({hidden}.map((one) => one.className))]"
    for medium, classes in (("screen", ["still on-sheet"]), ("print", ["still large on-screen"])):
        browser.page.emulate_media(media=medium)  # type: ignore[arg-type]
        assert browser.ask(hidden) == classes
    count = "document.querySelectorAll('.{}').length"
    assert browser.ask(count.format("on-sheet")) == browser.ask(count.format("on-screen")) > 0
