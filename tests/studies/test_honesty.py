"""What a sceptical reader asks of the studies' page: how many were tried, what differs, what a figure hides."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eyechart.charts.numbers import in_words
from eyechart.claims.judge import corrected
from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import Verdict
from eyechart.measures import measures
from eyechart.report.words import translator
from eyechart.studies.bundled_exams import BundledExams
from eyechart.studies.claim_answers import Answer, all_records, answers, arm_rows, changes_of_mind, told_once
from eyechart.studies.markdown import markdown
from eyechart.studies.page import claim_context, divided, page, study_context, unasked_contrasts
from eyechart.studies.question_figures import figures_of
from eyechart.studies.questions import Numbers, Question, alike, arm_means, fill, questions
from eyechart.studies.recorded import missing_exams, state_of, trained, unequal_sizes
from eyechart.studies.records import Records
from eyechart.studies.side_by_side import WHY, differences
from eyechart.studies.summary import TRIAL, summary
from tests.studies.test_contrasts import recorded, study_of


@pytest.fixture(scope="module")
def records() -> list[Records]:
    return all_records()


@pytest.fixture(scope="module")
def exams() -> BundledExams:
    return BundledExams.read()


@pytest.fixture(scope="module")
def found(records: list[Records], exams: BundledExams) -> list[Answer]:
    return answers(records, exams.verdicts)


@pytest.fixture(scope="module")
def asked(found: list[Answer], records: list[Records], exams: BundledExams) -> list[Question]:
    return questions(records, found, exams)


def test_verdicts_over_seeds_are_corrected_for_all_intervals_of_all_studies(
    found: list[Answer], records: list[Records]
) -> None:
    studied = [each for answer in found for each in answer.studied]
    of_all = corrected([(each.test, each.verdict) for each in told_once(records)])
    key = {(each.claim, each.subjects, each.reading, each.effect): each.stands for each in of_all}
    for each in studied:
        verdict = each.verdict
        assert verdict.stands == key[verdict.claim, verdict.subjects, verdict.reading, verdict.effect]
        assert (verdict.stands is None) == (verdict.verdict not in ("holds", "fails"))
    assert 0 < sum(each.verdict.stands is False for each in studied) < len(studied)
    intervals = sum(math.isfinite(part.low) for each in studied for part in each.verdict.parts)
    assert f"corrected for all {intervals:,} of them (Holm)" in " ".join(summary(found).sentences)


def test_verdicts_on_bundled_weights_are_corrected_as_one_family(found: list[Answer], exams: BundledExams) -> None:
    """An exam of one claim has two intervals: corrected for those alone, almost everything stays."""
    alone = {(each.claim, each.subjects, each.reading): each.stands for each in exams.verdicts}
    together = {(each.claim, each.subjects, each.reading): each.stands for answer in found for each in answer.examined}
    assert {key for key in together if together[key] and not alone[key]} == set()
    assert ("C61", ("zoo:pit",), "for the stages of a transformer") in {
        key for key in together if alone[key] and together[key] is False
    }


def test_a_kept_verdict_is_undecided_where_its_test_got_a_gate_since(
    records: list[Records], exams: BundledExams
) -> None:
    (today,) = (verdict for verdict in exams.verdicts if verdict.claim == "C20")
    before = tuple(gate for gate in today.gates if gate.gate != "g2-last-grid")
    assert len(before) < len(today.gates)
    kept = replace(today, verdict="holds", gates=before)
    ((told,),) = (answer.examined for answer in answers(records, [kept]) if answer.claim.id == "C20")
    assert told.verdict == "undecided"
    assert "before there was a gate for the grid of the last block" in told.reason


def test_an_accuracy_that_another_kept_exam_knows_is_not_called_unknown(exams: BundledExams) -> None:
    """Of the same subject on images of the same source: C80 was asked of zoo:vit-gap without recognition."""
    unknown = {
        (run["source"], name)
        for run in exams.runs
        for one in run["verdicts"]
        for gate in one["gates"]
        for name in re.findall(r"the accuracy of (\S+) on these images is not known", gate["words"])
    }
    known = {
        (run["source"], row["subjects"])
        for run in exams.runs
        for row in run["quantities"]
        if row["quantity"] == "accuracy"
    }
    assert ("sample", "zoo:vit-gap") in unknown & known
    for one in exams.verdicts:
        said = " ".join(gate.words for gate in one.gates if gate.gate == "g1")
        assert "on these images is not known" not in said + one.remarks
    told = [one for one in exams.verdicts if one.claim == "C80" and one.subjects == ("zoo:vit-gap",)]
    assert [gate.outcome for one in told for gate in one.gates if gate.gate == "g1"] == ["passed"] * 2
    assert told[0].remarks == "Both of its parts hold."


@pytest.mark.parametrize("accuracy", [None, 0.5])
def test_an_accuracy_that_nobody_knows_or_that_is_too_low_stays_unknown(
    exams: BundledExams, accuracy: float | None
) -> None:
    def quantities(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        others = [row for row in rows if (row["quantity"], row["subjects"]) != ("accuracy", "zoo:vit-gap")]
        mine = [{**row, "value": accuracy} for row in rows if row not in others and accuracy is not None]
        return [*others, *mine]

    runs = [{**run, "quantities": quantities(run["quantities"])} for run in exams.runs]
    (half,) = (one for one in BundledExams(runs).verdicts if one.claim == "C32" and "zoo:vit-gap" in one.subjects)
    assert "the accuracy of zoo:vit-gap on these images is not known" in half.remarks.replace("The acc", "the acc")
    assert [gate.outcome for gate in half.gates if gate.gate == "g1"] == ["unknown"]


def test_the_correction_knows_the_degrees_of_freedom_of_a_pooled_interval(found: list[Answer]) -> None:
    """With three seeds alone 2 degrees of freedom are left, and hardly any interval of 300 would stay."""
    (patches,) = (
        each for answer in found if answer.claim.id == "C74" for each in answer.studied if each.study == "warmup"
    )
    assert patches.intervals[0].folds == 53, "pooled over 26 arms"
    assert patches.verdict.parts[0].p < 1e-9


def verdict(word: str, *subjects: str, reading: str = "") -> Verdict:
    return Verdict("C14", subjects, "these weights", word, 0.1, 0.05, 0.2, "", reading=reading)  # type: ignore[arg-type]


def test_studies_and_bundled_weights_are_compared_model_by_model() -> None:
    """C14 held of one ViT on both sides, and its GAP twin held over seeds and failed on the bundled weights."""
    over_seeds = [verdict("holds", "vit", "resnet"), verdict("holds", "vit-gap", "resnet")]
    of_weights = [verdict("holds", "zoo:vit", "zoo:resnet"), verdict("fails", "zoo:vit-gap", "zoo:resnet")]
    assert differences(over_seeds, of_weights) == [
        "vit-gap, resnet: holds over seeds, fails on the bundled weights.",
        WHY,
    ]
    assert differences(over_seeds[:1], of_weights[:1]) == differences([], of_weights) == []
    read = [verdict("fails", "vit", reading="at the end")], [verdict("holds", "zoo:vit@warmup", reading="early")]
    assert differences(*read)[0] == "Over seeds it fails, on the bundled weights it holds."


def test_what_a_study_asks_and_cannot_answer_yet_is_named(found: list[Answer]) -> None:
    waiting = {answer.claim.id: answer.waiting for answer in found}
    assert waiting["C43"] == ("To come from the study local_heads, read at equal steps.",)
    assert waiting["C01"] == ()


def test_the_part_that_a_row_shows_is_the_one_its_reason_speaks_of(found: list[Answer]) -> None:
    """It was the first that came out as the verdict did: "about 29 seeds" stood above "more than 100 seeds"."""
    for answer in found:
        context = claim_context(answer)
        for row, given in zip(context["studied"], divided(answer.studied)[0], strict=True):
            shown = given.verdict.shown
            assert shown is None or row["parts"][row["shown"]]["words"] == shown.words


def test_no_number_of_seeds_is_forecast_where_parts_contradict_each_other(found: list[Answer]) -> None:
    for claim in ("C23", "C30"):
        (answer,) = (each for each in found if each.claim.id == claim)
        every = {"holds", "fails", "undecided"}
        contradicted = [each for each in answer.studied if every == {part.verdict for part in each.verdict.parts}]
        assert contradicted
        for studied in contradicted:
            assert "The definitions disagree, so more seeds would not decide it." in studied.verdict.remarks
            minds = changes_of_mind(studied)
            assert "Other parts disagree already, so this one cannot decide the claim." in minds
            assert not any("would decide it" in mind for mind in minds)


def test_models_that_failed_a_gate_stand_behind_the_others(found: list[Answer]) -> None:
    (answer,) = (each for each in found if each.claim.id == "C71")
    shown, folded = divided(answer.studied)
    assert len(shown) <= 5 < len(folded)
    assert all(gate.outcome != "failed" for each in shown for gate in each.verdict.gates)
    assert sorted(map(id, [*shown, *folded])) == sorted(map(id, answer.studied))


def test_a_correlation_over_arms_is_told_among_equal_data_and_recipe_too() -> None:
    """Negative curvature and accuracy at the end of the warm-up: −.75 over all arms, nothing among equal ones."""
    arms = [f"arm-{number}" for number in range(10)]
    study = study_of(*arms, more="")
    accuracies = dict(zip(arms, [[0.1, 0.1]] * 5 + [[0.5 + 0.01 * k] * 2 for k in (0, 3, 1, 4, 2)], strict=True))
    lines = [
        line | {"train_images": 100 if line["arm"] in arms[:4] else 1000} for line in recorded(study, accuracies).lines
    ]
    records = Records(study, lines)
    means = arm_means(records, "test_accuracy", "test_nll")
    assert alike(records, means) == arms[4:]
    numbers = Numbers({"made-up": records}, (), {})
    assert "] over 10 arms" in (numbers.of("correlation", "test_accuracy, test_nll of made-up") or "")
    equal = numbers.of("correlation", "test_accuracy, test_nll of made-up, at equal data and recipe")
    assert "] over 6 arms" in (equal or "")


def test_quantities_of_a_study_are_answered_by_their_mean_over_seeds(records: list[Records]) -> None:
    numbers = Numbers({each.study.name: each for each in records}, (), {})
    base = numbers.records["base"]
    values = [row.value for seed, row in base.rows() if row.quantity == "place_decoded" and row.subjects == ("vit",)]
    over_seeds = numbers.over_seeds("place_decoded", "vit in base")
    assert over_seeds is not None
    assert over_seeds.value == pytest.approx(np.mean(values))
    assert over_seeds.seeds == len(values) >= 3
    assert numbers.of("seeds", "place_decoded of nobody in base") is None


def test_the_figure_of_an_answer_draws_the_numbers_of_its_text(
    asked: list[Question], found: list[Answer], records: list[Records], exams: BundledExams
) -> None:
    numbers = Numbers({each.study.name: each for each in records}, found, exams.quantities)
    quantities = {quantity.name: quantity for measure in measures().values() for quantity in measure.quantities}
    for question in asked:
        drawn = figures_of(question, numbers, quantities)
        rows = [*drawn["contrasts"], *(row for each in drawn["scales"] for row in each["rows"])]
        of_models = {blank for blank in question.blanks if blank[0] in ("seeds", "exam")}
        assert sum(len(each["rows"]) for each in drawn["scales"]) == len(of_models), (
            "one arm in two studies is two rows"
        )
        for row in rows:
            shown = f"{row['effect']} [{row['span']}]"
            assert shown in question.answer, question.id
            assert shown in question.answer_ko, question.id
        assert len(rows) + len(drawn["pictures"]) > 0 or question.state == "open" or question.id == "E8c", question.id


def test_the_trial_before_the_first_row_is_told(
    found: list[Answer], records: list[Records], asked: list[Question], exams: BundledExams
) -> None:
    """Its numbers were seen before row 1 was registered, of two of its three seeds."""
    html = page(found, records, asked, exams)
    for text in (markdown(found, records, asked, exams), html):
        assert "Before row 1 was registered, 11 of its arms had been trained" in text
        assert "They are no records and decide nothing" in text
    (said,) = re.findall(r"1행을 등록하기 전에[^<]*", html)
    numbers = re.compile(r"\.?\d+")
    assert set(numbers.findall(said)) == set(numbers.findall(TRIAL))
    warmup = next(each for each in records if each.study.name == "warmup")
    named = {"vit", "vit-gap", "resnet", "kernel-3", "kernel-5", "patch-8", "heads-2", "swin"}
    assert named <= set(warmup.study.arms)


def test_the_text_names_subjects_reasons_and_what_would_change_our_mind(
    found: list[Answer], records: list[Records], asked: list[Question], exams: BundledExams
) -> None:
    text = markdown(found, records, asked, exams)
    assert "(re-split) (re-split)" not in text
    assert "**Fails over 5 seeds**†: vit, resnet (study `base`; registered before the runs)." in text
    by_claim = {part[:3]: part for part in re.split(r'\n## <a id="c\d+"></a>', text)}
    barred = by_claim["C71"][by_claim["C71"].index("resnet-no-augmentation") :]
    assert "Gate failed, so nothing is decided: accuracy (g1)" in barred
    assert "**Holds over 3 seeds**: resnet-6-percent" in by_claim["C71"], "trained on part of the data: no g1"
    assert "each run on 1,000 test images of CIFAR-10" in by_claim["C71"]
    assert "- **Not tested over seeds:** that higher accuracy goes with tighter classes." in by_claim["C71"]
    of_weights = by_claim["C35"]
    assert "half-widths of its interval" in of_weights, "no study has it, and it says what would change our mind"
    for claim in CLAIMS:
        readings = re.findall(r"olds if (.+?)(?=\. Read |\.\n)", by_claim[claim])
        assert readings
        for parts in (asks.split("; ") for asks in readings):
            assert len(parts) == len(set(parts)), claim


def test_how_far_a_study_is_recorded_is_told_in_words(records: list[Records]) -> None:
    by_name = {each.study.name: each for each in records}
    assert state_of(by_name["base"]) == "All 72 trainings are recorded."
    assert missing_exams(by_name["base"]) == []
    study = study_of("one", "other", more="")
    assert state_of(Records(study, [])) == "None of its 6 trainings is recorded yet."
    assert state_of(recorded(study, {"one": [0.5, 0.5]})).endswith("2 of 6 trainings are recorded.")


def test_a_study_without_trainings_shows_none_of_those_it_borrows(records: list[Records]) -> None:
    """The trainings that `transfer` begins from stood under "test accuracy on the target"."""
    for each in records:
        context = study_context(each)
        if not trained(each):
            assert (context["pictures"], context["arms"], context["devices"]) == ([], [], [])


def test_a_wide_interval_of_a_correlation_keeps_two_decimals() -> None:
    assert in_words(-0.35, -0.98, 0.28) == "−0.35 [−0.98, 0.28]"


def test_a_contrast_that_was_added_after_the_runs_says_so() -> None:
    """Beside its number and in the answer that uses it; when it was added changes nothing that is registered."""
    contrast = """
