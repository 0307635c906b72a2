"""The benchmark of training runs on a CPU too, where its numbers mean little."""

import runpy
from pathlib import Path

import pytest


def test_the_benchmark_prints_throughput_and_the_share_outside_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "training_throughput.py"
    runpy.run_path(str(path))["main"](["resnet", "--images", "32", "--batch-size", "16", "--repeats", "1"])
    said = capsys.readouterr().out
    assert said.startswith("resnet")
    assert "images/s" in said
    assert "outside the model" in said
