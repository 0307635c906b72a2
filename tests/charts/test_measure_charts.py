"""What the chart of every measure shows: marks, the column on each channel, domains, colours, intervals, references."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import vl_convert
import xarray as xr

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.tables import ends_of
from eyechart.measures import find_measure, names
from eyechart.report import words
from eyechart.report.translation import Translator

from .findings import CNN, SWIN, VIT, finding_of
from .layers import Layer, layers_of, references_of
from .shown import COLOURED, DOWNWARDS, IN_POINTS, REFERENCES, SAME_DOMAIN, SHOWN, WITHOUT_INTERVALS

ORDER = (CNN, SWIN, VIT)  # of the exam, which gives the colours
COLOURS = dict(zip(ORDER, theme.SUBJECT_COLOURS, strict=False))


@cache
def spec_of(measure: str) -> dict[str, Any]:
    with theme.drawing(subjects=ORDER):
        chart = find_measure(measure).chart(finding_of(measure))
    return specification(chart, validate=False)  # the tests of measures validate theirs


@cache
def layers(measure: str) -> list[Layer]:
    return layers_of(spec_of(measure))


def expanded(line: str) -> list[str]:
    """The layers that one line of `SHOWN` stands for, domains and all."""
    word, *columns = line.split()
    mark = {"band": "area", "bars": "rule", "span": "rule"}.get(word, word)
    if word == "curve":
        return [made for each in ("line", "band", "point") for made in expanded(" ".join([each, *columns]))]
    if word == "map":
        return [" ".join(["rect x=x x2=x2 y=y y2=y2", *columns]).replace("log_ratio", "log ratio")]
    if word == "picture":
        return ["image url=url", " ".join(["point", *(columns or ["color=value"])])]
    if word in ("band", "bars", "span"):
        axis = "x" if word == "span" else "y"
        for place, column in enumerate(columns):
            if column.startswith(f"{axis}="):
                low, high = ends_of(column.removeprefix(f"{axis}=").partition("[")[0])
                columns[place] = f"{axis}={low} {axis}2={high}"
    return [" ".join([mark, *columns])]


def expected(measure: str) -> Counter[str]:
    lines = [line.strip().partition(" ") for line in SHOWN[measure].strip().splitlines()]
    return Counter(made for count, _, line in lines for made in expanded(line) * int(count))


def without_domains(line: str) -> str:
    return re.sub(r"\[.*?\]", "", line)


def test_every_measure_is_in_the_table() -> None:
    assert set(names()) == set(SHOWN)


@pytest.mark.parametrize("measure", SHOWN)
def test_marks_and_columns(measure: str) -> None:
    wanted: Counter[str] = Counter()
    for line, count in expected(measure).items():
        wanted[without_domains(line)] += count
    assert Counter(map(str, layers(measure))) == wanted


@pytest.mark.parametrize("measure", [name for name, lines in SHOWN.items() if "[" in lines])
def test_domains(measure: str) -> None:
    for line in expected(measure):
        for channel, column, low, high in re.findall(r"(\w+)=([\w ]+)\[(.+?),(.+?)\]", line):
            drawn = [layer for layer in layers(measure) if str(layer) == without_domains(line)]
            ends = [(domain[0], domain[-1]) for layer in drawn if (domain := layer.scale(channel).get("domain"))]
            assert ends == [(float(low), float(high))] * len(drawn), (line, channel, column)


@pytest.mark.parametrize(("measure", "channel", "column", "panels"), SAME_DOMAIN)
def test_panels_that_are_compared_have_one_domain(measure: str, channel: str, column: str, panels: int) -> None:
    drawn = [layer for layer in layers(measure) if layer.field(channel) == column and "domain" in layer.scale(channel)]
    assert len({layer.panel for layer in drawn}) == panels
    assert len({tuple(layer.scale(channel)["domain"]) for layer in drawn}) == 1


@pytest.mark.parametrize(("other", "alike"), [(17.0, True), (110.0, False)])
def test_subjects_who_see_pictures_of_one_size_have_one_axis_of_distances(other: float, alike: bool) -> None:
    """Three ended at 18, 22 and 20 pixels: the same height was another distance in each."""
    finding = finding_of("attention_distance").copy(deep=True)
    finding["uniform"] = xr.where(finding.subject == VIT, 16.0, other)
    finding["distance"] = finding.uniform * finding.distance
    spec = specification(find_measure("attention_distance").chart(finding), validate=False)
    drawn = [layer for layer in layers_of(spec) if layer.field("y") == "distance"]
    ends = {layer.panel: tuple(layer.scale("y")["domain"]) for layer in drawn}
    assert ends[0,] == ends[1,]
    assert ends[2,] == ends[3,]
    assert (ends[0,] == ends[2,]) is alike


@pytest.mark.parametrize("measure", SHOWN)
def test_references(measure: str) -> None:
    assert references_of(spec_of(measure)) - {""} == REFERENCES.get(measure, set())


@pytest.mark.parametrize("measure", SHOWN)
def test_columns_are_in_the_data(measure: str) -> None:
    """Vega does not complain about a channel or a tooltip whose column does not exist: it draws nothing there."""
    for layer in layers(measure):
        assert layer.rows, str(layer)
        assert layer.columns <= set(layer.rows[0]), str(layer)


@pytest.mark.parametrize("measure", SHOWN)
def test_every_point_of_a_layer_says_which_layer_it_is(measure: str) -> None:
    """Lesions, removed skips, twins and tables of steps did not: a layer picked elsewhere was never marked in them."""
    for layer in layers(measure):
        columns = set(layer.rows[0])
        if layer.kind in ("point", "rect") and columns & {"depth", "block", "cell_stage"}:
            assert columns & {"subject", "whose"}, str(layer)
            assert all(isinstance(row["name"], str) for row in layer.rows), str(layer)


@pytest.mark.parametrize("measure", SHOWN)
def test_every_subject_has_its_own_colour(measure: str) -> None:
    finding = finding_of(measure)
    subjects = COLOURED.get(measure) or (set() if measure in COLOURED else set(finding.subject.values.tolist()))
    used: set[str] = set()
    for layer in layers(measure):
        used |= {layer.mark.get("color", "")}
        for channel in {"color", "stroke"} & set(layer.encoding):
            scale = layer.scale(channel)
            used |= {layer.encoding[channel].get("value", ""), *map(str, scale.get("range", ()))}
            given = dict(zip(map(str, scale.get("domain", ())), scale.get("range", ()), strict=False))
            assert {name: COLOURS[name] for name in given if name in COLOURS}.items() <= given.items()
    assert used & set(theme.SUBJECT_COLOURS) == {COLOURS[subject] for subject in subjects}


def drawn_intervals(measure: str) -> list[tuple[Layer, str]]:
    """Layers that draw an interval, with its axis."""
    return [
        (layer, axis)
        for layer in layers(measure)
        for axis in ("x", "y")
        if (layer.field(f"{axis}2") or "").endswith("high")
    ]


@pytest.mark.parametrize("measure", sorted(set(SHOWN) - WITHOUT_INTERVALS))
def test_intervals_are_those_of_the_finding(measure: str) -> None:
    """As they are or in points, and never upside down: a loss that is drawn downwards exchanges its ends."""
    finding = finding_of(measure)
    known = {
        round(factor * float(value), 6)
        for name in finding.variables
        if str(name).endswith(("_low", "_high"))
        for value in finding[name].values.ravel()
        for factor in (1.0, 100.0, -100.0)
    }
    drawn = drawn_intervals(measure)
    assert drawn
    for layer, axis in drawn:
        lows, highs = (np.array(layer.column(channel), dtype=float) for channel in (axis, f"{axis}2"))
        there = np.isfinite(lows)
        assert there.any()
        assert (lows[there] < highs[there]).all(), str(layer)
        if measure != "patch_filters":  # its band is where random filters lie
            assert {round(float(end), 6) for end in [*lows[there], *highs[there]]} <= known, str(layer)


@pytest.mark.parametrize("measure", DOWNWARDS)
def test_what_is_lost_is_drawn_downwards(measure: str) -> None:
    """As changes of accuracy in points, as in the papers; all losses of the findings here are positive."""
    for layer, axis in drawn_intervals(measure):
        assert max(layer.column(f"{axis}2")) < 0, str(layer)


@pytest.mark.parametrize("measure", IN_POINTS)
def test_points_are_hundredths(measure: str) -> None:
    """An axis that says points or per cent holds 10 to 90 and not 0.1 to 0.9, as the findings here do."""
    drawn = [
        (layer, axis)
        for layer in layers(measure)
        for axis in ("x", "y")
        if re.search(r"points|\(%\)", str(layer.encoding.get(axis, {}).get("title")))
    ]
    assert drawn
    for layer, axis in drawn:
        assert min(abs(value) for value in layer.column(axis)) > 5, str(layer)


def test_charts_without_intervals() -> None:
    assert not any(drawn_intervals(measure) for measure in WITHOUT_INTERVALS)


def tooltips_in(part: Any) -> list[list[str]]:
    """The names that stand before the values of every tooltip."""
    if isinstance(part, list):
        return [each for one in part for each in tooltips_in(one)]
    if not isinstance(part, dict):
        return []
    listed = part.get("encoding", {}).get("tooltip", [])
    here = [[str(each.get("title") or each.get("field")) for each in listed]] if isinstance(listed, list) else []
    return here + [
        each for key in ("layer", "concat", "vconcat", "hconcat", "spec") for each in tooltips_in(part.get(key))
    ]


@pytest.mark.parametrize("measure", names())
def test_tooltips_say_whose_number_it_is_and_how_certain(measure: str) -> None:
    """They said "prefix_mass" and "site", named no subject, and told numbers without the interval that was drawn.

    Lines and bands have none: over them Vega tells the numbers of their first point.
    """
    for layer in layers(measure):
        told = layer.encoding.get("tooltip")
        if not isinstance(told, list):
            continue
        assert layer.mark["type"] not in ("line", "area"), str(layer)
        shown = {each["field"]: each.get("title") or "" for each in told}
        titles = " ".join(shown.values())
        assert all(shown.values()), shown
        assert not re.search(r"_|\bsite\b|\bname\b", titles), shown
        assert "value" not in shown.values(), shown  # of what?
        subjects = {row["subject"] for row in layer.rows if "subject" in row}
        assert not subjects or "subject" in shown or all(subject in titles for subject in subjects), shown
        for field in shown:
            low, high = ends_of(field)
            assert low not in layer.rows[0] or {low, high} <= set(shown), shown


@pytest.mark.parametrize("measure", ["patch_filters", "position_embeddings"])
def test_points_of_panels_without_a_name_say_whose_they_are(measure: str) -> None:
    """Titles above them say numbers, or nothing; only the colour told the subject."""
    told = [layer.encoding.get("tooltip") for layer in layers(measure) if layer.kind == "point"]
    fields = [{each["field"] for each in each_told} for each_told in told if isinstance(each_told, list)]
    assert fields
    assert all("subject" in each for each in fields if not {"head", "steps_nearness"} & each)


@pytest.mark.parametrize("scored", [["accuracy"], ["agreement"], ["accuracy", "agreement"]])
@pytest.mark.parametrize("measure", ["band_noise", "shape_texture"])
def test_a_number_is_called_what_it_is_a_share_of(measure: str, scored: list[str]) -> None:
    """What phase decides was told as "share of: accuracy"; what subjects without labels score stayed English."""
    finding = finding_of(measure)
    marks = [scored[at % len(scored)] for at in range(finding.sizes["subject"])]
    with theme.drawing(subjects=ORDER):
        chart = find_measure(measure).chart(finding.assign(scored=("subject", marks)))
        points = [layer for layer in layers_of(specification(chart, validate=False)) if layer.kind == "point"]
    told = [{each["title"] for each in layer.encoding["tooltip"]} for layer in points]
    decided = [titles for titles in told if "decided by phase" in titles]
    assert decided == [{"subject", "decided by phase", "from", "to"}] * (measure == "shape_texture")
    if len(scored) == 1:
        assert all(any(scored[0] in title for title in titles) for titles in told if titles not in decided)
    axes = {layer.encoding[axis].get("title") for layer in points for axis in ("x", "y")} - {None}
    say = Translator(words.read("eyechart.report", "ko/charts.toml"), ORDER)
    assert {title for title in axes.union(*told) if say(title) is None} == set()


SAID_ALIKE = re.compile(r"[\d.–×]+|net:[\w@]+|CKA|NLL|R²|Δ|[a-f]")
NAMES = {"subject", "name", "other_name", "unit_name", "group_heads", "token", "corruption", "moment", "pair"}
"""Columns of names: of subjects, corruptions and moments, which stay, and of layers, said word by word."""


@pytest.mark.parametrize("measure", names())
def test_tooltips_are_known_in_korean(measure: str) -> None:
    say = Translator(words.read("eyechart.report", "ko/charts.toml"), ORDER)
    told: set[str] = set()
    for layer in layers(measure):
        for each in layer.encoding.get("tooltip", []) if isinstance(layer.encoding.get("tooltip"), list) else []:
            told.add(each["title"])
            if each["type"] == "nominal" and each["field"] not in NAMES:
                told |= {str(row[each["field"]]) for row in layer.rows}
    assert {text for text in told if not SAID_ALIKE.fullmatch(text) and say(text) is None} == set()


OF_LAYERS = re.compile(
    r"(to )?((attention|mlp|other|block|stem|intact|gap)( \d+)? ?)+(, .*tokens.*)?"
    r"|((net:\w+ )?× )?net:\w+( →)?|net:.* px"
)
"""Names of layers that no subject has outside of tests, and of subjects."""


@pytest.mark.parametrize("measure", names())
def test_titles_legends_and_words_in_charts_are_known_in_korean(measure: str) -> None:
    """The slow measures had ten that were not: nobody had looked at their figures on a Korean page."""
    say = Translator(words.read("eyechart.report", "ko/charts.toml"), ORDER)
    kept = {"bird", "cat"}  # classes stay
    told = {text for text in words.titles(spec_of(measure)) if any(map(str.isalpha, text)) and text not in kept}
    alike = re.compile(f"{SAID_ALIKE.pattern}|{OF_LAYERS.pattern}|FGSM|PGD|a – .*")
    assert {text for text in told if not alike.fullmatch(text) and say(text) is None} == set()


@pytest.mark.parametrize("measure", names())
def test_tooltips_have_a_name_for_each_value(measure: str) -> None:
    """Vega keeps one value of each name: a CKA cell of one subject named one of its two layers."""
    for listed in tooltips_in(spec_of(measure)):
        assert len(set(listed)) == len(listed), listed


def test_units_that_are_compared_have_one_axis() -> None:
    """The same units before and after their batch norms were recalibrated: −50 stood where −20 did."""
    ends = {
        tuple(layer.scale("y")["domain"])
        for layer in layers("lesion")
        if layer.field("x") == "depth" and "domain" in layer.scale("y")
    }
    assert len(ends) == 1


def test_depths_have_a_bar_for_a_legend() -> None:
    """Vega draws dots for a scale that fills and strokes, and Vega-Lite takes legends of one domain for one."""
    legends = [
        found for found in legends_in(vl_convert.vegalite_to_vega(spec_of("fourier"))) if found.get("title") == "depth"
    ]
    assert [{"fill", "stroke"} & set(legend) for legend in legends] == [{"stroke"}]


def test_legends_say_what_their_words_are_of() -> None:
    """ "low" was the lowest third of the frequencies, "block 1" a block of the CNN: both had to be guessed."""
    energies = [layer for layer in layers("fourier") if layer.field("strokeDash") == "band"]
    assert [layer.scale("strokeDash")["domain"] for layer in energies] == [
        ["constant", "lowest third", "highest third"]
    ]
    drawn = {row["band"] for layer in energies for row in layer.rows}
    assert drawn == {"constant", "lowest third", "highest third"}
    curves = [layer for layer in layers("head_subsets") if layer.field("color") == "name"]
    assert [layer.encoding["color"]["title"] for layer in curves] == [[CNN]] * len(curves)


def legends_in(part: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [found for mark in part.get("marks", []) for found in legends_in(mark)]
    return [*part.get("legends", []), *inner]


def test_each_moment_of_a_training_is_drawn_once() -> None:
    """The quantities of a real finding have an axis of their own: every row came once for each of them."""
    finding = finding_of("trajectory").assign(quantity_value=("quantity_row", [0.3, 60.0]))
    drawn = layers_of(specification(find_measure("trajectory").chart(finding), validate=False))
    named = [layer for layer in drawn if layer.field("text") == "moment"]
    assert sum(len(layer.rows) for layer in named) == finding.sizes["subject"]
