"""Few-shot evaluation against loops written out, and on features whose answer is known (SPEC Appendix A, M14)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
import timm
import torch
import xarray
from torch import nn

from eyechart.claims.asking import asked_of
from eyechart.claims.gates import Facts
from eyechart.claims.judge import judge
from eyechart.errors import DoesNotApply
from eyechart.intervals import jackknife, leave_one_out_weights
from eyechart.measures.few_shot.features import FEATURES, before_logits, width_of, words_for
from eyechart.measures.few_shot.measure import (
    BIAS,
    PENALTY,
    FewShot,
    FewShotTally,
    Pool,
    Rule,
    linear_evaluation,
    nearest_mean,
    share_right,
    tightness,
)
from eyechart.measures.few_shot.quantities import correlation, correlation_z, leads_together, trend
from eyechart.scene import Scene
from eyechart.site_choice import classifier_input
from eyechart.sites import Architecture, Site
from eyechart.subjects.anatomy import anatomy_of
from eyechart.tracing.taps import Tap
from eyechart.tracing.views import Look
from tests import cases
from tests.measures.staging import anatomy, measure_tensors, scene, site

CLASSES = 5
HEADED = "mobilenetv3_small_050"  # it has a convolution between pooling and classifier


def tally_of(features: torch.Tensor, labels: torch.Tensor) -> FewShotTally:
    tally = FewShotTally.empty(fold=16, dealt_fold=16, feature=features.shape[1])
    folds, ones = torch.arange(len(labels)) % 16, torch.ones(len(labels), dtype=torch.float64)
    tally.append(image=torch.arange(len(labels)), fold=folds, label=labels, features=features)
    tally.images.index_add_(0, folds, ones)
    tally.dealt.index_put_((folds, folds), ones, accumulate=True)
    return tally


def exam(seed: int, images: int = 320, width: int = 6, spread: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(images) % CLASSES)[torch.randperm(images, generator=generator)]
    centres = 1.2 * torch.randn(CLASSES, width, generator=torch.Generator().manual_seed(1))
    return centres[labels] + spread * torch.randn(images, width, generator=generator), labels


def test_supports_and_queries_are_disjoint_and_of_the_right_class() -> None:
    features, labels = exam(0)
    drawn = Pool.of(tally_of(features, labels).total(), 20).draw(shots=5, ways=3)
    assert drawn is not None
    supports, queries = drawn
    assert supports.shape == (20, 3, 5)
    assert queries.shape == (20, 3, 32)
    for draw in range(20):
        assert not set(supports[draw].flatten().tolist()) & set(queries[draw].flatten().tolist())
        together = torch.cat([supports[draw], queries[draw]], dim=1)
        assert len(set(together.flatten().tolist())) == together.numel()
        of_way = labels[together]
        assert (of_way == of_way[:, :1]).all()
        assert len(set(of_way[:, 0].tolist())) == 3
    assert len({tuple(draw.flatten().tolist()) for draw in supports}) == 20


def test_a_fold_that_is_left_out_is_neither_shown_nor_asked() -> None:
    features, labels = exam(0)
    tally = tally_of(features, labels)
    weights = torch.ones(16)
    weights[3] = 0
    whole, without = (Pool.of(some, 20).draw(2, CLASSES) for some in (tally.total(), tally.weighted(weights)))
    assert whole is not None
    assert without is not None
    left = torch.cat(without, dim=2)
    assert not (left % 16 == 3).any()
    for full, less in zip(torch.cat(whole, dim=2).flatten(0, 1), left.flatten(0, 1), strict=True):
        stay = [image for image in full.tolist() if image % 16 != 3]
        assert less.tolist()[: len(stay)] == stay  # the others keep their order and move up


def test_nearest_mean_by_loops() -> None:
    features, labels = exam(2, images=100)
    drawn = Pool.of(tally_of(features, labels).total(), 7).draw(3, 4)
    assert drawn is not None
    supports, queries = drawn
    right = []
    for draw in range(7):
        means = [features[supports[draw, way]].mean(0) for way in range(4)]
        for way in range(4):
            for query in queries[draw, way]:
                distances = [float((features[query] - mean).norm()) for mean in means]
                right.append(int(np.argmin(distances)) == way)
    assert share_right(nearest_mean, features, *drawn) == pytest.approx(np.mean(right), abs=1e-12)


@pytest.mark.parametrize(("width", "shots"), [(60, 2), (6, 8)])
def test_linear_evaluation_equals_a_reference_ridge(width: int, shots: int) -> None:
    features, labels = exam(3, images=160, width=width, spread=3.0)
    features = features * torch.logspace(-2, 2, width) + 5
    drawn = Pool.of(tally_of(features, labels).total(), 6).draw(shots, CLASSES)
    assert drawn is not None
    supports, queries = drawn
    weights, bias = linear_evaluation(features, supports)
    right = []
    for draw in range(6):
        x, asked = (
            features[supports[draw].flatten()].double().numpy(),
            features[queries[draw].flatten()].double().numpy(),
        )
        mean, scale = x.mean(0), x.std(0)
        z, z_asked = (np.c_[(some - mean) / scale, np.full(len(some), BIAS)] for some in (x, asked))
        y = 2.0 * np.eye(CLASSES).repeat(shots, axis=0) - 1
        expected = z_asked @ np.linalg.solve(z.T @ z + PENALTY * np.eye(width + 1), z.T @ y)
        mine = features[queries[draw].flatten()] @ weights[draw] + bias[draw]
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-3, atol=1e-4)
        right += (expected.argmax(1) == np.arange(CLASSES).repeat(queries.shape[2])).tolist()
    assert share_right(linear_evaluation, features, *drawn) == pytest.approx(np.mean(right), abs=0.002)


@pytest.mark.parametrize("rule", [nearest_mean, linear_evaluation])
def test_images_that_are_asked_answer_as_among_all(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8,192 images few are asked in a draw: scoring all took as long as all else together."""
    features, labels = exam(3, spread=0.4)
    drawn = Pool.of(tally_of(features, labels).total(), 12).draw(2, 4, most=5)
    assert drawn is not None
    answers = []
    for gathering in (0, 10**9):
        monkeypatch.setattr("eyechart.measures.few_shot.measure.GATHERING", gathering)
        answers.append(share_right(rule, features, *drawn))
    assert answers[0] == answers[1]
    assert 0.3 < answers[0] < 1


