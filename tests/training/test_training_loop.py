"""Short trainings on the CPU: they learn, repeat by seed, and leave behind what they say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from eyechart import zoo
from eyechart.errors import NotFinite
from eyechart.training.loop import Training, train
from eyechart.training.recipes import find_recipe
from eyechart.training.records import sha256
from eyechart.training.run import Run

SHORT = find_recipe("weak").changed(
    epochs=2, warmup_epochs=1, batch_size=32, learning_rate=2e-3, drop_path=0.0, label_smoothing=0.0
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten classes told by colour and by which half is bright: learnt in a few steps."""
    draw = np.random.default_rng(0)
    labels = np.arange(260) % 10
    images = draw.integers(0, 60, (260, 16, 16, 3))
    for image, label in zip(images, labels, strict=True):
        half = image[:8] if label >= 5 else image[8:]
        half[..., label % 3] += 60 + 30 * (label % 5)
    path = tmp_path_factory.mktemp("data") / "toys.npz"
    x, y = images.clip(0, 255).astype(np.uint8), labels.astype(np.uint8)
    np.savez(path, x_train=x[:192], y_train=y[:192], x_test=x[192:], y_test=y[192:])
    return str(path)


def run(data: str, out: Path, model: str = "vit", **changes: Any) -> Run:
    return Run(**{"model": model, "data": data, "recipe": SHORT, "out": str(out), **changes})


def lines(out: Path, model: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{model}.records.jsonl").read_text().splitlines()]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zoo's ViT at a twentieth of its size, where only the loop is tested."""
    build = zoo.build
    monkeypatch.setattr(zoo, "build", lambda name, **s: build(name, **s, width=32, depth=2, heads=4))


@pytest.mark.parametrize("model", zoo.names())
def test_every_model_learns_and_leaves_its_files(model: str, data: str, tmp_path: Path) -> None:
    card = train(run(data, tmp_path, model))
    start, *epochs = lines(tmp_path, model)
    assert start["images"] == 192
    assert [line["steps"] for line in epochs] == [6, 12]
    assert epochs[-1]["augmented_train_nll"] < epochs[0]["augmented_train_nll"]
    assert {"clean_train_nll", "test_error", "test_nll", "test_ece", "learning_rate", "seconds"} <= set(epochs[-1])

    for snapshot in ("init", "warmup", "quarter"):
        assert (tmp_path / f"{model}.{snapshot}.safetensors").is_file()
    path = tmp_path / f"{model}.safetensors"
    saved = load_file(path)
    assert {tensor.dtype for tensor in saved.values()} <= {torch.float16, torch.int64}
    assert json.loads((tmp_path / f"{model}.json").read_text()) == card
    assert card["sha256"][path.name] == sha256(path)
    assert card["command"] == (
        f"eyechart train {model} --data toys --recipe weak --epochs 2 --warmup-epochs 1 --batch-size 32 "
        "--learning-rate 0.002 --seed 0"
    )
    # The card's accuracy is that of the file.
    module = zoo.build(model, image_size=16)
    module.load_state_dict(saved)
    with np.load(data) as arrays, torch.no_grad():
        x = torch.from_numpy(arrays["x_test"]).permute(0, 3, 1, 2) / 255
        mean, std = (torch.tensor(card[key]).reshape(3, 1, 1) for key in ("mean", "std"))
        right = module((x - mean) / std).argmax(1) == torch.from_numpy(arrays["y_test"])
    assert card["accuracy"] == pytest.approx(float(right.double().mean()))


@pytest.mark.usefixtures("tiny")
def test_the_seed_decides_everything_on_a_cpu(data: str, tmp_path: Path) -> None:
    recipe = find_recipe("zoo").changed(epochs=2, warmup_epochs=1, batch_size=32)
    hashes = [
        train(run(data, tmp_path / str(i), recipe=recipe, seed=seed))["sha256"]["vit.safetensors"]
        for i, seed in enumerate((3, 3, 4))
    ]
    assert hashes[0] == hashes[1]
    assert hashes[0] != hashes[2]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("changes", [{"sam_radius": 0.05}, {"optimiser": "sgd"}, {"ema": 0.5}, {"erasing": 0.5}])
def test_the_other_switches_train_too(changes: dict[str, Any], data: str, tmp_path: Path) -> None:
    train(run(data, tmp_path, recipe=SHORT.changed(**changes)))
    losses = [line["augmented_train_nll"] for line in lines(tmp_path, "vit")[1:]]
    assert losses[1] < losses[0]


@pytest.mark.usefixtures("tiny")
def test_the_average_is_what_is_saved_and_scored(data: str, tmp_path: Path) -> None:
    training = Training(run(data, tmp_path, recipe=SHORT.changed(ema=0.9)))
    card = training.finish()
    assert training.average is not None
    saved = load_file(tmp_path / "vit.safetensors")["head.weight"]
    assert torch.equal(saved, training.average.mean["head.weight"].half())
    assert not torch.equal(saved, training.module.state_dict()["head.weight"].half())
    assert lines(tmp_path, "vit")[-1]["test_nll"] == pytest.approx(card["nll"], abs=2e-3)


@pytest.mark.usefixtures("tiny")
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_weights(data: str, tmp_path: Path) -> None:
    training = Training(run(data, tmp_path, snapshots=()))
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
    assert "not finite" in lines(tmp_path, "vit")[-1]["notice"]
    assert not (tmp_path / "vit.safetensors").exists()


@pytest.mark.usefixtures("tiny")
def test_the_time_limit_ends_early_with_everything_written(data: str, tmp_path: Path) -> None:
    recipe = SHORT.changed(epochs=50)
    card = train(run(data, tmp_path, recipe=recipe, time_limit=20.01, evaluate_every=10))
    assert card["epochs"] == 1
    assert (tmp_path / "vit.safetensors").is_file()
    assert "ended the training after epoch 1 of 50" in lines(tmp_path, "vit")[-1]["notice"]


@pytest.mark.usefixtures("tiny")
def test_a_compiler_that_fails_is_said_and_done_without(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(function: object) -> object:
        def call(*_: object) -> None:
            raise RuntimeError("no compiler here")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    card = train(run(data, tmp_path, compiled=True))
    assert card["step"] == "float32, eager"
    assert card["notices"] == ["The step was not compiled: RuntimeError: no compiler here"]
    assert {"notice": card["notices"][0]} in lines(tmp_path, "vit")


def test_weights_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    from eyechart.training.records import Records

    with pytest.raises(NotFinite, match="running_var has values that float16 cannot hold"):
        Records(tmp_path, "x").snapshot({"running_var": torch.tensor([1e6])})


def test_a_run_travels_as_json(data: str, tmp_path: Path) -> None:
    there = run(data, tmp_path, snapshots=("init",), time_limit=3.0)
    assert Run.from_json(there.as_json()) == there
