"""Class subsets, held-out images, long tails, few shots, other sizes; and a number of steps that no cut changes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from eyechart.errors import UsageError
from eyechart.training.data import TrainingData
from eyechart.training.loop import Training, train
from eyechart.training.recipes import find_recipe
from eyechart.training.run import TrainingRun
from eyechart.training.sources import load_data

from .toys import SHORT, record, toy_run, write_toys


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toys(tmp_path_factory.mktemp("data") / "toys.npz", train=200, test=50, side=8)


@pytest.fixture
def data(path: str) -> TrainingData:
    return load_data(path)


def counts(data: TrainingData) -> list[int]:
    return torch.bincount(data.y_train, minlength=len(data.classes)).tolist()


def test_class_subsets_are_renumbered_in_the_order_given(data: TrainingData) -> None:
    part = data.of_classes(["7", "2"])
    assert part.classes == ("7", "2")
    assert counts(part) == [20, 20]
    seven = data.x_train[data.y_train == 7]
    assert torch.equal(part.x_train[part.y_train == 0], seven)
    assert torch.equal(part.x_test[part.y_test == 1], data.x_test[data.y_test == 2])
    with pytest.raises(UsageError, match="no class called '12'"):
        data.of_classes(["1", "12"])
    with pytest.raises(UsageError, match="two or more"):
        data.of_classes(["1"])


def test_the_last_images_of_each_class_are_held_out(data: TrainingData) -> None:
    part = data.held_out(30)
    assert part.y_validation is not None
    assert part.x_validation is not None
    assert torch.bincount(part.y_validation).tolist() == [3] * 10
    assert torch.equal(part.x_validation, data.x_train[170:])  # classes take turns, so the last of each are the last
    assert torch.equal(part.x_train, data.x_train[:170])
    odd = data.held_out(33)
    assert odd.y_validation is not None
    assert len(odd.y_validation) == 33
    assert sorted(torch.bincount(odd.y_validation).tolist()) == [3] * 7 + [4] * 3
    with pytest.raises(UsageError, match="leaves the class '0' empty"):
        data.held_out(200)


def test_the_held_out_images_do_not_depend_on_the_other_cuts(path: str, data: TrainingData) -> None:
    run = TrainingRun("vit", path, SHORT, out="", validation=30)
    small = data.cut(TrainingRun("vit", path, SHORT, out="", validation=30, fraction=0.5, imbalance=4))
    whole = data.cut(run)
    assert whole.x_validation is not None
    assert small.x_validation is not None
    assert torch.equal(whole.x_validation, small.x_validation)
    seen = {image.numpy().tobytes() for image in small.x_train}
    assert not seen & {image.numpy().tobytes() for image in small.x_validation}


def test_the_tail_is_exponential(data: TrainingData) -> None:
    tail = counts(data.long_tailed(10, seed=0))
    assert tail[0] == 20
    assert tail[-1] == 2
    assert tail == [int(20 * 10 ** (-label / 9)) for label in range(10)]
    with pytest.raises(UsageError, match=r"An imbalance of 100 leaves the class '6' \(20 images\) empty"):
        data.long_tailed(100, seed=0)


def test_shots(data: TrainingData) -> None:
    assert counts(data.few(5, seed=1)) == [5] * 10
    assert not torch.equal(data.few(5, seed=1).x_train, data.few(5, seed=2).x_train)
    with pytest.raises(UsageError, match="only 20 of one"):
        data.few(21, seed=0)


def test_images_are_resized_once_and_stay_bytes(data: TrainingData) -> None:
    larger = data.cut(TrainingRun("vit", "", SHORT, out="", image_size=12))
    assert larger.x_train.shape == (200, 3, 12, 12)
    assert larger.x_train.dtype == torch.uint8
    assert float(larger.x_train.float().mean()) == pytest.approx(float(data.x_train.float().mean()), abs=1.0)


def test_normalisation_is_that_of_all_training_images(path: str) -> None:
    with np.load(path) as arrays:
        pixels = arrays["x_train"] / 255
    whole = load_data(path).normalisation()
    assert whole.mean == pytest.approx(pixels.mean(axis=(0, 1, 2)))
    assert whole.std == pytest.approx(pixels.std(axis=(0, 1, 2)), rel=1e-3)
    training = Training(TrainingRun("vit", path, SHORT, out="", fraction=0.1, switches={"depth": 1, "patch": 4}))
    assert training.normalisation == whole


def test_fixed_steps_do_not_depend_on_the_fraction(path: str, tmp_path: Path) -> None:
    recipe = find_recipe("none").changed(epochs=4, warmup_epochs=1, batch_size=16)
    rates = []
    for fraction in (1.0, 0.1):
        out = tmp_path / str(fraction)
        card = train(toy_run(path, out, recipe=recipe, fraction=fraction, steps=41))
        epochs = [line for line in record(out, "vit") if "epoch" in line]
        assert [line["steps"] for line in epochs] == [10, 20, 30, 41]
        assert card["steps"] == 41
        rates.append([line["learning_rate"] for line in epochs])
    assert rates[0] == rates[1]


def test_steps_that_make_whole_epochs_are_the_same_training(path: str, tmp_path: Path) -> None:
    recipe = SHORT.changed(batch_size=64)
    hashes = [
        train(toy_run(path, tmp_path / str(steps), recipe=recipe, steps=steps))["sha256"]["vit.safetensors"]
        for steps in (None, 6)
    ]
    assert hashes[0] == hashes[1]


def test_every_image_is_seen_equally_often_over_the_passes(path: str) -> None:
    recipe = find_recipe("none").changed(epochs=1, warmup_epochs=0, batch_size=10, drop_path=0.0)
    training = Training(
        TrainingRun("vit", path, recipe, out="", fraction=0.1, steps=6, switches={"depth": 1, "patch": 4})
    )
    images = torch.cat([inputs for inputs, _ in training._batches(6)])
    assert len(images) == 60  # three passes over 20 images
    _, seen = torch.unique(images.flatten(1), dim=0, return_counts=True)
    assert seen.tolist() == [3] * 20


def test_validation_is_scored_and_the_test_only_at_the_end(path: str, tmp_path: Path) -> None:
    card = train(toy_run(path, tmp_path, validation=50))
    last = record(tmp_path, "vit")[-1]
    assert {"validation_error", "validation_nll", "validation_ece"} <= set(last)
    assert not [key for key in last if key.startswith("test_")]
    assert (card["train_images"], card["validation_images"], card["test_images"]) == (150, 50, 50)
    assert card["command"].endswith("--validation 50 --switch width=32 --switch depth=2 --switch heads=4 --seed 0")


def test_local_cifar100_says_when_its_split_is_not_the_official_one(tmp_path: Path) -> None:
    labels = np.arange(200) % 100
    x = np.zeros((200, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "cifar100.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    data = load_data(str(tmp_path / "cifar100.npz"))
    assert data.name == "cifar100 (re-split)"
    assert data.classes[19] == "cattle"
    labels[:5] = (19, 29, 0, 11, 1)
    np.savez(tmp_path / "cifar100.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    assert load_data(str(tmp_path / "cifar100.npz")).name == "cifar100"


def test_a_share_of_each_class_gets_wrong_labels(data: TrainingData, path: str, tmp_path: Path) -> None:
    noisy = data.mislabelled(0.4, seed=1)
    wrong = noisy.y_train != data.y_train
    assert [int(wrong[data.y_train == label].sum()) for label in range(10)] == [8] * 10
    assert torch.equal(noisy.x_train, data.x_train)
    assert torch.equal(noisy.y_test, data.y_test)
    steps = (noisy.y_train - data.y_train)[wrong] % 10
    assert set(steps.tolist()) == set(range(1, 10))  # every other class
    assert torch.equal(data.mislabelled(0.4, seed=1).y_train, noisy.y_train)
    assert not torch.equal(data.mislabelled(0.4, seed=2).y_train, noisy.y_train)
    assert data.mislabelled(0.0, seed=1) is data

    card = train(toy_run(path, tmp_path, label_noise=0.4))
    assert card["label_noise"] == 0.4
    assert "--label-noise 0.4" in card["command"]
    held = data.held_out(20).mislabelled(0.4, seed=1)
    assert held.y_validation is not None
    assert torch.equal(held.y_validation, data.y_train[180:])
    for share in (-0.1, 1.0):
        with pytest.raises(UsageError, match="--label-noise must be at least 0 and below 1"):
            toy_run(path, tmp_path, label_noise=share).checked()


def test_a_seed_draws_the_classes_too(data: TrainingData, path: str, tmp_path: Path) -> None:
    drawn = [data.drawn_classes(3, seed) for seed in range(6)]
    assert all(len(each.classes) == 3 and counts(each) == [20] * 3 for each in drawn)
    assert len({each.classes for each in drawn}) > 1
    assert drawn[1].classes == data.drawn_classes(3, 1).classes
    first = drawn[0].x_train[drawn[0].y_train == 1]
    assert torch.equal(first, data.x_train[data.y_train == data.classes.index(drawn[0].classes[1])])
    assert data.drawn_classes(None, 0) is data
    assert data.cut(toy_run(path, tmp_path, class_count=3, fraction=0.5, seed=2)).classes == drawn[2].classes
    with pytest.raises(UsageError, match="11 classes were asked for, but toys has only 10"):
        data.drawn_classes(11, 0)
    with pytest.raises(UsageError, match="--class-count must be at least 2; got 1"):
        toy_run(path, tmp_path, class_count=1).checked()


def test_shuffled_patches_reach_the_training_and_must_fit(path: str, tmp_path: Path) -> None:
    plain, shuffled = (
        train(toy_run(path, tmp_path, name=f"side-{side}", shuffle_patches=side, snapshots=())) for side in (0, 4)
    )
    assert "shuffle_patches" not in plain
    assert shuffled["shuffle_patches"] == 4
    assert "--shuffle-patches 4" in shuffled["command"]
    losses = [record(tmp_path, f"side-{side}")[1]["augmented_train_nll"] for side in (0, 4)]
    assert losses[0] != losses[1]
    with pytest.raises(UsageError, match="must divide the images' side; 5 does not divide 8"):
        train(toy_run(path, tmp_path, shuffle_patches=5))
