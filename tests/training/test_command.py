"""The command: trainings side by side in their own processes, lists, switches, and its refusals."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eyechart.cli import main
from eyechart.training.side_by_side import run_side_by_side

from .toys import toy_run, write_toys

QUICK = ["--recipe", "none", "--epochs", "1", "--warmup-epochs", "0", "--batch-size", "20", "--snapshots", "init"]


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_toys(tmp_path / "toys.npz", train=40, test=10)


def test_two_models_side_by_side_with_a_switch(data: str, tmp_path: Path) -> None:
    arguments = ["vit-gap", "vit", "--data", data, *QUICK, "--parallel", "2", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["train", *arguments, "--switch", "depth=1", "--switch", "heads=10"])
    assert result.exit_code == 0, result.output
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    endings = ("init.safetensors", "json", "records.jsonl", "safetensors")
    assert written == sorted(f"{name}.{ending}" for name in ("vit-gap", "vit") for ending in endings)
    made = [str(tmp_path / "out" / f"{name}.safetensors") for name in ("vit-gap", "vit")]
    assert result.stdout.splitlines()[-2:] == made
    assert f"next: eyechart exam zoo:vit-gap@{made[0]} zoo:vit@{made[1]}" in result.stderr
    assert "vit: epoch 1/1 loss" in result.output
    card = json.loads((tmp_path / "out" / "vit.json").read_text())
    assert (card["switches"]["depth"], card["switches"]["heads"], card["switches"]["width"]) == (1, 10, 160)


def test_a_reader_that_went_away_stops_nothing(data: str, tmp_path: Path) -> None:
    def gone(event: Mapping[str, Any]) -> None:
        raise BrokenPipeError

    codes: dict[str, int] = {}
    command = threading.Thread(
        target=lambda: codes.update(run_side_by_side([toy_run(data, tmp_path / "out")], 1, gone)), daemon=True
    )
    command.start()
    command.join(timeout=300)  # seconds on an idle machine; a crowded one took more than 60
    assert codes == {"vit": 0}
    assert (tmp_path / "out" / "vit.safetensors").is_file()


@pytest.mark.usefixtures("workers_here")
def test_a_batch_norm_over_one_value_is_told_what_it_needs(data: str, tmp_path: Path) -> None:
    arguments = ["resnet", "--data", data, *QUICK, "--batch-size", "1", "--image-size", "8", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, ["train", *arguments, "--switch", "width=8", "--device", "cpu"])
    assert result.exit_code == 1, result.output
    assert (
        "Batch normalisation needs more than one value per channel; raise --batch-size (1) or --image-size"
        in result.output
    )
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("workers_here")
def test_scores_of_a_single_draw_are_called_so(data: str, tmp_path: Path) -> None:
    arguments = ["resnet-mcdropout", "--data", data, *QUICK, "--switch", "width=8", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, ["train", *arguments])
    assert result.exit_code == 0, result.output
    assert "Scores are of one draw of its test-time dropout" in result.output


def test_a_list_in_which_one_training_fails(data: str, tmp_path: Path) -> None:
    small = "switches = { depth = 1 }"
    (tmp_path / "runs.toml").write_text(
        f"[common]\nrecipe = 'none'\nepochs = 1\nwarmup_epochs = 0\nsnapshots = []\n{small}\n"
        f"[[run]]\nmodel = 'vit'\n[[run]]\nmodel = 'vit'\nname = 'none-left'\nfraction = 0.01\n"
    )
    arguments = ["--list", str(tmp_path / "runs.toml"), "--data", data, "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["train", *arguments])
    assert result.exit_code == 3, result.output
    assert "eyechart: none-left: A fraction of 0.01 leaves the class '0' (4 images) empty" in result.output
    assert "1 of 2 trainings failed: none-left" in result.output
    assert "Traceback" not in result.output
    assert (tmp_path / "out" / "vit.safetensors").is_file()
    assert not (tmp_path / "out" / "none-left.records.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["vitt"], "did you mean vit"),
        (["vit", "--recipe", "storng"], "did you mean strong"),
        (["vit", "--snapshots", "middle"], "got 'middle'"),
        (["vit", "--epochs", "2", "--warmup-epochs", "5"], "got 5 of 2 epochs: shorten it with --warmup-epochs"),
        (["vit", "--switch", "pach=2"], "no switch called 'pach'; did you mean patch"),
        (["vit", "--set", "sam_radios=2"], "did you mean sam_radius"),
        (["vit", "--set", "clip"], "takes NAME=VALUE; got 'clip'"),
        (["vit", "vit"], "Two trainings are called vit"),
        (["vit", "resnet", "--from", "zoo:vit"], "takes one NAME; got 2"),
        (["--list", "nowhere.toml"], "cannot be read"),
        ([], "There is nothing to train"),
    ],
)
def test_refusals_are_one_sentence(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(main, ["train", *arguments])
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("workers_here")
def test_a_failing_training_fails_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["train", "vit", "--data", str(tmp_path / "none.npz"), "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "eyechart: vit: " in result.output
    assert "was expected" in result.output
    assert "Traceback" not in result.output
