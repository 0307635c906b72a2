"""What `eyechart train` wrote is loaded as a subject: the card beside the file says how it must be built and fed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from eyechart import zoo
from eyechart.errors import SubjectError, WeightsMismatch
from eyechart.subjects.load import load_subject
from eyechart.subjects.preprocessing import Preprocessing
from eyechart.training.loop import train
from eyechart.training.run import SNAPSHOTS

from .toys import TINY, toy_run, write_toys


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toys(tmp_path_factory.mktemp("data") / "toys.npz", train=64, test=30)


def accuracy(spec: str, data: str) -> float:
    """Share of the test pictures named right, each shown as an exam shows it."""
    subject = load_subject(spec)
    assert subject.classes is not None
    with np.load(data) as arrays, torch.no_grad():
        kept = [
            (x, str(y)) for x, y in zip(arrays["x_test"], arrays["y_test"], strict=True) if str(y) in subject.classes
        ]
        found = subject.logits(subject.call(subject.prepare([Image.fromarray(x) for x, _ in kept])))
    assert found is not None
    named = [subject.classes[place] for place in found.argmax(1)]
    return float(np.mean([name == label for name, (_, label) in zip(named, kept, strict=True)]))


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("vit", {**TINY, "position": "2d", "position_at": "layers"}),
    ("vit", {**TINY, "position": "relative", "pool": "gap-unused-cls", "no_skip_at": (1,), "no_skip_part": "mlp"}),
    ("vit-gap", {**TINY, "mixer": "kernel", "kernel": 3, "mask_border": False}),
    ("resnet", {"width": 8, "depths": (1, 1, 1, 1), "smooth_stages": (1, 2)}),
    ("alternet", {"stem": 8, "channels": (16, 16, 32, 32), "depths": (2, 2, 2, 4), "msas": 3, "window": 2}),
]


@pytest.mark.parametrize(("model", "switches"), VARIANTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_variant_is_loaded_as_it_was_trained(model: str, switches: dict[str, Any], data: str, tmp_path: Path) -> None:
    three = ("3", "1", "7")  # in another order than the data's
    card = train(toy_run(data, tmp_path, model=model, name="mine-0.5", switches=switches, classes=three))
    spec = f"zoo:{model}@{tmp_path / 'mine-0.5.safetensors'}"
    subject = load_subject(spec)
    assert subject.classes == three
    assert subject.input_size == (16, 16)
    assert subject.trained
    assert subject.card["notes"] == []
    assert subject.card["zoo"]["recipe"]["name"] == "weak"
    assert accuracy(spec, data) == pytest.approx(card["accuracy"])
    for name, value in switches.items():
        assert subject.card["zoo"]["switches"][name] == (list(value) if isinstance(value, tuple) else value)
    snapshot = load_subject(f"zoo:{model}@{tmp_path / 'mine-0.5.init.safetensors'}")
    assert snapshot.classes == three
    assert snapshot.weights_hash != subject.weights_hash


@pytest.mark.parametrize("left", ["init", "warmup"])
def test_a_snapshot_of_a_training_that_was_stopped_is_loaded_as_it_was_trained(
    left: str, data: str, tmp_path: Path
) -> None:
    switches = {**TINY, "position": "2d", "pool": "gap"}
    run = toy_run(data, tmp_path, model="vit", name="mine", switches=switches, classes=("3", "1", "7"))

    def stop(event: Mapping[str, Any]) -> None:
        if "line" in event:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, stop)
    spec = f"zoo:vit@{tmp_path / f'mine.{left}.safetensors'}"
    subject = load_subject(spec)
    assert subject.classes == ("3", "1", "7")
    assert subject.input_size == (16, 16)
    assert subject.module.get_submodule("positions.0.columns") is not None
    assert subject.card["notes"] == []
    assert f"mine.{left}.safetensors" in subject.card["zoo"]["sha256"]
    assert "accuracy" not in subject.card["zoo"]
    train(run)
    again = load_subject(spec)
    assert again.weights_hash == subject.weights_hash
    assert "accuracy" in again.card["zoo"]


def test_a_plain_model_has_its_switches_in_the_card_too(data: str, tmp_path: Path) -> None:
    """So that its weights still load when the zoo's table has other values one day."""
    card = train(toy_run(data, tmp_path, model="poolformer", switches={}))
    assert card["switches"] == {"widths": [64, 128, 256], "depths": [2, 6, 2]}


@pytest.mark.parametrize("source", ["timm:test_vit@random", "torchvision:mobilenet_v3_small@random", "hf"])
def test_what_was_trained_further_is_loaded_at_its_own_size(source: str, data: str, tmp_path: Path) -> None:
    if source == "hf":
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=7)
        transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
        transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
        source = f"hf:{tmp_path / 'vit'}"
    card = train(toy_run(data, tmp_path, model="mine", begin_from=source, image_size=32, switches={}))
    spec = f"{source.partition('@')[0]}@{tmp_path / 'mine.safetensors'}"
    subject = load_subject(spec)
    assert subject.input_size == (32, 32)
    assert subject.classes == tuple("0123456789")
    assert isinstance(subject.preprocessing, Preprocessing)
    assert subject.preprocessing.mean == tuple(card["mean"])
    assert subject.card["zoo"]["from"] == source


def test_a_card_of_another_model_is_refused_with_the_right_spec(data: str, tmp_path: Path) -> None:
    train(toy_run(data, tmp_path))
    path = tmp_path / "vit.safetensors"
    with pytest.raises(WeightsMismatch, match=rf"is a trained zoo:vit, as its card says; write zoo:vit@{path}\."):
        load_subject(f"zoo:resnet@{path}")


def test_without_a_card_the_models_own_switches_count_and_the_refusal_says_so(data: str, tmp_path: Path) -> None:
    train(toy_run(data, tmp_path))
    path = (tmp_path / "vit.safetensors").rename(tmp_path / "elsewhere.safetensors")
    with pytest.raises(
        WeightsMismatch, match=r"There is no card beside it, so zoo:vit's own switches and input size were"
    ):
        load_subject(f"zoo:vit@{path}")
    torch.save(zoo.build("vit", classes=4).state_dict(), tmp_path / "plain.pth")
    subject = load_subject(f"zoo:vit@{tmp_path / 'plain.pth'}")
    assert subject.classes is None
    assert "there is no card beside the weights" in subject.card["notes"][0]
    torch.save(zoo.build("vit").state_dict(), tmp_path / "plain.pth")
    assert load_subject(f"zoo:vit@{tmp_path / 'plain.pth'}").classes is None  # ten outputs are not yet CIFAR's classes


def test_any_other_json_is_no_card_and_a_damaged_one_is_said(data: str, tmp_path: Path) -> None:
    card = train(toy_run(data, tmp_path))
    path = tmp_path / "vit.safetensors"
    for text in ('{"architecture": "vit"}', "not JSON", "[1, 2]"):
        (tmp_path / "vit.json").write_text(text)
        assert zoo.card_beside(path) == {}
    (tmp_path / "vit.json").write_text(json.dumps({**card, "mean": [0.5]}))
    with pytest.raises(SubjectError, match=r"is damaged \(expected three channels, got 1\)"):
        load_subject(f"zoo:vit@{path}")
    (tmp_path / "vit.json").write_text(json.dumps({**card, "sha256": {"vit.safetensors": "0" * 64}}))
    assert "its hash differs" in load_subject(f"zoo:vit@{path}").card["notes"][0]


def test_snapshots_are_those_of_a_training() -> None:
    assert set(zoo.SNAPSHOTS) == {f".{name}" for name in (*SNAPSHOTS, "last-good")}