[[contrast]]
name = "gap"
quantity = "test_accuracy"
words = "accuracy, one minus other"
weights = { one = 1, other = -1 }
"""
    claim = '[[claim]]\nid = "C49"\nparts = [{ contrast = "gap", side = "above", margin = 0.0 }]\n'
    added = contrast + 'added = "after the runs"\n'
    numbers = {"one": [0.6, 0.7, 0.65], "other": [0.5, 0.5, 0.52]}
    records = {
        name: recorded(study_of("one", "other", more=text), numbers)
        for name, text in (("before", contrast), ("after", added))
    }
    assert [unasked_contrasts(records[name])[0]["added"] for name in records] == ["", "after the runs"]
    question = Question(
        "X", ("N0",), "질문", "?", "It is {contrast gap of after}.", "answered", "{contrast gap of after}."
    )
    answer = fill(question, Numbers(records, (), {}))
    assert answer.answer.endswith("that were added after the runs, when results were known: 1 of 1.")
    assert "실행이 끝나 결과를 안 뒤에" in answer.answer_ko
    of_before = replace(question, answer="It is {contrast gap of before}.")
    assert "added" not in fill(of_before, Numbers(records, (), {})).answer
    asked = [study_of("one", "other", more=text + claim).registered for text in (contrast, added)]
    assert asked[0] == asked[1]
    with pytest.raises(ValueError, match="is added 'after the runs' or says nothing"):
        study_of("one", "other", more=contrast + 'added = "yesterday"\n')


def test_arms_of_unequal_size_are_told_beside_what_compares_them(found: list[Answer], records: list[Records]) -> None:
    """Heads of equal width come with models of 2.4 to 3.7 million parameters."""
    by_claim = {answer.claim.id: answer for answer in found}
    one_width = next(each for each in by_claim["C52"].studied if each.verdict.reading == "at equal head width")
    assert one_width.sizes == (
        "The arms differ in size, in millions of parameters: "
        "heads-16 2.82, head-width-10 2.36, head-width-40 3.74, heads-4 2.82."
    )
    assert all(not each.sizes for each in by_claim["C52"].studied if each is not one_width)
    assert not by_claim["C13"].studied[0].sizes, "the ViT and the ResNet are of one size"
    assert one_width.sizes in markdown(found, records, [], BundledExams([]))
    say = translator([], [arm for each in records for arm in each.study.arms])
    told = {each.sizes for answer in found for each in answer.studied if each.sizes}
    assert len(told) > 3
    assert [words for words in told if say(words) is None] == []
    sizes = dict(zip("abcdefg", range(100, 170, 10), strict=True))
    study = study_of(*sizes, more="")
    made = [recorded(study, {arm: [0.5]}, parameters=size * 10_000).lines[0] for arm, size in sizes.items()]
    assert unequal_sizes(sizes, Records(study, made)) == ("Its 7 arms differ in size: 1.00 to 1.60 million parameters.")
    assert say(unequal_sizes(sizes, Records(study, made)))
    assert not unequal_sizes(["a"], Records(study, made))


def test_what_the_bundled_weights_decide_otherwise_is_told_at_the_head(found: list[Answer]) -> None:
    """Claims decided "as a whole" are so over seeds; C46 fails there as a whole, and holds on the bundled weights."""
    said = {each.claim.id: {one.verdict.verdict for one in each.studied} for each in found}
    otherwise = [
        each.claim.id
        for each in found
        if said[each.claim.id] & {"holds", "fails"}
        and {one.verdict for one in each.examined} & {"holds", "fails"} - said[each.claim.id]
    ]
    assert "C46" in otherwise
    words = f"bundled weights, in some reading or on some model: {', '.join(otherwise)}."
    sentences = summary(found).sentences
    assert words in " ".join(sentences)
    assert "alike over seeds in every reading" in sentences[0]
    assert [words for words in sentences if translator([], [])(words) is None] == []


def test_verdicts_that_holm_leaves_undecided_have_a_stamp_of_their_own(found: list[Answer]) -> None:
    (pooled,) = [answer for answer in found if answer.claim.id == "C34"]
    fails = [one.verdict.stands for one in pooled.studied if one.verdict.verdict == "fails"]
    stamps = [each for each in claim_context(pooled)["studied_kinds"] if each["kind"].slug == "fails"]
    assert [(each["number"], each["corrected_away"]) for each in stamps] == [
        (fails.count(True), False),
        (fails.count(False), True),
    ]


def test_one_seed_has_no_lowest_and_highest(records: list[Records]) -> None:
    rows = [row for each in records for row in arm_rows(each)]
    assert {bool(row.spread) for row in rows if row.seeds > 1} == {True}
    assert {row.spread for row in rows if row.seeds == 1} == {""}
    assert " ()" not in markdown([], records, [], BundledExams([]))


def test_a_training_loss_is_measured_on_training_images(found: list[Answer], records: list[Records]) -> None:
    """It was said to be one of 50,000 test images, of which there are 10,000."""
    by_name = {each.study.name: each for each in records}
    asked = [
        (part, interval, by_name[one.study].study.contrasts[part.quantity])
        for answer in found
        for one in answer.studied
        for part, interval in zip(one.test.parts, one.intervals, strict=True)
        if part.quantity in by_name[one.study].study.contrasts
    ]
    losses = [interval.words for _, interval, contrast in asked if contrast.quantity.endswith("_train_nll")]
    assert len(losses) > 3
    assert all(words.endswith(" training images") for words in losses)
    (doubling,) = [words for words in losses if "1,000 to 50,000" in words]
    say = translator([], [])
    assert say(doubling[0].upper() + doubling[1:]) or say(doubling)
    others = [interval.words for _, interval, contrast in asked if contrast.quantity.startswith("test_")]
    assert others
    assert not any("training images" in words for words in others)
