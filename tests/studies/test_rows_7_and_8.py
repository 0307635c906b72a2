"""What rows 7 and 8 decide in made-up worlds: where a claim is true it holds, where something else explains it, not."""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eyechart.studies.command import costs, length_of
from eyechart.studies.questions import Numbers as Recorded
from eyechart.studies.questions import Question, fill
from eyechart.studies.records import Records, records_folder
from eyechart.studies.study import Study, find, folder, names
from eyechart.studies.verdicts import exam_verdicts, own_verdict

Numbers = Mapping[str, float]

READ = {"last_grid": [8, 8], "pooling": "cls"}


def world(study: Study, numbers: Callable[[str], Numbers], spread: float = 0.002) -> Records:
    """Records of every arm whose quantities are these numbers, and what a seed adds."""
    random = np.random.default_rng(0)
    lines: list[dict[str, Any]] = []
    for arm in study.arms.values():
        for seed in arm.seeds:
            noisy = {name: value + spread * random.standard_normal() for name, value in numbers(arm.name).items()}
            scores = {name: [value, value - 0.01, value + 0.01, 1000] for name, value in noisy.items()}
            scores.setdefault("test_accuracy", [0.7, 0.69, 0.71, 1000])
            lines.append(
                {
                    "study": study.name,
                    "arm": arm.name,
                    "seed": seed,
                    "registered": study.registered,
                    "scores": scores,
                    "facts": {
                        "architecture": "vit",
                        "grid": [8, 8],
                        "last_grid": [8, 8],
                        "heads": [8] * 9,
                        "pooling": "cls",
                    },
                    "data": study.data_of(arm),
                    "recipe": {"name": "zoo", "epochs": arm.settings["epochs"]},
                    "train_images": 50_000,
                    "classes": 100,
                }
            )
    return Records(study, lines)


def decided(records: Records) -> dict[str, str]:
    verdicts: dict[str, str] = {}
    for test in records.study.tests:
        verdict = own_verdict(test, records)
        assert verdict is not None, test
        assert verdict.registered == "before the runs"
        verdicts[f"{test.claim} {test.reading}".strip()] = verdict.verdict.verdict
    return verdicts


# --- Local heads -----------------------------------------------------------------------------------------------------

IMAGES = {"2-percent": 1000, "6-percent": 3000, "10-percent": 5000, "30-percent": 15000, "ten-classes": 5000}


def images_of(arm: str) -> int:
    return next((images for part, images in IMAGES.items() if part in arm), 50_000)


def by_data(arm: str) -> Numbers:
    doublings = math.log2(images_of(arm) / 1000)
    size = {"width-96": -0.1, "width-224": 0.1}.get(arm[: arm.rfind("-depth")], 0.0)
    share = 0.1 + 0.05 * doublings + 0.05 * ("equal-steps" in arm) + size
    return {"early_local_heads": share, "test_accuracy": share, "augmented_train_nll": 3 - 0.1 * doublings}


def by_difficulty(arm: str) -> Numbers:
    """Only few classes make heads local here, and accuracy is of the data alone."""
    doublings = math.log2(images_of(arm) / 1000)
    return {
        "early_local_heads": 0.8 if "ten-classes" in arm else 0.3,
        "test_accuracy": 0.1 + 0.05 * doublings,
        "augmented_train_nll": 2 + 0.1 * doublings,
    }


def test_local_heads_that_come_from_data_are_called_so() -> None:
    verdicts = decided(world(find("local_heads"), by_data))
    assert verdicts == {
        "C16 at equal steps": "holds",
        "C16 at equal epochs": "holds",
        "C17": "holds",
        "C43 at equal steps": "holds",
    }


def test_local_heads_that_come_from_few_classes_are_not_put_down_to_data() -> None:
    verdicts = decided(world(find("local_heads"), by_difficulty))
    assert verdicts["C16 at equal steps"] != "holds"
    assert verdicts["C17"] != "holds"
    assert verdicts["C43 at equal steps"] == "fails"


# --- Transfer --------------------------------------------------------------------------------------------------------

RULE = {
    ("cifar10", "large"): {"all": 0.9, "upper": 0.89, "head": 0.7},
    ("hangul", "large"): {"all": 0.9, "upper": 0.88, "head": 0.4, "fresh": 0.9},
    ("cifar10", "small"): {"all": 0.64, "upper": 0.65, "head": 0.66},
    ("hangul", "small"): {"all": 0.3, "upper": 0.33, "head": 0.2},
}


