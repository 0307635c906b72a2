"""The zoo's table: names, switches, cards, bundled weights."""

import inspect
import json
import random
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eyechart import zoo
from eyechart.errors import UnknownSubject, UsageError
from eyechart.training.records import sha256
from eyechart.zoo.switches import SWITCHES
from tests.cases import inside

BUNDLED = [name for name in zoo.names() if zoo.weights(name)]
LEAST = {"vit": 0.85, "vit-gap": 0.85, "resnet": 0.93, "swin": 0.88, "pit": 0.88, "alternet": 0.93}

#: Logits of the second picture of `waves()`, from the code the weights were first shipped with.
SHIPPED = {
    ("vit", None): [3.5693, -0.669, 0.0297, -0.9499, -0.569, -0.8971, -0.9586, -0.8656, 1.1771, -0.8563],
    ("vit", "warmup"): [0.8418, 1.8804, -0.0306, -0.7012, -0.8894, -0.8347, 0.1148, -1.2192, 0.7438, -0.8238],
    ("resnet", None): [-1.6601, 1.3016, -2.0744, -0.9633, -1.9271, -2.2871, -0.6882, -1.5147, -2.2019, 2.0377],
    ("resnet", "warmup"): [2.6761, 0.2359, 0.6717, -0.1507, -1.4755, -0.6342, -1.3936, -1.6118, 1.079, -0.1359],
    ("vit-gap", None): [4.6925, -0.302, -1.013, 0.9987, -0.9668, -1.376, -0.0497, -1.1794, -1.0325, -1.2362],
    ("swin", None): [4.4255, -0.7229, -0.2379, -1.939, 1.023, -1.7743, -1.2629, -0.8542, 0.4548, -0.0534],
    ("pit", None): [2.6733, -0.1733, -0.4425, -0.0982, -1.1488, -1.4079, 0.1367, -1.0041, 0.1888, -1.0886],
    ("alternet", None): [0.5674, -1.0213, -2.3664, -1.6392, -2.4653, -2.6299, -1.1681, -2.7103, 0.2724, -1.0547],
}


def waves() -> torch.Tensor:
    return (torch.arange(2 * 3 * 32 * 32) * 0.37).sin().mul(1.5).reshape(2, 3, 32, 32)