def test_answers_do_not_depend_on_how_many_draws_are_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = exam(4)
    drawn = Pool.of(tally_of(features, labels).total(), 30).draw(2, CLASSES)
    assert drawn is not None
    whole = [share_right(rule, features, *drawn) for rule in (nearest_mean, linear_evaluation)]
    monkeypatch.setattr("eyechart.measures.few_shot.measure.AT_ONCE", 4000)
    assert [share_right(rule, features, *drawn) for rule in (nearest_mean, linear_evaluation)] == whole


Pooling = Literal["cls", "gap", "other"] | None


def subject(channels: int = 6, pooling: Pooling = "cls") -> tuple[Site, Scene]:
    place = replace(site("blocks.0", prefix=1, depth=1.0), channels=channels)
    body = replace(anatomy("v", [place], cls=0), pooling=pooling)
    return place, replace(scene(body, images=400, block=8), classes=tuple("abcde"))


def measured(features: torch.Tensor, labels: torch.Tensor) -> xarray.Dataset:
    place, where = subject(features.shape[1])
    tokens = torch.cat([features[:, None], torch.randn(len(features), 4, features.shape[1])], dim=1)
    return measure_tensors(FewShot(), where, {("v", place.name): Look(place, output=tokens)}, 8, labels.numpy())


def test_permuted_labels_are_at_chance_and_separate_classes_are_perfect() -> None:
    features, labels = exam(5, images=400, spread=0.01)
    finding = measured(features, labels)
    assert finding.way.values.tolist() == [2, 5]
    np.testing.assert_allclose(finding.linear.values, 1.0)
    np.testing.assert_allclose(finding.episodes.values, 1.0)
    np.testing.assert_allclose(finding.episodes_low.values, 0.025 ** (1 / 400))  # all right so far is not for certain
    assert float(finding.within[0] / finding.between[0]) < 0.02
    shuffled = labels[torch.randperm(400, generator=torch.Generator().manual_seed(1))]
    chance = measured(features, shuffled)
    np.testing.assert_allclose(chance.linear.values, 1 / 5, atol=0.05)
    np.testing.assert_allclose(chance.episodes.sel(way=5).values, 1 / 5, atol=0.05)
    np.testing.assert_allclose(chance.episodes.sel(way=2).values, 1 / 2, atol=0.05)
    assert float(chance.within[0] / chance.between[0]) == pytest.approx(1, abs=0.02)


