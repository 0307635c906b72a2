"""E10: tokens that are matched between pictures, against loops over pairs and against answers that are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from eyechart.errors import DoesNotApply
from eyechart.intervals import with_intervals
from eyechart.measures.matching.measure import ALIKE, Matching
from eyechart.measures.matching.pairs import GROUP, by_rank, similarities, to_compare
from eyechart.subjects.load import load_subject
from tests import cases
from tests.measures.benches import bench_of, whole_and_in_shards
from tests.measures.on_subjects import staged

GENERATOR = torch.Generator().manual_seed(0)
MATCHED, IN_PLACE, POOLED, CLASS_TOKEN = range(4)


def cosine(one: np.ndarray, two: np.ndarray) -> float:
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


def by_hand(features: Tensor) -> np.ndarray:
    """One pair of pictures at a time, token by token."""
    values = features.double().numpy()
    tokens, token = values[:, :-1] - values[:, :-1].mean((0, 1)), values[:, -1] - values[:, -1].mean(0)
    found = np.full((len(values), 4, GROUP), np.nan)
    for one in range(len(values)):
        first = one // GROUP * GROUP
        for two in range(first, min(first + GROUP, len(values))):
            table = np.array([[cosine(x, y) for y in tokens[two]] for x in tokens[one]])
            found[one, :, two - first] = (
                (table.max(1).mean() + table.max(0).mean()) / 2,
                np.diagonal(table).mean(),
                cosine(tokens[one].mean(0), tokens[two].mean(0)),
                cosine(token[one], token[two]),
            )
    return found


@pytest.mark.parametrize("images", [5, 16, 22])
def test_likeness_by_hand(images: int) -> None:
    features = torch.randn(images, 7, 4, generator=GENERATOR) + 100  # an offset that all share changes nothing
    found, expected = similarities(features).numpy(), by_hand(features)
    there = np.isfinite(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found[there], expected[there], atol=1e-4)


def ranked_by_hand(alike: np.ndarray, labels: np.ndarray) -> list[float]:
    found = []
    for one in range(len(labels)):
        first = one // GROUP * GROUP
        group = [
            other for other in range(first, min(first + GROUP, len(labels))) if other != one and labels[other] >= 0
        ]
        same = [other for other in group if labels[other] == labels[one] >= 0]
        others = [other for other in group if labels[other] != labels[one] and labels[one] >= 0]
        signs = [np.sign(alike[one, a - first] - alike[one, b - first]) for a in same for b in others]
        found.append(float(np.mean(signs)) if signs else 0.0)
    return found


def test_ranks_by_hand() -> None:
    labels = np.array([0, 1, 0, 2, -1, 1, 0, 0, 3, 3, 1, 2, -1, 0, 1, 2, 0, 1, 2, 2])
    alike = torch.randn(20, 4, GROUP, generator=GENERATOR)
    found = by_rank(alike, *(torch.as_tensor(each) for each in to_compare(labels)))
    for way in range(4):
        assert found[:, way].tolist() == pytest.approx(ranked_by_hand(alike[:, way].numpy(), labels))


def things(images: int, wide: int = 32) -> tuple[np.ndarray, Tensor]:
    """Labels, and for each picture the thing that shows its class."""
    labels = np.arange(images) % 4
    np.random.default_rng(0).shuffle(labels)
    return labels, torch.randn(4, wide, generator=GENERATOR)[torch.as_tensor(labels)]


def rank_of(features: Tensor, labels: np.ndarray) -> list[float]:
    return by_rank(similarities(features), *map(torch.as_tensor, to_compare(labels))).mean(0).tolist()


def test_a_thing_that_moves_is_found_by_matching_alone() -> None:
    """One token of sixteen shows the class, each time at another place; the others are noise of the same length."""
    labels, thing = things(512)
    tokens = torch.randn(512, 17, 32, generator=GENERATOR)
    tokens[torch.arange(512), torch.randint(16, (512,), generator=GENERATOR)] = thing
    rank = rank_of(tokens, labels)
    assert rank[MATCHED] > 0.7
    assert abs(rank[IN_PLACE]) < 0.2
    assert rank[MATCHED] > rank[POOLED] + 0.2


def test_a_thing_that_stays_is_found_in_place() -> None:
    labels, thing = things(512)
    tokens = torch.randn(512, 17, 32, generator=GENERATOR)
    tokens[:, :16] += 0.3 * thing[:, None]
    rank = rank_of(tokens, labels)
    assert min(rank[IN_PLACE], rank[POOLED]) > 0.8
    assert abs(rank[CLASS_TOKEN]) < 0.1, "which shows nothing"


def test_tokens_that_know_no_class_tell_none() -> None:
    labels, _ = things(2_048)
    assert all(abs(value) < 0.05 for value in rank_of(torch.randn(2_048, 10, 8, generator=GENERATOR), labels))


def test_shards_and_the_finding() -> None:
    measure = Matching()
    subjects = [load_subject(name) for name in ("zoo:vit", "zoo:vit-gap", "zoo:resnet")]
    whole, in_shards, scene = whole_and_in_shards(measure, subjects, limit=96)
    for name, value in whole.tensors().items():
        torch.testing.assert_close(value, in_shards.tensors()[name])
    finding = with_intervals(measure, whole, scene)
    vit, gap, resnet = (finding.isel(site=finding.subject.values == name)["rank"][-1] for name in scene.subjects)
    assert float(vit[CLASS_TOKEN]) > float(vit[MATCHED]) > 0.3
    assert np.isnan(float(gap[CLASS_TOKEN]))
    assert min(float(gap[MATCHED]), float(resnet[MATCHED])) > float(vit[MATCHED])
    assert measure.sentence(finding).count("the class token by") == 1
    assert {"matched_over_gap", "matching_over_class_token"} <= set(finding.quantity.values.tolist())


def test_a_pass_written_out_gives_the_same() -> None:
    """timm's ViT: the tokens of its last block by hand, class token and all."""
    bench = bench_of(cases.vit(), 12)
    (last,) = Matching(depths=1).sites(bench.anatomy)
    found = bench.look({last.name: [ALIKE]})[last.name][ALIKE.name]
    model = cases.inside(bench.subject.module)
    with torch.no_grad():
        x = torch.cat([model.cls_token.expand(12, -1, -1), model.patch_embed(bench.images)], 1) + model.pos_embed
        x = model.blocks(x)
    expected = by_hand(torch.cat([x[:, 1:], x[:, :1]], dim=1))
    there = np.isfinite(expected)
    np.testing.assert_allclose(found.numpy()[there], expected[there], atol=1e-4)


def test_pictures_whose_classes_hardly_meet_are_left_out() -> None:
    _, scene = staged("zoo:vit")
    many = replace(scene, classes=tuple(map(str, range(1_000))))
    with pytest.raises(DoesNotApply, match="meet one of their class in a group of 16; at least 16 are needed"):
        Matching().tally(many)


def test_quick_exams_are_without_it() -> None:
    assert [Matching().runs_at(effort) for effort in ("quick", "normal", "full")] == [False, True, True]
    _, scene = staged("zoo:vit")
    with pytest.raises(DoesNotApply, match="--effort normal or --measures matching runs it"):
        Matching().sized("quick", scene)
    assert Matching().sized("quick", scene, asked_for=True) == Matching().sized("normal", scene) == Matching()
