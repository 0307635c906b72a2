"""Inks that must not be taken for one another, and scales that are one where maps are compared."""

from __future__ import annotations

import math
import re
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest
import vl_convert
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.heatmap import heatmap
from eyechart.charts.palette import DARK, LIGHT, PALE_ON_DARK, PALE_ON_LIGHT
from eyechart.measures import find_measure
from eyechart.measures.cka.chart import layer_map
from eyechart.measures.hessian import chart as hessian_chart
from eyechart.measures.shift.chart import answers, own_patches
from eyechart.report.translation import Translator
from eyechart.report.words import read

from .findings import finding_of
from .layers import every_layer, layers_of


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_a_step_does_is_in_no_subjects_colour() -> None:
    """Sub-sampling was blue, and so was the first subject, on whose curves it stood."""
    for kind in ("attention", "mlp", "conv", "pool", "subsampling", "other"):
        red, green, blue = (int(theme.KIND_MARKS[kind][0][at : at + 2], 16) for at in (1, 3, 5))
        assert max(red, green, blue) - min(red, green, blue) <= 16, kind
    assert len(set(theme.KIND_MARKS.values())) == len(theme.KIND_MARKS)


def test_colours_of_ordered_lines_stand_out_from_both_papers() -> None:
    for colour in theme.ordered_colours(5):
        own, white, dark = map(luminance, (colour, "#ffffff", DARK[4]))
        assert (own + 0.05) / (dark + 0.05) >= 3, colour
        assert (white + 0.05) / (own + 0.05) >= 2, colour


