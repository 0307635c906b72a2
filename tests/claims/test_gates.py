"""The gates on both sides of every threshold."""

import math
from dataclasses import replace
from typing import Any

import pytest

from eyechart.claims.facts import facts_of
from eyechart.claims.gates import (
    ACCURACY,
    HEADS,
    HEADS_OF_ONE_BLOCK,
    INTACT_ACCURACY,
    LARGE_SCALE,
    LAST_GRID,
    MATCHED,
    READOUT,
    RECIPE,
    REGIME,
    TOKENS,
    TRAINED,
    Facts,
    Outcome,
    image_set,
)
from eyechart.sites import Address, Anatomy, Architecture, Layout, Role, Site


def facts(
    subject: str = "vit",
    architecture: Architecture = "transformer",
    *,
    trained: bool | None = True,
    accuracy: float | None = None,
    **known: Any,
) -> Facts:
    interval = None if accuracy is None else (accuracy, accuracy - 0.02, accuracy + 0.02)
    return Facts(subject, architecture, trained, accuracy=interval, **known)


@pytest.mark.parametrize(
    ("images", "architecture", "least"),
    [
        ("sample", "transformer", 0.80),
        ("sample", "cnn", 0.88),
        ("cifar100", "transformer", 0.45),
        ("cifar100", "cnn", 0.60),
        ("cifar10", "hybrid", 0.80),
    ],
)
def test_accuracy_thresholds(images: str, architecture: Architecture, least: float) -> None:
    assert ACCURACY.check([facts("a", architecture, images=images, accuracy=least)]).outcome == "passed"
    short = ACCURACY.check([facts("a", architecture, images=images, accuracy=least - 0.001)])
    assert short.outcome == "failed"
    whose = "CNNs" if architecture == "cnn" else "other models than CNNs"
    assert f"less than the {100 * least:.0f} % asked of {whose} on CIFAR-10" in short.words


def test_accuracy_elsewhere_has_no_threshold_but_guessing() -> None:
    assert ACCURACY.check([facts(images="photos", accuracy=0.05)]).outcome == "passed"
    assert ACCURACY.check([facts(images="photos", accuracy=0.28, classes=4)]).outcome == "passed"
    guessing = ACCURACY.check([facts(images="photos", accuracy=0.26, classes=4)])  # ± 2 points
    assert guessing.outcome == "failed"
    assert "not clearly above chance for the 4 classes of the images" in guessing.words
    assert ACCURACY.check([facts(images="sample", accuracy=0.9, classes=10)]).outcome == "passed"


def test_of_a_twin_that_lost_something_only_the_intact_subject_must_be_accurate() -> None:
    """Without a skip 50 % are left: that loss is what the claim is about, and no failed gate."""
    whole, twin = facts("a", images="sample", accuracy=0.9), facts("b", images="sample", accuracy=0.5)
    assert ACCURACY.check([whole, twin]).outcome == "failed"
    passed = INTACT_ACCURACY.check([whole, twin])
    assert (passed.gate, passed.outcome) == ("g1-intact", "passed")
    assert "a classifies 90.0 % correctly" in passed.words
    assert "b" not in passed.words.split()
    assert INTACT_ACCURACY.check([twin, whole]).outcome == "failed"


def test_one_weak_subject_fails_the_pair_and_is_the_one_named() -> None:
    pair = [facts("a", images="sample", accuracy=0.9), facts("b", "cnn", images="sample", accuracy=0.5)]
    result = ACCURACY.check(pair)
    assert (result.gate, result.title, result.outcome) == ("g1", "accuracy", "failed")
    assert result.words == "b classifies 50.0 % correctly [48.0, 52.0], less than the 88 % asked of CNNs on CIFAR-10"


def test_the_gap_of_a_pair_is_told() -> None:
    pair = [facts("a", images="sample", accuracy=0.85), facts("b", "cnn", images="sample", accuracy=0.93)]
    assert ACCURACY.check(pair).words.endswith("a gap of 8.0 points")


def test_unknown_accuracy_is_said_and_untrained_weights_fail() -> None:
    unknown = ACCURACY.check([facts("a", images="sample")])
    assert unknown.outcome == "unknown"
    assert unknown.words == "the accuracy of a on these images is not known"
    assert ACCURACY.check([Facts("a", "cnn", True, accuracy=(math.nan,) * 3)]).outcome == "unknown"
    untrained = [facts("a", trained=False, images="photos"), facts("b")]
    assert ACCURACY.check(untrained).outcome == TRAINED.check(untrained).outcome == "failed"
    assert ACCURACY.check(untrained).words == "a has untrained weights"