def moved(arm: str, table: Mapping[tuple[str, str], Numbers] = RULE) -> Numbers:
    for (target, size), numbers in table.items():
        for trained, accuracy in numbers.items():
            if arm.endswith(f"-{target}-{size}-{trained}"):
                return {"test_accuracy": accuracy}
    sources = {"10": -0.1, "30": -0.05, "96": -0.1, "224": 0.05}
    more = next((more for part, more in sources.items() if f"-{part}-" in arm), 0.0)
    return {"test_accuracy": RULE["cifar10", "small"]["all"] + more}


def test_the_four_cases_hold_where_the_rule_is_right() -> None:
    assert set(decided(world(find("transfer"), moved, 0.001)).values()) == {"holds"}


@pytest.mark.parametrize(
    ("cell", "change"),
    [
        (("cifar10", "large"), {"head": 0.95}),
        (("hangul", "large"), {"fresh": 0.95}),
        (("cifar10", "small"), {"all": 0.7}),
        (("hangul", "small"), {"head": 0.4}),
    ],
)
def test_one_cell_against_the_rule_makes_it_fail(cell: tuple[str, str], change: Numbers) -> None:
    table = {**RULE, cell: {**RULE[cell], **change}}
    verdicts = decided(world(find("transfer"), lambda arm: moved(arm, table), 0.001))
    assert verdicts["C72 by a ViT"] == verdicts["C72 by a ResNet"] == "fails"


def test_a_choice_within_half_a_point_of_the_best_is_the_rules() -> None:
    cell = ("cifar10", "small")
    for lead, verdict in ((0.003, "holds"), (0.009, "fails")):
        table = {**RULE, cell: {"all": 0.6, "upper": 0.66 + lead, "head": 0.66}}
        found = decided(world(find("transfer"), lambda arm, table=table: moved(arm, table), 0.0005))  # type: ignore[misc]
        assert found["C72 by a ViT"] == verdict


def test_fine_tunings_begin_from_the_weights_of_their_sources_home() -> None:
    study = find("transfer")
    begun = {
        arm: study.training(study.arms[arm], 1, "data", Path("work")).begin_from
        for arm in ("resnet-hangul-small-upper", "width-96-depth-6-moved", "vit-hangul-large-fresh")
    }
    assert begun == {
        "resnet-hangul-small-upper": "zoo:resnet@work/base/resnet-seed1.safetensors",
        "width-96-depth-6-moved": "zoo:vit@work/positions/width-96-depth-6-seed1.safetensors",
        "vit-hangul-large-fresh": None,
    }
    assert study.data_names == ["cifar100", "cifar10", "hangul"]
    own = {arm.name for arm, _ in study.runs}
    needed = {arm.name for arm, _ in study.needed_runs}
    assert needed - own == {arm.source for arm in study.arms.values()} - {""}, "only sources are trained again"


def test_arms_of_a_cell_differ_in_what_is_frozen_alone() -> None:
    study = find("transfer")
    for (target, size), numbers in RULE.items():
        for model in ("vit", "resnet"):
            arms = [study.arms[f"{model}-{target}-{size}-{trained}"] for trained in numbers if trained != "fresh"]
            settings = [{key: value for key, value in arm.settings.items() if key != "freeze"} for arm in arms]
            assert all(each == settings[0] for each in settings)
            assert {arm.settings.get("freeze", "none") for arm in arms} == {"none", "low-third", "all-but-head"}
            assert len({(arm.source, arm.seeds) for arm in arms}) == 1


# --- Longer training, finer grids ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lead", "verdict"), [(0.02, "holds"), (-0.02, "fails")])
def test_a_vit_that_catches_up_at_240_epochs_makes_the_claim_fail(lead: float, verdict: str) -> None:
    def accuracy(arm: str) -> Numbers:
        return {"test_accuracy": 0.7 + (lead if "240" in arm else 0.05) * arm.startswith("resnet")}

    assert decided(world(find("longer"), accuracy)) == {"C49": verdict}