def test_more_shots_help_and_more_ways_hurt() -> None:
    finding = measured(*exam(6, images=400))
    bounds = zip(finding.quantity_low.values, finding.quantity_high.values, strict=True)
    rows = dict(zip(finding.quantity.values.tolist(), bounds, strict=True))
    assert rows["shots_trend"][0] > 0
    assert rows["ways_trend"][1] < 0
    assert "of each class" in FewShot().sentence(finding)
    assert "guessing" in str(FewShot().chart(finding).to_dict())


def test_trends_of_a_table_made_by_hand() -> None:
    shots, ways = np.array([1, 2, 8]), np.array([2, 4])
    table = 0.5 + 0.1 * np.log2(shots)[None] - 0.2 * np.log2(ways)[:, None]
    episodes = np.concatenate([table, np.full((1, 3), np.nan)])  # no images for 20 ways
    made = xarray.Dataset(
        {"episodes": (("subject", "way", "shot"), episodes[None])},
        coords={"subject": ["v"], "way": [2, 4, 20], "shot": shots},
    )
    assert trend("shot")(made) == {("v",): pytest.approx(0.1)}
    assert trend("way")(made) == {("v",): pytest.approx(-0.2)}


def accuracies(accuracy: list[float], spread: list[float], names: list[str]) -> xarray.Dataset:
    """Episode accuracies whose mean is as told, with a cell that nobody has images for, and spreads."""
    table = np.array([[[value - 0.1, value + 0.1, np.nan]] for value in accuracy])
    return xarray.Dataset(
        {
            "episodes": (("subject", "way", "shot"), table),
            "within": ("subject", np.array(spread)),
            "between": ("subject", np.ones(len(spread))),
        },
        coords={"subject": names, "way": [2], "shot": [1, 2, 5]},
    )


def test_tightness_by_hand() -> None:
    better_is_tighter = accuracies([0.9, 0.7], [0.5, 0.8], ["a", "b"])
    assert leads_together(better_is_tighter) == {("a", "b"): pytest.approx(0.2 * -0.3)}
    assert leads_together(better_is_tighter.isel(subject=[1, 0])) == {("b", "a"): pytest.approx(0.2 * -0.3)}
    assert leads_together(accuracies([0.7, 0.9], [0.5, 0.8], ["a", "b"]))["a", "b"] > 0
    assert correlation(better_is_tighter) == {}
    three = accuracies([0.9, 0.7, 0.5], [0.5, 0.6, 0.7], ["a", "b", "c"])
    assert correlation(three) == {("a", "b", "c"): pytest.approx(-1)}
    assert correlation_z(three) == {}  # three subjects on a line are no evidence
    four = accuracies([0.9, 0.7, 0.5, 0.3], [0.5, 0.7, 0.6, 0.8], ["a", "b", "c", "d"])
    assert correlation_z(four) == {("a", "b", "c", "d"): pytest.approx(np.arctanh(-0.8))}
    assert leads_together(three) == {}
    with_floor = accuracies([0.9, 0.7, 0.2], [0.5, 0.8, 1.0], ["a", "b", "a@random"])  # untrained: no third subject
    assert correlation(with_floor) == {}
    assert set(leads_together(with_floor)) == {("a", "b")}


def two_subjects(one: torch.Tensor, two: torch.Tensor, labels: torch.Tensor) -> xarray.Dataset:
    place, where = subject(one.shape[1])
    people = tuple(replace(where.anatomies[0], subject=name, architecture="cnn") for name in ("v", "w"))
    where = replace(where, anatomies=people, images=len(labels))
    looks = {
        (name, place.name): Look(place, output=features[:, None].expand(-1, 5, -1))
        for name, features in (("v", one), ("w", two))
    }
    return measure_tensors(FewShot(), where, looks, 8, labels.numpy())


def judged(finding: xarray.Dataset) -> dict[tuple[str, ...], str]:
    """The verdicts of the second reading."""
    facts = {name: Facts(name, "cnn", True, "sample", (0.95, 0.94, 0.96)) for name in ("v", "w")}
    verdicts = judge(asked_of([FewShot()]), {"few_shot": finding}, facts)
    tighter = "for how tight classes are"
    assert sum(v.claim == "C71" and v.reading != tighter for v in verdicts) == 2  # the first reading, of each subject
    return {v.subjects: v.verdict for v in verdicts if v.claim == "C71" and v.reading == tighter}