def test_one_point_of_many_stands_out_from_both_papers() -> None:
    """On dark paper the blue ones, drawn as pale as on white, had a contrast of 1.7."""
    for paper, opacity, least in ((LIGHT[4], PALE_ON_LIGHT[2], 1.6), (DARK[4], PALE_ON_DARK[2], 2.5)):
        for colour in theme.SUBJECT_COLOURS[:4]:
            inks = [[int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (colour, paper)]
            mixed = "#" + "".join(
                f"{round(opacity * ink + (1 - opacity) * under):02x}" for ink, under in zip(*inks, strict=True)
            )
            lighter, darker = sorted(map(luminance, (mixed, paper)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= least, (colour, paper)


@pytest.mark.parametrize("measure", ["attention_distance", "attention_role", "grouping"])
def test_heads_are_points_of_many(measure: str) -> None:
    chart = find_measure(measure).chart(finding_of(measure))
    assert "one-of-many" in {each.style for each in layers_of(specification(chart, validate=False))}


def items_of(spec: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """What Vega draws in this role, such as the numbers along a bar of colours."""
    found: list[dict[str, Any]] = []
    pending = [vl_convert.vegalite_to_scenegraph(spec)["scenegraph"]]
    while pending:
        item = pending.pop()
        pending += item.get("items", [])
        if item.get("role") == role:
            found += item["items"]
    return found


def test_numbers_along_a_bar_of_colours_do_not_touch() -> None:
    """Below a map of 158 pixels "0.00 0.25" was one number: Vega moves the outer ones towards the middle."""
    cells = pd.DataFrame([{"x": x, "y": y, "value": 0.5} for x in "ab" for y in "ab"])
    spec = specification(theme.dress(heatmap(cells, x="x", y="y", value="value", domain=(0, 1), legend=136)))
    for layer in spec["layer"]:
        if legend := layer.get("encoding", {}).get("color", {}).get("legend"):
            legend |= {"orient": "bottom", "direction": "horizontal"}
    words = [each["text"] for each in items_of(spec, "legend-label") if each.get("opacity", 1)]
    assert words == ["0.00", "0.50", "1.00"]


def test_a_bar_of_colours_names_round_numbers() -> None:
    """Of accuracies up to 0.96 it named 0.24, 0.48 and 0.72."""
    cells = pd.DataFrame([{"x": x, "y": y, "value": 0.5} for x in "ab" for y in "ab"])
    spec = specification(heatmap(cells, x="x", y="y", value="value", domain=(0, 0.963)))
    legends = [layer.get("encoding", {}).get("color", {}).get("legend") for layer in spec["layer"]]
    assert [legend["values"] for legend in legends if legend] == [[0.0, 0.2, 0.4, 0.6, 0.8]]


def test_names_of_even_attention_stand_where_no_head_is() -> None:
    """Above the line they lay on the curves of heads that look farther than even attention does."""
    spec = specification(find_measure("attention_distance").chart(finding_of("attention_distance")), validate=False)
    names = [each for each in every_layer(spec) if each.style == "reference-label"]
    assert len(names) == 8
    for name in names:
        assert name.encoding["x"] == {"value": "width"}
        assert name.mark["align"] == "left"
        assert name.mark["dx"] > 4


@pytest.mark.parametrize(("share", "baseline"), [(0.1, "top"), (0.001, "bottom")])
def test_guessing_is_named_below_its_line_where_there_is_room(share: float, baseline: str) -> None:
    """Above it the name lay on the points of an untrained network; below 1 of 1,000 it would lie on the axis."""
    line = specification(theme.panel(theme.chance(share, "guessing"), (200, 200)), validate=False)
    assert {each.mark["baseline"] for each in every_layer(line) if each.style.startswith("reference-")} == {baseline}


@pytest.mark.parametrize(
    ("scores", "baseline"), [((0.04, 0.06, 0.15), "bottom"), ((0.04, 0.5, 0.7), "bottom"), ((0.9, 0.15), "top")]
)
def test_guessing_is_named_where_fewer_points_lie(scores: tuple[float, ...], baseline: str) -> None:
    """Probes of few pictures score less than the commonest class: its name lay on their curves."""
    line = specification(theme.panel(theme.chance(0.11, "guessing", scores), (200, 200)), validate=False)
    assert {each.mark["baseline"] for each in every_layer(line) if each.style.startswith("reference-")} == {baseline}


@pytest.mark.parametrize("measure", ["attention_distance", "grouping"])
def test_dashed_lines_lie_behind_the_heads(measure: str) -> None:
    drawn = list(every_layer(specification(find_measure(measure).chart(finding_of(measure)), validate=False)))
    for panel in {each.panel for each in drawn}:
        styles = [each.style.startswith("reference") for each in drawn if each.panel == panel]
        assert styles == sorted(styles, reverse=True)


def bars(part: Any) -> list[tuple[float, float]]:
    """Domains of the colour bars that a chart has, each once where panels share it."""
    if "concat" in part:
        inner = [bar for each in part["concat"] for bar in bars(each)]
        return (
            list(dict.fromkeys(inner)) if part.get("resolve", {}).get("scale", {}).get("color") == "shared" else inner
        )
    encodings = [each.get("encoding", {}).get("color", {}) for each in [part, *part.get("layer", [])]]
    return [(each["scale"]["domain"][0], each["scale"]["domain"][-1]) for each in encodings if each.get("legend")]


def test_maps_of_tokens_have_one_scale_and_references_another() -> None:
    """Each had a bar of the same numbers, and references, several times as like, were one plain colour."""
    finding = finding_of("localisation")
    maps, references, _ = specification(find_measure("localisation").chart(finding), validate=False)["concat"]
    (tokens,), (others,) = bars(maps), bars(references)
    assert tokens[1] == float(finding.cka.isel(site=finding.final.values).max())
    assert others[1] >= float(finding.reference_cka.isel(site=finding.final.values).max()) * 0.999


def test_a_title_has_no_list_of_many_subjects() -> None:
    def words(**patches: int) -> str:
        return own_patches(
            xr.Dataset(coords={"each_subject": list(patches), "patch": ("each_subject", [*patches.values()])})
        )

    assert words(a=4, b=8) == "a 4 px; b 8 px"
    assert words(a=8, b=8) == "8 px in all of them"
    assert words(a=4, b=8, c=8, d=16) == "4 to 16 px, each by its own patch"
    say = Translator(read("eyechart.report", "ko/charts.toml"), ["a"])
    assert say("4 to 16 px, each by its own patch")
    assert say("8 px in all of them")


def test_intervals_of_the_first_and_the_last_block_are_whole() -> None:
    """They are clipped at the frame, on which these stood: half of each stroke was missing."""
    table = pd.DataFrame({"depth": [0.0, 1.0], "value": [0.5, 0.5], "low": [0.2, 0.2], "high": [0.8, 0.8]})
    bars = theme.error_bars(table, theme.depth_axis(), alt.Y("value:Q"), "low", "high")
    drawn = vl_convert.vegalite_to_scenegraph(theme.panel(alt.layer(bars), (200, 100)).to_dict())
    strokes, pending = [], [drawn["scenegraph"]]
    while pending:
        item = pending.pop()
        pending += item.get("items", [])
        if item.get("marktype") == "rule" and item.get("clip"):
            strokes += item["items"]
    half = 1.5 / 2
    assert len(strokes) == 2
    assert all(half <= each["x"] <= 200 - half for each in strokes)


@pytest.mark.parametrize(("low", "kind"), [(0.0, None), (2.0, "log"), (float("nan"), "log")])
def test_an_interval_that_reaches_zero_is_on_no_logarithmic_axis(low: float, kind: str | None) -> None:
    """Four minibatches gave [0, 641]: all marks stood at the left end of an axis without numbers."""
    table = pd.DataFrame({"ape": [163.0, 282.0], "ape_low": [low, 125.0], "ape_high": [641.0, 483.0]})
    assert hessian_chart.scale_of("ape", table).to_dict().get("type") == kind


def test_an_interval_of_two_minibatches_does_not_push_all_marks_together() -> None:
    """[0, 227541957] around 199: every mean stood at zero."""
    table = pd.DataFrame({"ape": [136.0, 199.0], "ape_low": [0.0, 0.0], "ape_high": [1516.0, 2.3e8]})
    assert hessian_chart.scale_of("ape", table).to_dict()["domain"] == [0, 1990]
    near = pd.DataFrame({"smallest": [-50.0], "smallest_low": [-90.0], "smallest_high": [-10.0]})
    assert hessian_chart.scale_of("smallest", near).to_dict()["domain"] == [-90, 0]


def test_a_short_name_is_whole_below_a_narrow_map() -> None:
    """Of 10 layers × 18 the map is 78 pixels wide: a name may stand out by 12 on either side."""
    cells = pd.DataFrame([{"x": f"b{x}", "y": f"c{y}", "value": 0.5} for x in range(10) for y in range(18)])
    chart = heatmap(cells, x="x", y="y", value="value", x_title="zoo:resnet-18 →", y_title="zoo:alternet →", size=140)
    spec = specification(theme.dress(chart))
    assert spec["width"] < 85
    assert "zoo:resnet-18 →<" in vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])


def copies_of(finding: xr.Dataset, axis: str, count: int) -> xr.Dataset:
    """A finding of so many subjects, all with the numbers of the first."""
    first = finding.isel({axis: [0]})
    each = [first.assign_coords({axis: [f"zoo:{at}"]}) for at in range(count)]
    return xr.concat(each, axis, data_vars="minimal", coords="minimal", compat="override", join="override")


@pytest.mark.parametrize(("count", "aside"), [(2, True), (4, False)])
def test_marks_stand_beside_one_another_only_in_one_panel(count: int, aside: bool) -> None:
    """Of four subjects each had a panel of its own, and its points stood beside the marks of the axis."""
    variables = [f"variation{end}" for end in ("", "_low", "_high")]
    chart = answers(copies_of(finding_of("shift")[variables], "each_subject", count), "variation", "", "")
    rows = [row for table in chart.to_dict()["datasets"].values() for row in table]
    assert any(row["at"] != row["px"] for row in rows) == aside


def test_likeness_over_distance_has_one_axis_for_all_subjects() -> None:
    """One began at −0.6 and the next at −0.8."""
    finding = finding_of("position_embeddings")
    lower = finding.assign(aside_low=finding.aside_low - 0.5)
    both = xr.concat([finding, lower], "table", data_vars="minimal", coords="minimal", compat="override")
    spec = specification(find_measure("position_embeddings").chart(both), validate=False)
    lines = [layer for layer in layers_of(spec) if layer.field("y") == "cosine"]
    assert len({layer.panel for layer in lines}) == 2
    assert len({tuple(layer.scale("y").get("domain", ())) for layer in lines} - {()}) == 1
    assert all(layer.scale("y")["domain"][0] <= float(lower.aside_low.min()) for layer in lines)


def test_colours_are_named_beside_the_panel_of_all_subjects() -> None:
    """On a tablet they stood below the diagrams, each of which has its name above it, far from the errors."""
    each = copies_of(finding_of("calibration"), "subject", 3)
    drawn = layers_of(specification(find_measure("calibration").chart(each), validate=False))
    named = [layer.panel for layer in drawn if layer.encoding["color"].get("legend", {}) is not None]
    assert {panel[0] for panel in named} == {1}
    assert {layer.panel[0] for layer in drawn} == {0, 1}


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.72), (0.91, 0.99), (1.0, 1.0)])
def test_an_axis_of_shares_goes_from_nothing_to_all(low: float, high: float) -> None:
    """Beside a model that names nothing right it began at −10 %, and near the top it ended at 101 %."""
    table = pd.DataFrame({"subject": ["a", "b"], "share": [low, high], "low": [low, low], "high": [high, high]})
    spec = theme.dots_with_intervals(table, x="share", y="subject", format=".1%").to_dict()
    scale = spec["layer"][0]["encoding"]["x"]["scale"]
    assert "padding" not in scale
    assert 0 <= scale["domain"][0] <= low <= high <= scale["domain"][1] <= 1
    assert scale["domain"][0] < scale["domain"][1]