def test_the_estimate_is_spent_by_length() -> None:
    study = find("longer")
    seconds = {arm: cost for arm, _, cost in costs(study, Records(study), [(a.name, s) for a, s in study.needed_runs])}
    assert sum(seconds[arm.name] for arm, _ in study.needed_runs) == pytest.approx(60 * study.minutes)
    assert seconds["vit-240-epochs"] / seconds["vit-120-epochs"] == pytest.approx(245 / 125)
    assert seconds["vit-25-percent"] < seconds["vit"] / 3
    steps = find("local_heads")
    assert length_of(steps.arms["vit-2-percent-equal-steps"]) == length_of(steps.arms["vit"])


def test_exams_of_the_base_count_here_and_claims_of_exams_are_not_judged_on_arms_made_to_be_unlike() -> None:
    study = find("longer")
    records = Records.of(study, records_folder())
    on_cifar10 = next(exam for exam in study.exams if exam.name == "on CIFAR-10")
    assert records.exam(on_cifar10, ("vit",), 0) is not None
    assert not list(exam_verdicts(records))
    as_if = replace(study, exams=tuple(replace(exam, judged=True) for exam in study.exams))
    assert list(exam_verdicts(Records(as_if, records.lines)))


@pytest.mark.parametrize(("fine", "coarse", "verdict"), [(0.05, 0.0, "holds"), (0.0, 0.05, "fails")])
def test_kinds_that_differ_on_the_fine_grid_alone(fine: float, coarse: float, verdict: str) -> None:
    def accuracy(arm: str) -> Numbers:
        apart = fine if "patch-2" in arm else coarse
        return {"test_accuracy": 0.6 + apart * {"2d": 1, "ve": -1}.get(arm[-2:], 0)}

    assert decided(world(find("fine_grids"), accuracy)) == {"C78": verdict}


def test_noise_by_itself_is_no_spread() -> None:
    """Seeds that differ more at patch 2 must not pass for kinds that do: best and worst are chosen by other seeds."""
    study = find("fine_grids")
    random = np.random.default_rng(1)
    values: list[float] = []
    for _ in range(200):
        records = world(study, lambda arm: {"test_accuracy": 0.6}, 0.0)
        for line in records.lines:
            noise = 0.02 if "patch-2" in line["arm"] else 0.002
            line["scores"]["test_accuracy"][0] = 0.6 + noise * random.standard_normal()
        verdict = own_verdict(study.tests[0], records)
        assert verdict is not None
        values.append(verdict.verdict.effect or 0.0)
    assert np.mean(values) < 0.002


# --- The class token -------------------------------------------------------------------------------------------------


def test_a_class_token_that_is_frozen_or_unseen_answers_its_question() -> None:
    """In a world where each block that it is frozen longer takes .02 off its phase at MLPs, and being seen adds .3."""
    study = find("skips")
    switches = {name: arm.settings.get("switches", {}) for name, arm in study.arms.items()}
    assert switches["class-token-unseen"] == {"cls_unseen_until": 9}, "in all nine blocks of the ViT"

    def numbers(arm: str) -> Numbers:
        frozen = switches[arm].get("cls_frozen_until", 0)
        phase = 0.5 - 0.02 * frozen - 0.3 * (arm == "class-token-unseen")
        phases = {"cls_phase_since_joining_mlp": phase, "cls_phase_since_joining_attention": 0.1}
        return {**phases, "test_accuracy": 0.6 - 0.01 * frozen, "hit_rate": 0.2, "place_decoded": 0.5}

    records = [world(study, numbers, 1e-6) if name == "skips" else Records(find(name), []) for name in names()]
    seven = next(question for question in asked_by_the_notes() if question.id == "E7")
    filled = fill(seven, Recorded({each.study.name: each for each in records}, (), {}))
    assert filled.state == "answered"
    frozen = filled.answer[filled.answer.index("Kept on the skip up to a block") :]
    values = [float(found.replace("−", "-")) for found in re.findall(r"by (−?\d\.\d+)", frozen)]
    assert values == pytest.approx([-0.02, 0.0, -0.01, 0.3, 0.0, 0.0], abs=1e-4)
    assert set(re.findall(r"\d+\.\d+", filled.answer)) <= set(re.findall(r"\d+\.\d+", filled.answer_ko))


def asked_by_the_notes() -> list[Question]:
    entries = tomllib.loads((folder() / "notes" / "questions.toml").read_text(encoding="utf-8"))["question"]
    return [Question(**{**entry, "notes": tuple(entry["notes"])}) for entry in entries]