def test_tighter_classes_are_judged_between_two_subjects() -> None:
    (tight, labels), (loose, same) = exam(9, images=400, spread=0.8), exam(9, images=400, spread=1.6)
    assert torch.equal(labels, same)
    finding = two_subjects(tight, loose, labels)
    assert judged(finding) == {("v", "w"): "holds"}
    assert judged(two_subjects(loose, tight, labels)) == {("v", "w"): "holds"}
    assert "In episodes v is ahead of w by" in FewShot().sentence(finding)
    assert "The classes of v are tighter than those of w (-0." in FewShot().sentence(finding)
    assert "The classes of w are tighter than those of v (-0." in FewShot().sentence(two_subjects(loose, tight, labels))
    said = FewShot().sentence(two_subjects(tight, tight, labels)).partition("\n")[2]
    assert said.startswith("In episodes v and w cannot be told apart (0.0 [")
    assert "The classes of w and v cannot be told apart by tightness" in said
    assert "The features of v are the class token of block 1" in FewShot().sentence(finding)
    few = exam(9, images=10)  # 2 of each class: no episode can be played
    assert "nan" not in FewShot().sentence(two_subjects(few[0], few[0] + 1, few[1]))
    # Two draws of one kind: neither is ahead, and an honest interval decides nothing.
    generator = torch.Generator().manual_seed(2)
    noise = [0.4 * torch.randn(tight.shape, generator=generator) for _ in range(2)]
    assert judged(two_subjects(tight + noise[0], tight + noise[1], labels)) == {("v", "w"): "undecided"}


def test_distances_by_all_pairs() -> None:
    features, labels = exam(7, images=40)
    members = [torch.nonzero(labels == label).flatten() for label in range(CLASSES)]
    within, between = tightness(features.double(), members)
    squares = torch.cdist(features.double(), features.double()).square()
    same = [float(squares[own][:, own].sum() / (len(own) * (len(own) - 1))) for own in members]
    other = [float(squares[a][:, b].mean()) for a in members for b in members if a is not b]
    assert within == pytest.approx(np.sqrt(np.mean(same)))
    assert between == pytest.approx(np.sqrt(np.mean(other)))