@pytest.mark.parametrize("measure", ["feature_variance", "fourier"])
def test_a_legend_names_sub_sampling_only_where_there_is_some(measure: str) -> None:
    """Of subjects with one grid it had the mark of attention: of two lists of marks Vega takes the first."""
    finding = finding_of(measure).copy(deep=True)
    assert kinds_in_legends(measure, finding) == {("attention", "mlp", "conv", "subsampling")}
    if measure == "fourier":
        finding["strided"][:] = float("nan")
    assert kinds_in_legends(measure, finding.assign_coords(stage=0 * finding.stage)) == {("attention", "mlp", "conv")}


def kinds_in_legends(measure: str, finding: xr.Dataset) -> set[tuple[str, ...]]:
    shapes = [layer.encoding.get("shape", {}) for layer in every_layer(find_measure(measure).chart(finding).to_dict())]
    return {tuple(shape["scale"]["domain"]) for shape in shapes if shape.get("field") == "kind"}


def test_the_axis_of_few_shots_names_those_that_there_are() -> None:
    """Of one shot alone "1" and "25" stood on one another."""
    finding = finding_of("few_shot").isel(shot=[0])
    specification = find_measure("few_shot").chart(finding).to_json(indent=None)
    assert set(re.findall(r'"values": ?\[([\d, .]*)\]', specification)) == {"1"}


