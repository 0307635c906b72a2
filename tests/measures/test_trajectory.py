"""Paths of trainings whose shape is known, and sketches against the weights themselves."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from eyechart.errors import UsageError
from eyechart.exam import exam
from eyechart.measures.trajectory.measure import angle_room, trainings
from eyechart.measures.trajectory.sketch import ERROR, sketch
from eyechart.zoo import build


def test_sketches_keep_lengths_and_angles() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (300, 100), "b": (70,)}
    one, two = ({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()} for _ in range(2))
    flat = [torch.cat([weights["a"].flatten(), weights["b"]]).double() for weights in (one, two)]
    short = [sketch(weights) for weights in (one, two)]
    assert float((short[0] - short[1]).norm()) == pytest.approx(float((flat[0] - flat[1]).norm()), rel=0.02)
    mixed = {name: one[name] + 2 * two[name] for name in one}
    assert torch.allclose(sketch(mixed), short[0] + 2 * short[1], atol=1e-6)


def test_snapshots_are_told_by_name() -> None:
    given = [
        "zoo:vit",
        "zoo:vit@warmup",
        "zoo:vit@init",
        "zoo:resnet",
        "zoo:resnet@warmup",
        "zoo:vit@b.quarter.safetensors",
    ]
    assert trainings({name: name for name in given}) == {"zoo:vit": ["zoo:vit@init", "zoo:vit@warmup", "zoo:vit"]}


def test_snapshots_are_in_the_order_of_their_epochs() -> None:
    """Of 20 epochs a quarter is 5: with a warm-up of 10 the line of the figure went back in time."""
    names = {moment: f"zoo:vit@short.{moment}.safetensors" for moment in ("init", "warmup", "quarter")}
    given = [*names.values(), "zoo:vit@short.safetensors"]
    for warmup, moments in ((10, ["init", "quarter", "warmup"]), (2, ["init", "warmup", "quarter"])):
        card = {"recipe": {"epochs": 20, "warmup_epochs": warmup}}
        (path,) = trainings({name: name for name in given}, dict.fromkeys(given, card)).values()
        assert path == [*(names[moment] for moment in moments), given[-1]]
    (path,) = trainings({name: name for name in given}, {given[0]: {"recipe": "of somebody else"}}).values()
    assert path == given


def test_a_path_with_a_right_angle(tmp_path: Path) -> None:
    """From θ₀ one way, and then as far across: 45° off at the first stop, √2 away at the end."""
    torch.manual_seed(0)
    module = build("resnet")
    first = {name: value.clone() for name, value in module.state_dict().items()}
    across = {name: torch.zeros_like(value) for name, value in first.items() if value.is_floating_point()}
    moves = []
    for half in (0, 1):
        move = {name: value.clone() for name, value in across.items()}
        name = next(n for n, p in module.named_parameters() if p.ndim == 4 and p.numel() > 1000)
        flat = torch.zeros(move[name].numel())
        flat[half::2] = 1.0
        move[name] = flat.reshape(move[name].shape)
        moves.append(move)
    states = {
        "init": first,
        "warmup": {n: v + moves[0][n] if n in across else v for n, v in first.items()},
        "end": {n: v + moves[0][n] + moves[1][n] if n in across else v for n, v in first.items()},
    }
    paths = {}
    for moment, state in states.items():
        paths[moment] = tmp_path / ("net.safetensors" if moment == "end" else f"net.{moment}.safetensors")
        save_file({name: value.contiguous() for name, value in state.items()}, paths[moment])
    given = [f"zoo:resnet@{path}" for path in paths.values()]
    run = exam(given, measures=["trajectory"], limit=16, out=tmp_path / "run")
    finding = run.findings["trajectory"].set_index(subject="moment")
    assert float(finding.angle.sel(subject="warmup")) == pytest.approx(45, abs=1)
    stop, end = (float(finding.radius.sel(subject=moment)) for moment in ("warmup", "end"))
    assert end / stop == pytest.approx(math.sqrt(2), rel=0.02)
    length = math.sqrt(sum(float(p.detach().square().sum()) for p in module.parameters()))
    exact = math.sqrt(sum(float(m.square().sum()) for m in moves[0].values()))
    assert stop == pytest.approx(exact / length, rel=0.02)
    said = run.measures["trajectory"].sentence(run.findings["trajectory"])
    assert re.search(r"at most 4\d(\.\d)? \[4\d(\.\d)?, 4\d(\.\d)?\] degrees off", said)
    for name, truth in (("radius", exact / length), ("angle", 45)):
        low, high = (float(finding[f"{name}_{end}"].sel(subject="warmup")) for end in ("low", "high"))
        assert low < truth < high
        assert high - low < 0.02 * truth
    assert run.chart("trajectory").to_dict()


@pytest.mark.parametrize("degrees", [10, 63, 90])
def test_angles_and_ratios_of_lengths_are_as_sure_as_is_said(degrees: float) -> None:
    dice = np.random.default_rng(0)
    one, other = dice.standard_normal((2, 20_000))
    other -= one * (one @ other) / (one @ one)
    other *= np.linalg.norm(one) / np.linalg.norm(other)
    turned = math.cos(math.radians(degrees)) * one + math.sin(math.radians(degrees)) * other
    off, far = [], []
    for draw in range(100):  # the places of a weight hang on its name
        first, second = (sketch({f"{draw}": torch.from_numpy(each)}).numpy() for each in (one, turned))
        cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
        off.append(abs(math.degrees(math.acos(cosine)) - degrees) < angle_room(degrees))
        far.append(abs(np.linalg.norm(second) / np.linalg.norm(first) - 1) < ERROR)
    assert 0.88 <= np.mean(off) <= 1
    assert 0.93 <= np.mean(far) <= 1


def test_too_few_snapshots_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="three snapshots"):
        exam(["zoo:vit", "zoo:vit@warmup"], measures=["trajectory"], limit=16, out=tmp_path / "run")
