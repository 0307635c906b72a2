"""Contrasts that are more than a weighted sum, and arms whose records are another study's."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eyechart.errors import UsageError
from eyechart.studies.claim_answers import changes_of_mind
from eyechart.studies.contrasts import Choice
from eyechart.studies.records import Records, records_folder
from eyechart.studies.seeds import NOTHING_COMPARED, rank_over_seeds
from eyechart.studies.study import Study, find, names, read_study
from eyechart.studies.verdicts import interval_of, own_verdict
from tests.studies.texts import study_text

COMMON = """
[common]
model = "vit"
recipe = "zoo"
"""


def study_of(*arms: str, more: str) -> Study:
    return read_study("made-up", study_text(COMMON + "".join(f'[[arm]]\nname = "{arm}"\n' for arm in arms) + more))


def recorded(study: Study, accuracies: Mapping[str, list[float]], **more: Any) -> Records:
    """Trainings that ended with these accuracies, a seed each."""
    lines = [
        {
            "study": study.name,
            "arm": arm,
            "seed": seed,
            "registered": study.registered,
            "scores": {
                "test_accuracy": [value, value - 0.01, value + 0.01, 1000],
                "test_nll": [1 - value, None, None, 1000],
            },
            "facts": {"architecture": "vit", "grid": [8, 8], "last_grid": [8, 8], "heads": [8], "pooling": "cls"},
            "data": "toys",
            "recipe": {"name": "zoo"},
            "train_images": 1000,
            "classes": 100,
            **more,
        }
        for arm, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    return Records(study, lines)


def test_paired_arms_are_compared_within_each_seed() -> None:
    """What a seed gives to both arms, such as the images it drew, is in neither end of the interval."""
    contrast = '[[contrast]]\nname = "gap"\nquantity = "test_accuracy"\nwords = "gap"\nweights = { a = 1, b = -1 }\n'
    values = {"a": [0.5, 0.6, 0.7], "b": [0.48, 0.59, 0.67]}
    apart, within = (study_of("a", "b", more=contrast + more) for more in ("", "paired = true\n"))
    one, other = (interval_of(study.contrasts["gap"], recorded(study, values)) for study in (apart, within))
    assert one is not None
    assert other is not None
    assert one.value == pytest.approx(other.value)
    half = 4.302653 * np.std([0.02, 0.01, 0.03], ddof=1) / math.sqrt(3)
    assert other.high - other.value == pytest.approx(half, rel=1e-5)
    assert one.high - one.value > 5 * half


# --- The best of several arms ----------------------------------------------------------------------------------------

BEST = """
[[contrast]]
name = "best minus base"
quantity = "test_accuracy"
words = "best minus base"
weights = { best = 1, base = -1 }
[contrast.chosen]
best = { highest = ["low", "high"] }
"""


def test_the_best_arm_is_chosen_by_the_other_seeds() -> None:
    study = study_of("base", "low", "high", more=BEST)
    records = recorded(study, {"base": [0.5, 0.5, 0.5], "low": [0.95, 0.4, 0.4], "high": [0.6, 0.6, 0.6]})
    interval = interval_of(study.contrasts["best minus base"], records)
    assert interval is not None
    # Seed 0 alone favours "low"; the others tell it to take "high", and it tells them to take "low".
    assert interval.value == pytest.approx(np.mean([0.6, 0.4, 0.4]) - 0.5)


@pytest.mark.parametrize("more", [0, 2])
def test_choosing_among_equals_gains_nothing(more: int) -> None:
    """The larger of two equally good arms lies above both; chosen by other seeds it does not."""
    random = np.random.default_rng(0)
    gains, greedy = [], []
    for _ in range(2000):
        arms = {name: dict(enumerate(random.normal(size=seeds))) for name, seeds in (("a", 3), ("b", 3 + more))}
        gains.append(np.mean(list(Choice(("a", "b"), ("a", "b")).of_seeds(arms, every_seed=True).values())))
        greedy.append(max(np.mean(list(values.values())) for values in arms.values()))
    assert abs(np.mean(gains)) < 4 * np.std(gains) / math.sqrt(len(gains))
    assert np.mean(greedy) > 0.2


def test_a_choice_can_take_what_another_arm_has_at_the_same_position() -> None:
    numbers = {"a": {0: 1.0, 1: 1.0}, "b": {0: 2.0, 1: 2.0}, "x": {0: 0.3, 1: 0.4}, "y": {0: 0.5, 1: 0.6}}
    assert Choice(("a", "b"), ("x", "y")).of_seeds(numbers) == {0: 0.5, 1: 0.6}
    assert Choice(("a", "b"), ("x", "y"), highest=False).of_seeds(numbers) == {0: 0.3, 1: 0.4}


def test_one_arm_chosen_twice_differs_by_nothing_and_is_not_called_certain() -> None:
    more = BEST.replace("base = -1", "again = -1") + 'again = { highest = ["low", "high"] }\n'
    study = study_of("base", "low", "high", more=more)
    records = recorded(study, {"base": [0.5] * 3, "low": [0.1, 0.2, 0.3], "high": [0.6, 0.7, 0.8]})
    interval = interval_of(study.contrasts["best minus base"], records)
    assert interval is not None
    assert interval.value == 0
    assert math.isnan(interval.low), "an arm minus itself says nothing, and an interval of it would be invented"
    assert "same arm" in interval.words
    asks = '[[claim]]\nid = "C07"\ngates = []\nparts = [{ contrast = "best minus base", side = "above", margin = 0 }]\n'
    study = study_of("base", "low", "high", more=more + asks)
    judged = own_verdict(study.tests[0], Records(study, records.lines))
    assert judged is not None
    assert judged.verdict.remarks == f"{NOTHING_COMPARED}.", "three seeds are not too few"
    assert changes_of_mind(judged) == [f"{NOTHING_COMPARED}."]


# --- Quantities of two trainings -------------------------------------------------------------------------------------

PATTERNS = """
[[exam]]
name = "patterns"
arms = ["a", "b"]
next_seed = ["a", "b"]
together = true
measures = ["position_embeddings"]
[[contrast]]
name = "between settings"
quantity = "position_pattern_distance"
words = "distance between settings minus between seeds"
weights = { "a | b" = 1, "a | a, next seed" = -0.5, "b | b, next seed" = -0.5 }
"""


def test_distances_that_share_trainings_are_summed_seed_by_seed() -> None:
    """A training that stands apart is far from all others: its distances rise together, their difference does not."""
    study = study_of("a", "b", more=PATTERNS)
    strange = [0.0, 0.3, 0.1]
    rows = [
        (["a", "b"], 0.2, [0.0, 0.3, 0.1 + 1e-9]),
        (["a", "a, next seed"], 0.1, strange),
        (["b", "b, next seed"], 0.1, strange),
    ]
    lines = [
        {
            "study": study.name,
            "exam": "patterns",
            "arms": ["a", "b"],
            "seed": seed,
            "rows": [
                ["position_embeddings", "position_pattern_distance", pair, base + more[seed], None, None, 128]
                for pair, base, more in rows
            ],
        }
        for seed in range(3)
    ]
    interval = interval_of(study.contrasts["between settings"], Records(study, lines))
    assert interval is not None
    assert interval.value == pytest.approx(0.1)
    assert interval.high - interval.low < 1e-6


def test_a_quantity_of_two_trainings_is_one_number_a_seed_and_shares_no_variance() -> None:
    """Pairs that share trainings are no further draws: C37 had 20 degrees of freedom from 10 pairs of 5 arms."""
    single = PATTERNS.partition("weights = ")[0] + 'weights = { "a | b" = 1 }\n'
    study = study_of("a", "b", more=single)
    values = [0.1, 0.2, 0.4]
    lines = [
        {
            "study": study.name,
            "exam": "patterns",
            "arms": ["a", "b"],
            "seed": seed,
            "rows": [
                ["position_embeddings", "position_pattern_distance", pair, number, None, None, 128]
                for pair, number in ((["a", "b"], value), (["b", "a"], 0.5 + seed / 1e3), (["a", "a"], 0.3))
            ],
        }
        for seed, value in enumerate(values)
    ]
    interval = interval_of(study.contrasts["between settings"], Records(study, lines))
    assert interval is not None
    half = 4.302653 * np.std(values, ddof=1) / math.sqrt(3)
    assert interval.high - interval.value == pytest.approx(half, rel=1e-5)
    assert interval.words == (
        "t interval over 3 seeds, one number a seed (2 degrees of freedom); each run on 128 test images"
    )


GAP = '[[contrast]]\nname = "gap"\nquantity = "test_accuracy"\nwords = "gap"\nweights = { a = 1, b = -1 }\n'


def test_an_arm_whose_seeds_are_all_alike_is_as_sure_as_one_run() -> None:
    """Two ResNets without a negative eigenvalue in any seed entered with variance 0, and C45 was decided by that."""
    study = study_of("a", "b", more=GAP)
    records = recorded(study, {"a": [0.50, 0.52, 0.54], "b": [0.3] * 3})
    interval = interval_of(study.contrasts["gap"], records)
    assert interval is not None
    by_seeds = 4.302653 * np.std([0.50, 0.52, 0.54], ddof=1) / math.sqrt(3)
    assert interval.high - interval.value == pytest.approx(math.hypot(by_seeds, 0.01), rel=1e-5)
    assert "wider by the runs' own" in interval.words
    both = interval_of(study.contrasts["gap"], recorded(study, {"a": [0.5] * 3, "b": [0.3] * 3}))
    assert both is not None
    assert both.high - both.value == pytest.approx(math.hypot(0.01, 0.01)), "not divided by the root of the seeds"


def test_numbers_of_one_contrast_come_from_one_exam() -> None:
    """The strength of noise follows from who is examined: C75 compared two strengths."""
    exams = "".join(
        f'[[exam]]\nname = "{name}"\narms = {arms}\ntogether = true\nmeasures = ["band_noise"]\n'
        for name, arms in (("first", '["a"]'), ("both", '["a", "b"]'))
    )
    study = study_of("a", "b", more=exams + GAP.replace("test_accuracy", "noise_slope"))
    lines = [
        {"study": study.name, "exam": exam, "arms": arms, "seed": seed}
        | {"rows": [["band_noise", "noise_slope", [arm], cost + seed / 100, None, None, 64] for arm in arms]}
        for exam, arms, cost in (("first", ["a"], 0.9), ("both", ["a", "b"], 0.2))
        for seed in range(3)
    ]
    interval = interval_of(study.contrasts["gap"], Records(study, lines))
    assert interval is not None
    assert interval.value == pytest.approx(0.0)


# --- Every two arms --------------------------------------------------------------------------------------------------

PAIRS = """
[[contrast]]
name = "two of them"
quantity = "test_accuracy"
words = "accuracy"
each_pair_of = ["a", "b", "c"]
[[claim]]
id = "C02"
gates = []
parts = [{ contrast = "two of them", side = "within", margin = 0.01 }]
"""


@pytest.mark.parametrize(("third", "verdict"), [(0.6, "holds"), (0.7, "fails")])
def test_a_claim_about_every_two_arms_asks_each_pair(third: float, verdict: str) -> None:
    study = study_of("a", "b", "c", more=PAIRS)
    (test,) = study.tests
    assert [part.words for part in test.parts] == ["accuracy, a minus b", "accuracy, a minus c", "accuracy, b minus c"]
    spread = np.array([-0.001, 0.0, 0.001])
    records = recorded(study, {"a": list(0.6 + spread), "b": list(0.6 + spread), "c": list(third + spread)})
    judged = own_verdict(test, records)
    assert judged is not None
    assert judged.verdict.verdict == verdict
    assert judged.registered == "before the runs"


# --- Ranks over arms -------------------------------------------------------------------------------------------------

RANKS = """
[[contrast]]
name = "order"
quantity = "test_accuracy"
words = "rank correlation"
ranks = { a = 1, b = 2, c = 3, d = 4 }
[[contrast]]
name = "both"
quantity = "test_accuracy"
words = "rank correlation"
ranks = "test_nll"
over = ["a", "b", "c", "d"]
"""


def test_ranks_over_arms_are_spearmans_of_every_combination_of_seeds() -> None:
    import itertools

    from scipy.stats import spearmanr

    study = study_of("a", "b", "c", "d", more=RANKS)
    values = {"a": [0.1, 0.35, 0.1], "b": [0.3, 0.31, 0.32], "c": [0.5, 0.2, 0.5], "d": [0.6, 0.6, 0.6]}
    records = recorded(study, values)
    order = interval_of(study.contrasts["order"], records)
    assert order is not None
    draws = [spearmanr([1, 2, 3, 4], ways).statistic for ways in itertools.product(*values.values())]
    assert order.value == pytest.approx(1.0)
    assert order.draws == len(draws) == 81
    assert order.low == pytest.approx(sorted(draws)[round(0.025 * 81) - 1], abs=0.21)
    assert min(draws) <= order.low < order.high <= 1
    both = interval_of(study.contrasts["both"], records)
    assert both is not None
    assert both.value == pytest.approx(-1.0)
    assert "81 ways" in order.words


def test_of_too_many_combinations_of_seeds_some_are_taken_at_random() -> None:
    """The first ones in order would hold most arms at their first seed: here the arms that tell are the first."""
    steady = [np.array([[float(arm), float(arm)]] * 3) for arm in range(2, 12)]
    swapping = [np.array([[0.0, 0.0], [1.1, 0.0], [1.1, 0.0]]), np.array([[1.0, 1.0]] * 3)]
    over_seeds = rank_over_seeds([*swapping, *steady])
    assert over_seeds.draws == 20_000 < 3**12
    assert over_seeds.low < 1 == over_seeds.high


def test_ranks_of_two_seeds_have_no_interval() -> None:
    assert math.isnan(rank_over_seeds([np.array([[1.0, 1.0], [2.0, 2.0]])] * 3).low)


# --- Borrowed arms ---------------------------------------------------------------------------------------------------

BORROWED = """
[[arm]]
name = "vit"
borrow = "warmup"
[[arm]]
name = "vit-gap"
borrow = "warmup"
[[exam]]
name = "loss of the paper"
arms = ["vit", "vit-gap"]
snapshot = "warmup"
images = "train"
limit = 1024
block = 256
measures = ["hessian"]
options = { "hessian.images" = 1024, "hessian.recipe" = "strong", "hessian.augmentation" = "recipe" }
keep = { hessian = ["eigenvalue"] }
[[contrast]]
name = "negative share, class token minus pooling"
quantity = "nep_augmented_penalty"
words = "negative share, class token minus pooling"
weights = { vit = 1, vit-gap = -1 }
[[claim]]
id = "C36"
parts = [{ contrast = "negative share, class token minus pooling", side = "above", margin = 0.0 }]
"""


def test_what_is_recorded_of_a_borrowed_arm_counts() -> None:
    study, lender = read_study("made-up", study_text(BORROWED, "cifar100")), find("warmup")
    records = Records.of(study, records_folder())
    assert study.runs == []
    assert study.arms["vit"].settings == lender.arms["vit"].settings
    assert all(records.recorded(arm, seed) for arm in study.arms for seed in (0, 1, 2))
    contrast = "negative share, class token minus pooling"
    ours = interval_of(study.contrasts[contrast], records)
    theirs = interval_of(lender.contrasts[contrast], Records.of(lender, records_folder()))
    assert ours is not None
    assert theirs is not None
    assert ours.value == theirs.value
    judged = own_verdict(study.tests[0], records)
    assert judged is not None
    assert judged.registered == "after the runs it borrows"


def test_an_exam_that_is_planned_otherwise_does_not_count() -> None:
    study = read_study("made-up", study_text(BORROWED.replace("limit = 1024", "limit = 512"), "cifar100"))
    records = Records.of(study, records_folder())
    assert records.training("vit", 0) is not None
    assert not records.recorded("vit", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('borrow = "warmup"', 'borrow = "warmup"\nepochs = 3'), "borrowed and has settings of its own (epochs)"),
        (('name = "vit"', 'name = "vot"'), "names the arm 'vot', which the study does not have; did you mean vit?"),
    ],
)
def test_a_mistake_in_borrowing_is_told(change: tuple[str, str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_study("made-up", study_text(BORROWED.replace(*change, 1), "cifar100"))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ("{ vit = 40 }", "a slope needs arms with different numbers; got those of vit"),
        ("{ vit = 1e300, other = 2.0 }", "is not a study: OverflowError"),
    ],
)
def test_a_slope_over_numbers_that_have_none_is_told(numbers: str, words: str, tmp_path: Path) -> None:
    more = f'[[contrast]]\nname = "slope"\nquantity = "test_accuracy"\nwords = "slope"\nper_unit_of = {numbers}\n'
    text = study_text(COMMON + '[[arm]]\nname = "vit"\n[[arm]]\nname = "other"\n' + more)
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        find(str(tmp_path / "mine.toml"))
    assert words in str(error.value)


def test_studies_of_the_package_borrow_only_from_earlier_rows() -> None:
    studies = {name: find(name) for name in names()}
    for study in studies.values():
        assert all(studies[lender].row < study.row for lender in study.lenders)


def test_every_quantity_of_a_study_is_measured_by_it() -> None:
    """A contrast over a quantity that no exam of its arms measures would stay silent for ever."""
    from eyechart.measures import choose_measures

    of_trainings = {"test_accuracy", "test_error", "test_nll", "test_ece", "augmented_train_nll", "clean_train_nll"}
    for study in map(find, names()):
        for contrast in study.contrasts.values():
            for arm in contrast.arms:
                offered = set(of_trainings)
                for exam in study.exams:
                    if arm in exam.arms:
                        for measure in choose_measures(list(exam.measures), exam.options):
                            offered |= {quantity.name for quantity in measure.quantities}
                for quantity in {contrast.quantity, contrast.ranked_with, contrast.correlated_with} - {"", "weights"}:
                    assert quantity in offered, (study.name, contrast.name, arm, quantity)


ADDED_AFTER_THE_RUNS = {
    "C06 relative lead over the whole range, at equal epochs",
    "C08 with every seed of the best rates",
    "C26 by the accuracy on all test images",
    "C46 as a ViT against a CNN, by the paper's loss at the end of the warm-up",
    "C52 at equal head width",
}


def test_records_are_made_under_what_decides_today() -> None:
    """A reading, margin or arm changed after its runs is shown as such; here it is seen when it happens."""
    for study in map(find, names()):
        path = records_folder() / f"{study.name}.jsonl"
        if not Path(path).is_file():
            continue
        for line in Records.of(study, records_folder()).lines:
            if line["study"] == study.name:
                unknown = study.registered.keys() - line["registered"].keys()
                assert unknown <= ADDED_AFTER_THE_RUNS
                then = {**line["registered"], **{name: study.registered[name] for name in unknown}}
                assert then == study.registered, (study.name, line.get("arm", line.get("exam")))