@pytest.mark.parametrize(("ratio", "baseline"), [(1.08, "top"), (0.92, "bottom")])
def test_equal_lengths_are_named_where_fewer_points_lie(ratio: float, baseline: str) -> None:
    """The last blocks of an EfficientNet add nearly as much as their skips carry: the words lay on its curve."""
    finding = finding_of("skip_ratio")
    for name in ("ratio_grid", "ratio_cls"):
        last = finding.depth > 0.7
        finding[name] = finding[name].where(~last, finding[name] * 0 + ratio)
    drawn = specification(find_measure("skip_ratio").chart(finding), validate=False)
    names = [layer.mark for layer in every_layer(drawn) if layer.mark.get("style") == "reference-label"]
    assert {mark["baseline"] for mark in names} == {baseline}


@pytest.mark.parametrize(("score", "baseline"), [(0.13, "top"), (0.07, "bottom")])
def test_guessing_does_not_lie_on_those_who_guess_shape_or_texture(score: float, baseline: str) -> None:
    """The word hid the last points of an untrained model, which stand a little above the line."""
    finding = finding_of("shape_texture")
    for name in ("low_passed", "high_passed", "shuffled"):
        finding[name] = finding[name] * 0 + score
    drawn = specification(find_measure("shape_texture").chart(finding), validate=False)
    names = [layer for layer in every_layer(drawn) if layer.style == "reference-label"]
    named = [layer.mark["baseline"] for layer in names if layer.column("text") == ["guessing"]]
    assert named == [baseline, baseline]


