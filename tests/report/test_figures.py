"""Figures as files, and the shapes the theme gives to measures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pandas as pd
import pytest
import vl_convert
from PIL import Image

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.heatmap import heatmap
from eyechart.errors import UsageError
from eyechart.report.figures import save_figures

from .synthetic import SyntheticRun, as_run, synthetic_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SyntheticRun:
    return synthetic_run(tmp_path_factory.mktemp("run"))


def table(side: int = 74, missing: bool = False) -> pd.DataFrame:
    value = np.random.default_rng(0).uniform(0, 1, (side, side))
    rows = [(f"a{j}", f"b{i}", j // 10, i // 20, value[i, j]) for i in range(side) for j in range(side)]
    frame = pd.DataFrame(rows, columns=["a", "b", "a_stage", "b_stage", "cka"])
    return frame[frame.index != 40 * side + 3] if missing else frame


def parts_of(spec: Any) -> Iterator[dict[str, Any]]:
    if isinstance(spec, dict):
        yield spec
        for inner in spec.values():
            yield from parts_of(inner)
    elif isinstance(spec, list):
        for inner in spec:
            yield from parts_of(inner)


def marks(spec: dict[str, Any]) -> list[str]:
    return [part["mark"]["type"] for part in parts_of(spec) if isinstance(part.get("mark"), dict)]


# --- files -----------------------------------------------------------------------------------------------------------


def test_png(run: SyntheticRun) -> None:
    few = replace(run, findings={name: run.findings[name] for name in ("recognition", "cka")})
    small, large = (
        save_figures(as_run(few), "png"),
        save_figures(as_run(few), "png", folder=run.path / "large", scale=3),
    )
    assert [path.name for path in small] == ["recognition.png", "cka.png"]
    assert {path.parent for path in small} == {run.path / "figures"}
    assert {path.parent for path in large} == {run.path / "large"}
    for one, two in zip(small, large, strict=True):
        with Image.open(one) as picture, Image.open(two) as finer:
            assert (picture.width * 1.5, picture.height * 1.5) == pytest.approx((finer.width, finer.height), abs=4)
            assert picture.getpixel((0, 0)) == (255, 255, 255)
            assert len(picture.getcolors(10**6) or []) > 20  # not an empty sheet
        assert 3_000 < one.stat().st_size < 400_000


@pytest.fixture(scope="module")
def svgs(run: SyntheticRun) -> dict[str, Path]:
    return {path.stem: path for path in save_figures(as_run(run), "svg")}


def test_svg(svgs: dict[str, Path]) -> None:
    for path in svgs.values():
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert any(element.text for element in root.iter("{http://www.w3.org/2000/svg}text"))


def test_pdf(run: SyntheticRun) -> None:
    for path in save_figures(as_run(run), "pdf"):
        content = path.read_bytes()
        assert content.startswith(b"%PDF-")
        assert b"%%EOF" in content[-32:]
        assert 3_000 < len(content) < 300_000


def test_unknown_format_is_refused(run: SyntheticRun) -> None:
    with pytest.raises(UsageError, match="png, svg, pdf; got 'gif'"):
        save_figures(as_run(run), "gif")


def test_figures_have_pictures_where_the_page_has_rectangles(run: SyntheticRun, svgs: dict[str, Path]) -> None:
    assert svgs["cka"].read_text().count("<image") == 3
    assert marks(specification(run.chart("cka"))).count("image") == 0


# --- heat-maps -------------------------------------------------------------------------------------------------------


def random_map(for_export: bool, frame: pd.DataFrame | None = None) -> alt.LayerChart:
    frame = table() if frame is None else frame
    return heatmap(frame, x="a", y="b", value="cka", domain=(0, 1), x_group="a_stage", for_export=for_export)


def test_heatmap_is_lighter_as_a_picture() -> None:
    sizes = [len(vl_convert.vegalite_to_pdf(specification(random_map(for_export)))) for for_export in (True, False)]
    assert sizes[0] < sizes[1] / 2


def drawn(chart: Any) -> np.ndarray:
    png = vl_convert.vegalite_to_png(specification(theme.dress(chart)), scale=1, ppi=72)
    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def test_picture_and_rectangles_show_the_same() -> None:
    one, two = drawn(random_map(for_export=True)), drawn(random_map(for_export=False))
    assert one.shape == two.shape
    # Edges of cells may differ by how a viewer mixes pixels; nine in ten must not.
    assert (np.abs(one - two).max(axis=2) <= 3).mean() > 0.9


def test_first_cell_is_at_the_lower_left() -> None:
    frame = pd.DataFrame({"a": list("0101"), "b": list("0011"), "cka": [1.0, 0.0, 0.0, 0.0]})
    spec = specification(heatmap(frame, x="a", y="b", value="cka", domain=(0, 1), for_export=True))
    (url,) = [row["url"] for rows in spec["datasets"].values() for row in rows if "url" in row]
    with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as picture:
        pixels = np.asarray(picture.convert("RGB")).sum(axis=2)
    bright = np.argwhere(pixels > pixels.mean())
    assert bright[:, 0].min() >= pixels.shape[0] // 2
    assert bright[:, 1].max() < pixels.shape[1] // 2
    live = specification(heatmap(frame, x="a", y="b", value="cka", domain=(0, 1), for_export=False))
    cells = [row for rows in live["datasets"].values() for row in rows if "cka" in row]
    assert [(cell["x"], cell["y"]) for cell in cells if cell["cka"] == 1.0] == [(0, 0)]


@pytest.mark.parametrize("for_export", [True, False])
def test_missing_cells_are_clear(for_export: bool) -> None:
    whole, holed = (drawn(random_map(for_export, table(missing=missing))) for missing in (False, True))
    changed = np.argwhere(np.abs(whole - holed).max(axis=2) > 8)
    assert 0 < len(changed) <= 36  # one cell of 4×4 pixels and its rim
    assert (holed[tuple(changed.mean(axis=0).round().astype(int))] > 220).all()  # pale, no colour of the scale


@pytest.mark.parametrize("frame", [table().assign(cka=np.nan), table()[:0]], ids=["no number", "no row"])
def test_nothing_to_show_is_said(frame: pd.DataFrame) -> None:
    assert "no finite value" in vl_convert.vegalite_to_svg(specification(random_map(True, frame)))


def words_of(chart: Any) -> list[str]:
    svg = vl_convert.vegalite_to_svg(specification(chart))
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [text.text for text in texts if text.text]


@pytest.mark.parametrize("for_export", [True, False])
def test_a_map_of_logarithms_names_the_numbers_themselves(for_export: bool) -> None:
    frame = pd.DataFrame({"a": list("0101"), "b": list("0011"), "log": np.log10([0.2, 1.0, 4.0, 8.0])})
    marks = {float(np.log10(ratio)): f"{ratio:g}" for ratio in (0.05, 0.5, 1.0, 5.0)}
    wanted: dict[str, Any] = {
        "value": "log",
        "value_title": "ratio",
        "marks": marks,
        "x_labels": False,
        "y_labels": False,
    }
    words = words_of(heatmap(frame, x="a", y="b", for_export=for_export, **wanted))
    assert sorted(words) == ["0.5", "1", "5", "ratio"]  # 0.05 lies below the map


def test_a_map_beside_another_needs_no_colour_bar() -> None:
    with_bar, without = (
        words_of(heatmap(table(), x="a", y="b", value="cka", value_title="CKA", legend=legend, for_export=True))
        for legend in (True, False)
    )
    assert set(with_bar) - set(without) == {"CKA", "0.20", "0.40", "0.60", "0.80"}


def test_stage_boundaries() -> None:
    spec = specification(random_map(for_export=False))
    edges = [row["edge"] for rows in spec["datasets"].values() for row in rows if "edge" in row]
    assert edges == [10, 20, 30, 40, 50, 60, 70]


def test_labels_are_quoted_in_expressions() -> None:
    cruel = "'];alert(1);['</script>"
    frame = pd.DataFrame({"a": [cruel, "x"], "b": ["y", "y"], "cka": [0.1, 0.2]})
    spec = specification(heatmap(frame, x="a", y="b", value="cka", x_labels=True, for_export=True))
    assert "</script" not in str(spec)
    picture = vl_convert.vegalite_to_svg(spec)
    assert any("alert(1)" in (element.text or "") for element in ElementTree.fromstring(picture).iter())


# --- colours ---------------------------------------------------------------------------------------------------------


def test_a_subject_keeps_its_colour_where_it_stands_alone() -> None:
    alone = theme.subject_scale(["zoo:resnet"])
    with theme.drawing(subjects=["zoo:vit", "zoo:resnet"]):
        among = theme.subject_scale(["zoo:resnet"])
    assert alone.to_dict()["range"] == [theme.SUBJECT_COLOURS[0]]
    assert among.to_dict()["range"] == [theme.SUBJECT_COLOURS[1]]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(dark: bool) -> None:
    config = theme.configuration(dark)
    paper = luminance(config["background"])
    for ink in (config["axis"]["labelColor"], config["axis"]["titleColor"], config["legend"]["titleColor"]):
        high, low = max(luminance(ink), paper), min(luminance(ink), paper)
        assert (high + 0.05) / (low + 0.05) > 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_names_of_lines_have_a_rim_of_paper(dark: bool) -> None:
    config = theme.configuration(dark)
    rim, label = config["style"]["reference-rim"], config["style"]["reference-label"]
    assert rim["color"] == rim["stroke"] == config["style"]["paper"]["color"] == config["background"]
    assert [rim[key] for key in ("fontSize", "fontStyle")] == [label[key] for key in ("fontSize", "fontStyle")]
    styles = [part["mark"]["style"] for part in parts_of(specification(theme.reference(1.0, "even"))) if "mark" in part]
    assert styles == ["reference", "reference-rim", "reference-label"]  # the rim below the name
    assert marks(specification(theme.reference(1.0, ""))) == ["rule"]


def test_a_name_beyond_the_plot_hides_no_point() -> None:
    frame = pd.DataFrame({"x": [0, 1], "y": [0.0, 2.0]})
    points = alt.Chart(frame).mark_point().encode(x="x", y="y").properties(width=200, height=100)
    bare, inside, beyond = (
        drawn(chart).shape[1]
        for chart in (
            points + theme.reference(1.0, ""),
            points + theme.reference(1.0, "even attention"),
            points + theme.reference(1.0, "even attention", at="beyond"),
        )
    )
    assert bare == inside < beyond - 50


@pytest.mark.parametrize(("paper", "least"), [("#ffffff", 1.8), ("#16191e", 2.5)])
def test_colours_in_order_show_on_both_papers(paper: str, least: float) -> None:
    for colour in theme.ordered_colours(5):
        high, low = max(luminance(colour), luminance(paper)), min(luminance(colour), luminance(paper))
        assert (high + 0.05) / (low + 0.05) > least


@pytest.mark.parametrize("ramp", [theme.MAGMA, theme.VIRIDIS])
def test_sequential_ramps_grow_lighter(ramp: tuple[str, ...]) -> None:
    assert np.all(np.diff([luminance(colour) for colour in ramp]) > 0)


def test_layers_share_one_axis_title() -> None:
    frame = pd.DataFrame({"x": [0, 1], "y": [1.0, 2.0], "low": [0.9, 1.9], "high": [1.1, 2.1], "who": ["a", "a"]})
    colour = alt.Color("who:N", scale=theme.subject_scale(["a"]))
    chart = theme.curve(frame, alt.X("x:Q"), alt.Y("y:Q", title="distance"), colour, "low", "high")
    svg = vl_convert.vegalite_to_svg(specification(chart + theme.reference(1.5, "uniform")))
    words = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("distance") == 1
    assert "uniform" in words


def test_kinds_have_one_legend() -> None:
    frame = pd.DataFrame({"x": [0, 1], "y": [1.0, 2.0], "kind": ["attention", "mlp"]})
    one = theme.kind_points(frame, alt.X("x:Q"), alt.Y("y:Q"))
    svg = vl_convert.vegalite_to_svg(specification(theme.panels([one, one], shared=("shape",))))
    words = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("attention") == 1


def test_panels_of_different_kinds_share_a_legend() -> None:
    """Of two panels' lists Vega would take the first, and draw the second's marks in the wrong shapes."""
    both = ["conv", "attention"]
    shown = [
        theme.kind_points(
            pd.DataFrame({"x": [0], "y": [1.0], "kind": [kind]}), alt.X("x:Q"), alt.Y("y:Q"), in_legend=both
        )
        for kind in both
    ]
    words = words_of(theme.panels(shown, shared=("shape",)))
    assert [word for word in words if word.startswith(("att", "conv"))] == ["attention", "convolution"]


def test_no_kinds_no_endless_picture() -> None:
    """Vega draws a legend without entries 1.8e308 pixels wide."""
    frame = pd.DataFrame({"x": [], "y": [], "kind": []})
    svg = vl_convert.vegalite_to_svg(specification(theme.kind_points(frame, alt.X("x:Q"), alt.Y("y:Q"))))
    assert float(ElementTree.fromstring(svg).attrib["width"]) < 1000


def test_log_axis_is_as_long_as_its_values() -> None:
    axis: Any = theme.log_y("y", [3.0, float("nan"), 4.0], "ratio").to_dict()
    assert axis["scale"]["domain"] == pytest.approx([3 / 1.1, 4.4])
    wide: Any = theme.log_y("y", [1e-4, 1e4], "ratio").to_dict()
    assert wide["axis"]["values"] == [10.0**power for power in range(-4, 5)]


def test_long_tables_are_no_trouble() -> None:
    frame = pd.DataFrame({"x": np.arange(6000), "y": np.arange(6000)})
    spec = specification(alt.Chart(frame).mark_point().encode(x="x", y="y"))
    assert len(next(iter(spec["datasets"].values()))) == 6000


def test_dress_leaves_the_chart_alone() -> None:
    chart = alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x")
    assert specification(theme.dress(chart))["config"]["axis"]["labelFontSize"] == 11
    assert "axis" not in specification(chart).get("config", {})
