"""What a referee found untrue or unclear in the text of the studies, and must not find again."""

import re
from itertools import pairwise

from eyechart.report.words import chart_words, translator
from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import Answer, changes_of_mind
from eyechart.studies.markdown import markdown
from eyechart.studies.records import Records
from eyechart.studies.repeats import Repeat, in_words
from eyechart.studies.study import find, names
from eyechart.studies.verdicts import verdicts_of
from tests.studies.test_contrasts import recorded, study_of

GAP = """
[[contrast]]
name = "gap"
quantity = "test_accuracy"
words = "accuracy, one minus the other"
weights = { one = 1, other = -1 }

[[claim]]
id = "C49"
parts = [{ contrast = "gap", side = "above", margin = 0.0 }]
"""
FORECAST = re.compile("seeds would (be needed|decide it if)|lies on the margin")


def test_no_number_of_seeds_is_forecast_where_more_of_them_would_not_decide(found: list[Answer]) -> None:
    """'About 6 seeds would decide it' stood beside a failed gate, and beside an interval that is a single run's."""
    every = [each for answer in found for each in answer.studied]
    barred = [each for each in every if any(gate.outcome == "failed" for gate in each.verdict.gates)]
    alike = [each for each in every if any(interval.all_alike for interval in each.intervals)]
    assert {"C28", "C69"} <= {each.verdict.claim for each in barred}
    assert {"C11", "C58", "C74"} <= {each.verdict.claim for each in alike}
    for each in every:
        for part, interval, mind in zip(each.verdict.parts, each.intervals, changes_of_mind(each), strict=True):
            if part.verdict == "undecided" and (each in barred or interval.all_alike):
                assert not FORECAST.search(mind), (each.verdict.claim, mind)
    counted = [each for each in alike if each.verdict.claim == "C58" and each.verdict.verdict == "undecided"]
    assert counted
    assert all(each.verdict.remarks.endswith("More seeds would hardly narrow its interval.") for each in counted)


def test_a_verdict_on_some_of_its_seeds_says_so(found: list[Answer], records: list[Records]) -> None:
    """Six seeds of the blurred ResNet were registered: what four of them say is not what the six will."""
    study = study_of("one", "other", more=GAP)
    told = [
        verdicts_of(recorded(study, {arm: [0.1 * at for at in range(made)] for arm in study.arms}))[0].unfinished
        for made in (2, 3)
    ]
    assert told == ["Seeds recorded so far: 2 of 3.", ""]
    assert translator([], [])(told[0])
    text = markdown(found, records, [], BundledExams([]))
    unfinished = [each for answer in found for each in answer.studied if each.unfinished]
    assert text.count("Seeds recorded so far:") == len(unfinished)


def test_readings_of_a_claim_are_told_apart(found: list[Answer], records: list[Records]) -> None:
    """In one list C46 asked the same ratio to be below 0.5 and below 1."""
    text = markdown(found, records, [], BundledExams([]))
    entries = dict(re.findall(r'id="(c\d\d)".*?\*\*Decided by:\*\* (.*?)\n', text, flags=re.DOTALL))
    starts = [at.start() for at in re.finditer(r"Read .*?, it holds if", entries["c46"])]
    against_cnn, alone = (entries["c46"][at:end] for at, end in pairwise([*starts, None]))
    assert "less than 1" not in against_cnn
    assert "attention alone" in alone
    assert "less than 0.5" not in alone
    assert "Read for the GAP ViT or for the ResNet, it holds if" in entries["c32"]
    assert entries["c18"].count("olds if") == 1, "under other options the same is asked"
    wrong = r"Read ,|Read  or|or , it|olds if \."  # a reading without a name, or one that asks nothing
    assert not [entry for entry in entries.values() if re.search(wrong, entry)]


def test_trainings_made_again_are_laid_beside_the_interval_of_the_first(records: list[Records]) -> None:
    first = Repeat("vit", 0, 0.61, 0.615, interval=(0.60, 0.62), alike=False)
    words = in_words([first, first, Repeat("vit", 1, 0.61, 0.63, interval=(0.60, 0.62))])
    assert "by others: 2, not noted: 1;" in words
    assert "within the interval of the recorded run: 2;" in words
    assert words.endswith("Made again more than once: 1, with the same accuracy each time: 1.")
    say = translator([], [])
    assert [one for one in re.split(r"(?<=\.) (?=Made)", words) if not say(one)] == []


def test_figures_of_all_studies_have_their_titles_in_korean() -> None:
    """Sentences of a page and titles of its figures have two tables; five titles stood in the first alone."""
    titles = {panel["title"] for name in names() for panel in find(name).figure.get("panels", ())}
    assert titles == chart_words([{"title": title} for title in titles], []).keys()