def test_no_title_says_minus_zero() -> None:
    finding = finding_of("position_embeddings")
    for name in ("nearness", "row_bonus", "column_bonus"):
        finding[name] = xr.full_like(finding[name], -1e-4)
    drawn = find_measure("position_embeddings").chart(finding).to_json(ensure_ascii=False)
    assert "nearness\u00a00.00, rows\u00a00.00, columns\u00a00.00" in drawn  # nor plus: these are below zero
    assert not re.search(r"[-−]0\.0+(?!\d)", "".join(re.findall(r'"text": ?"([^"]*)"', drawn)))


def test_a_point_at_0_per_cent_does_not_touch_the_name_beside_it() -> None:
    """The axis of shares begins at 0 %, so half of a point there lies left of it."""
    rows = pd.DataFrame({"subject": ["vit", "resnet"], "share": [0.0, 0.4], "low": [0.0, 0.3], "high": [0.05, 0.5]})
    drawn = theme.dots_with_intervals(rows, x="share", y="subject", format=".0%").to_dict()
    [point] = [layer for layer in every_layer(drawn) if layer.kind == "point"]
    assert point.encoding["y"]["axis"]["labelPadding"] > 2 + math.sqrt(point.mark["size"] / math.pi)


@pytest.mark.parametrize(("cnn", "lines"), [("resnet", 1), ("resnet-of-a-name-longer-than-its-map-is-wide", 2)])
def test_a_pair_is_named_on_one_line_where_it_fits(cnn: str, lines: int) -> None:
    """Of two short names the second stood below the first, and the map lower than those beside it."""
    finding = finding_of("cka")
    renamed = {str(name): str(name) for name in np.unique(finding.subject)}
    renamed |= dict(zip(sorted(renamed)[:2], ("vit", cnn), strict=True))
    for axis, dimension in (("subject", "site"), ("other_subject", "other_site")):
        finding = finding.assign_coords({axis: (dimension, [renamed[str(name)] for name in finding[axis].values])})
    assert len(layer_map(finding, "vit", cnn).to_dict()["title"]["text"]) == lines


def test_names_of_depths_fit_below_their_tiles_on_a_phone() -> None:
    """Of 12 blocks, "block 10" and "block 12" stood on one another."""
    drawn = find_measure("receptive_field").chart(finding_of("receptive_field")).to_dict()
    names = [
        [row["text"] for row in layer.rows]
        for layer in every_layer(drawn)
        if layer.style == "note" and layer.kind == "text"
    ]
    assert names
    for first, *others in names:
        assert first.startswith("block ")
        assert all(name.isdecimal() for name in others)


def test_a_hybrid_has_one_curve_before_and_one_after_the_addition() -> None:
    """Its convolutions had one and its attentions another: four lines, of which the legend knew two."""
    finding = finding_of("receptive_field")
    kinds = ["conv" if block % 2 else "attention" for block in finding.block.values]
    drawn = find_measure("receptive_field").chart(finding.assign_coords(kind=("site", kinds))).to_dict()
    lines = [layer for layer in every_layer(drawn) if layer.kind == "line" and layer.field("strokeDash") == "read"]
    assert lines
    for line in lines:
        assert "kind" not in line.columns
        assert {"conv", "attention"} == {row["kind"] for row in line.rows}
