"""The plan: balance, folds, limits and a frozen order."""

import json
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

from eyechart.errors import RunFolderError, UsageError
from eyechart.images import BatchPlan, open_images, plan_batches
from eyechart.images.plan import plan_order, seeded_order


def planned(labels: np.ndarray | None, count: int | None = None, **options: Any) -> BatchPlan:
    return plan_order(labels, len(labels) if count is None and labels is not None else count or 0, "print", **options)


BALANCED = np.arange(10).repeat(100)
SKEWED = np.repeat(np.arange(4), [600, 300, 90, 10])


def test_the_order_is_frozen() -> None:
    """Recorded once: a plan must be the same on every machine, with every version of Python and numpy, for ever."""
    assert seeded_order([0] * 8, seed=0) == [3, 1, 4, 2, 0, 5, 6, 7]  # what sha256sum gives, sorted
    assert seeded_order([0] * 8, seed=1) == [1, 6, 4, 3, 5, 0, 7, 2]
    assert seeded_order([0, 0, 0, 1, 1, -1], seed=0) == [3, 1, 4, 2, 0, 5]
    assert seeded_order([0, 0, 0, 1, 1, -1], seed=0, limit=4) == [1, 4, 0, 5]
    assert plan_batches(open_images("sample")).order[:6] == (543, 687, 265, 742, 50, 66)


@pytest.mark.parametrize("labels", [BALANCED, SKEWED, None])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_picture_once(labels: np.ndarray | None, seed: int) -> None:
    plan = planned(labels, 1000, seed=seed)
    seen = [batch for shard in range(len(plan.shards)) for batch in plan.batches(shard)]
    assert sorted(np.concatenate([batch.images for batch in seen])) == list(range(1000))
    assert [batch.index for batch in seen] == list(range(17))
    for batch in seen:
        if labels is not None:
            assert batch.labels is not None
            assert np.array_equal(batch.labels, labels[batch.images])
        else:
            assert batch.labels is None


def same_class_share(labels: np.ndarray, plan: BatchPlan) -> float:
    """How often two pictures of a block are of one class."""
    blocks = [labels[plan.batch(index).images] for index in range(plan.blocks)]
    pairs = [(block[:, None] == block[None]).sum() - len(block) for block in blocks]
    return float(np.sum(pairs) / (plan.blocks * plan.block * (plan.block - 1)))


@pytest.mark.parametrize("labels", [BALANCED, SKEWED, np.arange(100).repeat(10)])
def test_pictures_of_one_class_meet_in_a_block_as_often_as_by_chance(labels: np.ndarray) -> None:
    """The unbiased HSIC needs exchangeable blocks; a stratified order would keep classmates apart."""
    counts = np.bincount(labels)
    chance = float((counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1)))
    shares = [same_class_share(labels, planned(labels, seed=seed)) for seed in range(20)]
    assert np.mean(shares) == pytest.approx(chance, rel=0.06)


def test_blocks_give_the_cka_of_the_whole() -> None:
    """Features that know little but the class, more classes than pictures in a block: no bias must appear."""
    import torch

    from eyechart.methods.hsic import gram, hsic_table

    random = np.random.default_rng(0)
    labels = np.arange(50).repeat(8)
    means = random.normal(size=(50, 60))
    x = torch.tensor(means[labels] + random.normal(size=(400, 60)))
    y = torch.tensor(means[labels] @ random.normal(size=(60, 60)) / 8 + random.normal(size=(400, 60)))

    def cka(blocks: list[np.ndarray]) -> float:
        tables = [hsic_table(torch.stack([gram(x[block]), gram(y[block])])) for block in blocks]
        mean = torch.stack(tables).mean(0)
        return float(mean[0, 1] / (mean[0, 0] * mean[1, 1]).sqrt())

    blocked = []
    for seed in range(12):
        plan = planned(labels, seed=seed)
        blocked.append(cka([plan.batch(index).images for index in range(plan.blocks)]))
    assert np.mean(blocked) == pytest.approx(cka([np.arange(400)]), abs=0.02)


def test_within_a_class_the_order_is_random_not_the_source_order() -> None:
    order = np.array(planned(BALANCED).order)
    for label in range(10):
        places = order[BALANCED[order] == label]
        assert abs(np.corrcoef(places, np.arange(100))[0, 1]) < 0.35
    # Which pictures meet in a block must not repeat from seed to seed.
    assert len(set(planned(BALANCED, seed=1).order[:62]) & set(order[:62])) < 15


@pytest.mark.parametrize("seed", range(5))
def test_folds_are_equal_and_mix_the_classes(seed: int) -> None:
    """Dealing ten classes in rotation would give each of 16 folds only five of them (10 and 16 share a factor)."""
    plan = planned(BALANCED, seed=seed)
    batches = [plan.batch(index) for index in range(17)]
    folds = np.concatenate([batch.image_folds for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches if batch.labels is not None])
    assert set(Counter(folds.tolist()).values()) == {62, 63}
    table = np.zeros((16, 10))
    np.add.at(table, (folds, labels), 1)
    assert (table > 0).sum(1).min() >= 8
    # Chi-square of 135 degrees of freedom: within five standard deviations of what random folds give.
    expected = table.sum(1, keepdims=True) * table.sum(0) / 1000
    assert ((table - expected) ** 2 / expected).sum() < 135 + 5 * np.sqrt(270)


