"""Every claim on cases whose answer is known: a null must not get "holds", a true case must not get "fails".

The rows stand in `nulls/<measure>.py`. Gates are ignored, because the weights of a null are often broken on purpose
and a failed gate would hide a wrong verdict; the least number of images is not: a case with fewer would pass for
nothing, and is refused.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import xarray
from scipy.stats import binom

import eyechart
from eyechart.claims.asking import asked_of
from eyechart.claims.facts import facts_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import LEAST_IMAGES, Measured, decide, judge
from eyechart.claims.parts import ClaimTest
from eyechart.claims.table import CLAIMS
from eyechart.claims.verdict import Verdict
from eyechart.measure import Measure
from eyechart.measures import measures
from tests.claims import nulls
from tests.claims.nulls.case import Case
from tests.claims.nulls.made_up import noisy, noisy_finding

BY_CHANCE = 0.05
Findings = Mapping[str, xarray.Dataset]


def rows() -> Iterator[tuple[str, Case]]:
    """Every case with the name of its module."""
    for module in pkgutil.iter_modules(nulls.__path__):
        contents = importlib.import_module(f"{nulls.__name__}.{module.name}")
        for case in getattr(contents, "CASES", ()):
            yield module.name, case


@dataclass(frozen=True)
class Exam:
    """Cases that are examined together: the same subjects, images and options."""

    name: str
    cases: tuple[Case, ...]

    @property
    def measures(self) -> list[str]:
        return list(dict.fromkeys(measure for case in self.cases for measure in measures_of(case)))


def measures_of(case: Case) -> tuple[str, ...]:
    return case.measures or tuple(
        measure.name for measure in measures().values() if any(test.claim == case.claim for test in asked_of([measure]))
    )


def exams() -> list[Exam]:
    """One for each factory, limit, images and options."""
    together: dict[object, tuple[str, list[Case]]] = {}
    for module, case in rows():
        if case.subjects is not None:
            key = (case.subjects, case.limit, case.images, tuple(sorted(case.options.items(), key=str)))
            together.setdefault(key, (module, []))[1].append(case)
    return [
        Exam(f"{module}: {', '.join(dict.fromkeys(case.claim for case in cases))} #{place}", tuple(cases))
        for place, (module, cases) in enumerate(together.values())
    ]


def drawn() -> list[Case]:
    return [case for _, case in rows() if case.findings is not None]


def told(case: Case) -> str:
    return f"{case.claim} ({case.what})"


# --- how a case is judged ---------------------------------------------------------------------------------------


class NothingKnown(dict[str, Facts]):
    """Facts of made-up subjects; no gate asks for them."""

    def __missing__(self, subject: str) -> Facts:
        return Facts(subject, "transformer", trained=True)


def verdicts_of(
    case: Case, tests: Sequence[ClaimTest], findings: Findings, facts: Mapping[str, Facts]
) -> list[Verdict]:
    """The verdicts of a case's claim and reading with gates ignored. The case must be tested, on enough images."""
    own = [replace(test, gates=()) for test in tests if test.claim == case.claim]
    own = [test for test in own if case.reading in (None, test.reading)]
    known = sorted({test.reading for test in tests if test.claim == case.claim})
    assert own, f"{told(case)}: none of {', '.join(findings)} reads the claim {case.reading!r}; they read it {known}"
    verdicts = [each for each in judge(own, findings, facts) if each.claim == case.claim and each.parts]
    asked = sorted({part.quantity for test in own for part in test.parts})
    assert verdicts, f"{told(case)}: not tested: no tuple of these subjects has all of {', '.join(asked)}"
    few = [each for each in verdicts if each.reason.startswith("Fewer than")]
    assert not few, f"{told(case)}: decided on fewer than {LEAST_IMAGES} images, so it would pass for nothing"
    return verdicts


def wrong(case: Case, verdicts: Sequence[Verdict]) -> list[str]:
    """What was said that must never be said, with its numbers."""
    return [
        f"{told(case)} on {', '.join(each.subjects)}{f', read {each.reading}' if each.reading else ''} "
        f"{each.verdict}, which it must never: {'; '.join(part.sentence for part in each.parts)}"
        for each in verdicts
        if each.verdict == case.never
    ]


def examine(exam: Exam, folder: Path) -> tuple[list[ClaimTest], Findings, dict[str, Facts]]:
    """Tests, findings and facts of the shared exam. Neither page nor charts are drawn: they took as long as it."""
    case = exam.cases[0]
    assert case.subjects is not None
    run = eyechart.exam(
        list(case.subjects()),
        case.images,
        exam.measures,
        limit=case.limit,
        options=dict(case.options),
        out=folder / "run",
        device="cpu",
        page=False,
    )
    left_out = {entry["measure"]: entry["reason"] for entry in run.plan["left_out"]}
    assert not left_out, f"{exam.name}: left out: {left_out}"
    tests = [test for measure in run.measures.values() for test in asked_of([measure])]
    return tests, run.findings, facts_of(run.plan, run.findings)


