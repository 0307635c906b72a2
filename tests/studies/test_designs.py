"""Effects of single factors, and correlations with factors held: arms of a design, over seeds."""

import math
from pathlib import Path

import numpy as np
import pytest

from eyechart.claims.table import CLAIMS
from eyechart.errors import UsageError
from eyechart.studies.seeds import partial_over_arms
from eyechart.studies.study import find, names, studies_of_claims
from eyechart.studies.verdicts import interval_of, own_verdict
from tests.studies.test_contrasts import recorded, study_of
from tests.studies.texts import study_text

ARMS = ("all", "half", "few classes", "plain", "plain half")
DESIGN = """
[design.factors]
doublings = ["images", "classes"]
[design.factors.arms]
all = { images = 8, classes = 4, mixed = 1, noise = 0 }
half = { images = 4, classes = 4, mixed = 1, noise = 0 }
"few classes" = { images = 4, classes = 2, mixed = 1, noise = 0 }
plain = { images = 8, classes = 4, mixed = 0, noise = 0 }
"plain half" = { images = 4, classes = 4, mixed = 0, noise = 0 }
"""
EFFECT = """
[[contrast]]
name = "effect"
quantity = "test_accuracy"
words = "accuracy for each doubling of the images"
design = "factors"
effect_of = "images"
"""
CORRELATION = """
[[contrast]]
name = "correlation"
quantity = "test_accuracy"
words = "correlation"
design = "factors"
correlated_with = "test_nll"
holding = ["images"]
"""


def test_the_effect_of_a_factor_is_the_least_squares_one_with_the_others_held() -> None:
    study = study_of(*ARMS, more=DESIGN + EFFECT)
    random = np.random.default_rng(0)
    values = {arm: (0.5 + 0.1 * random.standard_normal(3)).tolist() for arm in ARMS}
    interval = interval_of(study.contrasts["effect"], recorded(study, values))
    assert interval is not None
    table = np.array([[1, 3, 2, 1], [1, 2, 2, 1], [1, 2, 1, 1], [1, 3, 2, 0], [1, 2, 2, 0]], float)
    fitted = np.linalg.lstsq(table, [np.mean(values[arm]) for arm in ARMS], rcond=None)[0]
    assert interval.value == pytest.approx(fitted[1], abs=1e-8)
    assert study.contrasts["effect"].arms == ARMS


def test_what_another_factor_does_is_not_counted() -> None:
    """Few classes and mixing move the number, images do not: a plain slope would say they did."""
    study = study_of(*ARMS, more=DESIGN + EFFECT)
    values = {"all": 0.6, "half": 0.6, "few classes": 0.2, "plain": 0.4, "plain half": 0.4}
    noise = (-0.01, 0.0, 0.01)
    records = recorded(study, {arm: [value + each for each in noise] for arm, value in values.items()})
    interval = interval_of(study.contrasts["effect"], records)
    assert interval is not None
    assert interval.value == pytest.approx(0, abs=1e-8)
    assert interval.low < 0 < interval.high


def test_a_partial_correlation_is_the_formula_of_three_correlations() -> None:
    random = np.random.default_rng(1)
    one, other, held = random.standard_normal((3, 12))
    one, other = one + 2 * held, other - held
    r, with_one, with_other = (float(np.corrcoef(a, b)[0, 1]) for a, b in ((one, other), (one, held), (other, held)))
    expected = (r - with_one * with_other) / math.sqrt((1 - with_one**2) * (1 - with_other**2))
    found = partial_over_arms(np.column_stack([one, other]), held[:, None], 3)
    assert found.value == pytest.approx(expected)
    assert found.words == "Fisher's interval over 12 arms, each the mean of at least 3 seeds"
    assert math.isnan(partial_over_arms(np.column_stack([one, other]), held[:, None], 2).low), (
        "two seeds decide nothing"
    )
    assert math.isnan(partial_over_arms(np.column_stack([one, other])[:4], held[:4, None], 3).low)


def test_intervals_of_partial_correlations_cover() -> None:
    random = np.random.default_rng(2)
    inside = 0
    for _ in range(1000):
        held, common, *own = random.standard_normal((4, 14))
        numbers = np.column_stack([held + common + own[0], common + own[1] - 2 * held])  # 0.5 with `held` held
        found = partial_over_arms(numbers, held[:, None], 3)
        inside += found.low < 0.5 < found.high
    assert 930 <= inside <= 968


def test_a_study_correlates_two_quantities_of_its_arms() -> None:
    study = study_of(*ARMS, more=DESIGN + CORRELATION)
    values = {arm: [0.1 * at, 0.1 * at + 0.01, 0.1 * at + 0.02] for at, arm in enumerate(ARMS, 2)}
    interval = interval_of(study.contrasts["correlation"], recorded(study, values))
    assert interval is not None
    assert interval.value == pytest.approx(-1), "its NLL is 1 − accuracy there"
    assert interval.arms == 5


def test_more_arms_would_decide_an_undecided_correlation() -> None:
    claim = '[[claim]]\nid = "C17"\ngates = []\nparts = [{ contrast = "correlation", side = "above", margin = 0.0 }]\n'
    study = study_of(*ARMS, more=DESIGN + CORRELATION.replace('"test_nll"', '"test_ece"') + claim)
    values = {arm: [0.5 + 0.01 * at, 0.51, 0.52] for at, arm in enumerate(ARMS)}
    records = recorded(study, values)
    for line, ece in zip(records.lines, np.random.default_rng(0).random(15), strict=True):
        line["scores"]["test_ece"] = [ece, None, None, 1000]
    verdict = own_verdict(study.tests[0], records)
    assert verdict is not None
    assert verdict.verdict.verdict == "undecided"
    assert " arms would decide it (5 were used), if the effect stays" in verdict.verdict.reason
    assert "over 3 seeds" in verdict.verdict.scope


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('effect_of = "images"', 'effect_of = "noise"'), "the factor 'noise' does not vary among all, half"),
        (('design = "factors"', 'design = "fractions"'), "KeyError: 'fractions'"),
        (("plain = { images = 8, classes = 4, mixed = 0", "plain = { images = 8, classes = 4"), "KeyError: 'mixed'"),
    ],
)
def test_a_mistake_in_a_design_is_told(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    arms = "".join(f'[[arm]]\nname = "{arm}"\nmodel = "vit"\n' for arm in ARMS)
    text = study_text(arms + (DESIGN + EFFECT).replace(*change, 1))
    (tmp_path / "toy.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        find(str(tmp_path / "toy.toml"))
    assert words in str(error.value)


def test_factors_that_go_together_cannot_be_told_apart() -> None:
    arms = ("all", "half")
    text = (DESIGN + EFFECT).replace('effect_of = "images"', 'effect_of = "images"\namong = ["all", "few classes"]')
    with pytest.raises(ValueError, match="the factors classes, images cannot be told apart by all, few classes"):
        study_of(*arms, "few classes", more=text)


def test_every_claim_that_needs_a_study_has_one_that_can_be_run() -> None:
    """`eyechart claims` named sets of trainings ("study kernels") that `eyechart study` did not know."""
    studied = {claim.id for claim in CLAIMS.values() if claim.settled_by != "exam"}
    assert studied <= studies_of_claims().keys()
    assert {name for each in studies_of_claims().values() for name in each} <= set(names())
