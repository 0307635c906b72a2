"""The zoo's table: names, cards, bundled weights."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from eyechart import zoo
from eyechart.errors import UnknownSubject
from eyechart.training.records import sha256

BUNDLED = [name for name in zoo.names() if zoo.weights(name)]
LEAST = {"vit": 0.85, "vit-gap": 0.85, "resnet": 0.93}


def test_names_and_cards_need_no_torch() -> None:
    code = (
        "import sys; from eyechart import zoo; [zoo.card(n) for n in zoo.names()]; zoo.weights('vit'); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownSubject, match="did you mean resnet"):
        zoo.build("resnett")


@pytest.mark.parametrize("name", zoo.names())
def test_every_model_is_small_and_classifies(name: str) -> None:
    module = zoo.build(name, classes=7)
    assert not module.training
    assert sum(parameter.numel() for parameter in module.parameters()) <= 3_000_000
    with torch.no_grad():
        assert module(torch.randn(2, 3, 32, 32)).shape == (2, 7)


def test_switches_replace_the_tables() -> None:
    assert len(zoo.build("vit", depth=2).blocks) == 2


@pytest.mark.skipif(not BUNDLED, reason="no weights are bundled yet")
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_weights_are_those_of_their_card(name: str) -> None:
    path, card = zoo.weights(name), zoo.card(name)
    assert path is not None
    assert card["sha256"][path.name] == sha256(path)
    assert all(tensor.dtype in (torch.float16, torch.int64) for tensor in load_file(path).values())
    module = zoo.build(name)
    module.load_state_dict(load_file(path))
    assert card["parameters"] == sum(parameter.numel() for parameter in module.parameters())
    assert card["accuracy"] >= LEAST[name]
    assert card["test_images"] == 10_000
    assert len(card["classes"]) == 10
    json.dumps(card)