def test_names_cards_and_switches_need_no_torch() -> None:
    code = (
        "import sys; from eyechart import zoo; [zoo.card(n) for n in zoo.names()]; zoo.weights('vit'); "
        "zoo.switches_from('vit', ['depth=3']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownSubject, match="did you mean resnet"):
        zoo.build("resnett")


@pytest.mark.parametrize("name", zoo.names())
def test_every_model_is_small_classifies_and_learns(name: str) -> None:
    torch.manual_seed(0)
    module = zoo.build(name, classes=7, drop_path=0.1)
    assert not module.training
    assert sum(parameter.numel() for parameter in module.parameters()) <= 3_000_000
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert module(images).shape == (2, 7)
    torch.nn.functional.cross_entropy(module.train()(images), torch.tensor([0, 6])).backward()
    assert [path for path, parameter in module.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    "name", [name for name in zoo.names() if name != "vit-no-skip"]
)  # without a skip none is dropped
def test_stochastic_depth_rises_linearly_from_nothing_to_the_last_block(name: str) -> None:
    module = zoo.build(name, drop_path=0.1)
    drops = [part for part in module.modules() if type(part).__name__ == "DropPath"]
    rates = sorted({getattr(part, "drop_prob", getattr(part, "probability", 0)) for part in drops} | {0})
    steps = torch.tensor(rates).diff()
    assert rates[-1] == pytest.approx(0.1)
    assert len(rates) > (5 if name == "vit-small" else 7)  # as many as blocks
    torch.testing.assert_close(steps, steps.mean().expand_as(steps))


@pytest.mark.parametrize("builder", SWITCHES)
def test_the_table_of_switches_is_what_the_builders_take(builder: str) -> None:
    module, function = builder.split(":")
    taken = inspect.signature(getattr(import_module(f"eyechart.zoo.{module}"), function)).parameters
    declared = {switch.name: switch for switch in SWITCHES[builder]}
    assert set(taken) - {"classes", "image_size", "drop_path"} == set(declared)
    for name, switch in declared.items():
        assert switch.fits(taken[name].default), name


@pytest.mark.parametrize("name", zoo.names())
def test_the_tables_own_values_are_allowed_and_can_be_typed(name: str) -> None:
    def typed(value: object) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

    own = dict(zoo.find(name).switches)
    assert zoo.switches_from(name, [f"{key}={typed(value)}" for key, value in own.items()]) == own


def test_switches_replace_the_tables() -> None:
    assert len(inside(zoo.build("vit", depth=2)).blocks) == 2


@pytest.mark.parametrize(
    ("name", "pairs", "says"),
    [
        ("vit", ["dept=3"], "vit has no switch called 'dept'; did you mean depth"),
        ("mixer", ["msas=3"], "mixer has no switch called 'msas'; it has patch, width, depth."),
        ("vit", ["position=3d"], "vit's switch position takes one of none, 1d, 2d, relative; got '3d'."),
        ("vit", ["depth=deep"], "vit's switch depth takes a whole number from 1; got 'deep'."),
        ("vit", ["depth=0"], "a whole number from 1; got 0"),
        ("vit", ["mask_border=maybe"], "takes on or off; got 'maybe'"),
        ("resnet", ["depths=2,2,x"], "a whole number from 1 for each stage, separated by commas; got '2,2,x'"),
        ("resnet", ["dropout=1.5"], "a number from 0 to 0.95; got 1.5"),
        ("vit", ["depth"], "given as NAME=VALUE, such as depth=3; got 'depth'"),
    ],
)
def test_a_wrong_switch_gets_one_sentence(name: str, pairs: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        zoo.switches_from(name, pairs)
    assert says in str(caught.value)


def test_build_refuses_what_is_no_switch_of_the_model() -> None:
    with pytest.raises(UsageError, match="resnet has no switch called 'heads'"):
        zoo.build("resnet", heads=8)
    with pytest.raises(UsageError, match="takes on or off; got 1"):
        zoo.build("vit", qkv_bias=1)


@pytest.mark.parametrize(
    ("name", "switches", "says"),
    [
        ("resnet", {"depths": (2, 2, 2)}, "This ResNet has four stages, so depths are four numbers; got 2,2,2."),
        ("resnet", {"depths": (1,) * 5}, "This ResNet has four stages"),
        ("resnet", {"depths": ()}, "a whole number from 1 for each stage, separated by commas; got ()."),
        ("resnet", {"width": 3}, "first stage must be even; got 3."),
        ("resnet", {"smooth_stages": (5,)}, "smooth_stages takes numbers from 1 to 4; got 5."),
        ("resnet-bit", {"stem": 7}, "must be multiples of 8; got 7 and 96,192,384,512."),
        ("resnet-bit", {"channels": (30, 64, 64, 64)}, "must be multiples of 8; got 32 and 30,64,64,64."),
        ("resnet-bit", {"channels": (8,) * 5, "depths": (1,) * 5}, "has at most four stages"),
        ("resnet-bit", {"depths": (1, 1)}, "channels and depths have one number a stage each; got 4 and 2."),
        ("alternet", {"image_size": 16}, "The window must divide the grid; 4 does not divide 2 in stage 4."),
        ("alternet", {"window": 3}, "3 does not divide 16 in stage 2."),
        ("alternet", {"msas": (2, 0, 0, 0)}, "Every second block of a stage may be attention"),
        ("alternet", {"msas": ()}, "or one for each stage, separated by commas; got ()."),
        ("alternet", {"heads": (1, 2)}, "a number of heads for each of its 4 stages; got 2."),
        ("alternet", {"depths": (2, 2, 2), "channels": (8, 8, 8), "heads": (1, 1, 1)}, "in 4 stages; got 4 in 3."),
        ("vit", {"patch": 5}, "5 does not divide 32."),
        ("vit", {"heads": 7}, "The number of heads must divide the width; 7 does not divide 160."),
        ("vit", {"width": 8, "mlp_ratio": 0.1}, "An MLP needs a hidden channel; a width of 8 leaves none"),
        ("vit", {"stem": "cnn", "patch": 16}, "shrinks the image by 1, 2, 4 or 8, its patch; got 16."),
        ("vit", {"mixer": "pool"}, "The pool mixer works on the grid alone"),
        ("vit", {"no_skip_at": (9,)}, "no_skip_at takes blocks from 0 to 8; got 9."),
        ("vit-gap", {"mixer": "kernel", "kernel": 2}, "A kernel must be odd, or the grid's side 8"),
        ("swin", {"heads": (3, 6, 12)}, "3 does not divide 64."),
        ("swin", {"image_size": 4}, "a grid of 2 is too small for 3."),
        ("pit", {"heads": (4, 6, 16)}, "each of PiT's heads must divide the next; got (4, 6, 16)."),
        ("pit", {"patch": 64}, "64 is larger than 32."),
        ("mixer", {"width": 1}, "so 2 or more; got 1."),
        ("poolformer", {"widths": (8, 8)}, "got 3 depths for 2 stages."),
    ],
)
def test_what_cannot_be_built_gets_one_sentence(name: str, switches: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        zoo.build(name, **switches)
    assert says in str(caught.value)


#: For each kind of switch, by the words for its values, some small ones.
SOME: dict[str, list[Any]] = {
    "on or off": [True, False],
    "a number from 0.01 to 1": [0.25, 1],
    "a number from 0.1 to 16": [0.1, 1, 4],
    "a number from 0.1 to 1000": [0.1, 10],
    "a number from 0 to 0.95": [0, 0.95],
    "a whole number from 0 to 5, or": [0, 1, 5, (0, 1), (0, 0, 1, 1)],
    "a whole number from 1 for each": [(1,), (2, 2, 4), (8, 8, 16, 16), (1, 2, 1, 2), (1,) * 5],
    "whole numbers from": [(), (1,), (2, 3)],
    "a whole number from": [1, 2, 3, 4, 8],
}


@pytest.mark.parametrize("name", zoo.names())
def test_any_switches_build_a_model_that_runs_or_are_refused_in_a_sentence(name: str) -> None:
    chance = random.Random(name)
    built = 0
    for _ in range(12):
        depth = 5 if name == "vit-no-skip" else 1  # its fifth block is without skip
        values = {"width": 16, "depth": depth, "heads": 2} if zoo.find(name).builder == "vit:ViT" else {}
        for switch in chance.sample(zoo.switches(name), k=chance.randint(1, 2)):
            words = switch.allowed
            allowed = words.removeprefix("one of ").split(", ") if words.startswith("one of ") else None
            values[switch.name] = chance.choice(allowed or next(SOME[key] for key in SOME if words.startswith(key)))
        try:
            module = zoo.build(name, **values)
        except UsageError:
            continue
        built += 1
        with torch.no_grad():
            assert module(torch.zeros(2, 3, 32, 32)).shape == (2, 10), values
    assert built  # a test that only ever sees refusals sees nothing


def test_typed_switches_build_the_model_they_say() -> None:
    values = zoo.switches_from("vit-gap", ["mixer=kernel", "kernel=5", "mask_border=off", "depth=1", "no_skip_at=0"])
    assert values == {"mixer": "kernel", "kernel": 5, "mask_border": False, "depth": 1, "no_skip_at": (0,)}
    block = zoo.build("vit-gap", **values).get_submodule("blocks.0")
    assert type(block.attn).__name__ == "KernelAttention"
    assert block.skips == (False, False)


@pytest.mark.parametrize(("name", "snapshot"), SHIPPED)
def test_shipped_weights_still_give_their_logits(name: str, snapshot: str | None) -> None:
    path = zoo.weights(name, snapshot)
    assert path is not None
    module = zoo.build(name)
    module.load_state_dict(load_file(path))
    with torch.no_grad():
        assert module(waves())[1].tolist() == pytest.approx(SHIPPED[name, snapshot], abs=1e-3)


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
    assert card["parameters"] <= 3_000_000
    assert card["recipe"] == zoo.card("vit")["recipe"]  # the same for all
    json.dumps(card)


def test_what_is_shipped_is_small_and_whole() -> None:
    assert set(BUNDLED) == set(LEAST)
    assert zoo.weights("vit", "warmup") is not None
    assert zoo.weights("resnet", "warmup") is not None
    assert sum(path.stat().st_size for path in zoo.WEIGHTS.iterdir()) <= 48_000_000
    for name in ("vit", "vit-gap"):
        assert zoo.find(name).switches["heads"] >= 6
        assert 32 // zoo.find(name).switches["patch"] >= 8
