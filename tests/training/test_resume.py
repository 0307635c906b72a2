"""A training that was stopped ends with the weights of one that was not, and nothing that was written is ever lost."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eyechart.errors import RunFolderError
from eyechart.files import write_bytes
from eyechart.training import state
from eyechart.training.loop import train
from eyechart.training.recipes import find_recipe
from eyechart.training.records import Records
from eyechart.training.run import TrainingRun
from eyechart.training.state import read_state, write_state

from .toys import SHORT, TINY, record, toy_run, write_toys

# Stochastic depth, mixing and RandAugment draw from both generators; the average and momenta have state of their own.
RESTLESS = find_recipe("zoo").changed(epochs=5, warmup_epochs=1, batch_size=32, drop_path=0.3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_toys(tmp_path_factory.mktemp("data") / "toys.npz", train=96, test=20)


def interrupted_after(epoch: int, run: TrainingRun) -> None:
    """Train until the line of an epoch has been said and its state written, then stop in the middle of the next."""

    def stop(event: Mapping[str, Any]) -> None:
        if event.get("line", "").startswith(f"epoch {epoch + 1}/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, stop)


def same_weights(one: Path, other: Path, name: str = "vit") -> None:
    a, b = load_file(one / f"{name}.safetensors"), load_file(other / f"{name}.safetensors")
    assert a.keys() == b.keys()
    for key in a:
        torch.testing.assert_close(a[key], b[key], rtol=0, atol=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": RESTLESS},
        {"recipe": RESTLESS.changed(ema=0.9)},
        {"recipe": RESTLESS.changed(optimiser="sgd", learning_rate=0.1)},
        {"recipe": RESTLESS.changed(sam_radius=0.05)},
        {"recipe": RESTLESS, "steps": 17, "fraction": 0.7},
        {"recipe": RESTLESS, "model": "resnet", "switches": {"width": 8, "depths": (1, 1, 1, 1)}},
    ],
    ids=["adamw", "average", "sgd", "sam", "steps", "resnet"],
)
def test_interrupted_and_resumed_equals_uninterrupted(changes: dict[str, Any], data: str, tmp_path: Path) -> None:
    whole, parted = (toy_run(data, tmp_path / name, save_seconds=0.0, **changes) for name in ("whole", "parted"))
    train(whole)
    interrupted_after(2, parted)
    interrupted_after(3, parted)
    card = train(parted)
    same_weights(tmp_path / "whole", tmp_path / "parted", whole.model)
    assert card["resumed_after_epochs"] == [2, 3]
    assert not (tmp_path / "parted" / f"{whole.model}.state").exists()
    timeless = [
        [{key: line[key] for key in line if key not in ("seconds", "elapsed")} for line in lines if "epoch" in line]
        for lines in (record(tmp_path / "whole", whole.model), record(tmp_path / "parted", whole.model))
    ]
    assert timeless[0] == timeless[1]


def start_worker(run: TrainingRun, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "eyechart.training.worker", run.as_json()]
    environment = {**os.environ, "PYTHONPATH": str(Path(state.__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_killed_in_the_middle_the_same_command_ends_with_the_same_weights(data: str, tmp_path: Path) -> None:
    recipe = RESTLESS.changed(epochs=30)
    whole, parted = (toy_run(data, tmp_path / name, recipe=recipe, save_seconds=0.0) for name in ("whole", "parted"))
    worker = start_worker(parted)
    assert worker.stdout is not None
    for line in worker.stdout:
        if "epoch 4/30" in line:
            worker.send_signal(signal.SIGKILL)
            break
    worker.communicate()
    assert worker.returncode == -signal.SIGKILL
    assert not (tmp_path / "parted" / "vit.safetensors").exists()
    assert read_state(tmp_path / "parted" / "vit.state") is not None

    said: list[Mapping[str, Any]] = []
    train(parted, said.append)
    assert any("Continuing after epoch" in event.get("notice", "") for event in said)
    train(whole)
    same_weights(tmp_path / "whole", tmp_path / "parted")


def test_other_arguments_are_refused_until_overwritten(data: str, tmp_path: Path) -> None:
    run = toy_run(data, tmp_path, save_seconds=0.0)
    interrupted_after(1, run)
    other = replace(run, recipe=SHORT.changed(learning_rate=1e-3))
    with pytest.raises(RunFolderError, match=r"another training \(learning rate was 0.002 and is now 0.001\)"):
        train(other)
    assert read_state(tmp_path / "vit.state") is not None
    card = train(replace(other, overwrite=True))
    assert "resumed_after_epochs" not in card
    assert [line["epoch"] for line in record(tmp_path, "vit") if "epoch" in line] == [1, 2]


def test_what_an_overwriting_training_leaves_is_all_its_own(data: str, tmp_path: Path) -> None:
    train(toy_run(data, tmp_path))
    other = toy_run(data, tmp_path, switches={**TINY, "pool": "gap"}, snapshots=())

    def stop(event: Mapping[str, Any]) -> None:
        if "line" in event:  # an epoch is done, and no state is written yet
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(replace(other, overwrite=True), stop)
    assert {path.name for path in tmp_path.iterdir()} == {"vit.json", "vit.records.jsonl"}
    assert json.loads((tmp_path / "vit.json").read_text())["switches"]["pool"] == "gap"
    assert train(other)["switches"]["pool"] == "gap"


def test_a_card_alone_does_not_make_a_training_finished(data: str, tmp_path: Path) -> None:
    train(toy_run(data, tmp_path))
    kept = (tmp_path / "vit.safetensors").read_bytes()
    stopped = toy_run(data, tmp_path / "stopped")
    interrupted_after(0, stopped)
    (tmp_path / "stopped" / "vit.safetensors").write_bytes(kept)
    said: list[Mapping[str, Any]] = []
    assert "accuracy" not in json.loads((tmp_path / "stopped" / "vit.json").read_text())
    assert train(stopped, said.append)["epochs"] == 2
    assert not any("already trained" in event.get("notice", "") for event in said)


def test_other_data_under_the_same_arguments_are_refused(data: str, tmp_path: Path) -> None:
    train(toy_run(data, tmp_path))
    more = write_toys(tmp_path / "toys.npz", train=100)
    with pytest.raises(RunFolderError, match=r"another training \(its training images or their labels were others\)"):
        train(toy_run(more, tmp_path))
    with pytest.raises(RunFolderError, match=r"another training \(fraction was 1.0 and is now 0.5\)"):
        train(toy_run(data, tmp_path, fraction=0.5))


def test_the_same_data_elsewhere_are_the_same(data: str, tmp_path: Path) -> None:
    interrupted_after(1, toy_run(data, tmp_path / "out", save_seconds=0.0))
    moved = tmp_path / "toys.npz"
    moved.write_bytes(Path(data).read_bytes())
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    assert train(toy_run(str(moved), tmp_path / "elsewhere"))["resumed_after_epochs"] == [1]


def test_a_finished_training_is_left_alone(data: str, tmp_path: Path) -> None:
    run = toy_run(data, tmp_path)
    card = train(run)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    said: list[Mapping[str, Any]] = []
    assert train(run, said.append) == card
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert "already trained" in said[0]["notice"]


def test_after_the_time_limit_the_same_command_goes_on(data: str, tmp_path: Path) -> None:
    whole, parted = (toy_run(data, tmp_path / name, recipe=RESTLESS) for name in ("whole", "parted"))
    assert train(replace(parted, time_limit=20.01))["epochs"] == 1
    assert train(parted)["epochs"] == 5
    train(whole)
    same_weights(tmp_path / "whole", tmp_path / "parted")


def test_a_full_disk_stops_in_one_sentence_and_loses_nothing(data: str, tmp_path: Path) -> None:
    whole, parted = (toy_run(data, tmp_path / n, recipe=RESTLESS, save_seconds=0.0) for n in ("whole", "parted"))
    interrupted_after(2, parted)
    small = (50_000, 50_000)  # no file may grow beyond it: the kernel refuses as it does when a disk is full
    worker = start_worker(parted, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small))
    said, errors = worker.communicate(timeout=120)
    assert worker.returncode == 1
    assert "000003" in said
    assert "cannot be written (File too large); what was finished before is kept" in said
    assert "Traceback" not in errors
    assert sorted(path.name for path in (tmp_path / "parted" / "vit.state").iterdir()) == ["000002"]
    assert not list((tmp_path / "parted").rglob("*.partial"))
    train(parted)
    train(whole)
    same_weights(tmp_path / "whole", tmp_path / "parted")


def test_a_file_that_does_not_fit_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "card.json"
    write_bytes(path, b"before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match=r"card.json cannot be written \(No space left on device\)"):
        write_bytes(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_processes_cannot_train_into_the_same_files(data: str, tmp_path: Path) -> None:
    first = Records(tmp_path, "vit")
    first.open()
    with pytest.raises(RunFolderError, match="Another process is training vit"):
        train(toy_run(data, tmp_path))
    first.close()
    train(toy_run(data, tmp_path))


def test_a_state_comes_back_from_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PIECE_BYTES", 1000)
    torch.manual_seed(0)
    tensors = {
        "large": torch.randn(30, 40),
        "channels last": torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last),
        "count": torch.tensor(7),
        "random": torch.randint(0, 256, (1500,), dtype=torch.uint8),
        "empty": torch.zeros(0, 3),
    }
    write_state(tmp_path, 1, {"old": torch.zeros(1)}, {})
    place = write_state(tmp_path, 2, tensors, {"steps": 5})
    found = read_state(tmp_path)
    assert found is not None
    epoch, read, facts = found
    assert (epoch, facts) == (2, {"steps": 5})
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    pieces = list(place.glob("*.safetensors"))
    assert len(pieces) >= 7
    assert max(piece.stat().st_size for piece in pieces) < 2000
    assert [path.name for path in tmp_path.iterdir()] == ["000002"]


def test_no_piece_of_a_state_is_above_15_mebibytes(tmp_path: Path) -> None:
    tensors = {f"layer {i}": torch.zeros(1_100_000) for i in range(5)} | {"table": torch.zeros(5_000_000)}
    pieces = list(write_state(tmp_path, 1, tensors, {}).glob("*.safetensors"))
    assert sum(piece.stat().st_size for piece in pieces) > 42_000_000
    assert max(piece.stat().st_size for piece in pieces) <= 15 * 2**20


def test_a_half_written_state_is_overlooked_and_a_damaged_one_refused(tmp_path: Path) -> None:
    place = write_state(tmp_path, 3, {"w": torch.ones(5)}, {})
    (tmp_path / "000004.partial").mkdir()
    found = read_state(tmp_path)
    assert found is not None
    assert found[0] == 3
    piece = place / "piece-000.safetensors"
    content = bytearray(piece.read_bytes())
    content[-1] ^= 1
    piece.write_bytes(bytes(content))
    with pytest.raises(RunFolderError, match="is damaged"):
        read_state(tmp_path)
    piece.unlink()
    with pytest.raises(RunFolderError, match="is not complete"):
        read_state(tmp_path)
