"""The same command again: only where nothing that decides the numbers has changed is there nothing to do."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import eyechart
from eyechart import zoo
from eyechart.engines import plan as planning
from eyechart.engines.shard import examine_shard
from eyechart.errors import RunFolderError
from eyechart.question import what_differs
from eyechart.run import Run
from eyechart.subjects.preprocessing import Preprocessing
from eyechart.subjects.subject import Subject
from tests.cases import cnn, inside
from tests.small_exam import examined, subject
from tests.small_subjects import OWN_CARD

pytestmark = pytest.mark.usefixtures("no_charts")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return examined(tmp_path_factory.mktemp("runs") / "run")


class Gated(nn.Module):
    """Something a user edits between two exams: the weights and their names stay."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        inner = inside(cnn())
        self.stem, self.units, self.head, self.change = inner.stem, inner.units, inner.head, change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(self.change(x).mean((2, 3)))


def brighter(module: nn.Module) -> Subject:
    from torchvision.transforms.functional import pil_to_tensor

    return subject(module, transform=lambda picture: pil_to_tensor(picture.resize((32, 32))) / 200)


def darker(module: nn.Module) -> Subject:
    from torchvision.transforms.functional import pil_to_tensor

    return subject(module, transform=lambda picture: pil_to_tensor(picture.resize((32, 32))) / 255)


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (lambda: subject(), lambda: subject(transform=Preprocessing((32, 32))), "the preprocessing of mine"),
        (lambda: brighter(cnn()), lambda: darker(cnn()), "the preprocessing of mine"),
        (
            lambda: subject(Gated(torch.relu)),
            lambda: subject(Gated(torch.abs)),
            "mine answers the first images",
        ),
        (
            lambda: subject(Gated(lambda x: x)),
            lambda: subject(Gated(lambda x: x * 1.001)),
            "forward code or one of",
        ),
        (lambda: subject(cnn(6)), lambda: subject(cnn(8)), "the weights of mine"),
    ],
)
def test_a_changed_subject_is_noticed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Callable[[], Any], now: Callable[[], Any], words: str
) -> None:
    monkeypatch.setattr(importlib.import_module("eyechart.exam"), "finish", lambda run, *how, **more: None)
    examined(tmp_path / "run", before())
    examined(tmp_path / "run", before())  # the same again is the same question
    with pytest.raises(RunFolderError, match=words) as refused:
        examined(tmp_path / "run", now())
    assert "holds another exam" in str(refused.value)
    assert "--overwrite" in str(refused.value)


def test_a_card_that_was_edited_asks_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("eyechart.exam"), "finish", lambda run, *how, **more: None)
    weights, card = tmp_path / "mine.safetensors", tmp_path / "mine.json"
    save_file(zoo.build("vit", **OWN_CARD["switches"]).state_dict(), weights)
    card.write_text(json.dumps(OWN_CARD))
    spec = f"zoo:vit@{weights}"
    examined(tmp_path / "run", spec)
    card.write_text(json.dumps({**OWN_CARD, "switches": OWN_CARD["switches"] | {"heads": 2}}))
    with pytest.raises(RunFolderError, match="the switches of vit are others now"):
        examined(tmp_path / "run", spec)
    card.write_text(json.dumps({**OWN_CARD, "std": [0.3] * 3}))
    with pytest.raises(RunFolderError, match="the preprocessing of vit is another now"):
        examined(tmp_path / "run", spec)


def test_another_torch_asks_anew_but_another_build_of_it_does_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real, torch_version = planning.installed, planning.installed("torch").partition("+")[0]
    told: list[str] = []
    monkeypatch.setattr(planning, "installed", lambda name: f"{torch_version}+cu999" if name == "torch" else real(name))
    examined(run.path, told=told)
    assert told[-1].startswith("Nothing to do")
    monkeypatch.setattr(planning, "installed", lambda name: "9.9" if name == "torch" else real(name))
    with pytest.raises(RunFolderError, match=f"torch was {torch_version}.* and is 9.9; pass --overwrite"):
        examined(run.path)
    assert "timm" not in run.plan["built_with"]  # a subject without its modules does not ask anew when it changes


def test_what_an_effort_counts_on_a_gpu_follows_from_the_device_of_the_plan(run: Run) -> None:
    assert not planning.scene_of(run.plan).accelerated
    assert planning.scene_of({**run.plan, "settings": {**run.plan["settings"], "device": "cuda:1"}}).accelerated


def test_other_sizes_on_another_device_are_explained(run: Run) -> None:
    new = json.loads(json.dumps(run.plan))
    new["measures"][0]["options"]["images"] = 7
    assert what_differs(run.plan, new) == "its measures or their options differ (--measures, --set, --effort)"
    new["settings"]["device"] = "cuda:0"
    assert "--effort, and on a GPU large subjects get more images)" in what_differs(run.plan, new)


def test_a_run_goes_on_with_the_threads_it_began_with(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(run.path, tmp_path / "copy"))
    monkeypatch.setattr(importlib.import_module("eyechart.exam"), "finish", lambda run, *how, **more: None)
    threads: list[int] = []
    real = examine_shard

    def count(*args: Any, **kwargs: Any) -> Any:
        threads.append(torch.get_num_threads())
        return real(*args, **kwargs)

    monkeypatch.setattr("eyechart.engines.shard.examine_shard", count)
    Run(copy).shard_path(1).unlink()
    torch.set_num_threads(2)
    try:
        again = examined(copy)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert threads == [again.plan["settings"]["threads"]] == [1]


def test_the_dtype_of_an_exam_leaves_the_caller_s_module_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("eyechart.exam"), "finish", lambda run, *how, **more: None)
    module = cnn()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    given = subject(module)
    run = examined(tmp_path / "run", given, dtype="bfloat16")
    assert run.plan["settings"]["dtype"] == "bfloat16"
    assert given.module is module
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.float32}


def test_products_are_those_of_float32_unless_tf32_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    allowed: list[bool] = []
    monkeypatch.setattr("eyechart.device.allow_tf32", allowed.append)
    question = {"measures": "patch_filters", "limit": 16, "page": False, "progress": False}
    eyechart.exam("zoo:resnet", out=tmp_path / "one", **question)  # type: ignore[arg-type]
    monkeypatch.setattr("eyechart.device.choose_dtype", lambda name, device: torch.float32)  # as on a GPU
    run = eyechart.exam("zoo:resnet", dtype="tf32", out=tmp_path / "two", **question)  # type: ignore[arg-type]
    assert allowed == [False, True]
    assert run.plan["question"] != Run(tmp_path / "one").plan["question"]
