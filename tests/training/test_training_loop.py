"""Short trainings on the CPU: they learn, repeat by seed, and leave behind what they say."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eyechart.errors import NotFinite
from eyechart.training.loop import Training, train
from eyechart.training.recipes import find_recipe
from eyechart.training.run import Run

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
    step, calls = training.step, 0

    def breaks(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 9:  # the third step of the second epoch
            with torch.no_grad():
                training.module.head.weight.fill_(float("nan"))  # type: ignore[union-attr,operator]
        return step(inputs, targets)

    breaks.notices = []  # type: ignore[attr-defined]
    training.step = breaks  # type: ignore[assignment]
    with pytest.raises(NotFinite, match=r"at step 9 \(epoch 2\) at a learning rate of 1.50e-03"):
        training.finish()
    good = load_file(tmp_path / "vit.last-good.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in good.values())
    assert "not finite" in record(tmp_path, "vit")[-1]["notice"]
    assert not (tmp_path / "vit.safetensors").exists()


def test_the_time_limit_ends_early_with_everything_written(data: str, tmp_path: Path) -> None:
    recipe = SHORT.changed(epochs=50)
    card = train(toy_run(data, tmp_path, recipe=recipe, time_limit=20.01, evaluate_every=10))
    assert card["epochs"] == 1
    assert (tmp_path / "vit.safetensors").is_file()
    assert "ended the training after epoch 1 of 50" in record(tmp_path, "vit")[-1]["notice"]


def test_a_compiler_that_fails_is_said_and_done_without(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(function: object) -> object:
        def call(*_: object) -> None:
            raise RuntimeError("no compiler here")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    card = train(toy_run(data, tmp_path, compiled=True))
    assert card["step"] == "float32, eager"
    assert card["notices"] == ["The step was not compiled: RuntimeError: no compiler here"]
    assert {"notice": card["notices"][0]} in record(tmp_path, "vit")


def test_weights_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    from eyechart.training.records import Records

    with pytest.raises(NotFinite, match="running_var has values that float16 cannot hold"):
        Records(tmp_path, "x").snapshot({"running_var": torch.tensor([1e6])})


def test_a_run_travels_as_json(data: str, tmp_path: Path) -> None:
    there = toy_run(data, tmp_path, snapshots=("init",), time_limit=3.0)
    assert Run.from_json(there.as_json()) == there