def test_of_a_last_block_class_token_or_mean_is_read() -> None:
    tokens = torch.randn(2, 5, 6)
    centred = tokens - tokens.mean(-1, keepdim=True)
    families: list[tuple[Architecture, torch.Tensor]] = [("transformer", centred), ("cnn", tokens)]
    for family, told in families:
        if family == "transformer":
            told = told / (told.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        mean = told[:, 1:].mean(1)
        readings: dict[Pooling, torch.Tensor] = {"cls": told[:, 0], None: told[:, 0], "gap": mean, "other": mean}
        for pooling, expected in readings.items():
            place, where = subject(pooling=pooling)
            look = Look(place, output=tokens)
            look.anatomy = replace(where.anatomies[0], architecture=family)
            torch.testing.assert_close(before_logits(look), expected)


def standard(features: torch.Tensor) -> torch.Tensor:
    """As linear evaluation and episodes see features: a factor and an offset of a channel are no part of them."""
    features = features.double()
    return (features - features.mean(0)) / features.std(0)


def two_heads(model: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module = timm.create_model(model, num_classes=10, **options).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.min() == parameter.max():  # gains and biases of norms
                parameter.add_(0.5 * torch.rand(parameter.shape))
    return module


@pytest.mark.parametrize(
    ("module", "size", "heads", "words"),
    [
        (
            two_heads("deit_tiny_distilled_patch16_224", depth=2, img_size=32),
            32,
            ["head", "head_dist"],
            "the 2 tokens before the patches of block 2, normalised over channels",
        ),
        (two_heads("levit_128s", img_size=64), 64, ["head"], "the mean over positions of block 11"),
        (cases.vit(num_classes=0, global_pool=""), 32, [], "the class token of block 2, normalised over channels"),
    ],
    ids=["distilled", "levit", "tokens"],
)
def test_several_classifiers_or_none(module: nn.Module, size: int, heads: list[str], words: str) -> None:
    """Up to standardisation it is what each classifier is given, or the normalised class token that comes out."""
    images = torch.randn(24, 3, size, size, generator=torch.Generator().manual_seed(3))
    found = anatomy_of("it", module, images[:2], classifier=bool(heads))
    (place,) = classifier_input(found)
    given: list[torch.Tensor] = []
    hooks = [
        module.get_submodule(head).register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
        for head in heads
    ]
    output, seen = Tap(module, found, {place.name: [FEATURES]}).run(images)
    for hook in hooks:
        hook.remove()
    features = seen[place.name][FEATURES.name]
    expected = torch.cat(given, dim=1) if heads else output[:, 0]
    assert features.shape[1] == width_of(found, place)
    torch.testing.assert_close(standard(features), standard(expected), atol=2e-3, rtol=1e-3)
    assert words_for(found, place) == words


@pytest.mark.parametrize(
    ("build", "classifier", "size"),
    [(cases.vit, "head", 32), (cases.resnet, "fc", 32), (cases.swin, "head.fc", 32), (cases.bit, "head.fc", 64)],
)
def test_the_classifier_applied_to_what_it_reads_gives_the_logits(
    build: Callable[[], nn.Module], classifier: str, size: int
) -> None:
    """After the last norm (and, of a pre-activation CNN, its ReLU): the output of the last block would not do."""
    module, images = build(), cases.images(size=size)
    found = anatomy_of("it", module, images)
    (place,) = classifier_input(found)
    logits, seen = Tap(module, found, {place.name: [FEATURES]}).run(images)
    features = seen[place.name][FEATURES.name]
    assert features.shape == (2, place.channels)
    read_by = module.get_submodule(classifier)
    given = features if isinstance(read_by, nn.Linear) else features[:, :, None, None]
    torch.testing.assert_close(read_by(given).flatten(1), logits)
    without = anatomy_of("it", cases.vit(num_classes=0), cases.images())
    assert [site.name for site in classifier_input(without)] == ["blocks.1"]


@pytest.mark.parametrize(
    ("build", "size"), [(cases.vit, 32), (cases.swin, 32), (cases.bit, 64), (partial(timm.create_model, HEADED), 64)]
)
def test_a_classifier_taken_away_leaves_what_it_read(build: Callable[..., nn.Module], size: int) -> None:
    """Not the last block, which is not normalised, nor what the last matrix before the output reads."""
    torch.manual_seed(0)
    whole, images = build().eval(), cases.images(size=size)
    without = copy.deepcopy(whole)
    cases.inside(without).reset_classifier(0)
    read = []
    for module, classifier in ((whole, True), (without, False)):
        found = anatomy_of("it", module, images, classifier=classifier)
        (place,) = classifier_input(found)
        output, seen = Tap(module, found, {place.name: [FEATURES]}).run(images)
        read.append(seen[place.name][FEATURES.name])
    assert read[0].shape == (2, place.channels)
    torch.testing.assert_close(*read)
    assert torch.equal(read[1], output)


def test_a_subject_that_ends_in_tokens_is_read_at_its_last_block() -> None:
    module = cases.vit(num_classes=0, global_pool="")
    found = anatomy_of("it", module, cases.images(), classifier=False)
    assert [site.name for site in classifier_input(found)] == ["blocks.1"]


def test_too_few_images_have_no_number() -> None:
    features, labels = exam(8, images=60)  # 12 of each class
    place, where = subject()
    where = replace(where, images=60)
    tokens = features[:, None].expand(-1, 5, -1)
    finding = measure_tensors(FewShot(), where, {("v", place.name): Look(place, output=tokens)}, 8, labels.numpy())
    assert np.isnan(finding.linear.sel(shot=25).values).all()
    assert np.isfinite(finding.linear_low.sel(shot=5).values).all()
    assert np.isnan(finding.episodes.sel(shot=25).values).all()
    with pytest.raises(DoesNotApply, match="classes"):
        FewShot().check_labels(replace(where, classes=None))


@pytest.mark.parametrize(
    ("rule", "ways", "draws", "queries"), [(nearest_mean, 3, 60, 32), (linear_evaluation, 5, 32, 64)]
)
def test_intervals_hold_the_expected_accuracy(rule: Rule, ways: int, draws: int, queries: int) -> None:
    """150 exams, 5 shots: supports and queries both vary from exam to exam, and the interval is about both."""
    results = []
    for seed in range(150):
        tally = tally_of(*exam(seed))

        def value(some: FewShotTally) -> float:
            drawn = Pool.of(some, draws).draw(5, ways, queries)
            assert drawn is not None
            return share_right(rule, some.features, *drawn)

        without = [value(tally.weighted(weights)) for weights in leave_one_out_weights(tally.fold_counts)]
        results.append((value(tally.total()), *jackknife(np.array(value(tally.total())), np.array(without))))
    values, low, high = np.array(results, dtype=float).T
    covered = ((low <= values.mean()) & (values.mean() <= high)).mean()
    print(f"{rule}: covered {covered:.3f}")
    assert 0.92 <= covered <= 0.99