@pytest.mark.parametrize(("other", "outcome"), [(0.85, "passed"), (0.849, "failed"), (None, "unknown")])
def test_matched_accuracy(other: float | None, outcome: Outcome) -> None:
    result = MATCHED.check([facts("a", accuracy=0.9), facts("b", accuracy=other)])
    assert result.outcome == outcome
    assert MATCHED.check([facts("a", accuracy=0.9), facts("b", accuracy=0.8)]).words == (
        "their accuracies are 10.0 points apart, more than the 5 asked for"
    )


def test_the_trained_gate_has_no_threshold() -> None:
    assert TRAINED.check([facts(images="sample", accuracy=0.13, classes=10)]).outcome == "passed"
    assert TRAINED.check([facts(images="sample")]).outcome == "passed", "an accuracy that is not known"


def test_the_trained_gate_asks_for_more_than_guessing() -> None:
    result = TRAINED.check([facts(images="sample", accuracy=0.11, classes=10)])
    assert result.outcome == "failed"
    assert (
        result.words
        == "vit classifies 11.0 % correctly [9.0, 13.0], not clearly above chance for the 10 classes of the images"
    )


def test_unknown_training_is_a_gate_unless_the_answers_show_it() -> None:
    """A user's module may be untrained: features at initialisation satisfied C14 with 0.000 [0.000, 0.000]."""
    for gate in (TRAINED, ACCURACY):
        unknown = gate.check([facts("net", trained=None)])
        assert (unknown.outcome, unknown.words) == ("failed", "whether net is trained is not known")
        assert gate.check([facts("net", trained=None, accuracy=0.10, classes=10)]).outcome == "failed"
        assert gate.check([facts("net", trained=None, accuracy=0.60, classes=10)]).outcome == "passed"
        assert gate.check([facts("net", trained=False, accuracy=0.60, classes=10)]).outcome == "failed"


def test_names_of_image_sets() -> None:
    assert image_set("hf:uoft-cs/cifar-100:test") == "CIFAR-100"
    assert image_set("CIFAR_10.npz") == image_set("sample") == "CIFAR-10"
    assert image_set("samples of birds") == "samples of birds"


@pytest.mark.parametrize(("grid", "outcome"), [((8, 8), "passed"), ((7, 8), "failed"), (None, "unknown")])
def test_token_grid(grid: tuple[int, int] | None, outcome: Outcome) -> None:
    assert TOKENS.check([facts("a", grid=(16, 16)), facts("b", grid=grid)]).outcome == outcome


@pytest.mark.parametrize(
    ("heads", "pooled", "single"),
    [
        ((6, 6, 6), "passed", "passed"),
        ((3, 3, 3), "passed", "failed"),
        ((2, 3, 8, 8), "failed", "failed"),  # few at the bottom
        ((8, 8, 3, 2), "failed", "failed"),  # few at the top
        ((), "unknown", "unknown"),
    ],
)
def test_heads_may_be_pooled_over_two_blocks(heads: tuple[int, ...], pooled: Outcome, single: Outcome) -> None:
    subjects = [facts(heads=heads), facts("cnn", "cnn")]
    assert HEADS.check(subjects).outcome == pooled
    assert HEADS_OF_ONE_BLOCK.check(subjects).outcome == single


def test_the_regime_only_ever_labels() -> None:
    assert REGIME.check([facts(training_images=1_281_167)]).outcome == "passed"
    assert REGIME.check([facts(training_images=1_281_167), facts(training_images=50_000)]).outcome == "proxy"
    assert REGIME.check([facts()]).outcome == "proxy"


@pytest.mark.parametrize(
    ("recipes", "outcome"),
    [
        (("strong", "strong"), "passed"),
        (("strong", "weak"), "failed"),
        (("strong", None), "unknown"),
        (("strong", None, "weak"), "failed"),
        ((None,), "passed"),
    ],
)
def test_same_recipe(recipes: tuple[str | None, ...], outcome: Outcome) -> None:
    subjects = [facts(name, recipe=recipe) for name, recipe in zip("abc", recipes, strict=False)]
    assert RECIPE.check(subjects).outcome == outcome


