"""Short trainings on the CPU: they learn, repeat by seed, and leave behind what they say."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eyechart.errors import NotFinite, UsageError
from eyechart.subjects.load import load_subject
from eyechart.training.evaluation import Scores
from eyechart.training.loop import Training, train
from eyechart.training.recipes import find_recipe
from eyechart.training.run import TrainingRun
from eyechart.training.state import read_state

from .toys import SHORT, record, toy_run, write_toys


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toys(tmp_path_factory.mktemp("data") / "toys.npz")


def test_the_seed_decides_everything_on_a_cpu(data: str, tmp_path: Path) -> None:
    recipe = find_recipe("zoo").changed(epochs=2, warmup_epochs=1, batch_size=32)
    hashes = [
        train(toy_run(data, tmp_path / str(i), recipe=recipe, seed=seed))["sha256"]["vit.safetensors"]
        for i, seed in enumerate((3, 3, 4))
    ]
    assert hashes[0] == hashes[1]
    assert hashes[0] != hashes[2]


@pytest.mark.parametrize("changes", [{"sam_radius": 0.05}, {"optimiser": "sgd"}, {"ema": 0.5}, {"erasing": 0.5}])
def test_the_other_switches_train_too(changes: dict[str, Any], data: str, tmp_path: Path) -> None:
    train(toy_run(data, tmp_path, recipe=SHORT.changed(**changes)))
    losses = [line["augmented_train_nll"] for line in record(tmp_path, "vit")[1:]]
    assert losses[1] < losses[0]


def test_the_average_is_what_is_saved_and_scored(data: str, tmp_path: Path) -> None:
    training = Training(toy_run(data, tmp_path, recipe=SHORT.changed(ema=0.9)))
    card = training.finish()
    assert training.average is not None
    saved = load_file(tmp_path / "vit.safetensors")["head.weight"]
    assert torch.equal(saved, training.average.mean["head.weight"].half())
    assert not torch.equal(saved, training.module.state_dict()["head.weight"].half())
    assert record(tmp_path, "vit")[-1]["test_nll"] == pytest.approx(card["nll"], abs=2e-3)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_weights(data: str, tmp_path: Path) -> None:
    training = Training(toy_run(data, tmp_path, snapshots=()))
    update, calls = training.step._update, 0

    def breaks(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 9:  # the third step of the second epoch
            training.module.get_parameter("head.weight").data.fill_(float("nan"))
        return update(inputs, targets)

    training.step._update = breaks  # type: ignore[method-assign]
    with pytest.raises(
        NotFinite, match=r"loss was not finite at step 9 of vit \(epoch 2\) at a learning rate of 1.50e"
    ):
        training.finish()
    assert "not finite" in record(tmp_path, "vit")[-1]["notice"]
    assert not (tmp_path / "vit.safetensors").exists()
    good = load_subject(f"zoo:vit@{tmp_path / 'vit.last-good.safetensors'}")  # refuses what is not finite
    assert good.classes == training.data.classes
    assert good.card["notes"] == []


@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_weights_that_the_last_step_of_an_epoch_breaks_are_neither_scored_nor_saved(
    value: float, data: str, tmp_path: Path
) -> None:
    training = Training(toy_run(data, tmp_path, snapshots=(), save_seconds=0.0, recipe=SHORT.changed(epochs=4)))
    update, calls = training.step._update, 0

    def breaks(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        loss = update(inputs, targets)
        if calls == 12:  # the last step of the second epoch, whose loss is still finite
            training.module.get_parameter("head.bias").data[3] = value
        return loss

    training.step._update = breaks  # type: ignore[method-assign]
    with pytest.raises(
        NotFinite, match=r"beyond float16 \(head.bias first\) at step 12 of vit \(epoch 2\) at a learning"
    ):
        training.finish()
    state = read_state(tmp_path / "vit.state")
    assert state is not None
    assert state[0] == 1
    good, first = load_file(tmp_path / "vit.last-good.safetensors"), state[1]
    assert torch.equal(good["head.bias"], first["weights/head.bias"].half())


def test_scores_that_are_not_finite_stop_as_a_loss_does(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eyechart.training.loop.evaluate", lambda *_, **__: Scores(0.9, float("inf"), 0.0))
    with pytest.raises(NotFinite, match=r"NLL of clean images was not finite at step 6 of vit \(epoch 1\)"):
        train(toy_run(data, tmp_path))
    assert (tmp_path / "vit.last-good.safetensors").is_file()


@pytest.mark.parametrize("device", ["tpu", "mps", "meta", "cuda:one", "cuda:9999"])
def test_a_device_that_is_not_here_is_refused(device: str, data: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be used here|Trainings run on cpu or cuda"):
        Training(toy_run(data, tmp_path, device=device))


def test_the_time_limit_ends_early_with_everything_written(data: str, tmp_path: Path) -> None:
    recipe = SHORT.changed(epochs=50)
    card = train(toy_run(data, tmp_path, recipe=recipe, time_limit=20.01, evaluate_every=10))
    assert card["epochs"] == 1
    assert (tmp_path / "vit.safetensors").is_file()
    assert "ended the training after epoch 1 of 50; the same command continues" in record(tmp_path, "vit")[-1]["notice"]
    train(toy_run(data, tmp_path, recipe=recipe, time_limit=20.01, overwrite=True))
    assert "the same command without --overwrite continues it" in record(tmp_path, "vit")[-1]["notice"]


def test_a_compiler_that_fails_is_said_and_done_without(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {}

    def broken(function: object, options: dict[str, object]) -> object:
        told.update(options)

        def call(*_: object) -> None:
            raise RuntimeError("no compiler here")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    card = train(toy_run(data, tmp_path, compiled=True))
    assert card["step"] == "float32, eager"
    assert card["notices"] == ["The step was not compiled: RuntimeError: no compiler here"]
    assert {"notice": card["notices"][0]} in record(tmp_path, "vit")
    assert told == {"deterministic": True}  # on a GPU kernels chosen by timing made two trainings of one seed differ


def test_weights_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    from eyechart.training.records import Records

    with pytest.raises(NotFinite, match="running_var has values that float16 cannot hold"):
        Records(tmp_path, "x").snapshot({"running_var": torch.tensor([1e6])})


def test_a_run_travels_as_json(data: str, tmp_path: Path) -> None:
    there = toy_run(data, tmp_path, snapshots=("init",), time_limit=3.0)
    assert TrainingRun.from_json(there.as_json()) == there
