"""Every model of the zoo is trained for two short epochs and leaves what it says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from eyechart import zoo
from eyechart.training.loop import train
from eyechart.training.records import sha256

from .toys import record, toy_run, write_toys

# What a model needs to take images of 16 pixels.
FITTING: dict[str, dict[str, Any]] = {"alternet": {"window": 2}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toys(tmp_path_factory.mktemp("data") / "toys.npz", train=96, test=40)


@pytest.mark.parametrize("model", zoo.names())
def test_every_model_learns_and_leaves_its_files(model: str, data: str, tmp_path: Path) -> None:
    run = toy_run(data, tmp_path, model=model, switches=FITTING.get(model, {}))
    card = train(run)
    start, *epochs = record(tmp_path, model)
    assert start["images"] == 96
    assert [line["steps"] for line in epochs] == [3, 6]
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
        "--learning-rate 0.002 --set drop_path=0.0 --set label_smoothing=0.0 "
        + "".join(f"--switch {name}={value} " for name, value in run.switches.items())
        + "--seed 0"
    )
    # The card's accuracy is that of the file.
    module = zoo.build(model, image_size=16, **run.switches)
    module.load_state_dict(saved)
    torch.manual_seed(0)  # for the dropout that stays on at test
    with np.load(data) as arrays, torch.no_grad():
        x = torch.from_numpy(arrays["x_test"]).permute(0, 3, 1, 2) / 255
        mean, std = (torch.tensor(card[key]).reshape(3, 1, 1) for key in ("mean", "std"))
        right = module((x - mean) / std).argmax(1) == torch.from_numpy(arrays["y_test"])
    assert card["accuracy"] == pytest.approx(float(right.double().mean()))