def test_a_recipe_with_a_changed_setting_is_another_recipe() -> None:
    named = {"name": "zoo", "epochs": 300, "mixup": 0.8}
    subjects = [
        facts(who, recipe="zoo", settings=settings)
        for who, settings in (("a", named), ("b", None), ("c", {**named, "mixup": 0.0}))
    ]
    assert RECIPE.check(subjects[:2]).outcome == "passed"
    result = RECIPE.check(subjects)
    assert (result.outcome, result.words) == ("failed", "the recipes differ in mixup (a 0.8, c 0.0)")
    assert RECIPE.check([subjects[0], facts("d", recipe="zoo", settings=dict(named))]).outcome == "passed"


def test_facts_tell_the_whole_recipe_of_a_card() -> None:
    anatomy = Anatomy("a", (), (), (32, 32), "cnn", None, "gap").as_json()
    plan = {
        "images": {"name": "sample"},
        "subjects": [
            {
                "name": "a",
                "trained": True,
                "anatomy": anatomy,
                "card": {"zoo": {"recipe": {"name": "zoo", "mixup": 0.0}}},
            }
        ],
    }
    known = facts_of(plan, {})["a"]
    assert (known.recipe, known.settings) == ("zoo", {"name": "zoo", "mixup": 0.0})


def test_facts_from_an_anatomy() -> None:
    def site(role: Role, grid: tuple[int, int], heads: int | None = None) -> Site:
        return Site(
            f"{role} {grid}", role, "attention", "", Address("", 0, 0, ""), 0.5, 0, 0, Layout("NTC", 1, grid), 8, heads
        )

    sites = (
        site("stem", (32, 32)),
        site("attention", (16, 16), 4),
        site("block", (16, 16)),
        site("attention", (8, 8), 6),
    )
    anatomy = Anatomy("swin", sites, (), (32, 32), "transformer", None, "gap")
    known = Facts.of(anatomy, trained=True, images="sample", recipe="strong")
    grids: dict[str, Any] = {"grid": (16, 16), "last_grid": (16, 16)}
    assert known == Facts("swin", "transformer", True, "sample", recipe="strong", heads=(4, 6), pooling="gap", **grids)


def test_the_grid_that_is_read_counts_where_the_last_block_is() -> None:
    vit, cnn = Facts("vit", "transformer", True, last_grid=(8, 8)), Facts("cnn", "cnn", True, last_grid=(4, 4))
    result = LAST_GRID.check([vit, cnn])
    assert result.outcome == "failed"
    assert result.words == "the last block of cnn, which is read, has a grid of 4×4, less than 7×7"
    assert LAST_GRID.check([vit, replace(cnn, last_grid=(7, 7))]).outcome == "passed"  # as in the paper
    assert LAST_GRID.check([Facts("flat", "cnn", True)]).outcome == "unknown"


def test_a_known_small_training_set_is_told_and_an_unknown_one_too() -> None:
    """C39 said of the bundled models that it is not known how much data they saw; their cards tell."""
    small = Facts("zoo:vit", "transformer", True, training_images=50_000)
    found = REGIME.check([small, replace(small, subject="hub", training_images=None)])
    assert (found.outcome, found.words) == (
        "proxy",
        "the claim is about large-scale training data: zoo:vit saw 50,000 images",
    )
    assert "not known" in REGIME.check([replace(small, training_images=None)]).words
    assert REGIME.check([replace(small, training_images=14_000_000)]).outcome == "passed"


def test_where_a_small_scale_is_no_proxy_it_decides_nothing() -> None:
    small = Facts("zoo:vit", "transformer", True, training_images=50_000)
    found = LARGE_SCALE.check([small, replace(small, training_images=14_000_000)])
    assert (found.outcome, found.words) == ("failed", REGIME.check([small]).words)
    assert LARGE_SCALE.check([replace(small, training_images=None)]).outcome == "proxy", "hub weights may be large"
    assert LARGE_SCALE.check([replace(small, training_images=14_000_000)]).outcome == "passed"


def test_who_pools_is_not_compared_with_who_reads_a_class_token() -> None:
    """C60 held for zoo:swin beside zoo:vit, and not beside zoo:vit-gap, which pools as zoo:swin does."""
    swin, vit = (
        Facts("zoo:swin", "transformer", True, pooling="gap"),
        Facts("zoo:vit", "transformer", True, pooling="cls"),
    )
    found = READOUT.check([swin, vit])
    assert (found.outcome, found.words) == (
        "failed",
        "the classifiers read differently: zoo:swin reads the mean of its tokens, zoo:vit reads its class token",
    )
    assert READOUT.check([swin, replace(vit, pooling="gap")]).outcome == "passed"
    assert READOUT.check([swin, replace(vit, pooling="other")]).outcome == "unknown"
