"""The page in two languages: nothing is missing, nothing is glued together, numbers are the same in both."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
import vl_convert
from torch import nn

from eyechart.charts import theme
from eyechart.charts.export import specification
from eyechart.charts.heatmap import heatmap
from eyechart.claims.parts import asked
from eyechart.claims.table import CLAIMS, EVIDENCE, STUDIES
from eyechart.errors import UsageError
from eyechart.measure import CHAPTERS, Measure
from eyechart.measures import choose_measures, measures
from eyechart.measures.attention_maps import chart as attention_maps_chart
from eyechart.report import page, verdict_summary, words
from eyechart.report.highlights import METHOD, METHOD_ALONE
from eyechart.report.tour import steps
from eyechart.report.translation import Translator, places
from eyechart.subjects.labels import match_classes
from eyechart.subjects.load import load_subject

from .browser import Browser
from .synthetic import as_run, synthetic_run

SOURCES = Path(page.__file__).parents[1]
MEASURES: list[Measure] = list(choose_measures(None, None))
SUBJECTS = ("zoo:vit", "zoo:resnet", "zoo:vit-gap", "zoo:swin", "zoo:pit", "zoo:alternet")
SEEN = Path(__file__).with_name("said.txt").read_text(encoding="utf-8").splitlines()
"""Sentences of pages that the bundled subjects made, one for each form."""

LEFT_ENGLISH = re.compile(r"\b(the|of|is|are|were|with|not|some)\b", re.IGNORECASE)
"""Words that stand in nearly every English sentence, and in no name."""

UNTRANSLATED: tuple[str, ...] = ()
"""What stands in English on a Korean page though it is fixed text: to be made shorter, never longer."""


@pytest.fixture(scope="module")
def say() -> Translator:
    return words.translator(MEASURES, SUBJECTS)


def catalogues() -> Iterator[tuple[str, dict[str, str]]]:
    for file in sorted((SOURCES / "report" / "ko").glob("*.toml")):
        yield file.name, words.read("eyechart.report", f"ko/{file.name}")
    yield "claims", words.read("eyechart.claims", "ko.toml")
    for measure in MEASURES:
        yield measure.name, words.room_words(measure)


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"\{\w+\}", "", text))


# --- the catalogues ---------------------------------------------------------------------------------------------------


def test_both_languages_have_the_same_places_and_numbers() -> None:
    for name, catalogue in catalogues():
        for english, korean in catalogue.items():
            assert places(english) == places(korean), (name, english)
            assert set(numbers(english)) <= set(numbers(korean)), (name, english)


PARTICLE = re.compile(r"\}(은|는|이|가|을|를|과|와|으로|로|다|라|란)(?=[\s.,;:)]|$)")


def test_no_particle_depends_on_what_stands_in_a_place() -> None:
    """Whether 은 or 는 follows depends on the last sound of a name or number, which a catalogue cannot know."""
    for name, catalogue in catalogues():
        for english, korean in catalogue.items():
            assert not PARTICLE.search(korean), (name, english, korean)


ONE_TERM = {  # what we call a thing, and what it was called beside that
    "잔차 연결 (skip connection)": r"스킵|건너뛴 (?:쪽|벡터)",
    "쿼리 (query)": r"(?<![가-힣])질의",
    "맵 (map)": r"(?<![가-힣])지도",
    "접합점 (junction)": r"(?<![가-힣])접점",
    "부분층 (sub-layer)": r"하위 층",
    "단위 (unit of a CNN)": r"유닛",
    "반지름 (radius)": r"반경",
    "파라미터 (parameter)": r"매개변수",
    "하이브리드 (hybrid)": r"혼합형",
    "픽셀 (pixel)": r"화소",
    "번들 (bundled)": r"동봉|함께 든 ",
    "셀프 어텐션 (self-attention)": r"셀프어텐션",
    "능형 (ridge)": r"릿지",
    "수용 영역 (receptive field)": r"수용장",
    "헤시안 (Hessian)": r"헤세",
    "서브샘플링 (sub-sampling)": r"부분 표집",
    "미세 조정 (fine-tuning)": r"미세조정",
    "자기 (its own)": r"(?<![가-힣])저와",
}


@pytest.mark.parametrize(("term", "others"), ONE_TERM.items(), ids=lambda each: each)
def test_one_thing_has_one_korean_name(term: str, others: str) -> None:
    """Also in the README, which speaks of the same: who reads 스킵 here and 잔차 연결 there looks for two things."""
    files = [file for ending in ("*.toml", "*.py", "*.html") for file in SOURCES.rglob(ending)]
    files += [readme for readme in [SOURCES.parents[1] / "README.ko.md"] if readme.exists()]
    found = {(file.name, said) for file in files for said in re.findall(others, file.read_text(encoding="utf-8"))}
    assert found == set(), f"say {term}"


def test_a_sentence_is_one_entry() -> None:
    """No entry begins or ends in mid-word: it would be glued to another."""
    for name, catalogue in catalogues():
        for english, korean in catalogue.items():
            assert english == english.strip() or english == " and ", (name, english)
            assert korean == korean.strip() or korean == ", " or english == " and ", (name, english)


def test_every_room_has_its_words(say: Translator) -> None:
    in_charts = Translator(words.read("eyechart.report", "ko/charts.toml"))
    for measure in MEASURES:
        room = words.room_of(measure)
        assert room.get("method"), measure.name
        assert set(room.get("quantities", {})) <= {quantity.name for quantity in measure.quantities}
        taken = [source.figures for source in measure.sources]
        for text in (measure.title, measure.how_to_read, measure.method, *taken):
            korean = say(text)
            assert korean, (measure.name, text)
            assert not LEFT_ENGLISH.search(korean), korean
        for quantity in measure.quantities:
            assert say(quantity.explain), (measure.name, quantity.name)
            assert not quantity.unit or say(quantity.unit), (measure.name, quantity.unit)
            assert not quantity.unit or in_charts(quantity.unit), (measure.name, quantity.unit)


def test_dashed_and_dotted_lines_have_two_korean_names() -> None:
    """In receptive_field a figure has both, and 점선 was the dotted one there and the dashed one in fourteen others."""
    texts = [(name, english, korean) for name, catalogue in catalogues() for english, korean in catalogue.items()]
    texts += [(each.name, each.how_to_read, each.how_to_read_ko) for each in measures().values()]
    for name, english, korean in texts:
        assert ("점선" in korean) == ("dotted" in english), (name, korean)
        assert "파선" not in korean or "dashed" in english.lower(), (name, korean)


def test_korean_tells_how_to_read_a_figure_as_fully_as_english() -> None:
    """Korean needs about 0.4 of the letters; where it had 0.16 (shift), half of the figure was not explained."""
    shares = {name: len(each.how_to_read_ko) / len(each.how_to_read) for name, each in measures().items()}
    assert {name: share for name, share in shares.items() if share < 0.33} == {}


def test_nothing_fixed_is_missing(say: Translator) -> None:
    told = [METHOD, METHOD_ALONE, verdict_summary.HOLM, *CHAPTERS.values(), *EVIDENCE.values(), *STUDIES.values()]
    told += [text for step in steps() for text in (step["shows"], step["differs"], step.get("reading")) if text]
    for claim in CLAIMS.values():
        told += [claim.sentence, claim.reported, *filter(None, (claim.note, claim.changed))]
        told += [claim.wants] if claim.settled_by == "exam" else []
        for test in claim.tests:
            told += [f"Read {test.reading}."] if test.reading else []
            told += [part.told.format("zoo:vit", "zoo:resnet") for part in test.parts]
            told += [asked(part.side, part.margin, part.inclusive) for part in test.parts]
    missing = [text for text in told if say(text) is None]
    assert missing == list(UNTRANSLATED)


def test_where_a_claim_stands_in_its_paper_is_said(say: Translator) -> None:
    for claim in CLAIMS.values():
        korean = say(claim.figure)
        assert korean, claim.figure
        assert not re.search(r"\b(left|right|and|figure|App|Fig|Figs|from)\b", korean), korean


def test_templates_say_nothing_that_korean_does_not_know(say: Translator) -> None:
    calls = re.compile(r"""\{\{ (["'])((?:(?!\1).)+)\1 \| both|(?:attribute\("[a-z-]+", |content\()"([^"]+)"\)""")
    told: dict[str, str] = {}
    for file in (SOURCES / "report").glob("*.html"):
        told |= {json.loads(f'"{found[2] or found[3]}"'): file.name for found in calls.finditer(file.read_text())}
    assert len(told) > 100
    assert [(file, text) for text, file in told.items() if say(text) is None] == []


def test_scripts_say_what_the_catalogue_has_and_nothing_else() -> None:
    text = "".join(file.read_text() for file in (SOURCES / "report").glob("*.js"))
    used = set(re.findall(r'\bsentence\("((?:[^"\\]|\\.)+)"', text)) - {"{n} of {all} claims"}  # the comment's example
    known = set(words.all_script_words())
    assert used <= known
    reasons = set(words.read("eyechart.measures.attention_maps", "ko.toml")["sentences"])
    assert {each for each in known - used - reasons if " " in each} == set()  # single words are names of layers


MADE_OF_PIECES = re.compile(
    r"1 |(It|The part in question) is read off |.*: 1 |Intervals cover which images were drawn; "
)
"""In the singular, with an exception left out, or of one of several parts."""


def test_fixed_entries_are_said_somewhere() -> None:
    kept = "exam.json"  # verdicts of exams that were made before a sentence changed
    kinds = ("*.py", "*.html", "*.js", "claims.toml", "tour.toml", "studies/*.toml", kept)
    files = [file for kind in kinds for file in SOURCES.rglob(kind)]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    source = re.sub(r'"\s*\n\s*f?"', "", source).replace("\u00a0", " ").lower()
    for name, catalogue in catalogues():
        if name in {measure.name for measure in MEASURES} | {"charts.toml"}:
            continue  # keyed by what the measure says; titles are made of pieces
        unused = [key for key in catalogue if not places(key) and key.rstrip(".").lower() not in source]
        assert [key for key in unused if not MADE_OF_PIECES.match(key)] == [], name


# --- sentences --------------------------------------------------------------------------------------------------------


def test_sentences_of_real_pages_are_said_in_korean_with_the_same_numbers(say: Translator) -> None:
    assert len(SEEN) > 100
    for sentence in SEEN:
        korean = say(sentence)
        assert korean, sentence
        assert re.search("[가-힣]", korean), sentence
        assert not LEFT_ENGLISH.search(korean), korean
        assert sorted(set(numbers(sentence))) == sorted(set(numbers(sentence)) & set(numbers(korean))), korean


SPEAKERS = {"sentence", "of_class_token", "spectra_in_words", "units_sentence", "through_a_projection", "pair_sentence"}
SPEAKERS |= {"reading", "same_ranking", "why_no_rollout"}
"""Functions of rooms that make what a measure says."""


SHARED = {"images"}  # on every page


def spoken(room: Path) -> Iterator[str]:
    """The words between the numbers, of every branch of what a measure may say."""
    for file in room.glob("*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.name in SPEAKERS:
                for node in ast.walk(function):
                    if isinstance(node, ast.JoinedStr):
                        for piece in (str(part.value) for part in node.values if isinstance(part, ast.Constant)):
                            yield from (part.strip(" \n,:()[]%.") for part in re.split(r"[.;] ", piece))


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_every_branch_of_what_a_measure_says_is_in_its_catalogue(measure: Measure) -> None:
    known = " | ".join(words.room_of(measure)["sentences"]).lower()
    pieces = {piece.lower() for piece in spoken(SOURCES / "measures" / measure.name)}
    said = {piece for piece in pieces if re.search("[a-z]{3}", piece) and "_" not in piece}  # no names of variables
    assert {piece for piece in said if not re.search(rf"(?<!\w){re.escape(piece)}(?!\w)", known)} - SHARED == set()


def test_reasons_for_leaving_a_measure_out(say: Translator) -> None:
    """Those that are one string; others are in said.txt."""
    told: list[str] = []
    for file in (SOURCES / "measures").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DoesNotApply":
                told += [str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)]
    assert len(told) > 10
    assert [reason for reason in told if say(f"cka was left out: {reason}") is None] == []


NOTED = ("subjects/anatomy.py", "subjects/trial.py", "tracing/blocks.py", "tracing/dryrun.py", "tracing/rules.py")
"""Who finds what a reader must know of a subject."""
SAMPLES = {"gap": "3.2 %", "100 * gap": "3.2", "error": "1.2e-03", "list(draft.record.shape)": "[2, 8]"}
"""What stands in the places of a note, where it is not any word."""


def noted(file: Path) -> Iterator[str]:
    """The notes of a file, with a word or a number in each place."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".note", "notes.append")):
            yield ("" if file.name == "trial.py" else "layers.0: ") + sampled(node.args[0])
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "self.notes":
            yield sampled(node.slice)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            yield from (str(part.value) for part in node.value.elts if isinstance(part, ast.Constant) and part.value)


def sampled(text: ast.expr) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    assert isinstance(text, ast.JoinedStr), ast.unparse(text)
    pieces = (
        str(part.value) if isinstance(part, ast.Constant) else SAMPLES.get(ast.unparse(part.value), "layers.0")
        for part in text.values
        if isinstance(part, (ast.Constant, ast.FormattedValue))
    )
    return "".join(pieces)


def test_what_is_noted_of_a_subject_is_said_in_korean() -> None:
    """On models of a user's own a Korean page kept all of these in English: the bundled ones make none of them."""
    names = ["zoo:vit", "mine, 2nd try", "머리 없는 모델"]
    say = words.translator(MEASURES, names)
    notes = {note.rstrip(".") for file in NOTED for note in noted(SOURCES / file)}
    notes -= {"layers.0: layers.0", "layers.0layers.0"}  # the frames that hold another's words
    assert len(notes) > 15
    assert any("convolution outputs" in note for note in notes)
    for name, note in itertools.product(names, notes):
        begun = note if note.startswith("layers.0") else note[0].upper() + note[1:]
        korean = say(f"{name}: {begun}.")
        assert korean, begun
        assert not LEFT_ENGLISH.search(korean), korean


@pytest.mark.parametrize(
    ("images", "mapping"),
    [
        (None, None),
        (["a", "z"], None),
        (["a", "x", "z"], None),
        (["a"], {"a": "q"}),
        (["a"], {"a": "hound"}),
        (["a"], {"a": 99}),
        (["hound"], None),
        (["a", "b"], {"b": "a"}),
    ],
)
def test_why_accuracy_is_not_reported_is_said_in_korean(images: list[str] | None, mapping: dict[str, Any]) -> None:
    names = ["mine, 2nd try", "zoo:vit"]
    say = words.translator(MEASURES, names)
    subject = load_subject(
        nn.Sequential(nn.Flatten(), nn.Linear(48, 4)),
        label=names[0],
        classes=["a", "b", "dog, hound", "wolf, hound"],
        input_size=4,
    )
    unknown, headless = replace(subject, classes=None), replace(subject, classes=None, classifier=False)
    matches = [match_classes(images, each, mapping) for each in (subject, unknown, headless)]
    for reason in (match.reason for match in matches if not match):
        hint = " Use --classes MAP.json to say which class is which." if images else ""
        korean = say(f"{names[0]}: accuracy is not reported: {reason}{hint}")
        assert korean, reason
        assert not LEFT_ENGLISH.search(korean), korean


@pytest.mark.parametrize(
    "sentence",
    [
        "Its highest peak, of the 2 units that were looked at, is that of {} (0.36 [0.33, 0.38]).",
        "With patches as queries, heads of zoo:vit have 0.9 [0.8, 0.95] of the entropy of uniform attention in its "
        "first block, on average, and 0.7 [0.6, 0.8] in its last; the narrowest is head 3 of {} with 0.5 [0.4, 0.6].",
        "In {}, the last with places, of zoo:vit 97 % [53 %, 100 %] of the interior tokens hit their own patch, "
        "61 % [28 %, 100 %] without mean colours, 69 % [50 %, 98 %] when patches are shuffled.",
    ],
)
def test_a_block_may_have_any_name(say: Translator, sentence: str) -> None:
    """Blocks that are no members of a list keep the names of their modules, which no catalogue knows."""
    for name in ("block 5", "body.conv2"):
        korean = say(sentence.format(name))
        assert korean, name
        assert ("블록 5" if name == "block 5" else name) in korean


def test_a_name_is_never_taken_for_words() -> None:
    """Only the subjects of the run are names, whatever else a sentence holds; what is unknown is not half said."""
    say = Translator({"{subject} holds": "{subject} 성립", "It ends": "끝난다"}, ["a.b", "a.b c"])
    assert say("a.b c holds. It ends.") == "a.b c 성립. 끝난다."
    assert say("axb holds.") is None
    assert say("a.b holds. Who knows?") is None


def test_a_name_may_have_signs_that_divide_sentences() -> None:
    """A comma in a label left sentences of several subjects in English."""
    names = ["mine, 2nd try", "yours; old. And [so] on", "plain"]
    catalogue = {"most alike are {list}": "가장 닮은 것은 {list}", "{0} to {1} by {x}": "{0}과 {1}, {x}"}
    say = Translator(catalogue, names)
    korean = say(f"Most alike are {names[0]} to plain by 0.5 [0.4, 0.6]; {names[1]} to {names[0]} by 0.3 [0.2, 0.4].")
    assert korean == f"가장 닮은 것은 {names[0]}과 plain, 0.5 [0.4, 0.6], {names[1]}과 {names[0]}, 0.3 [0.2, 0.4]."
    assert say(f"Most alike are {names[0]} to nobody by 0.5.") is None


def test_charts_speak_in_titles_legends_and_beside_reference_lines() -> None:
    rows = pd.DataFrame({"x": [0.0, 1.0], "y": [1.0, 2.0], "pairs": ["in one row", "zoo:vit"]})
    scale = alt.Scale(domain=["in one row", "zoo:vit"], range=["red", "blue"])
    line = alt.Chart(rows, title=alt.TitleParams("zoo:vit: all heads", subtitle="after the addition"))
    line = line.mark_line().encode(x="x:Q", y=alt.Y("y:Q", title="distance"), color=alt.Color("pairs:N", scale=scale))
    spec = specification(line + theme.reference(1, "uniform attention"))
    said = words.chart_words([spec], ["zoo:vit"])
    told = vl_convert.vegalite_to_svg(words.retitled(spec, said))
    for korean in ("zoo:vit: 모든 헤드", "더한 뒤", "거리", "같은 행", "균등 어텐션"):
        assert f">{korean}<" in told
    assert ">zoo:vit<" in told  # names stay
    assert "distance" not in words.chart_words([spec], ["zoo:vit", "distance"])  # even of a run that is called so
    assert "uniform" not in told


def test_names_along_the_sides_of_maps_are_said() -> None:
    frame = pd.DataFrame({"one": ["stem", "block 1"], "two": ["</b>", "</b>"], "value": [0.0, 1.0]})
    spec = specification(heatmap(frame, x="one", y="two", value="value", value_title="CKA"))
    told = vl_convert.vegalite_to_svg(words.retitled(spec, words.chart_words([spec], [])))
    assert [f">{name}<" in told for name in ("스템", "블록 1", "&lt;/b&gt;", "stem")] == [True, True, True, False]
    heads = attention_maps_chart.named(["picture\nas fed", "block 1\nhead 2"], orient="top").to_dict()
    said = words.retitled(heads, words.chart_words([heads], []))
    assert json.loads(said["labelExpr"].partition("]]")[0] + "]]") == [["그림", "입력 그대로"], ["블록 1", "헤드 2"]]


SIGNS = {"CKA", "R²", "NLL", "FGSM", "PGD", "λ"}
"""Titles that are the same in every language."""


def test_numbered_prefix_tokens_are_said_along_a_side() -> None:
    assert Translator(words.read("eyechart.report", "ko/charts.toml"))("prefix 3") == "접두 3"


@pytest.mark.parametrize(
    "what",
    [
        "what comes out of it",
        "the class token of block 12, normalised over channels",
        "the mean over positions of body",
    ],
)
def test_what_was_read_as_features_is_said_in_korean(say: Translator, what: str) -> None:
    """A Korean sentence ended in "what comes out of it"."""
    said = say(f"The features of zoo:vit are {what}.")
    assert said
    assert set(re.findall("[a-z]{2,}", said)) <= {"zoo", "vit", "body"}


def test_charts_have_no_title_that_korean_does_not_know() -> None:
    """Those that are one string, and the names that files of charts keep for legends and panels."""
    told: dict[str, str] = {}
    for file in (SOURCES / "measures").rglob("chart.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                titles = [each.value for each in node.keywords if each.arg in ("title", "value_title")]
                titles += node.args[2:3] if getattr(node.func, "attr", "") == "panel" else []
            elif isinstance(node, ast.Assign):
                fixed = getattr(node.targets[0], "id", "").isupper()
                titles = node.value.values if fixed and isinstance(node.value, ast.Dict) else [node.value]
            else:
                continue
            said = [
                str(each.value) for each in titles if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            told |= {text: file.parent.name for text in said if " " in text or isinstance(node, ast.Call)}
    assert len(told) > 60
    say = Translator(words.read("eyechart.report", "ko/charts.toml"))
    assert {(room, text) for text, room in told.items() if text not in SIGNS and say(text) is None} == set()


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def korean_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("korean")
    return page.write_report(as_run(synthetic_run(folder)), lang="ko")


def test_paper_says_that_figures_speak_the_language_the_page_was_made_in(tmp_path: Path) -> None:
    """Whoever switched the page to Korean and printed it found Korean words beside English figures, unexplained.

    Only a page too large to mail carries its pictures in one language.
    """
    on_paper = re.compile(r'<p class="quiet on-paper"><span lang="(\w+)">')
    run = as_run(synthetic_run(tmp_path))
    pairs: tuple[tuple[words.Language, words.Language], ...] = (("ko", "en"), ("en", "ko"))
    for language, other in pairs:
        whole = page.render(run, language=language)
        assert on_paper.findall(whole) == []
        assert on_paper.findall(page.render(run, language=language, largest=len(whole.encode()) - 1)) == [other]


def test_an_unknown_language_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can open in en or ko; got 'kr'"):
        page.write_report(as_run(synthetic_run(tmp_path)), lang="kr")


def test_the_page_opens_in_its_language_and_counts_what_is_left(korean_page: Path) -> None:
    html = korean_page.read_text(encoding="utf-8")
    assert words.page_language(korean_page) == "ko"
    assert "<title data-other-text=" in html
    left = set(re.findall(r'<bdi lang="en">([^<]+)</bdi>', html))
    counted = re.search(r"글 (\d+)개는 아직 한국어로", html)
    assert counted
    assert int(counted[1]) >= len(left) > 0  # what synthetic measures say; attributes are counted, too
    assert {"Verdicts", "Anatomy", "holds", "Method"}.isdisjoint(left)


VISIBLE = "document.querySelector('#verdicts h2').innerText"


def test_a_part_without_a_number_says_so_in_korean(korean_page: Path) -> None:
    """Tables of numbers said 없음, and the verdict on the same number n/a."""
    told = korean_page.read_text()
    assert '<b><span lang="en">n/a</span><span lang="ko">없음</span></b>' in told
    assert "<b>n/a</b>" not in told


@pytest.mark.parametrize("browser", [(1400, 900), (390, 800)], indirect=True)
def test_the_switch_shows_one_language_at_a_time(browser: Browser, korean_page: Path) -> None:
    browser.open(korean_page)
    assert browser.ask(VISIBLE).startswith("판정")
    assert browser.ask("document.querySelector('#find-words').placeholder") == "찾기"
    assert browser.ask("document.documentElement.scrollWidth <= window.innerWidth")
    browser.ask("document.querySelector('[data-language=en]').click()")
    assert browser.ask(VISIBLE).startswith("Verdicts")
    assert browser.ask("document.querySelector('#find-words').placeholder") == "Search"
    assert browser.ask("document.title").startswith("Eye exam of")
    assert browser.ask("[...document.querySelectorAll('span[lang=ko]')].every((each) => each.offsetWidth === 0)")
    browser.ask("document.querySelector('[data-language=ko]').click()")
    assert browser.ask("[...document.querySelectorAll('span[lang=en]')].every((each) => each.offsetWidth === 0)")


@pytest.mark.parametrize("browser", [(1400, 900, {"java_script_enabled": False})], indirect=True)
def test_without_javascript_the_chosen_language_is_shown(browser: Browser, korean_page: Path) -> None:
    browser.open(korean_page)
    assert browser.page.locator("#verdicts h2").inner_text().startswith("판정")
    assert not browser.page.locator(".languages").is_visible()


def test_a_number_that_no_fold_moved_says_so_in_korean(say: Translator) -> None:
    english = (
        "zoo:vit: when the picture moves by 16 px, features that move along keep a similarity of 1.00 [the same in all "
        "folds], mean over its blocks (left where they were: 0.571 [± < 0.001])"
    )
    korean = say(english)
    assert korean is not None
    assert "1.00 [모든 폴드에서 같음]" in korean
    assert "0.571 [± < 0.001]" in korean
