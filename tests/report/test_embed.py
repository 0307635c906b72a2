"""Tables of charts, packed small into the page."""

import base64
import json
import re
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pandas as pd
import pytest
import vl_convert

from eyechart.charts import export, palette, theme
from eyechart.charts.export import specification
from eyechart.report import embed

from .browser import Browser


def unpacked(column: dict[str, Any]) -> list[Any]:
    """What page.js reads, by another hand."""
    kind = next(name for name in column if name not in ("words", "values"))
    values = np.frombuffer(base64.b64decode(column[kind]), dtype="<" + kind).tolist()
    values = [None if value != value else value for value in values]
    return [column["words"][code] for code in values] if "words" in column else values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 255], "u1"),
        ([0, 256], "u2"),
        ([-1, 70000], "i4"),
        ([0, 2**40], "f8"),
        ([0.1, None, -3.5], "f8"),
        (["b", "a", "b"], "u1"),
    ],
)
def test_columns_come_back(values: list[Any], kind: str) -> None:
    packed = embed.column(values)
    assert kind in packed
    assert unpacked(packed) == values


def test_mixed_columns_are_left_alone() -> None:
    assert embed.column(["a", None, True]) == {"values": ["a", None, True]}


def test_columns_are_small() -> None:
    rows = [{"x": i // 130, "y": i % 130, "name": f"layer{i % 130}", "cka": i / 16900} for i in range(16900)]
    assert len(json.dumps(embed.packed(rows))) < len(json.dumps(rows)) / 6


@pytest.mark.parametrize("dark", [False, True])
def test_inks_put_in_afterwards_are_those_drawn_with(dark: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every style, axis and legend that has an ink, and a point whose colour is its own."""
    monkeypatch.setattr(export, "WIDEST", 1)  # words have room for wider letters: another matter
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": [0.2, 0.7], "kind": ["one", "two"]})
    styles = [style for style in palette.configuration()["style"] if style != "boundary"]
    marks = [alt.Chart(frame).mark_rule(style=style).encode(y="y:Q") for style in styles]
    words = alt.Chart(frame, title="a title").mark_text().encode(x="x:Q", y="y:Q", text="kind:N")
    points = alt.Chart(frame).mark_point().encode(x="x:Q", y="y:Q", shape="kind:N", color=alt.value("#d55e00"))
    spec = specification(alt.layer(*marks, words, points))
    drawn = vl_convert.vegalite_to_svg(
        spec | {"config": palette.configuration(dark) | embed.BARE}, allowed_base_urls=[]
    )
    assert counted_anew(embed.on_both_papers(spec)[dark]) == counted_anew(embed.smaller(drawn))
    used = palette.DARK if dark else palette.LIGHT
    assert all(f'"{ink}"' in drawn for ink in used)
    assert not any(stand_in in embed.on_both_papers(spec)[dark] for stand_in in palette.STAND_INS)


def test_a_picture_as_text_is_the_same_picture() -> None:
    picture = """<svg a="1"><text b="it's">100 %, #1: "x" &lt;\n&amp;</text><path d="M0,0" fill="#fff"/></svg>"""
    address = embed.svg_uri(picture)
    assert not set(address) & set('"#&\n')
    told = unquote(address.partition(",")[2])
    assert ElementTree.tostring(ElementTree.fromstring(told)) == ElementTree.tostring(ElementTree.fromstring(picture))


def counted_anew(picture: str) -> str:
    """Without the numbers in names: Vega counts what it clips on from picture to picture."""
    return re.sub(r"(clip|gradient_)\d+", r"\1", picture)


def test_words_at_the_right_of_a_picture_are_whole_in_wider_letters(browser: Browser) -> None:
    """Room is measured in Helvetica; where the browser has none, 'learned, mean over heads' was printed as 'heac'."""
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": [0.2, 0.7], "kind": ["learned, mean over heads", "without parameters"]})
    line = alt.Chart(frame).mark_line().encode(x="x:Q", y="y:Q", strokeDash=alt.StrokeDash("kind:N", title=None))
    light, _ = embed.on_both_papers(specification(line))
    wider = light.replace(" font-family=", ' font-family="DejaVu Sans, Verdana, sans-serif" data-before=', 1)
    browser.page.set_content(wider)
    ends = browser.ask("[...document.querySelectorAll('text')].map((each) => each.getBoundingClientRect().right)")
    assert max(ends) <= browser.ask("document.querySelector('svg').getBoundingClientRect().right")


def test_names_do_not_run_into_one_another_in_wider_letters(browser: Browser) -> None:
    """Names of layers ran under the title of their axis, and a name of a legend over the next one's line."""
    kinds = ["attention matrix (mixed - values)", "branch - skip", "sub-layer of the last block"]
    names = [f"block {number} attention" for number in (1, 2, 3)]
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "name": names, "kind": kinds})
    dash = alt.StrokeDash("kind:N", title=None, legend=alt.Legend(orient="bottom", labelLimit=400))
    line = alt.Chart(frame).mark_line().encode(x="x:Q", y=alt.Y("name:N", title="junction (input to output)"))
    chart = line.encode(strokeDash=dash)
    file = export.picture_of(specification(theme.dress(chart)), "svg").decode()  # of `eyechart figures`
    for picture in (*embed.on_both_papers(specification(chart)), file):
        assert set(re.findall(r'font-size="([\d.]+)px"', picture)) == {"11", "12"}  # as large as they were
        wider = picture.replace(" font-family=", ' font-family="DejaVu Sans, Verdana, sans-serif" data-before=', 1)
        browser.page.set_content(wider)
        boxes = "[...document.querySelectorAll('text')].map((each) => each.getBoundingClientRect().toJSON())"
        words = browser.ask(boxes)
        pairs = [(one, two) for at, one in enumerate(words) for two in words[at + 1 :]]
        assert not [pair for pair in pairs if overlap(*pair)]
        begins, ends = ({round(each[side]) for each in words} for side in ("left", "right"))
        assert min(begins) >= 0
        assert max(ends) <= browser.ask("document.querySelector('svg').getBoundingClientRect().right")


def test_room_for_wider_letters_cuts_no_words() -> None:
    """A limit is in Helvetica's pixels: 'ends of later stages' was 'ends of later sta…' in every font."""
    title = "zoo:resnet: ends of later stages"
    wide = alt.Chart(pd.DataFrame({"x": [0.0]})).mark_point().encode(x="x:Q").properties(width=200)
    chart = wide.properties(title=alt.TitleParams(title, limit=215))
    for picture in (
        *embed.on_both_papers(specification(chart)),
        export.picture_of(specification(theme.dress(chart)), "svg").decode(),
    ):
        assert f">{title}<" in picture


def overlap(one: dict[str, float], two: dict[str, float]) -> bool:
    apart = one["right"] <= two["left"] or two["right"] <= one["left"]
    return not (apart or one["bottom"] <= two["top"] or two["bottom"] <= one["top"])