def most_by_chance(draws: int) -> int:
    """How often `never` may come: not once in fewer than 20 draws, else what 5 % gives in all but 1 % of runs.

    >>> most_by_chance(1), most_by_chance(20), most_by_chance(200)
    (0, 4, 18)
    """
    return 0 if draws < 1 / BY_CHANCE else int(binom.ppf(0.99, draws, BY_CHANCE))


# --- the table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exam", exams(), ids=lambda exam: exam.name)
def test_subjects(exam: Exam, tmp_path: Path) -> None:
    tests, findings, facts = examine(exam, tmp_path)
    problems: list[str] = []
    for case in exam.cases:
        try:
            problems += wrong(case, verdicts_of(case, tests, findings, facts))
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("case", drawn(), ids=lambda case: f"{case.claim} {case.what}")
def test_made_up_findings(case: Case) -> None:
    assert case.findings is not None
    tests = asked_of(measures().values())
    problems: list[str] = []
    times = 0
    for seed in range(case.draws):
        found = wrong(case, verdicts_of(case, tests, case.findings(seed), NothingKnown()))
        times += bool(found)
        problems += found
    allowed = most_by_chance(case.draws)
    assert times <= allowed, f"in {times} of {case.draws} draws ({allowed} may be chance); the first: {problems[0]}"


def test_cases_are_well_formed() -> None:
    for module, case in rows():
        assert case.claim in CLAIMS, f"{module}: no claim is called {case.claim}"
        assert CLAIMS[case.claim].settled_by == "exam", f"{module}: no exam settles {case.claim}"
        assert (case.subjects is None) != (case.findings is None), f"{told(case)}: needs subjects or findings, not both"
        assert case.subjects is None or case.limit >= LEAST_IMAGES, f"{told(case)}: fewer than {LEAST_IMAGES} images"
        assert case.subjects is None or case.draws == 1, f"{told(case)}: draws are for made-up findings"


def test_every_claim_has_a_null_and_a_true_case() -> None:
    have = {(case.claim, case.never) for _, case in rows()}
    exam = [claim for claim in CLAIMS.values() if claim.settled_by == "exam"]
    missing = {
        "no null (never holds)": [claim.id for claim in exam if (claim.id, "holds") not in have],
        "no true case (never fails)": [claim.id for claim in exam if (claim.id, "fails") not in have],
        "no `null` sentence in claims.toml": [claim.id for claim in exam if not claim.null],
    }
    lacking = "; ".join(f"{what}: {', '.join(claims)}" for what, claims in missing.items() if claims)
    assert not lacking, lacking


# --- this runner ------------------------------------------------------------------------------------------------


def all_places(seed: int) -> Findings:
    return {"skip_ratio": noisy_finding({"skip_higher_share": 0.99}, ["vit", "cnn"], 0.01, seed)}


def test_a_wrong_verdict_is_caught_and_told_with_its_numbers() -> None:
    wrong_null = Case("C24", "not a null", "holds", findings=all_places, draws=100)
    with pytest.raises(
        AssertionError, match=r"in 100 of 100 draws \(11 may be chance\); the first: C24 \(not a null\) on"
    ):
        test_made_up_findings(wrong_null)
    test_made_up_findings(replace(wrong_null, never="fails"))
    with pytest.raises(AssertionError, match="not tested: no tuple of these subjects has all of"):
        test_made_up_findings(replace(wrong_null, claim="C13"))
    with pytest.raises(AssertionError, match="reads the claim 'backwards'"):
        test_made_up_findings(replace(wrong_null, reading="backwards"))


def test_too_few_images_prove_nothing() -> None:
    few = {"skip_ratio": all_places(0)["skip_ratio"].assign_attrs(images=LEAST_IMAGES - 1)}
    with pytest.raises(AssertionError, match="would pass for nothing"):
        test_made_up_findings(Case("C24", "too few", "holds", findings=lambda seed: few))


# --- the protocol itself ----------------------------------------------------------------------------------------


DECIDING = [measure for measure in measures().values() if asked_of([measure])]


@pytest.mark.parametrize("measure", DECIDING, ids=lambda measure: measure.name)
def test_a_claim_at_its_margin_holds_by_chance_in_at_most_one_draw_of_twenty(measure: Measure) -> None:
    """Whatever it asks for: with every truth exactly on its margin, where "holds" is right only by chance."""
    draws = 200
    generator = np.random.default_rng(0)
    for test in asked_of([measure]):
        held = 0
        for _ in range(draws):
            found = [noisy(part.margin, 0.1, generator) for part in test.parts]
            readings = [Measured(*ends, images=256, measure=measure.name) for ends in found]
            held += decide(replace(test, gates=()), ("one", "two"), readings, []).verdict == "holds"
        assert held <= most_by_chance(draws), f"{test.claim} {test.reading}: held {held} of {draws} times"