def test_jackknife_over_image_folds_covers() -> None:
    """The mean of a class-dependent value, 95 % intervals by deleting one fold: they must cover in 90–98 %."""
    random = np.random.default_rng(0)
    covered = 0
    runs = 300
    for run in range(runs):
        labels = random.integers(0, 10, 400)  # drawn freely: the class balance itself is random
        values = labels * 0.2 + random.normal(size=400)
        plan = planned(labels, seed=run)
        ordered = values[list(plan.order)]
        folds = np.arange(400) % 16
        without = np.array([ordered[folds != fold].mean() for fold in range(16)])
        error = np.sqrt(15 / 16 * ((without - without.mean()) ** 2).sum())
        covered += abs(values.mean() - 0.9) < 2.131 * error
    assert 0.90 <= covered / runs <= 0.98


@pytest.mark.parametrize(
    ("count", "block", "blocks", "left"),
    [(1, 4, 0, 1), (3, 4, 0, 3), (4, 4, 1, 0), (64, 4, 16, 0), (79, 4, 19, 3), (80, 5, 16, 0), (1000, 62, 16, 8),
     (4096, 256, 16, 0), (10_000, 256, 39, 16)],
)  # fmt: skip
def test_block_sizes(count: int, block: int, blocks: int, left: int) -> None:
    plan = planned(None, count)
    assert (plan.block, plan.blocks, plan.left_over, len(plan)) == (block, blocks, left, count)
    flat = [index for shard in plan.shards for index in shard]
    assert flat == list(range(blocks + (left > 0)))
    whole = [plan.batch(index).whole for index in flat]
    assert whole == [True] * blocks + [False] * (left > 0)
    assert all(len(plan.batch(index).images) == block for index in range(blocks))


def test_folds_of_blocks_and_images() -> None:
    plan = planned(None, 200, folds=5, block=8)
    batch = plan.batch(13)
    assert batch.fold == 13 % 5
    assert batch.image_folds.tolist() == [(13 * 8 + place) % 5 for place in range(8)]
    assert batch.images.tolist() == list(plan.order[104:112])


def test_shards_are_as_many_as_workers_are_hoped_for() -> None:
    default, many, few = planned(None, 20_000), planned(None, 20_000, shards=64), planned(None, 20_000, shards=1000)
    assert [len(plan.shards) for plan in (default, many, few)] == [16, 39, 78]  # at most so many, of 78 equal blocks
    assert default.order == many.order
    assert [batch for shard in many.shards for batch in shard] == [batch for shard in default.shards for batch in shard]


def test_shards_are_consecutive() -> None:
    plan = planned(None, 1000, block=62, blocks_per_shard=5)
    assert plan.shards == ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9), (10, 11, 12, 13, 14), (15, 16))
    assert len(planned(None, 10_000).shards) == 13  # 39 blocks, three a shard
    with pytest.raises(UsageError, match="17 batches; got number 17"):
        plan.batch(17)


def test_a_limit_is_class_balanced_and_nested() -> None:
    labels = np.repeat([0, 1, 2, -1], [500, 100, 3, 50])
    plan = planned(labels, limit=63)
    assert Counter(labels[list(plan.order)].tolist()) == {0: 20, 1: 20, 2: 3, -1: 20}
    assert set(plan.order) < set(planned(labels, limit=100).order)
    assert planned(labels, limit=653) == planned(labels, limit=10_000) == planned(labels)
    assert Counter(BALANCED[list(planned(BALANCED, limit=128).order)].tolist()).most_common()[-1][1] == 12
    assert len(planned(BALANCED, limit=1).order) == 1


def test_a_limit_takes_all_that_small_classes_have() -> None:
    plan = planned(SKEWED, limit=400)
    assert Counter(SKEWED[list(plan.order)].tolist()) == {0: 150, 1: 150, 2: 90, 3: 10}


def test_json_and_pickle_round_trip() -> None:
    for plan in (planned(BALANCED, limit=100), planned(None, 7)):
        assert BatchPlan.from_json(json.loads(json.dumps(plan.as_json()))) == plan
        assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize("change", [{"order": None}, {"shards": [[0]]}, {"order": [0] * 100}, {"labels": [1]}])
def test_a_damaged_plan_is_refused(change: dict[str, object]) -> None:
    data = json.loads(json.dumps(planned(BALANCED, limit=100).as_json())) | change
    with pytest.raises(RunFolderError, match="damaged"):
        BatchPlan.from_json(data)
    del data["seed"]
    with pytest.raises(RunFolderError, match="damaged"):
        BatchPlan.from_json(data)


@pytest.mark.parametrize(
    ("option", "value"),
    [("limit", 0), ("folds", 1), ("block", 3), ("blocks_per_shard", 0), ("shards", 0), ("limit", -5)],
)
def test_impossible_settings_are_refused(option: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"{option} must be at least"):
        planned(None, 100, **{option: value})
