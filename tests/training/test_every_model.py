"""Every model of the zoo, and every switch of one, is trained for two short epochs and leaves what it says."""

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
from eyechart.zoo.switches import SWITCHES

from .toys import record, toy_run, write_toys

# What a model needs to take images of 16 pixels.
FITTING: dict[str, dict[str, Any]] = {"alternet": {"window": 2}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toys(tmp_path_factory.mktemp("data") / "toys.npz", train=96, test=40)


@pytest.mark.parametrize("model", zoo.names())
def test_every_model_learns_and_leaves_its_files(model: str, data: str, tmp_path: Path) -> None:
    run = toy_run(data, tmp_path, model=model, switches=FITTING.get(model, {}), evaluate_every=2)
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


VIT: dict[str, Any] = {"width": 32, "depth": 2, "heads": 4}
RESNET: dict[str, Any] = {"width": 8, "depths": (1, 1, 1, 1)}
ALTERNET: dict[str, Any] = {"stem": 8, "channels": (16, 16, 32, 32), "depths": (2, 2, 2, 4), "window": 2}

#: Values beside the zoo's own, so that together they name every switch.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *(
        ("vit", {**VIT, "position": kind, "position_at": place})
        for kind in ("1d", "2d")
        for place in ("stem", "layers", "shared")
    ),
    ("vit", {**VIT, "position": "none", "cls_init": "normal", "qkv_bias": False}),
    ("vit", {**VIT, "position": "relative", "head_width": 6, "mlp_ratio": 2.0}),
    ("vit", {**VIT, "pool": "gap-unused-cls", "patch": 8}),
    ("vit", {**VIT, "no_skip_at": (1,), "no_skip_part": "attention"}),
    ("vit", {**VIT, "cls_at": 1, "cls_init": "mean", "skip_scale": 0.5}),
    ("vit", {**VIT, "cls_frozen_until": 1, "cls_unseen_until": 2}),
    ("vit", {**VIT, "stem": "cnn", "patch": 2, "depth": 1}),
    ("vit-gap", {**VIT, "pooled_norm": True}),
    ("vit-gap", {**VIT, "mixer": "kernel", "kernel": 3, "mask_border": False}),
    ("vit-gap", {**VIT, "mixer": "pool"}),
    ("vit-gap", {**VIT, "mixer": "mlp"}),
    ("resnet", {**RESNET, "no_skip_at": (2,), "dilated": True}),
    ("resnet", {**RESNET, "smooth_stages": (1, 4), "smooth_scale": 5.0, "dropout": 0.2}),
    ("resnet-bit", {"stem": 8, "channels": (16, 32), "depths": (1, 1)}),
    *(("alternet", {**ALTERNET, "msas": count, "heads": (1, 2, 2, 4), "head_width": 8}) for count in (0, 3, 5)),
    ("alternet", {**ALTERNET, "msas": (0, 1, 0, 1)}),
    ("swin", {"patch": 1, "width": 8, "depths": (2, 2), "heads": (1, 2), "window": 4}),
    ("pit", {"patch": 4, "stride": 4, "head_width": 8, "depths": (1, 1), "heads": (1, 2)}),
    ("mixer", {"patch": 8, "width": 16, "depth": 2}),
    ("poolformer", {"widths": (8, 16), "depths": (1, 1)}),
]


def test_the_variants_name_every_switch() -> None:
    for builder, switches in SWITCHES.items():
        named = {key for model, values in VARIANTS if zoo.find(model).builder == builder for key in values}
        assert named == {switch.name for switch in switches}, builder


@pytest.mark.parametrize(("model", "switches"), VARIANTS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_switch_trains(model: str, switches: dict[str, Any], data: str, tmp_path: Path) -> None:
    card = train(toy_run(data, tmp_path, model=model, switches=switches, snapshots=("init",)))
    _, *epochs = record(tmp_path, model)
    assert epochs[-1]["augmented_train_nll"] < epochs[0]["augmented_train_nll"]
    for name, value in switches.items():
        assert card["switches"][name] == (list(value) if isinstance(value, tuple) else value)
    before, after = (load_file(tmp_path / f"{model}{part}.safetensors") for part in (".init", ""))
    still = [name for name, tensor in after.items() if tensor.is_floating_point() and torch.equal(tensor, before[name])]
    assert still == []  # every part of the model takes part
