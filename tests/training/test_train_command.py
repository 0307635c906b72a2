"""The command: two trainings side by side in their own processes, and its refusals."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from eyechart.training.command import train


@pytest.fixture
def data(tmp_path: Path) -> str:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8), (np.arange(40) % 4).astype(np.uint8)
    np.savez(tmp_path / "toys.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    return str(tmp_path / "toys.npz")


def test_two_models_side_by_side(data: str, tmp_path: Path) -> None:
    arguments = ["vit-gap", "resnet", "--data", data, "--recipe", "none", "--epochs", "1", "--warmup-epochs", "0"]
    arguments += ["--batch-size", "20", "--parallel", "2", "--snapshots", "init", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(train, arguments)
    assert result.exit_code == 0, result.output
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    endings = ("init.safetensors", "json", "records.jsonl", "safetensors")
    assert written == sorted(f"{name}.{ending}" for name in ("vit-gap", "resnet") for ending in endings)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["vitt"], "did you mean vit"),
        (["vit", "--recipe", "storng"], "did you mean strong"),
        (["vit", "--snapshots", "middle"], "'middle' came"),
        (["vit", "--epochs", "2"], "shorter than the training"),
    ],
)
def test_refusals_are_one_sentence(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(train, arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_a_failing_training_fails_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(train, ["vit", "--data", str(tmp_path / "none.npz"), "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "1 of 1 trainings failed: vit" in result.output
